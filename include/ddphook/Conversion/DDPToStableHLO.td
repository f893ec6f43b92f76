// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Declares the pass from expanded hooks to StableHLO.

include "ddphook/PassBase.td"

def DDPExportStableHLOPass : DDP_ModulePass<"ddp-export-stablehlo"> {
  let summary = "turn expanded hooks into StableHLO, for XLA";
  let text = [{
    Converts a StableHLO program with expanded hooks to pure StableHLO: the program of
    each rank, which XLA runs on all of them.

    - A bucket becomes its tensors. If a collective or a state needs one array, they
      are reshaped and concatenated, and the tensors are slices of it afterwards.
    - `ddp.all_reduce` becomes a `stablehlo.all_reduce` of one operand on its own
      channel, numbered after those that the program uses. It lists the ranks of the
      process groups; `num-ranks` sets the number of ranks if no group implies it.
    - Divisions are exact, and 16-bit values are rounded where the hook rounds them:
      a `stablehlo.optimization_barrier` keeps XLA from multiplying by an inverse, and
      from computing with more bits.
    - Orthogonalization is unrolled, in a function for each shape: modified
      Gram-Schmidt or Householder QR, as `ddp.orthogonalize` selects.
    - `scf.if` becomes `stablehlo.if`, and arithmetic on counters StableHLO's.
    - The states that a function uses become additional arguments, and their new
      values additional results. `tf.aliasing_output` on an argument allows the result
      to reuse its memory. A state is a flat array; a counter is an `i32` that
      saturates.

    The file `manifest` describes the states for the host, as JSON: their names,
    types, placement and initial values (docs/frontends.md). It also contains the
    records of the buckets and the numbers of `ddp.count_compression`.

    The pass rejects operations that have no form in StableHLO: random numbers in a
    step (PowerSGD without warm start), process groups that depend on the machines of
    a job, gradients in memory, states in called functions and in regions of
    StableHLO's own control flow, and operations of other dialects.

    Pre-condition: `ddp-expand-hooks`; not `ddp-fuse`, `ddp-overlap` or
    `ddp-flatten`. `ddp-stablehlo-pipeline` runs the required passes.
    Post-condition: no operation of the ddp dialect is left.
  }];
  let before = [{
    ddp.process_group @dp size 2
    func.func @step(%g: tensor<4xf32>) -> tensor<4xf32> {
      %b = ddp.pack %g : tensor<4xf32> -> !ddp.bucket<f32, [4]>
      %s = ddp.all_reduce sum %b on @dp as "b0" {ddp.hook = #ddp.allreduce}
          : !ddp.bucket<f32, [4]>
      %r = ddp.unpack %s : !ddp.bucket<f32, [4]> -> tensor<4xf32>
      return %r : tensor<4xf32>
    }
  }];
  let after = [{
    func.func @step(%g: tensor<4xf32>) -> tensor<4xf32> {
      %s = "stablehlo.all_reduce"(%g) ({
      ^bb0(%a: tensor<f32>, %b: tensor<f32>):
        %0 = "stablehlo.add"(%a, %b)
            : (tensor<f32>, tensor<f32>) -> tensor<f32>
        "stablehlo.return"(%0) : (tensor<f32>) -> ()
      }) {channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>,
          replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>,
          use_global_device_ids} : (tensor<4xf32>) -> tensor<4xf32>
      return %s : tensor<4xf32>
    }
  }];
  let options = [
    Option<"numRanks", "num-ranks", "int64_t", /*default=*/"0",
           "Number of ranks in the job, if no process group declares it">,
    Option<"manifestPath", "manifest", "std::string", /*default=*/"",
           "File for what a host has to know about the states">,
  ];
  let dialects = ["func::Func"];
}

def DDPInlineCollectivesPass : DDP_ModulePass<"ddp-inline-collectives"> {
  let summary = "inline calls of functions with collectives";
  let text = [{
    Inlines every call of a function that contains an operation of the ddp dialect,
    directly or through calls. The states of hooks are then in functions that nothing
    calls, where `ddp-export-stablehlo` can turn them into arguments. All other calls
    stay. Private functions without uses are removed. Copies of a reduction, except
    the first, get a unique `ddp.name`: `w`, `w#1`, …

    It is an error if such a function calls itself.

    Pre-condition: none. Post-condition: no function with collectives is called.
  }];
  let before = [{
    ddp.process_group @dp size 2
    func.func private @reduce(%g: tensor<4xf32>) -> tensor<4xf32> {
      %0 = ddp.all_reduce mean %g on @dp : tensor<4xf32>
      return %0 : tensor<4xf32>
    }
    func.func @step(%g: tensor<4xf32>) -> tensor<4xf32> {
      %0 = call @reduce(%g) : (tensor<4xf32>) -> tensor<4xf32>
      return %0 : tensor<4xf32>
    }
  }];
  let after = [{
    ddp.process_group @dp size 2
    func.func @step(%g: tensor<4xf32>) -> tensor<4xf32> {
      %0 = ddp.all_reduce mean %g on @dp : tensor<4xf32>
      return %0 : tensor<4xf32>
    }
  }];
  let dialects = ["ddp::DDP"];
}
