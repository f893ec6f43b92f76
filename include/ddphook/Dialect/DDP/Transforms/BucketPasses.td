// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Passes on buckets, where members and shapes are visible: they turn hooks into
// operations, which they fuse, pack, group and reorder.

#ifndef DDPHOOK_DIALECT_DDP_TRANSFORMS_BUCKETPASSES_TD
#define DDPHOOK_DIALECT_DDP_TRANSFORMS_BUCKETPASSES_TD

include "ddphook/PassBase.td"

def DDPExpandHooksPass : DDP_ModulePass<"ddp-expand-hooks"> {
  let summary = "expand hooks to sequences of operations";
  let text = [{
    Replaces every reduction of a bucket by the expansion of its hook. The hook is
    the innermost `ddp.hook` of the operation, its function and the module, or else
    the hook that the options give: as an attribute of any dialect, or by its name,
    with its parameters as options. The pass records each bucket in a
    `ddp.bucket_info`, and completes the roles and gradients of the states that
    hooks declare.

    A reduction of memory with a hook other than `#ddp.allreduce` becomes a separate
    bucket at the same position: `to_tensor`, pack, reduce, unpack, and
    `materialize_in_destination`.

    PowerSGD splits a bucket into groups of adjacent members, of at most `group-mb`
    MiB or of one matrix, and takes each through all its stages before the next one:
    project, all-reduce P, Q = Mᵀ·P, all-reduce Q, reconstruct. The second and third
    stage then read from the cache what the first one read from memory, at the price
    of two collectives per group. With three or more ranks, sums may be associated
    in another order. With `skip_nonfinite` there are no groups: only after the last
    group is it known whether all reduced values are finite, and by then the error
    of the first one would be overwritten.

    Pre-condition: `ddp-bucketize`. Post-condition: every reduction of a bucket
    carries `ddp.hook = #ddp.allreduce`.
  }];
  let beforeWith = ", with `hook=fp16`";
  let before = [{
    %r = ddp.all_reduce mean %b on @dp as "b0" : !ddp.bucket<f32, [4x8]>
        of ["w"]
  }];
  let after = [{
    %h = ddp.cast %b : !ddp.bucket<f32, [4x8]> -> !ddp.bucket<f16, [4x8]>
    %s = ddp.all_reduce mean %h on @dp as "b0"
        {ddp.hook = #ddp.allreduce} : !ddp.bucket<f16, [4x8]>
    %r = ddp.cast %s : !ddp.bucket<f16, [4x8]> -> !ddp.bucket<f32, [4x8]>
    ddp.bucket_info "b0" mean on @dp hook #ddp.fp16 wire f16 bytes 64
        state_bytes 0 : !ddp.bucket<f32, [4x8]> of ["w"]
  }];
  let options = [
    Option<"hook", "hook", "std::string", /*default=*/"kDefaultHook.str()",
           "Hook of the buckets that have no ddp.hook attribute: the text of "
           "an attribute, or a name with options (docs/passes.md)">,
    Option<"wrapper", "wrapper", "std::string", /*default=*/"\"\"",
           "Run that hook in a 16-bit type: fp16 or bf16; or send PowerSGD's "
           "factors as int8, int4 or fp8">,
    Option<"groupMb", "group-mb", "double",
           /*default=*/"::mlir::ddp::kDefaultGroupMb",
           "MiB that hooks take through all their stages together (default 4); "
           "0: the whole bucket">
  ];
  let dialects = ["arith::Arith", "ddp::DDP", "scf::SCF"];
}

def DDPPackCollectivesPass : DDP_Pass<"ddp-pack-collectives"> {
  let summary = "merge independent collectives of one bucket";
  let text = [{
    All-reduces of one bucket that do not depend on each other become one all-reduce
    of their concatenated operands. PowerSGD then needs two collectives per bucket
    instead of three: the uncompressed tensors share a message with P. With three or
    more ranks the sums of these tensors may be associated in another order, since
    the order depends on an element's offset in the message (docs/parity.md).
  }];
  let before = [{
    %ps = ddp.all_reduce sum %p on @dp as "b0" : !ddp.bucket<f32, [64x2]>
    %vs = ddp.all_reduce sum %v on @dp as "b0" : !ddp.bucket<f32, [64]>
  }];
  let after = [{
    %c = ddp.concat %p, %v : !ddp.bucket<f32, [64x2]>, !ddp.bucket<f32, [64]>
        -> !ddp.bucket<f32, [64x2, 64]>
    %s = ddp.all_reduce sum %c on @dp as "b0" : !ddp.bucket<f32, [64x2, 64]>
    %ps = ddp.extract %s [0] : !ddp.bucket<f32, [64x2, 64]>
    %vs = ddp.extract %s [1] : !ddp.bucket<f32, [64x2, 64]>
  }];
  let dialects = ["ddp::DDP"];
}

def DDPFusePass : DDP_Pass<"ddp-fuse"> {
  let summary = "fuse several operations into one pass over memory";
  let text = [{
    After this pass a low-rank step reads the gradient three times: `ddp.project`
    adds the error and computes P = M·Q, a `ddp.matmul` reads M in place and computes
    Q = Mᵀ·P, and `ddp.reconstruct` computes P·Qᵀ and the new error.

    The sequence cast → all-reduce → cast back becomes one reduction with a wire
    type: the runtime casts, reduces and casts back chunk by chunk, in cache, and no
    bucket-sized array of the wire type exists.
  }];
  let before = [{
    %h = ddp.cast %b : !ddp.bucket<f32, [4x8]> -> !ddp.bucket<f16, [4x8]>
    %s = ddp.all_reduce mean %h on @dp : !ddp.bucket<f16, [4x8]>
    %r = ddp.cast %s : !ddp.bucket<f16, [4x8]> -> !ddp.bucket<f32, [4x8]>
  }];
  let after = [{
    %r = ddp.all_reduce mean %b on @dp wire f16 : !ddp.bucket<f32, [4x8]>
  }];
  let dialects = ["ddp::DDP"];
}

def DDPMergeBranchesPass : DDP_Pass<"ddp-merge-branches"> {
  let summary = "merge branches that have the same condition";
  let text = [{
    Every bucket of PowerSGD has a separate `scf.if` for the vanilla phase. The
    `scf.if`s of one block that contain collectives and have the same condition are
    merged into one at the position of the last. `ddp-overlap` can then run the
    local work of one bucket while the collectives of its neighbours are in flight.
    Users of the result of an earlier `scf.if` move after the merged one. Conditions
    are the same if they are one value, or computed from the same values by the same
    operations without side effects.

    An `scf.if` that depends on the result of an earlier one, or on a state that is
    written in between, is not merged with it, and at most `limit` are merged into
    one. The limit exists because their buckets are all needed at the same time, and
    because One-Shot Bufferize takes time that grows with the cube of the number of
    an `scf.if`'s results.
  }];
  let before = [{
    %r0 = scf.if %c -> (!ddp.bucket<f32, [4x8]>) {
      %s0 = ddp.all_reduce mean %b0 on @dp as "b0" : !ddp.bucket<f32, [4x8]>
      scf.yield %s0 : !ddp.bucket<f32, [4x8]>
    } else {
      scf.yield %b0 : !ddp.bucket<f32, [4x8]>
    }
    %u0 = ddp.unpack %r0 : !ddp.bucket<f32, [4x8]> -> tensor<4x8xf32>
    %r1 = scf.if %c -> (!ddp.bucket<f32, [8]>) {
      %s1 = ddp.all_reduce mean %b1 on @dp as "b1" : !ddp.bucket<f32, [8]>
      scf.yield %s1 : !ddp.bucket<f32, [8]>
    } else {
      scf.yield %b1 : !ddp.bucket<f32, [8]>
    }
    %u1 = ddp.unpack %r1 : !ddp.bucket<f32, [8]> -> tensor<8xf32>
  }];
  let after = [{
    %r:2 = scf.if %c -> (!ddp.bucket<f32, [4x8]>, !ddp.bucket<f32, [8]>) {
      %s0 = ddp.all_reduce mean %b0 on @dp as "b0" : !ddp.bucket<f32, [4x8]>
      %s1 = ddp.all_reduce mean %b1 on @dp as "b1" : !ddp.bucket<f32, [8]>
      scf.yield %s0, %s1 : !ddp.bucket<f32, [4x8]>, !ddp.bucket<f32, [8]>
    } else {
      scf.yield %b0, %b1 : !ddp.bucket<f32, [4x8]>, !ddp.bucket<f32, [8]>
    }
    %u0 = ddp.unpack %r#0 : !ddp.bucket<f32, [4x8]> -> tensor<4x8xf32>
    %u1 = ddp.unpack %r#1 : !ddp.bucket<f32, [8]> -> tensor<8xf32>
  }];
  let options = [
    Option<"limit", "limit", "unsigned", /*default=*/"16",
           "Largest number of branches that are merged into one">
  ];
  let dialects = ["ddp::DDP", "scf::SCF"];
}

def DDPOverlapPass : DDP_Pass<"ddp-overlap"> {
  let summary = "compute while collectives are in flight";
  let text = [{
    Splits all-reduces into `ddp.all_reduce_start` and `ddp.wait`, other collectives
    into `ddp.exchange_start` and `ddp.wait`, and orders the operations of each
    block so that at most `depth` collectives are in flight. Operations are
    processed in program order. An operation that needs the result of a collective
    in flight is delayed until that collective was awaited. Before a collective
    would exceed `depth`, the oldest one is awaited, and the operations that waited
    for it follow. At the end of the block all are awaited, the oldest first.

    A reduce-scatter, all-gather, all-to-all or broadcast that replaces the oldest
    collective is started before those operations, which then overlap with it;
    several that are ready start in the order in which they became ready. A layer
    can thus compute while the next layer's parameters are gathered.

    So a bucket is in flight while the backward pass computes the next gradients.
    With `interleave`, PowerSGD's projection of one bucket or group runs while the
    factors of another one are in flight; by then the first one may have left the
    caches. All ranks start their collectives in the same order.

    If the first branch of an `scf.if` reduces a value that is complete before it,
    as in PowerSGD's vanilla phase, the reduction is started on the condition of the
    `scf.if`, and awaited in the branches of one on the same condition. The start
    precedes the `scf.if`, unless the bucket has just been computed: then it
    follows, so that the other branch is not delayed. `depth` does not limit these
    collectives, which take no memory but their buckets'.

    At this level everything is a value, so the new order cannot change the results.
    States, draws of random numbers, memory and calls keep their order. An operation
    that may overwrite a value stays after the readers that preceded it, so that no
    copy becomes necessary.

    A collective is not split if no operation can overlap with it.

    Pre-condition: before `ddp-flatten`.
  }];
  let before = [{
    %r0 = ddp.all_reduce mean %b0 on @dp : !ddp.bucket<f32, [4x8]>
    %u0 = ddp.unpack %r0 : !ddp.bucket<f32, [4x8]> -> tensor<4x8xf32>
    %g1 = linalg.matmul
        ins(%x, %dy : tensor<8x16xf32>, tensor<16x8xf32>)
        outs(%z : tensor<8x8xf32>) -> tensor<8x8xf32>
  }];
  let after = [{
    %f0 = ddp.all_reduce_start mean %b0 on @dp
        : !ddp.bucket<f32, [4x8]> -> !ddp.future<!ddp.bucket<f32, [4x8]>>
    %g1 = linalg.matmul
        ins(%x, %dy : tensor<8x16xf32>, tensor<16x8xf32>)
        outs(%z : tensor<8x8xf32>) -> tensor<8x8xf32>
    %r0 = ddp.wait %f0 : !ddp.future<!ddp.bucket<f32, [4x8]>>
    %u0 = ddp.unpack %r0 : !ddp.bucket<f32, [4x8]> -> tensor<4x8xf32>
  }];
  let options = [
    Option<"depth", "depth", "unsigned", /*default=*/"2",
           "Largest number of collectives in flight">,
    Option<"interleave", "interleave", "bool", /*default=*/"false",
           "Also keep the collectives of a hook's stages in flight while hooks "
           "work on other buckets or groups">
  ];
  let dialects = ["ddp::DDP"];
}

#endif // DDPHOOK_DIALECT_DDP_TRANSFORMS_BUCKETPASSES_TD
