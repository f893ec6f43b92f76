//===- Passes.td - export to StableHLO ---------------------*- tablegen -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Declares the pass from expanded hooks to StableHLO.
//
//===----------------------------------------------------------------------===//

#ifndef DDPHOOK_CONVERSION_DDPTOSTABLEHLO_PASSES_TD
#define DDPHOOK_CONVERSION_DDPTOSTABLEHLO_PASSES_TD

include "mlir/Pass/PassBase.td"

def DDPExportStableHLOPass
    : Pass<"ddp-export-stablehlo", "::mlir::ModuleOp"> {
  let summary = "turn expanded hooks into StableHLO, for XLA";
  let description = [{
    Takes a program of StableHLO in which hooks have been expanded, and leaves one of
    StableHLO alone: the program of each rank, which XLA runs on all of them.

    - A bucket becomes its tensors. Where a collective or a state needs one array,
      they are reshaped and concatenated; slices of the array are the tensors again.
    - `ddp.all_reduce` becomes a `stablehlo.all_reduce` of one operand, with a
      channel of its own, behind those that the program uses. The ranks of process
      groups are listed; `num-ranks` says how many ranks the job has, where no group
      does.
    - Divisions are true divisions, and 16-bit values are rounded where the hook
      rounds them: a `stablehlo.optimization_barrier` keeps XLA from multiplying by
      an inverse, and from computing in more bits.
    - Orthogonalization is written out, in a function for each shape: modified
      Gram-Schmidt or Householder QR, as `ddp.orthogonalize` says.
    - `scf.if` becomes `stablehlo.if`, and arithmetic on counters StableHLO's.
    - The states that a function uses become arguments of it, behind the others, and
      their new values results. `tf.aliasing_output` on an argument says that the
      result may have its memory. A state is a flat array; a counter is an `i32` that
      stops at its largest value.

    What a host has to know of the states is written to the file `manifest`, as JSON:
    their names, types, placement and initial values (docs/frontends.md). It also has
    the records of the buckets and what `ddp.count_compression` counts.

    Everything that has no form in StableHLO is an error that names the operation:
    random numbers in a step (PowerSGD without warm start), process groups that
    depend on the machines of a job, gradients in memory, states in functions that
    are called and in regions of StableHLO's own control flow, and operations of
    other dialects.

    Pre-condition: `ddp-expand-hooks`; not `ddp-fuse`, `ddp-overlap` or
    `ddp-flatten`. `ddp-stablehlo-pipeline` runs what is needed before.
    Post-condition: no operation of the ddp dialect is left.

    Before:

    ```mlir
    ddp.process_group @dp size 2
    func.func @step(%g: tensor<4xf32>) -> tensor<4xf32> {
      %b = ddp.pack %g : tensor<4xf32> -> !ddp.bucket<f32, [4]>
      %s = ddp.all_reduce sum %b on @dp as "b0" {ddp.hook = #ddp.allreduce}
          : !ddp.bucket<f32, [4]>
      %r = ddp.unpack %s : !ddp.bucket<f32, [4]> -> tensor<4xf32>
      return %r : tensor<4xf32>
    }
    ```

    After:

    ```mlir
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
    ```
  }];
  let options = [
    Option<"numRanks", "num-ranks", "int64_t", /*default=*/"0",
           "Ranks of the job, where no process group says it">,
    Option<"manifestPath", "manifest", "std::string", /*default=*/"",
           "File for what a host has to know of the states">,
  ];
  let dependentDialects = ["::mlir::func::FuncDialect"];
}

def DDPInlineCollectivesPass
    : Pass<"ddp-inline-collectives", "::mlir::ModuleOp"> {
  let summary = "inline calls of functions with collectives";
  let description = [{
    Inlines every call of a function that has an operation of the ddp dialect, or
    calls one that has. Then the states of hooks belong to the functions that nothing
    calls, where `ddp-export-stablehlo` can make arguments of them. All other calls
    stay. A private function that nothing refers to any more is removed. Of a
    reduction that is there several times afterwards, each copy but the first gets a
    `ddp.name` of its own: `w`, `w#1`, …

    It is an error if such a function calls itself.

    Pre-condition: none. Post-condition: no function with collectives is called.

    Before:

    ```mlir
    ddp.process_group @dp size 2
    func.func private @reduce(%g: tensor<4xf32>) -> tensor<4xf32> {
      %0 = ddp.all_reduce mean %g on @dp : tensor<4xf32>
      return %0 : tensor<4xf32>
    }
    func.func @step(%g: tensor<4xf32>) -> tensor<4xf32> {
      %0 = call @reduce(%g) : (tensor<4xf32>) -> tensor<4xf32>
      return %0 : tensor<4xf32>
    }
    ```

    After:

    ```mlir
    ddp.process_group @dp size 2
    func.func @step(%g: tensor<4xf32>) -> tensor<4xf32> {
      %0 = ddp.all_reduce mean %g on @dp : tensor<4xf32>
      return %0 : tensor<4xf32>
    }
    ```
  }];
  let dependentDialects = ["::mlir::ddp::DDPDialect"];
}

#endif // DDPHOOK_CONVERSION_DDPTOSTABLEHLO_PASSES_TD
