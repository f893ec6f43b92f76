// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Passes on tensors: they verify reductions and put gradients into buckets.

#ifndef DDPHOOK_DIALECT_DDP_TRANSFORMS_GRADIENTPASSES_TD
#define DDPHOOK_DIALECT_DDP_TRANSFORMS_GRADIENTPASSES_TD

include "ddphook/PassBase.td"

def DDPIsolateCollectivesPass : DDP_ModulePass<"ddp-isolate-collectives"> {
  let summary = "run passes only on functions with collectives";
  let description = [{
    Runs a pipeline on a module that contains the functions with operations or
    attributes of the ddp dialect, the functions that these call or that call them,
    and the symbols to which they refer. Everything else is removed before the
    pipeline and restored after it: a function without collectives does not change,
    whatever dialects it uses. Meanwhile an empty module of the same name marks its
    position.

    With `all-functions` nothing is removed. `ddphook-cc` and `ddphook-run` set this
    option, since their public functions without collectives are entry points too.

    Example: the passes see only `@step` and `@loss`.

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
               "The passes to run on the module">,
    Option<"allFunctions", "all-functions", "bool", /*default=*/"false",
           "Run the passes on the whole module">
  ];
}

def DDPWidenAccumulatorsPass : DDP_ModulePass<"ddp-widen-accumulators"> {
  let summary = "sum 16-bit numbers in f32";
  let description = [{
    Frameworks sum f16 and bf16 in f32 and round once. The lowerings of their programs
    to linalg often sum in the type of the elements instead; in bf16 a sum of 2048 ones
    is then 256. In a module with the attribute `ddp.widen_accumulators`, which
    `ddp-import-stablehlo` and `ddp-import-fx` set, this pass gives each contraction,
    reduction and convolution of linalg an f32 accumulator and rounds the result. It
    does not round a product of two elements that is added to the accumulator. An
    operation that accumulates into the result of another one continues with the
    unrounded value.

    A remark reports how many operations of a function changed. The pass leaves an
    operation unchanged, with a missed remark, if its body uses the accumulator for
    anything but one addition or multiplication. It also leaves loops that accumulate
    by `tensor.insert` unchanged. A module without the attribute is computed as written.

    Pre-condition: tensors. Post-condition: the attribute is gone.

    In outline:

    ```
    %0 = linalg.reduce { arith.addf } ins(%x : tensor<8xbf16>) outs(%zero : tensor<bf16>) …
    // becomes
    %1 = … arith.extf of %zero to f32
    %2 = linalg.generic … ins(%x : tensor<8xbf16>) outs(%1 : tensor<f32>) { … arith.extf, arith.addf … }
    %0 = … arith.truncf of %2 to bf16
    ```
  }];
  let dialects = ["arith::Arith", "linalg::Linalg", "tensor::Tensor"];
}

def DDPVerifySyncPass : DDP_ModulePass<"ddp-verify-sync"> {
  let summary = "check that every gradient is reduced exactly once";
  let description = [{
    A function result, or an out-parameter, that is marked `ddp.gradient` must carry
    a value that was all-reduced exactly once on every path. Anything else is an
    error that names the value and describes the problem. An out-parameter gets its
    value from one `bufferization.materialize_in_destination`, after which nothing
    may write to it.

    *Data flow*: the pass follows data forwards from the arguments, through
    branches, loops, blocks and calls, each call separately. For each value it
    tracks

    - how often the data in it was reduced: a set of *unreduced*, *once* and
      *more often*. The set is empty for data that is the same on all ranks:
      constants, numbers, and arguments marked `ddp.replicated`;
    - which arguments flow into it unreduced.

    The result of an operation that computes each element from all operands counts
    as reduced as often as the most reduced operand: a weight minus a reduced
    gradient is reduced. But a reduced operand with fewer elements, such as a norm,
    does not make the result reduced. The result has the union of the sets where
    paths meet, where elements are joined (`insert_slice`, `concat`), in a `select`,
    and in regions of operations that the pass does not know. Only data that is read
    counts: a destination that is overwritten completely contributes nothing, even
    if the iterations of a loop overwrite it together, slice by slice.

    At least one of the arguments that flow into a reduction differs between ranks,
    and so does a value into which all of them flow. It is an error if such a value
    flows into a gradient together with the reduced one (`mixed with data that is
    not reduced`). Other arguments that are not marked `ddp.replicated` are assumed
    to be parameters if a reduced gradient is added to them.

    A reduction over a group whose parts are single ranks does not count. Reductions
    over two groups that have at most one rank in common anywhere, such as first
    within nodes and then between them, count as one reduction in two steps. All
    elements of a gradient, on every path, must be reduced over the same groups.

    *Control flow*: all ranks of each part of a process group must run its
    collectives equally often. So the conditions, loop bounds and branches that
    decide this must be *the same within the group's parts*: computed without side
    effects from constants, arguments marked `ddp.replicated`, and values reduced
    over that group or over one that it refines. (A group with a `placement` is only
    known to refine its parent.) Recursion around collectives is an error.

    Pre-condition: tensors; runs before `ddp-bucketize`. Changes nothing.

    Example of a rejected program:

    ```mlir
    func.func @step(%g: tensor<4xf32>) -> (tensor<4xf32> {ddp.gradient}) {
      %a = ddp.all_reduce mean %g on @dp : tensor<4xf32>
      %b = ddp.all_reduce mean %a on @dp : tensor<4xf32>
      return %b : tensor<4xf32>  // error: it is reduced more than once
    }
    ```
  }];
}

def DDPVerifyOrderPass : DDP_ModulePass<"ddp-verify-order"> {
  let summary = "check that all ranks run the same collectives in the same order";
  let description = [{
    Runs at every level, from tensors to calls of the runtime, and changes nothing.
    It finds the values that are the same on all ranks as `ddp-verify-sync` does; on
    memrefs it tracks the contents of memory at each point of the program. It is an
    error if

    - not all ranks of its group run a collective equally often (not checked in
      calls of the runtime, where conditions are read through pointers);
    - a collective of a bucket is on a group that the bucket's record does not
      allow: neither the bucket's own group, nor one derived from it, nor one that
      its hook names; or a recorded bucket has no collective;
    - a bucket is unpacked while a part of it is not reduced (buckets and flat
      tensors), or a collective reduces the result of a collective of its bucket;
    - a state that is loaded is not stored again after that, on the same path or in
      a branch there (a state that never changes can be stored as it was loaded); or
      a replicated state gets a value that may differ between ranks;
    - memory that a collective in flight reads is written before the wait, or memory
      that it writes is read or written (memrefs);
    - a collective that was started is not awaited exactly once, in the same block
      (calls of the runtime; elsewhere the operation's verifier checks this).

    With `verify-order=true`, `ddp-pipeline` runs this pass after each of its
    passes, and also compares the collectives before and after the pass. If a pass
    may change their order, the collectives must send the same elements; after all
    other passes the same collectives must be in the same order.

    Example of a rejected program:

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

def DDPExpandAveragesPass : DDP_ModulePass<"ddp-expand-averages"> {
  let summary = "expand averages of parameters to all-reduces";
  let description = [{
    The `ddp.average`s of a block with the same group, period and warmup become one
    bucket, a counter, and an all-reduce that runs in the steps that the counter
    selects. The all-reduce replaces the last of the averages.

    In outline:

    ```
    %w1 = ddp.average %w on @dp every 4 : tensor<4x8xf32>
    // becomes
    ddp.state @average0.iter : i64 replicated zero kind iteration
        role "average.iter" of [["step.arg0"]]
    … %now, from the loaded counter, which is stored plus one
    %w1 = scf.if %now -> (tensor<4x8xf32>) {
      … ddp.pack of %w, ddp.all_reduce mean, ddp.unpack, linalg.copy to %w
    } else {
      scf.yield %w : tensor<4x8xf32>
    }
    ```
  }];
  let dialects = ["arith::Arith", "ddp::DDP", "linalg::Linalg", "scf::SCF"];
}

def DDPExemptGradientsPass : DDP_ModulePass<"ddp-exempt-gradients"> {
  let summary = "give gradients another hook, by their names";
  let text = [{
    Sets the `ddp.hook` of every reduction whose gradient has a name in which the
    regular expression `exempt` (POSIX, extended) matches some part. Biases and the
    parameters of norms are small, and compressing them often loses more than it
    saves: `exempt="bias|norm"` sends them uncompressed, in separate buckets. A
    reduction keeps a `ddp.hook` that it has already; this pass takes precedence
    over a hook of its function or of the module.

    Gradients first get the names of `ddp-bucketize`. Reductions of memory have a
    name if they have a `ddp.name`. An expression that matches nothing is an error,
    and so is one that matches only some gradients of a bucket that already exists.

    Pre-condition: reductions of tensors; runs before `ddp-bucketize`.
    Post-condition: the reductions that match carry a `ddp.hook`.
  }];
  let beforeWith = ", with `exempt=bias`";
  let before = [{
    %r0 = ddp.all_reduce mean %g0 on @dp {ddp.name = "weight"} : tensor<4x8xf32>
    %r1 = ddp.all_reduce mean %g1 on @dp {ddp.name = "bias"} : tensor<8xf32>
  }];
  let after = [{
    %r0 = ddp.all_reduce mean %g0 on @dp {ddp.name = "weight"} : tensor<4x8xf32>
    %r1 = ddp.all_reduce mean %g1 on @dp
        {ddp.hook = #ddp.allreduce, ddp.name = "bias"} : tensor<8xf32>
  }];
  let options = [
    Option<"exempt", "exempt", "std::string", /*default=*/"\"\"",
           "Regular expression: gradients whose names match it get another hook">,
    Option<"exemptHook", "exempt-hook", "std::string",
           /*default=*/"kDefaultHook.str()",
           "Their hook: the text of an attribute, or a name">
  ];
  let dialects = ["ddp::DDP"];
}

def DDPSetTopologyPass : DDP_ModulePass<"ddp-set-topology"> {
  let summary = "choose how the ranks of process groups reduce";
  let text = [{
    Sets the `topology` of every process group that has none and is not a part of
    another group by `placement`.

    Post-condition: those groups carry the topology.
  }];
  let beforeWith = ", with `topology=hierarchical`";
  let before = [{
    ddp.process_group @dp
    ddp.process_group @node placement intra_node
  }];
  let after = [{
    ddp.process_group @dp topology hierarchical
    ddp.process_group @node placement intra_node
  }];
  let options = [
    Option<"topology", "topology", "::mlir::ddp::Topology",
           /*default=*/"::mlir::ddp::Topology::Flat", "The topology",
           [{llvm::cl::values(
             clEnumValN(::mlir::ddp::Topology::Flat, "flat",
                        "all ranks are alike"),
             clEnumValN(::mlir::ddp::Topology::Hierarchical, "hierarchical",
                        "first within nodes, then between them"))}]>
  ];
}

def DDPBucketizePass : DDP_ModulePass<"ddp-bucketize"> {
  let summary = "pack gradients into buckets";
  let text = [{
    Groups the `ddp.all_reduce`s of a block by process group, element type,
    reduction and hook, and packs them into buckets the way PyTorch's DDP does: a
    gradient is appended, *then* the bucket is closed if its bytes reach the limit.
    If a gradient depends on another reduction of the same bucket, the bucket is
    split. A bucket's reduction replaces the last of its gradients' reductions;
    users of the earlier ones move after it.

    First every gradient gets a name, which does not depend on the options below:
    its own `ddp.name` or its argument's, a name in a location, or a name derived
    from its position (docs/checkpoints.md). Two gradients with the same `ddp.name`
    are an error.

    Pre-condition: reductions of tensors. Post-condition: reductions of buckets,
    named b0, b1, … in the order of their first gradients. They list the names of
    their members.
  }];
  let before = [{
    %r0 = ddp.all_reduce mean %g0 on @dp : tensor<4x8xf32>
    %r1 = ddp.all_reduce mean %g1 on @dp : tensor<8xf32>
  }];
  let after = [{
    %b = ddp.pack %g0, %g1 : tensor<4x8xf32>, tensor<8xf32>
        -> !ddp.bucket<f32, [4x8, 8]>
    %r = ddp.all_reduce mean %b on @dp as "b0" : !ddp.bucket<f32, [4x8, 8]>
        of ["step.arg0", "step.arg1"]
    %r0, %r1 = ddp.unpack %r : !ddp.bucket<f32, [4x8, 8]>
        -> tensor<4x8xf32>, tensor<8xf32>
  }];
  let options = [
    Option<"bucketCapMb", "bucket-cap-mb", "double",
           /*default=*/"::mlir::ddp::kUnsetLimit",
           "Size limit of a bucket in MiB, fractions allowed; default 25. If "
           "given, it also limits the first bucket">,
    Option<"firstBucketMb", "first-bucket-mb", "double",
           /*default=*/"::mlir::ddp::kUnsetLimit",
           "Size limit of the first bucket of a kind in MiB; default 1, or "
           "bucket-cap-mb if that is given">,
    Option<"order", "order", "::mlir::ddp::BucketOrder",
           /*default=*/"::mlir::ddp::BucketOrder::Ready",
           "Order in which gradients are packed",
           [{::llvm::cl::values(
               clEnumValN(::mlir::ddp::BucketOrder::Ready, "ready",
                          "order in which they are produced; ties in program order"),
               clEnumValN(::mlir::ddp::BucketOrder::Forward, "forward",
                          "program order of the reductions"),
               clEnumValN(::mlir::ddp::BucketOrder::Reverse, "reverse",
                          "reverse program order of the reductions"))}]>
  ];
  let dialects = ["ddp::DDP"];
}

#endif // DDPHOOK_DIALECT_DDP_TRANSFORMS_GRADIENTPASSES_TD
