//===- Passes.td - import from MLIR's shard dialect --------*- tablegen -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Declares the pass from shard's collectives to ddp's.
//
//===----------------------------------------------------------------------===//

#ifndef DDPHOOK_CONVERSION_SHARDTODDP_PASSES_TD
#define DDPHOOK_CONVERSION_SHARDTODDP_PASSES_TD

include "mlir/Pass/PassBase.td"

def DDPImportShardPass : Pass<"ddp-import-shard", "::mlir::ModuleOp"> {
  let summary = "turn the collectives of MLIR's shard dialect into ddp's";
  let description = [{
    Takes what upstream's `shard-partition` leaves of a program, and makes it one
    that `ddp-pipeline` compiles:

    - `shard.all_reduce` with the reduction `sum` or `average` becomes
      `ddp.all_reduce sum` or `mean`. A `shard.reduce_scatter` whose result goes
      into nothing but a `shard.all_gather` over the same axes and along the same
      dimension is an all-reduce, too. Discardable attributes stay. A sum that is
      divided by the number of its processes, before it or behind it, is a `mean`, as
      in `ddp-import-fx`.
    - Other `shard.reduce_scatter`s, of sums and averages, and `shard.all_gather`s become
      `ddp.reduce_scatter` and `ddp.all_gather`, with transposes around them where
      parts along that dimension do not lie in one piece. The grid's axes have to be
      in ascending order.
    - Process groups are made of the grid's axes. Processes are numbered row by row,
      the last axis first, as everywhere in the shard dialect; an all-reduce over
      some of the axes has groups of those processes that agree on all others. A
      reduction over all axes is one over the whole job, which then has to have as
      many ranks as the grid has processes. With a `?` in the grid's shape it may
      have any number; then no reduction over a part of the axes is possible.
    - Scalars, such as the loss, are reduced exactly: they get the hook
      `#ddp.allreduce`. So do reductions over axes that `gradient-axes`, if given,
      does not list: activations in a program that splits its layers, too.
    - The partitioner gives a reduction's first value to one process of a group, and
      zeros to the others, in an `scf.if`. Where both branches compute the same, the
      `scf.if` goes, and with it the question for the process's index.
    - `shard.grid_shape` becomes constants, and a grid without uses is removed.

    Anything else of the shard dialect is an error that names the operation: another
    collective, a reduction by `max`, an index of the process that the program
    needs. With `keep-others` it stays as it is, for another pass. It is also an
    error to reduce, over an axis, what was already reduced over that axis, and what
    is computed from that and constants alone: a sum would be too large by the size
    of the axis. `allow-repeated` allows it.

    Pre-condition: a partitioned program, on tensors. Post-condition: no operation of
    the shard dialect is left (without `keep-others`).

    Before:

    ```mlir
    shard.grid @grid(shape = 2x2)
    func.func @step(%g: tensor<8x4xf32>, %loss: tensor<f32>)
        -> (tensor<8x4xf32>, tensor<f32>) {
      %0 = shard.all_reduce %g on @grid grid_axes = [0]
          : tensor<8x4xf32> -> tensor<8x4xf32>
      %1 = shard.all_reduce %loss on @grid grid_axes = [0, 1] reduction = average
          : tensor<f32> -> tensor<f32>
      return %0, %1 : tensor<8x4xf32>, tensor<f32>
    }
    ```

    After:

    ```mlir
    ddp.process_group @grid_0 size 2 ranks [[0, 2], [1, 3]]
    ddp.process_group @grid_0_1 size 4
    func.func @step(%g: tensor<8x4xf32>, %loss: tensor<f32>)
        -> (tensor<8x4xf32>, tensor<f32>) {
      %0 = ddp.all_reduce sum %g on @grid_0 : tensor<8x4xf32>
      %1 = ddp.all_reduce mean %loss on @grid_0_1
          {ddp.hook = #ddp.allreduce} : tensor<f32>
      return %0, %1 : tensor<8x4xf32>, tensor<f32>
    }
    ```
  }];
  let options = [
    ListOption<"gradientAxes", "gradient-axes", "int64_t",
               "Axes of the grid over which gradients are reduced; reductions "
               "over others are exact (default: all axes)">,
    Option<"allowRepeated", "allow-repeated", "bool", /*default=*/"false",
           "Allow reductions of what is already reduced over the same axis">,
    Option<"keepOthers", "keep-others", "bool", /*default=*/"false",
           "Leave what has no equivalent in ddp as it is">,
  ];
  let dependentDialects = ["::mlir::arith::ArithDialect",
                           "::mlir::ddp::DDPDialect",
                           "::mlir::linalg::LinalgDialect",
                           "::mlir::tensor::TensorDialect"];
}

#endif // DDPHOOK_CONVERSION_SHARDTODDP_PASSES_TD
