// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Passes on flat tensors, before One-Shot Bufferize: they choose the memory of each
// value, so that no copies are needed.

#ifndef DDPHOOK_DIALECT_DDP_TRANSFORMS_TENSORPASSES_TD
#define DDPHOOK_DIALECT_DDP_TRANSFORMS_TENSORPASSES_TD

include "ddphook/PassBase.td"

def DDPFlattenPass : DDP_ModulePass<"ddp-flatten"> {
  let summary = "turn buckets into 1-D tensors";
  let text = [{
    `!ddp.bucket<f32, [4x8, 8]>` becomes `tensor<40xf32>` everywhere, and
    `ddp.extract` becomes `tensor.extract_slice`. One-Shot Bufferize analyses only
    tensors; it would copy a bucket at every use.

    Collectives and arithmetic become their counterparts on flat arrays,
    `ddp.flat.*`, in destination-passing style. Each writes to a separate
    `tensor.empty`, which `ddp-assign-destinations` replaces by existing memory. The
    matrix shapes in a bucket's type go into the attribute `layout`.

    Post-condition: no value has a bucket type, and the only collectives and
    arithmetic are `ddp.flat.*` and `ddp.is_finite`.
  }];
  let before = [{
    %b = ddp.pack %w, %v : tensor<4x8xf32>, tensor<8xf32>
        -> !ddp.bucket<f32, [4x8, 8]>
    %r = ddp.all_reduce mean %b on @dp : !ddp.bucket<f32, [4x8, 8]>
    %m = ddp.extract %r [1] : !ddp.bucket<f32, [4x8, 8]>
    %u = ddp.unpack %m : !ddp.bucket<f32, [8]> -> tensor<8xf32>
  }];
  let after = [{
    %b = ddp.pack %w, %v : tensor<4x8xf32>, tensor<8xf32> -> tensor<40xf32>
    %e = tensor.empty() : tensor<40xf32>
    %r = ddp.flat.all_reduce mean %b on @dp into %e : tensor<40xf32>, tensor<40xf32>
    %m = tensor.extract_slice %r[32] [8] [1] : tensor<40xf32> to tensor<8xf32>
    %u = ddp.unpack %m : tensor<8xf32> -> tensor<8xf32>
  }];
  let dialects = ["arith::Arith", "ddp::DDP", "linalg::Linalg"];
}

def DDPThreadStatesPass : DDP_ModulePass<"ddp-thread-states"> {
  let summary = "load and store every state once";
  let text = [{
    Within a block, a load of a state that was loaded or stored before is replaced
    by that value, and a store that another store follows is dropped. If the old
    value is needed after the new one was stored, it is copied first, because load
    and store will access the same memory.

    Pre-condition: `ddp-flatten`. It is an error to use one state in several blocks
    of which more than one may run, or in a function and a function that it calls.
  }];
  let before = [{
    ddp.state @s : !ddp.bucket<f32, [4]> per_rank zero
    %a = ddp.load @s : tensor<4xf32>
    %e = tensor.empty() : tensor<4xf32>
    %b = ddp.flat.add %a, %g into %e : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
    ddp.store %b, @s : tensor<4xf32>
    %c = ddp.load @s : tensor<4xf32>
    %e1 = tensor.empty() : tensor<4xf32>
    %d = ddp.flat.add %c, %g into %e1 : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
  }];
  let after = [{
    ddp.state @s : !ddp.bucket<f32, [4]> per_rank zero
    %a = ddp.load @s : tensor<4xf32>
    %e = tensor.empty() : tensor<4xf32>
    %b = ddp.flat.add %a, %g into %e : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
    ddp.store %b, @s : tensor<4xf32>
    %e1 = tensor.empty() : tensor<4xf32>
    %d = ddp.flat.add %b, %g into %e1 : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
  }];
  let dialects = ["bufferization::Bufferization"];
}

def DDPPrepareEntriesPass : DDP_ModulePass<"ddp-prepare-entries"> {
  let summary = "give public functions an interface of plain memory";
  let text = [{
    Tensor arguments of a public function become memrefs with identity layout. They
    are only read, unless marked `bufferization.writable = true`: a caller's array
    is updated in place only if the program allows it. A result that is an update of
    such an argument *is* that argument's memory from now on. Every other result
    becomes an out-parameter, which is appended to the arguments, and is computed
    directly into it if its producer allows that. A scalar result becomes a 0-D
    out-parameter.

    `ddp.result_arguments` records, for each result of the original function, the
    argument that holds it, or -1 for an out-parameter. If the module itself calls a
    public function, a private copy with the old interface is kept for those calls.

    One-Shot Bufferize could bufferize these boundaries too, but in time quadratic
    in the number of arguments and in the number of reads of one argument. With this
    pass every read of a read-only argument is a separate alias set.

    Pre-condition: `ddp-flatten`. Functions with dynamic shapes are left alone.
  }];
  let before = [{
    func.func @step(%w: tensor<4xf32> {bufferization.writable = true},
                    %g: tensor<4xf32>, %loss: f32) -> (tensor<4xf32>, f32) {
      %u = linalg.sub ins(%w, %g : tensor<4xf32>, tensor<4xf32>)
          outs(%w : tensor<4xf32>) -> tensor<4xf32>
      return %u, %loss : tensor<4xf32>, f32
    }
  }];
  let after = [{
    func.func @step(%w_in: memref<4xf32> {ddp.inout}, %g_in: memref<4xf32>,
                    %loss: f32, %loss_out: memref<f32>)
        attributes {ddp.result_arguments = array<i64: 0, -1>} {
      %w = bufferization.to_tensor %w_in restrict writable
          : memref<4xf32> to tensor<4xf32>
      %g = bufferization.to_tensor %g_in restrict
          : memref<4xf32> to tensor<4xf32>
      %u = linalg.sub ins(%w, %g : tensor<4xf32>, tensor<4xf32>)
          outs(%w : tensor<4xf32>) -> tensor<4xf32>
      memref.store %loss, %loss_out[] : memref<f32>
      bufferization.materialize_in_destination %u in writable %w_in
          : (tensor<4xf32>, memref<4xf32>) -> ()
      return
    }
  }];
  let dialects = ["bufferization::Bufferization", "memref::MemRef"];
}

def DDPFoldResultsPass : DDP_ModulePass<"ddp-fold-results"> {
  let summary = "remove results that are arguments or other results";
  let text = [{
    If a result of a private function is one of its arguments in every return, or
    the same value as another result, it is dropped, and callers use that other
    value. After bufferization the result would be a separate buffer, and a copy.

    If a function has references other than calls, its results stay, and those that
    are equal to an earlier one become copies of it.
  }];
  let before = [{
    func.func private @f(%a: tensor<4xf32>)
        -> (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) {
      %r = linalg.exp ins(%a : tensor<4xf32>) outs(%a : tensor<4xf32>)
          -> tensor<4xf32>
      return %r, %r, %a : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
    }
    func.func @step(%x: tensor<4xf32>)
        -> (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) {
      %0:3 = call @f(%x)
          : (tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>)
      return %0#0, %0#1, %0#2 : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
    }
  }];
  let after = [{
    func.func private @f(%a: tensor<4xf32>) -> tensor<4xf32> {
      %r = linalg.exp ins(%a : tensor<4xf32>) outs(%a : tensor<4xf32>)
          -> tensor<4xf32>
      return %r : tensor<4xf32>
    }
    func.func @step(%x: tensor<4xf32>)
        -> (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) {
      %0 = call @f(%x) : (tensor<4xf32>) -> tensor<4xf32>
      return %0, %0, %x : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
    }
  }];
  let dialects = ["bufferization::Bufferization"];
}

def DDPFoldPacksPass : DDP_FunctionPass<"ddp-fold-packs"> {
  let summary = "use an argument that holds adjacent gradients as their bucket";
  let text = [{
    If the tensors of a `ddp.pack` are adjacent slices of an argument that a result
    replaces, in the order of the pack, then the packed bucket *is* that part of the
    argument. If the parts of a reduced bucket are inserted back to back, then the
    inserted value *is* the bucket. Reshapes in between do not matter. Several
    buckets may each be a part of one argument: a `ddp.split` splits it, and a
    `ddp.concat` joins it again. Values are only replaced by equal ones. The pass
    runs after `ddp-prepare-entries`, which determines the argument that a result
    replaces.

    Slices in another order, with gaps, of several arguments, or of one that another
    bucket uses are packed normally. A remark lists the buckets that are a part of
    an argument.
  }];
  let before = [{
    %flat = bufferization.to_tensor %arg0 restrict writable
        : memref<6xf32> to tensor<6xf32>
    %s = tensor.extract_slice %flat[0] [4] [1] : tensor<6xf32> to tensor<4xf32>
    %w = tensor.expand_shape %s [[0, 1]] output_shape [2, 2]
        : tensor<4xf32> into tensor<2x2xf32>
    %b = tensor.extract_slice %flat[4] [2] [1] : tensor<6xf32> to tensor<2xf32>
    %p = ddp.pack %w, %b : tensor<2x2xf32>, tensor<2xf32> -> tensor<6xf32>
    %d = tensor.empty() : tensor<6xf32>
    %r = ddp.flat.all_reduce mean %p on @dp into %d : tensor<6xf32>, tensor<6xf32>
    %u:2 = ddp.unpack %r : tensor<6xf32> -> tensor<2x2xf32>, tensor<2xf32>
    %t = tensor.collapse_shape %u#0 [[0, 1]]
        : tensor<2x2xf32> into tensor<4xf32>
    %0 = tensor.insert_slice %t into %flat[0] [4] [1]
        : tensor<4xf32> into tensor<6xf32>
    %1 = tensor.insert_slice %u#1 into %0[4] [2] [1]
        : tensor<2xf32> into tensor<6xf32>
    bufferization.materialize_in_destination %1 in writable %arg0
        : (tensor<6xf32>, memref<6xf32>) -> ()
  }];
  let after = [{
    %flat = bufferization.to_tensor %arg0 restrict writable
        : memref<6xf32> to tensor<6xf32>
    %d = tensor.empty() : tensor<6xf32>
    %r = ddp.flat.all_reduce mean %flat on @dp into %d
        : tensor<6xf32>, tensor<6xf32>
    bufferization.materialize_in_destination %r in writable %arg0
        : (tensor<6xf32>, memref<6xf32>) -> ()
  }];
  let dialects = ["tensor::Tensor"];
}

def DDPSplitEmptyTensorsPass : DDP_FunctionPass<"ddp-split-empty-tensors"> {
  let summary = "give every operation a separate destination";
  let text = [{
    Operations that have the same `tensor.empty` as destination, which CSE merges
    from many, get one each. So do operations that start from the same filled
    tensor. One-Shot Bufferize takes time that grows with the cube of the number of
    operations that write to one alias set. An empty tensor is not split if slices
    of it are used.
  }];
  let before = [{
    %e = tensor.empty() : tensor<4xf32>
    %0 = linalg.exp ins(%x : tensor<4xf32>) outs(%e : tensor<4xf32>)
        -> tensor<4xf32>
    %1 = linalg.abs ins(%0 : tensor<4xf32>) outs(%e : tensor<4xf32>)
        -> tensor<4xf32>
  }];
  let after = [{
    %e1 = tensor.empty() : tensor<4xf32>
    %e0 = tensor.empty() : tensor<4xf32>
    %0 = linalg.exp ins(%x : tensor<4xf32>) outs(%e0 : tensor<4xf32>)
        -> tensor<4xf32>
    %1 = linalg.abs ins(%0 : tensor<4xf32>) outs(%e1 : tensor<4xf32>)
        -> tensor<4xf32>
  }];
  let dialects = ["linalg::Linalg", "tensor::Tensor"];
}

def DDPLegalizeForBufferizationPass
    : DDP_FunctionPass<"ddp-legalize-for-bufferization"> {
  let summary = "rewrite operations that One-Shot Bufferize gets wrong";
  let text = [{
    MLIR 22 silently miscompiles some programs, or refuses them unnecessarily. In
    most cases the cause is the model of an operation in One-Shot Bufferize. This
    pass rewrites these operations:

    - a `linalg.map` whose body reads its destination becomes a
      `linalg.generic`: the model assumes that the destination is only written, and
      gives it a new buffer without the old values if it cannot be overwritten;
    - an `scf.index_switch` with tensors as results becomes a chain of `scf.if`:
      the model assumes that its results are new memory, and allows overwriting
      them while the tensors that the cases yield are still needed;
    - iterations of an `scf.forall` that read an output read its value from before
      the loop, unless they read the slice that they insert: the analysis lets them
      see the writes of other iterations and other insertions;
    - an iteration of a loop that is not known to the analysis, such as
      `scf.parallel` on memory, writes to a copy of a tensor from outside the loop:
      otherwise the next iteration would see its writes;
    - a linalg operation without iterations is replaced by its destinations, and one
      that writes only a part of them gets copies to write to: the model assumes
      that a destination which the body does not read is written completely;
    - a copy of a tensor onto itself is that tensor: the analysis does not count it
      as a write, and lets it write to memory that a collective in flight uses;
    - an `arith.select` of tensors becomes an `scf.if`: the model requires both
      operands and the result to be in one buffer;
    - if several blocks of an `scf.execute_region` yield, they branch to one block
      that yields: the model handles only one;
    - if two results of a function may be the same memory, one becomes a copy: the
      analysis does not know this about a call's results, and would let the caller
      overwrite one of them;
    - a slice gets stride 1 in dimensions of size 1: with another stride it is
      ambiguous which of them a slice of lower rank drops, and lowering it fails.
  }];
  let before = [{
    %r = linalg.map ins(%a : tensor<4xf32>) outs(%b : tensor<4xf32>)
      (%x: f32, %y: f32) {
        %s = arith.addf %x, %y : f32
        linalg.yield %s : f32
      }
  }];
  let after = [{
    #id = affine_map<(d0) -> (d0)>
    %r = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]}
        ins(%a : tensor<4xf32>) outs(%b : tensor<4xf32>) {
      ^bb0(%x: f32, %y: f32):
        %s = arith.addf %x, %y : f32
        linalg.yield %s : f32
      } -> tensor<4xf32>
  }];
  let dialects = ["arith::Arith", "bufferization::Bufferization", "linalg::Linalg",
                  "scf::SCF"];
}

def DDPAssignDestinationsPass : DDP_FunctionPass<"ddp-assign-destinations"> {
  let summary = "choose the destination of every operation";
  let text = [{
    If an operation on flat tensors writes `into` a `tensor.empty` that nothing else
    uses, the pass looks for existing memory: its slice, if it computes a part of a
    `ddp.concat`; a dying operand of its type, if the operation is elementwise; or
    any dead memory. If there is none, the `tensor.empty` stays. Memory is dead when
    no later operation can reach it, according to the operations' interfaces; an
    operation without them counts as a use.

    Pre-condition: `ddp-flatten`. Post-condition: no `ddp.concat`.
  }];
  let before = [{
    %e = tensor.empty() : tensor<40xf32>
    %b = linalg.exp ins(%x : tensor<40xf32>) outs(%e : tensor<40xf32>)
        -> tensor<40xf32>
    %e1 = tensor.empty() : tensor<40xf32>
    %r = ddp.flat.all_reduce mean %b on @dp into %e1 : tensor<40xf32>, tensor<40xf32>
    %e2 = tensor.empty() : tensor<40xf32>
    %s = ddp.flat.add %r, %x into %e2
        : tensor<40xf32>, tensor<40xf32>, tensor<40xf32>
  }];
  let after = [{
    %e = tensor.empty() : tensor<40xf32>
    %b = linalg.exp ins(%x : tensor<40xf32>) outs(%e : tensor<40xf32>)
        -> tensor<40xf32>
    %e1 = tensor.empty() : tensor<40xf32>
    %r = ddp.flat.all_reduce mean %b on @dp into %e1 : tensor<40xf32>, tensor<40xf32>
    %s = ddp.flat.add %r, %x into %r
        : tensor<40xf32>, tensor<40xf32>, tensor<40xf32>
  }];
  let dialects = ["ddp::DDP"];
}

def DDPYieldInPlacePass : DDP_FunctionPass<"ddp-yield-in-place"> {
  let summary = "give each tensor that a loop carries one buffer";
  let text = [{
    One-Shot Bufferize requires that every tensor that an `scf.for` or an
    `scf.while` carries from one iteration to the next is in one buffer. So the
    values that an iteration yields are copied to the buffers in which the iteration
    found the previous values, unless they are there already. A value that moves
    from one buffer to another, as in a loop that swaps two tensors, is first copied
    to separate memory, before any of them is overwritten.

    If the two regions of an `scf.while` do not have the same tensors in the same
    positions, each tensor that the first region passes to the second gets a
    position in both.

    Pre-condition: `ddp-assign-destinations`.
  }];
  let before = [{
    %r:2 = scf.for %i = %a to %b step %c iter_args(%x = %p, %y = %q)
        -> (tensor<8xf32>, tensor<8xf32>) {
      scf.yield %y, %x : tensor<8xf32>, tensor<8xf32>
    }
  }];
  let after = [{
    %r:2 = scf.for %i = %a to %b step %c iter_args(%x = %p, %y = %q)
        -> (tensor<8xf32>, tensor<8xf32>) {
      %0 = bufferization.alloc_tensor() copy(%x) : tensor<8xf32>
      %1 = bufferization.alloc_tensor() copy(%y) : tensor<8xf32>
      %2 = bufferization.materialize_in_destination %1 in %x
          : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
      %3 = bufferization.materialize_in_destination %0 in %y
          : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
      scf.yield %2, %3 : tensor<8xf32>, tensor<8xf32>
    }
  }];
  let dialects = ["bufferization::Bufferization", "tensor::Tensor"];
}

def DDPPinBlockArgumentsPass : DDP_FunctionPass<"ddp-pin-block-arguments"> {
  let summary = "give each block argument that is a tensor a buffer";
  let text = [{
    If blocks branch to each other, every tensor that one block passes to another
    gets a buffer, and each branch copies it there. This is necessary because all
    buffers of a step have fixed addresses: when a block runs again, it overwrites
    the tensors that it computed before, so a tensor that it passed on must have been
    copied by then.

    In a cycle of blocks, an operation that may write to a tensor from another
    block gets a copy of the tensor, because the next iteration needs the original.
    So does an operation after the first block that may write to an argument of the
    function.

    Pre-condition: `ddp-assign-destinations`. Post-condition: no block except the
    first of a region has arguments that are tensors.
  }];
  let before = [{
    func.func @step(%x0: tensor<8xf32>, %again: i1) -> tensor<8xf32> {
      cf.br ^head(%x0 : tensor<8xf32>)
    ^head(%x: tensor<8xf32>):
      %e = tensor.empty() : tensor<8xf32>
      %y = linalg.exp ins(%x : tensor<8xf32>) outs(%e : tensor<8xf32>)
          -> tensor<8xf32>
      cf.cond_br %again, ^head(%y : tensor<8xf32>), ^exit
    ^exit:
      return %y : tensor<8xf32>
    }
  }];
  let after = [{
    func.func @step(%x0: tensor<8xf32>, %again: i1) -> tensor<8xf32> {
      %b = memref.alloc() : memref<8xf32>
      bufferization.materialize_in_destination %x0 in writable %b
          : (tensor<8xf32>, memref<8xf32>) -> ()
      cf.br ^head
    ^head:
      %x = bufferization.to_tensor %b restrict : memref<8xf32> to tensor<8xf32>
      %e = tensor.empty() : tensor<8xf32>
      %y = linalg.exp ins(%x : tensor<8xf32>) outs(%e : tensor<8xf32>)
          -> tensor<8xf32>
      cf.cond_br %again, ^back, ^exit
    ^back:
      bufferization.materialize_in_destination %y in writable %b
          : (tensor<8xf32>, memref<8xf32>) -> ()
      cf.br ^head
    ^exit:
      return %y : tensor<8xf32>
    }
  }];
  let dialects = ["bufferization::Bufferization", "cf::ControlFlow", "memref::MemRef"];
}

def DDPMaterializeBucketsPass : DDP_FunctionPass<"ddp-materialize-buckets"> {
  let summary = "compute gradients directly in their bucket";
  let text = [{
    `ddp.pack` becomes a buffer with one view per gradient. If the gradient's
    producer is a destination-passing operation (or a loop of them) whose
    destination starts as a `tensor.empty`, the view replaces that `tensor.empty`.
    Otherwise, or if this would change what another operation reads, the gradient is
    copied. `ddp.unpack` becomes views of the bucket.

    Every view becomes a tensor with `restrict`, that is, a separate alias set,
    which keeps One-Shot Bufferize linear. The memory now has aliases, whose lifetimes
    only this pass knows, so that no later pass may compute a value in it. The writes
    are therefore not `restrict`, and every `tensor.empty` becomes a
    `bufferization.alloc_tensor`, which empty-tensor elimination does not touch.

    Pre-condition: `ddp-assign-destinations`. Post-condition: no `ddp.pack`, no
    `ddp.unpack`, no `tensor.empty`.
  }];
  let before = [{
    %e = tensor.empty() : tensor<4xf32>
    %g = linalg.exp ins(%x : tensor<4xf32>) outs(%e : tensor<4xf32>)
        -> tensor<4xf32>
    %b = ddp.pack %g, %h : tensor<4xf32>, tensor<8xf32> -> tensor<12xf32>
  }];
  let after = [{
    %m = memref.alloc() {alignment = 64 : i64} : memref<12xf32>
    %v = ddp.view %m[0] : memref<12xf32> to memref<4xf32>
    %e = bufferization.to_tensor %v restrict writable
        : memref<4xf32> to tensor<4xf32>
    %w = ddp.view %m[4] : memref<12xf32> to memref<8xf32>
    %g = linalg.exp ins(%x : tensor<4xf32>) outs(%e : tensor<4xf32>)
        -> tensor<4xf32>
    bufferization.materialize_in_destination %g in writable %v
        : (tensor<4xf32>, memref<4xf32>) -> ()
    bufferization.materialize_in_destination %h in writable %w
        : (tensor<8xf32>, memref<8xf32>) -> ()
    %b = bufferization.to_tensor %m restrict writable
        : memref<12xf32> to tensor<12xf32>
  }];
  let dialects = ["ddp::DDP"];
}

#endif // DDPHOOK_DIALECT_DDP_TRANSFORMS_TENSORPASSES_TD
