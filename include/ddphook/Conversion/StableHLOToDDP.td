// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Declares the passes for programs that JAX writes.

include "ddphook/PassBase.td"

def DDPImportStableHLOPass : DDP_ModulePass<"ddp-import-stablehlo"> {
  let summary = "turn the all-reduces of StableHLO into ddp.all_reduce";
  let text = [{
    Converts a program that JAX has written to the program that each rank runs, with
    gradients that hooks can compress:

    - A `stablehlo.all_reduce` that adds becomes a `ddp.all_reduce sum` in functions,
      loops and branches. One of several tensors becomes several. Attributes of other
      dialects stay. The channel handle is dropped, because reductions over a group
      match in program order. A remark reports collectives on the same channel. JAX
      puts all of them on channel 1; on any other channel they must agree in kind and
      groups. A channel that is not between devices is an error.
    - A sum becomes a `mean`, and the division is removed, if its operand or all uses
      of its result are divided by the number of ranks in the group: by
      `stablehlo.divide` with that number in all elements, or by
      `stablehlo.multiply` with its inverse. Reshapes, transposes, broadcasts and
      conversions between floating-point types may be between them, but before the
      sum no conversion that loses digits. A sum of f16 that is divided afterwards
      stays: a `mean` divides first, and would lose small numbers. Any other
      arithmetic stays, with a `sum`. A remark reports any other divisor.
    - `replica_groups` become process groups, named after the axes of the module's
      mesh that have these groups, or `@replicas`. They must contain each rank of the
      program once.
    - `sdy.manual_computation`, which JAX writes for `shard_map`, is replaced by its
      operations, and the tensors of its function by one rank's shards. Functions
      around one are inlined. Arguments that are not split get `ddp.replicated`. Every
      rank computes the operations outside; they must not use split tensors, and the
      function's own shardings must agree.
    - Scalars, such as the loss, are reduced exactly: they get the hook
      `#ddp.allreduce`. So do reductions over axes that `gradient-axes`, if given,
      does not list, and those whose results flow into other reductions, such as batch
      statistics. A gradient only does so through a parameter that it updates: the
      argument of its size with which it, or a value computed from it element by
      element, is combined.
    - A gradient's `ddp.name` comes from `jax.result_info` of the first result that
      has its elements, the parameter's new value:
      `result[0]['dense']['kernel']` gives `dense.kernel`.

    Other collectives, all-reduces by `max`, of integers, or over groups of different
    sizes, and `partition_id` are errors that name the operation; with `keep-others`
    they stay as they are. It is also an error to reduce a value that is computed only
    from a reduction over the same ranks and constants, because the sum would be too
    large. It is allowed if the result is used by another such reduction of more than
    a scalar, as in a loss with statistics over all ranks, or with `allow-repeated`. A
    program whose tensors are split other than by `shard_map` must go through
    Shardy's partitioner first ([frontends.md](../frontends.md)).

    Pre-condition: operations of StableHLO, in the generic form if the tool has no
    StableHLO library. Post-condition: no collective of StableHLO (without
    `keep-others`) and nothing of Shardy's dialect is left.
  }];
  let before = [{
    "sdy.mesh"() <{mesh = #sdy.mesh<["dp"=2]>, sym_name = "mesh"}> : () -> ()
    func.func @main(%arg0: tensor<8xf32>) -> (tensor<4xf32> {jax.result_info = "result['w']"}) {
      %0 = "sdy.manual_computation"(%arg0) <{
          in_shardings = #sdy.sharding_per_value<[<@mesh, [{"dp"} ]>]>,
          manual_axes = #sdy<manual_axes{"dp"}>,
          out_shardings = #sdy.sharding_per_value<[<@mesh, [{} ]>]>}> ({
      ^bb0(%part: tensor<4xf32>):
        %1 = "stablehlo.all_reduce"(%part) <{
            channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>,
            replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>,
            use_global_device_ids}> ({
        ^bb0(%a: tensor<f32>, %b: tensor<f32>):
          %sum = "stablehlo.add"(%a, %b) : (tensor<f32>, tensor<f32>) -> tensor<f32>
          "stablehlo.return"(%sum) : (tensor<f32>) -> ()
        }) : (tensor<4xf32>) -> tensor<4xf32>
        %2 = "stablehlo.constant"() <{value = dense<2.0> : tensor<4xf32>}> : () -> tensor<4xf32>
        %3 = "stablehlo.divide"(%1, %2) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
        "sdy.return"(%3) : (tensor<4xf32>) -> ()
      }) : (tensor<8xf32>) -> tensor<4xf32>
      return %0 : tensor<4xf32>
    }
  }];
  let after = [{
    ddp.process_group @dp size 2
    func.func @main(%arg0: tensor<4xf32>) -> (tensor<4xf32> {jax.result_info = "result['w']"}) {
      %0 = ddp.all_reduce mean %arg0 on @dp {ddp.name = "w"} : tensor<4xf32>
      return %0 : tensor<4xf32>
    }
  }];
  let options = [
    ListOption<"gradientAxes", "gradient-axes", "std::string",
               "Axes of the mesh over which gradients are reduced; reductions "
               "over others are exact (default: all axes)">,
    Option<"allowRepeated", "allow-repeated", "bool", /*default=*/"false",
           "Allow values to be reduced again over the same ranks">,
    Option<"keepOthers", "keep-others", "bool", /*default=*/"false",
           "Leave operations without an equivalent in ddp unchanged">,
    Option<"keepAccumulators", "keep-accumulators", "bool",
           /*default=*/"false",
           "Sum 16-bit numbers in 16 bits, as the program's linalg does">,
  ];
  let dialects = ["ddp::DDP"];
}

def DDPConvertStableHLOControlFlowPass
    : DDP_ModulePass<"ddp-convert-stablehlo-control-flow"> {
  let summary = "turn StableHLO's loops and branches into those of scf";
  let text = [{
    StableHLO's own lowering to linalg does not handle `stablehlo.while`,
    `stablehlo.case`, `stablehlo.if` and `stablehlo.optimization_barrier`. This pass
    converts the first three to `scf.while`, `scf.if` or `scf.index_switch`, and
    `scf.if`, without changing their contents. It replaces a barrier by its operands.

    Pre-condition: none. Post-condition: none of these operations is left.
  }];
  let before = [{
    %0 = "stablehlo.if"(%which) ({
      "stablehlo.return"(%a) : (tensor<4xf32>) -> ()
    }, {
      "stablehlo.return"(%b) : (tensor<4xf32>) -> ()
    }) : (tensor<i1>) -> tensor<4xf32>
  }];
  let after = [{
    %extracted = tensor.extract %which[] : tensor<i1>
    %0 = scf.if %extracted -> (tensor<4xf32>) {
      scf.yield %a : tensor<4xf32>
    } else {
      scf.yield %b : tensor<4xf32>
    }
  }];
  let dialects = ["arith::Arith", "scf::SCF", "tensor::Tensor"];
}

def DDPVerifyStableHLOOrderPass : DDP_ModulePass<"ddp-verify-stablehlo-order"> {
  let summary = "check that all ranks run the same collectives, in StableHLO";
  let description = [{
    `ddp-verify-order` for programs that stay in StableHLO, whose operations MLIR does
    not know. It checks a copy with loops and branches of the scf dialect, in which
    results of computations depend on their operands. So a loop may contain
    collectives if its condition is equal on all ranks: computed from constants,
    arguments with `ddp.replicated` and reductions.

    Pre-condition: none. Post-condition: the module is unchanged.

    In this example the condition may differ between ranks. It is refused:

    ```mlir
    %0 = "stablehlo.if"(%stop) ({
      "stablehlo.return"(%g) : (tensor<4xf32>) -> ()
    }, {
      %1 = ddp.all_reduce mean %g on @dp : tensor<4xf32> // error: expected all ranks of @dp to execute this operation equally often
      "stablehlo.return"(%1) : (tensor<4xf32>) -> ()
    }) : (tensor<i1>) -> tensor<4xf32>
    ```
  }];
  let dialects = ["arith::Arith", "scf::SCF", "tensor::Tensor", "ub::UB"];
}

def DDPConvertStableHLOScatterPass : DDP_ModulePass<"ddp-convert-stablehlo-scatter"> {
  let summary = "turn StableHLO's scatter into loops";
  let description = [{
    StableHLO's own lowering to linalg does not handle `stablehlo.scatter`, which is
    the gradient of embeddings, of losses by class and of all other indexing. This pass
    turns it into loops that apply the updates to the operand one after the other. As
    in XLA, an update whose window is not inside the operand has no effect.

    The region must combine the two numbers by an addition, a product, a maximum or a
    minimum, or return the update. Anything else, several operands, and unsigned
    elements are errors.

    Pre-condition: static shapes. Post-condition: no `stablehlo.scatter` is left.

    In outline:

    ```
    %0 = "stablehlo.scatter"(%table, %rows, %updates) ({ … "stablehlo.add" … })
    // becomes
    %0 = scf.for %i = %c0 to %c4 step %c1 iter_args(%table_i = %table) {
      %row = tensor.extract %rows[%i]
      scf.if … the row is inside the table {
        scf.for %j = %c0 to %c3 step %c1 iter_args(%row_j = %table_i) {
          … tensor.insert of %row_j[%row, %j] + %updates[%i, %j]
        }
      }
    }
    ```
  }];
  let dialects = ["arith::Arith", "scf::SCF", "tensor::Tensor"];
}

def DDPConvertCHLOTopKPass : DDP_ModulePass<"ddp-convert-chlo-top-k"> {
  let summary = "turn the search for the largest numbers of rows into loops";
  let description = [{
    JAX writes `jax.lax.top_k`, with which mixture-of-experts layers choose experts, as
    `chlo.top_k`. StableHLO's own lowering makes a sort of it, which cannot be lowered to
    linalg. This pass searches each row once per requested number. Among equal numbers
    the first comes first. Floating-point numbers are in their total order: a NaN is the
    largest, and -0 comes after 0.

    Pre-condition: static shapes. Post-condition: no `chlo.top_k` is left.

    In outline:

    ```
    %0:2 = "chlo.top_k"(%gates) <{k = 2 : i64}>
    // becomes
    %0:2 = scf.for %row = … iter_args(%values = …, %places = …) {
      scf.for %rank = %c0 to %c2 step %c1 iter_args(…, %last = …) {
        %place = scf.for %i = … iter_args(%best = …) {
          … %i, if it is the first or comes after %last and is larger than at %best
        }
        … tensor.insert of %gates[%row, %place] and of %place
      }
    }
    ```
  }];
  let dialects = ["arith::Arith", "scf::SCF", "tensor::Tensor"];
}
