// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Declares the pass from shard's collectives to ddp's.

include "ddphook/PassBase.td"

def DDPImportShardPass : DDP_ModulePass<"ddp-import-shard"> {
  let summary = "turn the collectives of MLIR's shard dialect into ddp's";
  let text = [{
    Converts the output of upstream's `shard-partition` to a program that
    `ddp-pipeline` compiles:

    - `shard.all_reduce` with the reduction `sum` or `average` becomes
      `ddp.all_reduce sum` or `mean`. A `shard.reduce_scatter` whose result is only
      used by a `shard.all_gather` over the same axes and along the same dimension is
      an all-reduce, too. Discardable attributes stay. A sum that is divided by the
      number of its processes, before or after, becomes a `mean`, as in
      `ddp-import-fx`.
    - Other `shard.reduce_scatter`s of sums and averages, and `shard.all_gather`s,
      become `ddp.reduce_scatter` and `ddp.all_gather`, with transposes around them if
      the parts along that dimension are not contiguous. The grid's axes must be in
      ascending order.
    - Process groups are created from the grid's axes. Processes are numbered in
      row-major order, as everywhere in the shard dialect; an all-reduce over some of
      the axes has groups of the processes that agree on all others. A reduction over
      all axes is over the whole job, which must then have as many ranks as the grid
      has processes. With a `?` in the grid's shape it may have any number; then
      reductions over some of the axes are not possible.
    - Scalars, such as the loss, are reduced exactly: they get the hook
      `#ddp.allreduce`. So do reductions over axes that `gradient-axes`, if given,
      does not list, such as those of activations in a program that splits its layers.
    - The partitioner gives a reduction's initial value to one process of a group, and
      zeros to the others, in an `scf.if`. If both branches compute the same, the
      `scf.if` and its condition on the process's index are removed.
    - `shard.grid_shape` becomes constants, and unused grids are removed.

    Anything else of the shard dialect is an error that names the operation: another
    collective, a reduction by `max`, a use of the process's index. With
    `keep-others` it stays for another pass. It is also an error to reduce over an
    axis a value that is computed only from a reduction over that axis and constants,
    because a sum would be too large by the size of the axis. `allow-repeated` allows
    it.

    Pre-condition: a partitioned program, on tensors. Post-condition: no operation of
    the shard dialect is left (without `keep-others`).
  }];
  let before = [{
    shard.grid @grid(shape = 2x2)
    %0 = shard.all_reduce %g on @grid grid_axes = [0]
        : tensor<8x4xf32> -> tensor<8x4xf32>
    %1 = shard.all_reduce %loss on @grid grid_axes = [0, 1] reduction = average
        : tensor<f32> -> tensor<f32>
  }];
  let after = [{
    ddp.process_group @grid_0 size 2 ranks [[0, 2], [1, 3]]
    ddp.process_group @grid_0_1 size 4
    %0 = ddp.all_reduce sum %g on @grid_0 : tensor<8x4xf32>
    %1 = ddp.all_reduce mean %loss on @grid_0_1
        {ddp.hook = #ddp.allreduce} : tensor<f32>
  }];
  let options = [
    ListOption<"gradientAxes", "gradient-axes", "int64_t",
               "Axes of the grid over which gradients are reduced; reductions "
               "over others are exact (default: all axes)">,
    Option<"allowRepeated", "allow-repeated", "bool", /*default=*/"false",
           "Allow values to be reduced again over the same axis">,
    Option<"keepOthers", "keep-others", "bool", /*default=*/"false",
           "Leave operations without an equivalent in ddp unchanged">,
  ];
  let dialects = ["arith::Arith", "ddp::DDP", "linalg::Linalg"];
}
