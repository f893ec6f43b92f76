//===- GradientPasses.td - from gradients to buckets -------*- tablegen -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// On tensors: what is reduced is checked, and gradients are put into buckets.
//
//===----------------------------------------------------------------------===//

#ifndef DDPHOOK_DIALECT_DDP_TRANSFORMS_GRADIENTPASSES_TD
#define DDPHOOK_DIALECT_DDP_TRANSFORMS_GRADIENTPASSES_TD

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
    func.func private @loss(%a: tensor<4xf32>) -> tensor<4xf32> {
      return %a : tensor<4xf32>
    }
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
    path. Anything else is an error that names the value and says what is wrong. An
    out-parameter gets its value from one `bufferization.materialize_in_destination`,
    behind which nothing may write to it.

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
    (`insert_slice`, `concat`), in a `select` and in regions of operations that the
    pass does not know, the sets are united. Only what is read counts: a destination
    that is overwritten as a whole contributes nothing, also where the iterations of
    a loop do so together, slice behind slice.

    Of the arguments that flow into one reduction at least one differs between
    ranks; so does a value into which all of them flow. A gradient that such a
    value flows into beside the reduced one is an error (`mixed with data that is
    not reduced`). Arguments that are not marked `ddp.replicated` are otherwise
    taken for parameters when a reduced gradient is added to them.

    A reduction over a group whose parts are single ranks is none. Reductions over
    two groups that have at most one rank in common anywhere, as within machines
    and then between them, are one in two steps. All elements of a gradient, on every
    path, have to be reduced over the same groups.

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
      return %b : tensor<4xf32>  // error: it is reduced more than once
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
    func.func @step(%g: tensor<4xf32>, %mine: i1) -> tensor<4xf32> {
      %r = scf.if %mine -> tensor<4xf32> {
        // Some ranks would wait here for ever.
        %a = ddp.all_reduce mean %g on @dp : tensor<4xf32>  // error: expected all ranks
        scf.yield %a : tensor<4xf32>
      } else {
        scf.yield %g : tensor<4xf32>
      }
      return %r : tensor<4xf32>
    }
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
    ddp.state @average0.iter : i64 replicated zero
        role "average.iter" of [["step.arg0"]]
    %n = ddp.load @average0.iter : i64
    %one = arith.constant 1 : i64
    %next = arith.addi %n, %one : i64
    ddp.store %next, @average0.iter : i64
    %warmup = arith.constant 0 : i64
    %since = arith.subi %n, %warmup : i64
    %warm = arith.cmpi sge, %n, %warmup : i64
    %period = arith.constant 4 : i64
    %rest = arith.remsi %since, %period : i64
    %zero = arith.constant 0 : i64
    %due = arith.cmpi eq, %rest, %zero : i64
    %now = arith.andi %warm, %due : i1
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

#endif // DDPHOOK_DIALECT_DDP_TRANSFORMS_GRADIENTPASSES_TD
