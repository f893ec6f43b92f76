//===- Passes.td - passes of the ddp dialect ---------------*- tablegen -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Declares the passes from gradients to memory, in the order in which the
// pipeline runs them.
//
//===----------------------------------------------------------------------===//

#ifndef DDPHOOK_DIALECT_DDP_TRANSFORMS_PASSES_TD
#define DDPHOOK_DIALECT_DDP_TRANSFORMS_PASSES_TD

include "mlir/Pass/PassBase.td"

def DDPIsolateCollectivesPass
    : Pass<"ddp-isolate-collectives", "::mlir::ModuleOp"> {
  let summary = "run passes on what has to do with collectives only";
  let description = [{
    Runs a pipeline on a module that holds the operations and marks of the ddp
    dialect, the functions that these are in, the functions that those call or
    that call them, and what they refer to. Everything else is taken out before
    and put back behind: a function without collectives comes out as it went in,
    whatever dialects it uses. Meanwhile an empty module of the same name stands
    in its place.

    With `all-functions` nothing is taken out. `ddphook-cc` and `ddphook-run` do
    that, since their public functions without collectives are entry points as
    well.

    Example: of these, only `@step` and `@loss` are seen by the passes.

    ```mlir
    func.func @other(%a: tensor<?xf32>) -> tensor<?xf32> {
      %0 = "foo.op"(%a) : (tensor<?xf32>) -> tensor<?xf32>
      return %0 : tensor<?xf32>
    }
    func.func private @loss(%a: tensor<4xf32>) -> tensor<4xf32> { … }
    func.func @step(%a: tensor<4xf32>) -> tensor<4xf32> {
      %g = call @loss(%a) : (tensor<4xf32>) -> tensor<4xf32>
      %r = ddp.all_reduce mean %g on @dp : tensor<4xf32>
      return %r : tensor<4xf32>
    }
    ```
  }];
  let options = [
    ListOption<"pipeline", "pipeline", "::mlir::OpPassManager",
               "The passes, on a module">,
    Option<"allFunctions", "all-functions", "bool", /*default=*/"false",
           "Run them on the whole module">
  ];
}

def DDPVerifySyncPass : Pass<"ddp-verify-sync", "::mlir::ModuleOp"> {
  let summary = "check that every gradient is reduced exactly once";
  let description = [{
    A function result marked `ddp.gradient`, or an argument so marked that is an
    out-parameter, must carry a value that was all-reduced exactly once on every
    path. Anything else is an error that names the value and says what is wrong.

    *Data* is followed forwards from the arguments, through branches, loops, blocks
    and calls, each call on its own. Of a value it is known

    - how often what flows into it was reduced: a set of *unreduced*, *once* and
      *more often*. The set is empty for what no rank has of its own: constants,
      numbers by themselves, and arguments marked `ddp.replicated`;
    - which arguments flow into it unreduced.

    An operation that computes each element from all operands gives as many
    reductions as the most reduced one has: a weight minus a reduced gradient is
    reduced. But a norm or another value of fewer elements does not make reduced
    what it scales. Where paths meet, where elements are put together
    (`insert_slice`, `concat`), and in a `select`, the sets are united. Only what is
    read counts: a destination that is overwritten as a whole contributes nothing.

    Of the arguments that flow into one reduction at least one differs between
    ranks; so does a value into which all of them flow. A gradient that such a
    value flows into beside the reduced one is an error (`mixed with data that is
    not reduced`). Arguments that are not marked `ddp.replicated` are otherwise
    taken for parameters when a reduced gradient is added to them.

    A reduction over a group whose parts are single ranks is none. Reductions over
    two groups that have at most one rank in common anywhere, as within machines
    and then between them, are one in two steps.

    *Control flow*: all ranks of each part of a process group have to come to its
    collectives equally often. So what decides about that, a condition, the bounds
    of a loop or a branch on the way, must be *the same within the group's parts*:
    computed without side effects from constants, arguments marked
    `ddp.replicated`, and values reduced over that group or one that it refines.
    (Of the groups a `placement` makes it is only known that they refine their
    parent.) Recursion around collectives is an error.

    Pre-condition: tensors; runs before `ddp-bucketize`. Changes nothing.

    Example of what is refused:

    ```mlir
    func.func @step(%g: tensor<4xf32>) -> (tensor<4xf32> {ddp.gradient}) {
      %a = ddp.all_reduce mean %g on @dp : tensor<4xf32>
      %b = ddp.all_reduce mean %a on @dp : tensor<4xf32>
      return %b : tensor<4xf32>  // reduced twice
    }
    ```
  }];
}

def DDPVerifyOrderPass : Pass<"ddp-verify-order", "::mlir::ModuleOp"> {
  let summary = "check that all ranks run the same collectives in the same order";
  let description = [{
    Runs at every level, from tensors to calls of the runtime, and changes nothing.
    What is the same on all ranks is found as for `ddp-verify-sync`; on memrefs it
    is what a stretch of memory holds at a point of the program. It is an error if

    - a collective stands where not all ranks of its group come equally often (not
      looked at in calls of the runtime, where conditions are read through
      pointers);
    - a collective of a bucket is on a group that the bucket's record does not
      know: neither its own, nor one made of it, nor one that its hook names; or
      a recorded bucket has no collective;
    - a bucket is unpacked while part of it is what only this rank has (buckets and
      flat tensors), or a collective reduces what a collective of its bucket gave;
    - a state that is loaded is not stored again behind that, on the same path or
      in a branch there (one that never changes can be stored as it was loaded); or
      a replicated one gets what may differ between ranks;
    - memory that a collective in flight reads is written, or what it writes is
      touched, before the wait (memrefs);
    - a collective that was started is not awaited exactly once, in the same block
      (calls of the runtime; elsewhere the operation's verifier says so).

    `ddp-pipeline` runs it after each of its passes with `verify-order=true`, and
    then also compares the collectives before and after the pass. Where a pass may
    change their order the same elements have to travel, everywhere else the same
    collectives in the same places.

    Example of what is refused:

    ```mlir
    func.func @step(%g: tensor<4xf32>, %mine: i1) {
      scf.if %mine {
        %a = ddp.all_reduce mean %g on @dp : tensor<4xf32>  // some ranks wait
      }
      …
    ```
  }];
}

def DDPExpandAveragesPass : Pass<"ddp-expand-averages", "::mlir::ModuleOp"> {
  let summary = "replace averages of parameters by what they do";
  let description = [{
    The `ddp.average`s of a block with the same group, period and warmup become
    one bucket, a counter, and an all-reduce in the steps in which the counter
    says so. The all-reduce stands where the last of them stood.

    Before:

    ```mlir
    %w1 = ddp.average %w on @dp every 4 : tensor<4x8xf32>
    ```

    After:

    ```mlir
    %n = ddp.load @average0.iter : i64
    …
    %w1 = scf.if %now -> (tensor<4x8xf32>) {
      %b = ddp.pack %w : tensor<4x8xf32> -> !ddp.bucket<f32, [4x8]>
      %r = ddp.all_reduce mean %b on @dp {ddp.hook = #ddp.allreduce}
          : !ddp.bucket<f32, [4x8]>
      %u = ddp.unpack %r : !ddp.bucket<f32, [4x8]> -> tensor<4x8xf32>
      %c = linalg.copy ins(%u : tensor<4x8xf32>) outs(%w : tensor<4x8xf32>)
          -> tensor<4x8xf32>
      scf.yield %c : tensor<4x8xf32>
    } else {
      scf.yield %w : tensor<4x8xf32>
    }
    ```
  }];
  let dependentDialects = ["::mlir::arith::ArithDialect",
                           "::mlir::ddp::DDPDialect",
                           "::mlir::linalg::LinalgDialect",
                           "::mlir::scf::SCFDialect"];
}

def DDPBucketizePass : Pass<"ddp-bucketize", "::mlir::ModuleOp"> {
  let summary = "pack gradients into buckets";
  let description = [{
    Groups the `ddp.all_reduce`s of a block by process group, element type,
    reduction and hook, and packs them into buckets the way PyTorch's DDP does:
    a gradient is appended, *then* the bucket is closed if its bytes reach the
    limit. Where a gradient depends on another one reduced in the same bucket,
    the bucket is split. A bucket stands where the last of its reductions stood;
    what used an earlier one's result moves behind it.

    Before that every gradient gets a name, which does not depend on the options
    below: its own `ddp.name` or its argument's, a name in a location, or its
    place (docs/checkpoints.md). Two of one name are an error.

    Pre-condition: reductions of tensors. Post-condition: reductions of buckets,
    named b0, b1, … in the order of their first gradients, that list the names of
    their members.

    Before:

    ```mlir
    %r0 = ddp.all_reduce mean %g0 on @dp : tensor<4x8xf32>
    %r1 = ddp.all_reduce mean %g1 on @dp : tensor<8xf32>
    ```

    After:

    ```mlir
    %b = ddp.pack %g0, %g1 : tensor<4x8xf32>, tensor<8xf32>
        -> !ddp.bucket<f32, [4x8, 8]>
    %r = ddp.all_reduce mean %b on @dp as "b0" : !ddp.bucket<f32, [4x8, 8]>
        of ["step.arg0", "step.arg1"]
    %r0, %r1 = ddp.unpack %r : !ddp.bucket<f32, [4x8, 8]>
        -> tensor<4x8xf32>, tensor<8xf32>
    ```
  }];
  let options = [
    Option<"bucketCapMb", "bucket-cap-mb", "double",
           /*default=*/"::mlir::ddp::kUnsetLimit",
           "Limit of a bucket in MiB, fractions allowed; default 25. Given "
           "explicitly, it is the first bucket's limit as well">,
    Option<"firstBucketMb", "first-bucket-mb", "double",
           /*default=*/"::mlir::ddp::kUnsetLimit",
           "Limit of the first bucket of a kind in MiB; default 1, or "
           "bucket-cap-mb where that is given">,
    Option<"order", "order", "::mlir::ddp::BucketOrder",
           /*default=*/"::mlir::ddp::BucketOrder::Ready",
           "Order in which gradients are packed",
           [{::llvm::cl::values(
               clEnumValN(::mlir::ddp::BucketOrder::Ready, "ready",
                          "in which they are produced; ties in program order"),
               clEnumValN(::mlir::ddp::BucketOrder::Forward, "forward",
                          "program order of the reductions"),
               clEnumValN(::mlir::ddp::BucketOrder::Reverse, "reverse",
                          "that order, reversed"))}]>
  ];
  let dependentDialects = ["::mlir::ddp::DDPDialect"];
}

def DDPExpandHooksPass : Pass<"ddp-expand-hooks", "::mlir::ModuleOp"> {
  let summary = "replace hooks by what they do";
  let description = [{
    Replaces every reduction of a bucket by what its hook expands to. The hook
    is the innermost `ddp.hook` of the operation, its function and the module,
    else the one that the options name: as an attribute of any dialect, or by its
    name, with its parameters as options. Records each bucket in a
    `ddp.bucket_info`, and in each state that a hook declares what it is to which
    gradients.

    A reduction of memory with another hook than `#ddp.allreduce` becomes a bucket
    of its own, in its place: `to_tensor`, pack, reduce, unpack, and
    `materialize_in_destination`.

    Pre-condition: `ddp-bucketize`. Post-condition: every reduction of a bucket
    carries `ddp.hook = #ddp.allreduce`.

    Before, with `hook=fp16`:

    ```mlir
    %r = ddp.all_reduce mean %b on @dp as "b0" : !ddp.bucket<f32, [4x8]>
    ```

    After:

    ```mlir
    %h = ddp.cast %b : !ddp.bucket<f32, [4x8]> -> !ddp.bucket<f16, [4x8]>
    %s = ddp.all_reduce mean %h on @dp as "b0"
        {ddp.hook = #ddp.allreduce} : !ddp.bucket<f16, [4x8]>
    %r = ddp.cast %s : !ddp.bucket<f16, [4x8]> -> !ddp.bucket<f32, [4x8]>
    ```
  }];
  let options = [
    Option<"hook", "hook", "std::string", /*default=*/"kDefaultHook.str()",
           "Hook of buckets that no attribute gives one: the text of an "
           "attribute, or a name with options (docs/passes.md)">,
    Option<"wrapper", "wrapper", "std::string", /*default=*/"\"\"",
           "Run that hook in a 16-bit type: fp16 or bf16">
  ];
  let dependentDialects = ["::mlir::arith::ArithDialect",
                           "::mlir::bufferization::BufferizationDialect",
                           "::mlir::ddp::DDPDialect",
                           "::mlir::scf::SCFDialect"];
}

def DDPPackCollectivesPass : Pass<"ddp-pack-collectives"> {
  let summary = "let collectives of one bucket travel together";
  let description = [{
    All-reduces of one bucket that do not depend on each other become one, of
    their operands joined. PowerSGD needs two collectives a bucket then instead
    of three: the uncompressed tensors ride with P. With three ranks and more the
    sums of these tensors may be associated in another order, since that depends
    on an element's place in the message (docs/parity.md).

    Before:

    ```mlir
    %ps = ddp.all_reduce sum %p on @dp as "b0" : !ddp.bucket<f32, [64x2]>
    %vs = ddp.all_reduce sum %v on @dp as "b0" : !ddp.bucket<f32, [64]>
    ```

    After:

    ```mlir
    %c = ddp.concat %p, %v : !ddp.bucket<f32, [64x2]>, !ddp.bucket<f32, [64]>
        -> !ddp.bucket<f32, [64x2, 64]>
    %s = ddp.all_reduce sum %c on @dp as "b0" : !ddp.bucket<f32, [64x2, 64]>
    %ps = ddp.extract %s [0] : !ddp.bucket<f32, [64x2, 64]>
    %vs = ddp.extract %s [1] : !ddp.bucket<f32, [64x2, 64]>
    ```
  }];
  let dependentDialects = ["::mlir::ddp::DDPDialect"];
}

def DDPFusePass : Pass<"ddp-fuse"> {
  let summary = "let one pass over memory do what several operations say";
  let description = [{
    A low-rank step reads the gradient three times: `ddp.project` adds the error
    and computes P = M·Q, a `ddp.matmul` computes Q = Mᵀ·P where M lies, and
    `ddp.reconstruct` computes P·Qᵀ and the new error.

    cast → all-reduce → cast back becomes one reduction with a wire type: the
    runtime casts, reduces and casts back chunk by chunk, in cache, and no
    bucket-sized array of the wire type exists.

    Before:

    ```mlir
    %h = ddp.cast %b : !ddp.bucket<f32, [4x8]> -> !ddp.bucket<f16, [4x8]>
    %s = ddp.all_reduce mean %h on @dp : !ddp.bucket<f16, [4x8]>
    %r = ddp.cast %s : !ddp.bucket<f16, [4x8]> -> !ddp.bucket<f32, [4x8]>
    ```

    After:

    ```mlir
    %r = ddp.all_reduce mean %b on @dp wire f16 : !ddp.bucket<f32, [4x8]>
    ```
  }];
  let dependentDialects = ["::mlir::ddp::DDPDialect"];
}

def DDPGroupMatricesPass : Pass<"ddp-group-matrices"> {
  let summary = "take low-rank steps through all stages in small groups";
  let description = [{
    Splits a fused low-rank step into groups of adjacent members of at most
    `group-mb` MiB: project, all-reduce P, Q = Mᵀ·P, all-reduce Q, reconstruct of
    one group, then of the next. The second and third stage read from the cache
    what the first one read from memory; for that there are two collectives a
    group. Sums over three ranks and more may be associated in another order.

    With a `distance` the stages of neighbouring groups alternate: the first
    group goes on to Q when so many others have been projected, and is put
    together when so many others have their Q. `ddp-overlap` then finds local
    work for the time that a collective travels; all stages work on one bucket,
    so that it cannot change their order itself.

    Only steps of the form that PowerSGD expands to, after `ddp-fuse`; others,
    with `local_error_feedback` or `skip_nonfinite`, are left alone.

    Before:

    ```mlir
    %m, %p = ddp.project %g plus %e members [0, 1] by %q0 : …
    %ps = ddp.all_reduce sum %p on @dp as "b0" : …
    …
    %out, %err = ddp.reconstruct %p1, %qm members [0, 1] from %m : …
    ```

    After, the first of two groups:

    ```mlir
    %q00 = ddp.extract %q0 [0] : !ddp.bucket<f32, [32x2, 32x2]>
    %m0, %p0 = ddp.project %g plus %e members [0] others [] by %q00 : …
    %ps0 = ddp.all_reduce sum %p0 on @dp as "b0" : …
    …
    %g0, %e0 = ddp.reconstruct %p10, %qm0 members [0] others [] from %m0
        base %g : …
    ```
  }];
  let options = [
    Option<"groupMb", "group-mb", "double", /*default=*/"0",
           "Limit of a group in MiB; 0: no groups">,
    Option<"distance", "distance", "unsigned", /*default=*/"0",
           "Groups that are projected before the first one goes on to its next "
           "stage">
  ];
  let dependentDialects = ["::mlir::ddp::DDPDialect"];
}

def DDPMergeBranchesPass : Pass<"ddp-merge-branches"> {
  let summary = "join branches that the same condition decides";
  let description = [{
    Every bucket of PowerSGD has an `scf.if` of its own for the vanilla phase.
    Those of one block that hold collectives and have the same condition become
    one, in the place of the last, so that `ddp-overlap` can let the collectives
    of neighbouring buckets run beside each other's local work. What uses the
    result of an earlier one moves behind it. Conditions are the same if they are
    one value, or computed from the same values by the same operations without
    side effects.

    An `scf.if` that depends on the result of an earlier one, or on a state that
    is written in between, is not joined with it; and no more than `limit` become
    one. Their buckets are all needed at the same time, and One-Shot Bufferize takes
    time that grows with the cube of an `scf.if`'s results.

    Before:

    ```mlir
    %r0 = scf.if %c -> (!ddp.bucket<f32, [4x8]>) { … }
    %u0 = ddp.unpack %r0 : !ddp.bucket<f32, [4x8]> -> tensor<4x8xf32>
    %r1 = scf.if %c -> (!ddp.bucket<f32, [8]>) { … }
    ```

    After:

    ```mlir
    %r:2 = scf.if %c -> (!ddp.bucket<f32, [4x8]>, !ddp.bucket<f32, [8]>) { … }
    %u0 = ddp.unpack %r#0 : !ddp.bucket<f32, [4x8]> -> tensor<4x8xf32>
    ```
  }];
  let options = [
    Option<"limit", "limit", "unsigned", /*default=*/"16",
           "Branches that become one at most">
  ];
  let dependentDialects = ["::mlir::ddp::DDPDialect",
                           "::mlir::scf::SCFDialect"];
}

def DDPOverlapPass : Pass<"ddp-overlap"> {
  let summary = "compute while collectives are in flight";
  let description = [{
    Splits all-reduces into `ddp.all_reduce_start` and `ddp.wait`, and puts the
    operations of each block into an order in which at most `depth` collectives
    are in flight: in program order, but what needs the result of one in flight
    is put off until that was awaited, and the oldest is awaited, and what then
    can go on goes on, before another one is started. At the end of the block all
    are awaited, the oldest first.

    So a bucket travels while the backward pass computes the next gradients, and
    PowerSGD's projection of one bucket or group runs while the factors of
    another one travel. All ranks start their collectives in the same order.

    Everything is still a value here: the new order cannot change what is
    computed. States, draws of random numbers, memory and calls keep their order,
    and what may overwrite a value stays behind the readers that it came after,
    so that no copy becomes necessary.

    An all-reduce stays in one piece if there is nothing to compute meanwhile.

    Pre-condition: before `ddp-flatten`.

    Before:

    ```mlir
    %r0 = ddp.all_reduce mean %b0 on @dp : !ddp.bucket<f32, [4x8]>
    %u0 = ddp.unpack %r0 : !ddp.bucket<f32, [4x8]> -> tensor<4x8xf32>
    %g1 = linalg.matmul …
    ```

    After:

    ```mlir
    %f0 = ddp.all_reduce_start mean %b0 on @dp
        : !ddp.bucket<f32, [4x8]> -> !ddp.future<!ddp.bucket<f32, [4x8]>>
    %g1 = linalg.matmul …
    %r0 = ddp.wait %f0 : !ddp.future<!ddp.bucket<f32, [4x8]>>
    %u0 = ddp.unpack %r0 : !ddp.bucket<f32, [4x8]> -> tensor<4x8xf32>
    ```
  }];
  let options = [
    Option<"depth", "depth", "unsigned", /*default=*/"2",
           "Collectives in flight at most">
  ];
  let dependentDialects = ["::mlir::ddp::DDPDialect"];
}

def DDPFlattenPass : Pass<"ddp-flatten", "::mlir::ModuleOp"> {
  let summary = "turn buckets into 1-D tensors";
  let description = [{
    `!ddp.bucket<f32, [4x8, 8]>` becomes `tensor<40xf32>` everywhere, and
    `ddp.extract` a `tensor.extract_slice`. One-Shot Bufferize analyses tensors;
    of a bucket it would copy every use.

    Post-condition: no value has a bucket type.
  }];
  let dependentDialects = [
    "::mlir::arith::ArithDialect", "::mlir::ddp::DDPDialect",
    "::mlir::linalg::LinalgDialect", "::mlir::tensor::TensorDialect"];
}

def DDPThreadStatesPass : Pass<"ddp-thread-states", "::mlir::ModuleOp"> {
  let summary = "load and store every state once";
  let description = [{
    Within a block, a load of a state that was loaded or stored before becomes
    that value, and a store that another one follows is dropped. Where the old
    value is needed after the new one was stored, it is copied first: load and
    store will be the same memory.

    Pre-condition: `ddp-flatten`. Uses of one state in several blocks of which
    more than one may run, or in a function and one that it calls, are an error.

    Before:

    ```mlir
    %a = ddp.load @s : tensor<4xf32>
    %b = ddp.add %a, %g : tensor<4xf32>, tensor<4xf32>
    ddp.store %b, @s : tensor<4xf32>
    %c = ddp.load @s : tensor<4xf32>
    ```

    After: uses of `%c` are uses of `%b`.
  }];
  let dependentDialects = ["::mlir::bufferization::BufferizationDialect"];
}

def DDPPrepareEntriesPass : Pass<"ddp-prepare-entries", "::mlir::ModuleOp"> {
  let summary = "give public functions an interface of plain memory";
  let description = [{
    Tensor arguments of a public function become memrefs with identity layout.
    They are only read, unless marked `bufferization.writable = true`: a caller's
    array is updated in place only where the program allows it. A result whose
    value is such an argument's update *is* that argument's memory from now on;
    every other result becomes an out-parameter, appended to the arguments, and
    is computed straight into it where its producer allows. A scalar result
    becomes a 0-D out-parameter.

    `ddp.result_arguments` keeps, for each result of the original function, the
    argument that holds it, or -1 for an out-parameter. A public function that
    the module itself calls keeps a private twin for those calls.

    One-Shot Bufferize could bufferize these boundaries too, in time quadratic in
    the number of arguments and in the number of reads of one argument; here,
    every read of a read-only argument is an alias set of its own.

    Pre-condition: `ddp-flatten`. Functions with dynamic shapes are left alone.

    Before:

    ```mlir
    func.func @step(%w: tensor<4xf32> {bufferization.writable = true},
                    %g: tensor<4xf32>) -> (tensor<4xf32>, f32) {
      …
      %u = linalg.sub ins(%w, %g : …) outs(%w : …) -> tensor<4xf32>
      return %u, %loss : tensor<4xf32>, f32
    ```

    After:

    ```mlir
    func.func @step(%w: memref<4xf32> {ddp.inout}, %g: memref<4xf32>,
                    %loss_out: memref<f32>)
        attributes {ddp.result_arguments = array<i64: 0, -1>}
    ```
  }];
  let dependentDialects = ["::mlir::bufferization::BufferizationDialect",
                           "::mlir::memref::MemRefDialect"];
}

def DDPFoldResultsPass : Pass<"ddp-fold-results", "::mlir::ModuleOp"> {
  let summary = "let functions return only what their callers lack";
  let description = [{
    A result of a private function that is one of its arguments in every return,
    or the same value as another result, is dropped; callers use that other
    value. Behind bufferization it would be a buffer of its own, and a copy.

    Before:

    ```mlir
    func.func private @f(%a: tensor<4xf32>)
        -> (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) {
      %r = linalg.exp …
      return %r, %r, %a : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
    }
    %0:3 = call @f(%x)
        : (tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>)
    ```

    After: uses of `%0#1` are uses of `%0`, those of `%0#2` of `%x`.

    ```mlir
    %0 = call @f(%x) : (tensor<4xf32>) -> tensor<4xf32>
    ```
  }];
}

def DDPSplitEmptyTensorsPass
    : InterfacePass<"ddp-split-empty-tensors", "::mlir::FunctionOpInterface"> {
  let summary = "give every operation a destination of its own";
  let description = [{
    Operations that start from the same `tensor.empty`, which is what CSE makes of
    many, get one each; so do those that start from the same filled tensor. One-Shot
    Bufferize takes time that grows with the cube of the number of operations that
    write to one alias set. An empty tensor of which slices are taken stays whole.

    Before:

    ```mlir
    %e = tensor.empty() : tensor<4xf32>
    %0 = linalg.exp ins(%x : tensor<4xf32>) outs(%e : tensor<4xf32>) …
    %1 = linalg.abs ins(%0 : tensor<4xf32>) outs(%e : tensor<4xf32>) …
    ```

    After:

    ```mlir
    %e0 = tensor.empty() : tensor<4xf32>
    %0 = linalg.exp ins(%x : tensor<4xf32>) outs(%e0 : tensor<4xf32>) …
    %e1 = tensor.empty() : tensor<4xf32>
    %1 = linalg.abs ins(%0 : tensor<4xf32>) outs(%e1 : tensor<4xf32>) …
    ```
  }];
  let dependentDialects = ["::mlir::linalg::LinalgDialect",
                           "::mlir::tensor::TensorDialect"];
}

def DDPLegalizeForBufferizationPass
    : InterfacePass<"ddp-legalize-for-bufferization",
                    "::mlir::FunctionOpInterface"> {
  let summary = "avoid what One-Shot Bufferize gets wrong";
  let description = [{
    Some things go wrong in MLIR 22 without a word, or are refused for no good
    reason, most of them by the models by which One-Shot Bufferize knows
    operations. They are written differently here:

    - a `linalg.map` whose body reads its destination becomes a
      `linalg.generic`: the model takes the destination for one that is only
      written, and gives it a new buffer without the old values where it cannot
      be overwritten;
    - an `scf.index_switch` with tensors as results becomes a chain of `scf.if`:
      the model takes its results for memory of their own, and lets them be
      overwritten where the tensors that the cases yield are still needed;
    - a linalg operation without iterations is replaced by its destinations, and
      one that writes only a part of them gets copies to write to: the model takes
      what a body does not read for something that is written as a whole;
    - an `arith.select` of tensors becomes an `scf.if`: the model wants both
      operands and the result in one place;
    - where several blocks of an `scf.execute_region` yield, they branch to one that
      does: the model knows only one;
    - a slice gets stride 1 in dimensions of size 1: another one makes it
      ambiguous which of them a slice of lower rank drops, and lowering it fails.

    Before:

    ```mlir
    %r = linalg.map ins(%a : tensor<4xf32>) outs(%b : tensor<4xf32>)
      (%x: f32, %y: f32) {
        %s = arith.addf %x, %y : f32
        linalg.yield %s : f32
      }
    ```

    After:

    ```mlir
    %r = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]}
        ins(%a : tensor<4xf32>) outs(%b : tensor<4xf32>) {
      ^bb0(%x: f32, %y: f32):
        %s = arith.addf %x, %y : f32
        linalg.yield %s : f32
      } -> tensor<4xf32>
    ```
  }];
  let dependentDialects = ["::mlir::arith::ArithDialect",
                           "::mlir::bufferization::BufferizationDialect",
                           "::mlir::linalg::LinalgDialect",
                           "::mlir::scf::SCFDialect"];
}

def DDPAssignDestinationsPass
    : InterfacePass<"ddp-assign-destinations", "::mlir::FunctionOpInterface"> {
  let summary = "tell every operation where to write";
  let description = [{
    Gives each operation of the bucket algebra an `into` operand: its slice if
    it is a part of a `ddp.concat`; an operand of its type that dies, if the
    operation is elementwise; memory that nothing needs any more; else a new
    `tensor.empty`. Memory dies when no operation behind can reach it, as the
    operations' interfaces tell; what they do not tell counts as needed.

    Pre-condition: `ddp-flatten`. Post-condition: no `ddp.concat`.

    Before:

    ```mlir
    %r = ddp.all_reduce mean %b on @dp : tensor<40xf32>
    ```

    After, where `%b` is not used again:

    ```mlir
    %r = ddp.all_reduce mean %b on @dp into %b : tensor<40xf32>, : tensor<40xf32>
    ```
  }];
  let dependentDialects = ["::mlir::bufferization::BufferizationDialect",
                           "::mlir::ddp::DDPDialect",
                           "::mlir::tensor::TensorDialect"];
}

def DDPYieldInPlacePass
    : InterfacePass<"ddp-yield-in-place", "::mlir::FunctionOpInterface"> {
  let summary = "keep the tensors of a loop where they are";
  let description = [{
    One-Shot Bufferize asks of every tensor that an `scf.for` or an `scf.while`
    carries from one iteration to the next that it lies in one place. So what an
    iteration yields is copied to where the iteration found the last values,
    unless it is there. What goes from one place to another, as in a loop that
    swaps two tensors, waits in memory of its own before any of them is
    overwritten.

    An `scf.while` whose two regions do not have the same tensors at the same
    places gets a place in both for each tensor that the first region hands to
    the second.

    Pre-condition: `ddp-assign-destinations`.

    Before:

    ```mlir
    %r:2 = scf.for %i = %a to %b step %c iter_args(%x = %p, %y = %q)
        -> (tensor<8xf32>, tensor<8xf32>) {
      scf.yield %y, %x : tensor<8xf32>, tensor<8xf32>
    }
    ```

    After:

    ```mlir
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
    ```
  }];
  let dependentDialects = ["::mlir::bufferization::BufferizationDialect",
                           "::mlir::tensor::TensorDialect"];
}

def DDPPinBlockArgumentsPass
    : InterfacePass<"ddp-pin-block-arguments", "::mlir::FunctionOpInterface"> {
  let summary = "give the tensors among block arguments memory of their own";
  let description = [{
    Where blocks branch to each other, every tensor that a block hands to
    another one gets a buffer, and each branch copies it there. All buffers of a
    step have fixed places, so what a block computes lies where it lay when the
    block ran before: the tensor that is handed on must have left by then.

    In a cycle of blocks an operation that may write to a tensor from another
    block gets a copy of it: the next time around needs the tensor as it was. So
    does an operation behind the first block that may write to an argument of the
    function.

    Pre-condition: `ddp-assign-destinations`. Post-condition: no block but the
    first of a region has arguments that are tensors.

    Before:

    ```mlir
    ^head(%x: tensor<8xf32>):
      ...
      cf.br ^head(%y : tensor<8xf32>)
    ```

    After, with `%b` allocated in the first block:

    ```mlir
    ^head:
      %x = bufferization.to_tensor %b restrict : memref<8xf32> to tensor<8xf32>
      ...
      bufferization.materialize_in_destination %y in restrict writable %b
          : (tensor<8xf32>, memref<8xf32>) -> ()
      cf.br ^head
    ```
  }];
  let dependentDialects = ["::mlir::bufferization::BufferizationDialect",
                           "::mlir::cf::ControlFlowDialect",
                           "::mlir::memref::MemRefDialect"];
}

def DDPMaterializeBucketsPass
    : InterfacePass<"ddp-materialize-buckets", "::mlir::FunctionOpInterface"> {
  let summary = "let gradients be born inside their bucket";
  let description = [{
    `ddp.pack` becomes a buffer with one view a gradient. Where the gradient's
    producer is a destination-passing operation (or a loop of them) that starts
    from a `tensor.empty`, it now starts from the view; otherwise, or where that
    would change what another operation reads, the gradient is copied.
    `ddp.unpack` becomes views of the bucket.

    Every view enters the tensor world with `restrict`, that is, as an alias set
    of its own, which keeps One-Shot Bufferize linear.

    Pre-condition: `ddp-assign-destinations`. Post-condition: no `ddp.pack`, no
    `ddp.unpack`.
  }];
  let dependentDialects = [
    "::mlir::bufferization::BufferizationDialect", "::mlir::ddp::DDPDialect",
    "::mlir::memref::MemRefDialect", "::mlir::tensor::TensorDialect"];
}

def DDPCheckBufferizablePass
    : Pass<"ddp-check-bufferizable", "::mlir::ModuleOp"> {
  let summary = "fail if something on tensors cannot become memory";
  let description = [{
    An error for every kind of operation on tensors that does not implement
    BufferizableOpInterface: one of a dialect that is not registered, say, or one
    that has to be lowered before (`tosa.add`, `stablehlo.add`). Lower it to
    linalg, attach the interface to it, or move it to a function without
    collectives, which `ddp-pipeline` leaves alone.

    Example of what is refused:

    ```mlir
    %h = "foo.bar"(%g) : (tensor<4xf32>) -> tensor<4xf32>
    %r = ddp.all_reduce mean %h on @dp : tensor<4xf32>
    ```
  }];
}

def DDPResultsToOutParamsPass
    : Pass<"ddp-results-to-out-params", "::mlir::ModuleOp"> {
  let summary = "let callers give private functions memory for results";
  let description = [{
    A buffer that a private function returns becomes an argument, and its callers
    allocate it. What the function allocates and returns is computed straight into
    that argument; where it returns the same buffer several times, or a part of
    one, it copies. Results that are memory of its caller, an argument or a part
    of one, stay results: there is nothing to copy.

    Pre-condition: bufferized. Results are of static shape and identity layout.

    Before:

    ```mlir
    func.func private @f() -> memref<4xf32> {
      %m = memref.alloc() : memref<4xf32>
      …
      return %m : memref<4xf32>
    }
    %0 = call @f() : () -> memref<4xf32>
    ```

    After:

    ```mlir
    func.func private @f(%m: memref<4xf32>) {
      …
      return
    }
    %0 = memref.alloc() : memref<4xf32>
    call @f(%0) : (memref<4xf32>) -> ()
    ```
  }];
  let dependentDialects = ["::mlir::memref::MemRefDialect"];
}

def DDPBufferizePass : Pass<"ddp-bufferize", "::mlir::ModuleOp"> {
  let summary = "tensors to memory, with copies where there is no other way";
  let description = [{
    Upstream's One-Shot Bufferize, with function boundaries. It demands that what
    a loop carries and what the branches of an `scf.if` yield lies in one place,
    and refuses a program that still needs something else there: two tensors of
    which a branch yields the one or the other, and a loop goes on with both,
    say. In a function that is refused every tensor that a loop begins with or
    hands to its next iteration, and every tensor that a branch yields, is copied
    first, and the missed remark `Copies` counts them. The copies are static
    buffers like all others.

    Pre-condition: `ddp-materialize-buckets`. Post-condition: no tensors but in
    functions without bodies.
  }];
  let dependentDialects = ["::mlir::bufferization::BufferizationDialect",
                           "::mlir::memref::MemRefDialect"];
}

def DDPPlanArenaPass : Pass<"ddp-plan-arena", "::mlir::ModuleOp"> {
  let summary = "place all buffers of a step in one arena";
  let description = [{
    Every `memref.alloc` becomes a `memref.view` of `ddp.arena` at a fixed
    offset; buffers whose lifetimes do not overlap share memory (best fit over
    the positions of the function's top-level operations, 64-byte aligned).
    Functions that call each other get disjoint parts.

    Pre-condition: bufferized, results are out-parameters; static shapes.
    Post-condition: no allocation.
  }];
  let dependentDialects = ["::mlir::arith::ArithDialect",
                           "::mlir::ddp::DDPDialect",
                           "::mlir::memref::MemRefDialect"];
}

def DDPFoldCopiesPass : Pass<"ddp-fold-copies"> {
  let summary = "remove copies of a buffer onto itself";
  let description = [{
    Two views of one buffer with the same offset and type are one; a
    `memref.copy` between them does nothing and is removed. Bufferization leaves
    one for every gradient that was born in its bucket.
  }];
}

def DDPCheckNoAllocPass : Pass<"ddp-check-no-alloc", "::mlir::ModuleOp"> {
  let summary = "fail if a step allocates, frees or copies";
  let description = [{
    An error for each (of the first eight) `memref.alloc`, `alloca`, `dealloc`,
    `realloc` or `copy`, or `bufferization.clone`: a proof that every gradient is
    born in its bucket and every buffer has its place. Not part of the default
    pipeline, since a program may well ask for a copy; `require-no-copy=true`
    adds it.
  }];
}

#endif // DDPHOOK_DIALECT_DDP_TRANSFORMS_PASSES_TD
