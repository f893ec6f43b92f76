//===- Passes.td - import from StableHLO -------------------*- tablegen -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Declares the passes for programs that JAX writes.
//
//===----------------------------------------------------------------------===//

#ifndef DDPHOOK_CONVERSION_STABLEHLOTODDP_PASSES_TD
#define DDPHOOK_CONVERSION_STABLEHLOTODDP_PASSES_TD

include "mlir/Pass/PassBase.td"

def DDPImportStableHLOPass : Pass<"ddp-import-stablehlo", "::mlir::ModuleOp"> {
  let summary = "turn the all-reduces of StableHLO into ddp.all_reduce";
  let description = [{
    Takes a program that JAX has written, and makes it the program that each rank
    runs, with gradients that hooks can compress:

    - `stablehlo.all_reduce` that adds becomes `ddp.all_reduce sum`, wherever it
      stands: in functions, loops and branches. One of several tensors becomes
      several. Attributes of other dialects stay; the handle of a channel goes, for
      reductions over a group meet in the program's order. A remark says where
      collectives have the same channel. On channel 1 JAX puts all of them; on any
      other it is an error if they differ in kind or groups. So is a channel that is
      not one between devices.
    - A sum is a `mean` if all uses of its result are divided by the number of ranks
      in the group, or if its operand is: by `stablehlo.divide` with that number, or
      `stablehlo.multiply` with one over it, in all elements. Reshapes, transposes,
      broadcasts and conversions between floating-point types may stand between
      them, but before the sum no conversion that loses digits. A sum of f16 stays
      one if the division is behind it: a `mean` divides first, and would lose
      numbers that are small. The division goes.
      Any other arithmetic stays, with a `sum`. A remark names the number if it is
      another one by which all uses, or the operand, are made smaller.
    - `replica_groups` become process groups, called after the axes of the
      module's mesh that have these groups, or `@replicas`. They have to hold each
      rank of the program once.
    - `sdy.manual_computation`, which is what JAX's `shard_map` becomes, is replaced
      by the operations in it, and its function's tensors by the parts that one
      rank has. Functions around one are inlined. Arguments that are not split get
      `ddp.replicated`. Operations outside are computed by every rank; it is an
      error if they need what is split, and if the function's own shardings split it
      in another way.
    - Scalars, such as the loss, are reduced exactly: they get the hook
      `#ddp.allreduce`. So do reductions over axes that `gradient-axes`, if given,
      does not list, and those whose results go into what other reductions add up,
      such as the statistics of a batch. A gradient goes there only by way of a
      parameter that it moves: of the argument of its size with which it, or what
      is computed from it element by element, is combined.
    - A gradient's `ddp.name` comes from `jax.result_info` of the first result that
      has its elements, which is the parameter's new value:
      `result[0]['dense']['kernel']` gives `dense.kernel`.

    Other collectives, all-reduces by `max`, of integers, or over groups of
    different sizes, and `partition_id` are errors that name the operation; with
    `keep-others` they stay as they are. It is also an error to reduce what is
    computed from a reduction over the same ranks and constants alone, for the sum
    would be too large, unless the result is needed for another such reduction of
    more than a scalar, as where a loss has statistics of all ranks;
    `allow-repeated` allows it. A program whose tensors are
    split, but not by `shard_map`, has to go through Shardy's partitioner before
    ([frontends.md](../frontends.md)).

    Pre-condition: operations of StableHLO, in the generic form if the tool has no
    StableHLO library. Post-condition: no collective of StableHLO (without
    `keep-others`) and nothing of Shardy's dialect is left.

    Before:

    ```mlir
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
    ```

    After:

    ```mlir
    ddp.process_group @dp size 2
    func.func @main(%arg0: tensor<4xf32>) -> (tensor<4xf32> {jax.result_info = "result['w']"}) {
      %0 = ddp.all_reduce mean %arg0 on @dp {ddp.name = "w"} : tensor<4xf32>
      return %0 : tensor<4xf32>
    }
    ```
  }];
  let options = [
    ListOption<"gradientAxes", "gradient-axes", "std::string",
               "Axes of the mesh over which gradients are reduced; reductions "
               "over others are exact (default: all axes)">,
    Option<"allowRepeated", "allow-repeated", "bool", /*default=*/"false",
           "Allow reductions of what is already reduced over the same ranks">,
    Option<"keepOthers", "keep-others", "bool", /*default=*/"false",
           "Leave what has no equivalent in ddp as it is">,
    Option<"keepAccumulators", "keep-accumulators", "bool",
           /*default=*/"false",
           "Sum 16-bit numbers in 16 bits, as the program's linalg does">,
  ];
  let dependentDialects = ["::mlir::ddp::DDPDialect"];
}

def DDPConvertStableHLOControlFlowPass
    : Pass<"ddp-convert-stablehlo-control-flow", "::mlir::ModuleOp"> {
  let summary = "turn StableHLO's loops and branches into those of scf";
  let description = [{
    StableHLO's own lowering to linalg leaves `stablehlo.while`, `stablehlo.case`,
    `stablehlo.if` and `stablehlo.optimization_barrier`. This pass turns the first
    three into `scf.while`, `scf.if` or `scf.index_switch`, and `scf.if`; everything
    in them stays as it is. A barrier is replaced by its operands.

    Pre-condition: none. Post-condition: none of these operations is left.

    Before:

    ```mlir
    func.func @choose(%which: tensor<i1>, %a: tensor<4xf32>, %b: tensor<4xf32>) -> tensor<4xf32> {
      %0 = "stablehlo.if"(%which) ({
        "stablehlo.return"(%a) : (tensor<4xf32>) -> ()
      }, {
        "stablehlo.return"(%b) : (tensor<4xf32>) -> ()
      }) : (tensor<i1>) -> tensor<4xf32>
      return %0 : tensor<4xf32>
    }
    ```

    After:

    ```mlir
    func.func @choose(%which: tensor<i1>, %a: tensor<4xf32>, %b: tensor<4xf32>) -> tensor<4xf32> {
      %extracted = tensor.extract %which[] : tensor<i1>
      %0 = scf.if %extracted -> (tensor<4xf32>) {
        scf.yield %a : tensor<4xf32>
      } else {
        scf.yield %b : tensor<4xf32>
      }
      return %0 : tensor<4xf32>
    }
    ```
  }];
  let dependentDialects = ["::mlir::arith::ArithDialect",
                           "::mlir::scf::SCFDialect",
                           "::mlir::tensor::TensorDialect"];
}

def DDPVerifyStableHLOOrderPass
    : Pass<"ddp-verify-stablehlo-order", "::mlir::ModuleOp"> {
  let summary = "check that all ranks run the same collectives, in StableHLO";
  let description = [{
    `ddp-verify-order` for programs that stay StableHLO, of whose operations MLIR
    knows nothing. It checks a copy, in which loops and branches are those of the scf
    dialect and results of computations depend on the operands. So a loop may have
    collectives if all ranks have its condition alike: if that is computed from
    constants, arguments with `ddp.replicated` and reductions.

    Pre-condition: none. Post-condition: the module is unchanged.

    Here every rank has a condition of its own. This is refused:

    ```mlir
    ddp.process_group @dp size 2
    func.func @step(%g: tensor<4xf32>, %stop: tensor<i1>) -> tensor<4xf32> {
      %0 = "stablehlo.if"(%stop) ({
        "stablehlo.return"(%g) : (tensor<4xf32>) -> ()
      }, {
        %1 = ddp.all_reduce mean %g on @dp : tensor<4xf32> // error: expected all ranks of @dp to come here equally often
        "stablehlo.return"(%1) : (tensor<4xf32>) -> ()
      }) : (tensor<i1>) -> tensor<4xf32>
      return %0 : tensor<4xf32>
    }
    ```
  }];
  let dependentDialects = ["::mlir::arith::ArithDialect",
                           "::mlir::scf::SCFDialect",
                           "::mlir::tensor::TensorDialect",
                           "::mlir::ub::UBDialect"];
}

def DDPConvertStableHLOScatterPass
    : Pass<"ddp-convert-stablehlo-scatter", "::mlir::ModuleOp"> {
  let summary = "turn StableHLO's scatter into loops";
  let description = [{
    StableHLO's own lowering to linalg leaves `stablehlo.scatter`, which the gradients
    of embeddings, of losses by class and of all other indexing are. This pass turns it
    into loops over the updates, which are put into the operand one after the other. An
    update whose window does not lie in the operand has no effect, as in XLA.

    The region has to combine the two numbers by an addition, a product, a maximum or a
    minimum, or to give the update as it is. Anything else, several operands, and
    unsigned elements are errors.

    Pre-condition: static shapes. Post-condition: no `stablehlo.scatter` is left.

    Before:

    ```mlir
    func.func @add_rows(%table: tensor<8x3xf32>, %rows: tensor<4xi32>, %updates: tensor<4x3xf32>) -> tensor<8x3xf32> {
      %0 = "stablehlo.scatter"(%table, %rows, %updates) <{
          scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [1],
              inserted_window_dims = [0], scatter_dims_to_operand_dims = [0],
              index_vector_dim = 1>}> ({
      ^bb0(%old: tensor<f32>, %update: tensor<f32>):
        %sum = "stablehlo.add"(%old, %update) : (tensor<f32>, tensor<f32>) -> tensor<f32>
        "stablehlo.return"(%sum) : (tensor<f32>) -> ()
      }) : (tensor<8x3xf32>, tensor<4xi32>, tensor<4x3xf32>) -> tensor<8x3xf32>
      return %0 : tensor<8x3xf32>
    }
    ```

    After:

    ```mlir
    func.func @add_rows(%table: tensor<8x3xf32>, %rows: tensor<4xi32>, %updates: tensor<4x3xf32>) -> tensor<8x3xf32> {
      %c0 = arith.constant 0 : index
      %c4 = arith.constant 4 : index
      %c1 = arith.constant 1 : index
      %0 = scf.for %arg3 = %c0 to %c4 step %c1 iter_args(%arg4 = %table) -> (tensor<8x3xf32>) {
        %extracted = tensor.extract %rows[%arg3] : tensor<4xi32>
        %1 = arith.index_cast %extracted : i32 to index
        %c7 = arith.constant 7 : index
        %2 = arith.cmpi ule, %1, %c7 : index
        %3 = scf.if %2 -> (tensor<8x3xf32>) {
          %c0_0 = arith.constant 0 : index
          %c3 = arith.constant 3 : index
          %c1_1 = arith.constant 1 : index
          %4 = scf.for %arg5 = %c0_0 to %c3 step %c1_1 iter_args(%arg6 = %arg4) -> (tensor<8x3xf32>) {
            %extracted_2 = tensor.extract %updates[%arg3, %arg5] : tensor<4x3xf32>
            %extracted_3 = tensor.extract %arg6[%1, %arg5] : tensor<8x3xf32>
            %5 = arith.addf %extracted_3, %extracted_2 : f32
            %inserted = tensor.insert %5 into %arg6[%1, %arg5] : tensor<8x3xf32>
            scf.yield %inserted : tensor<8x3xf32>
          }
          scf.yield %4 : tensor<8x3xf32>
        } else {
          scf.yield %arg4 : tensor<8x3xf32>
        }
        scf.yield %3 : tensor<8x3xf32>
      }
      return %0 : tensor<8x3xf32>
    }
    ```
  }];
  let dependentDialects = ["::mlir::arith::ArithDialect",
                           "::mlir::scf::SCFDialect",
                           "::mlir::tensor::TensorDialect"];
}

def DDPConvertCHLOTopKPass
    : Pass<"ddp-convert-chlo-top-k", "::mlir::ModuleOp"> {
  let summary = "turn the search for the largest numbers of rows into loops";
  let description = [{
    JAX writes `jax.lax.top_k`, by which layers choose experts, as `chlo.top_k`.
    StableHLO's own lowering makes a sort of it, which does not become linalg. This
    pass searches each row as often as numbers are wanted. Of equal ones the first
    comes first, and floating-point numbers have their total order: a NaN is the
    largest, and -0 comes behind 0.

    Pre-condition: static shapes. Post-condition: no `chlo.top_k` is left.

    Before:

    ```mlir
    func.func @choose(%gates: tensor<16x4xi32>) -> (tensor<16x2xi32>, tensor<16x2xi32>) {
      %0:2 = "chlo.top_k"(%gates) <{k = 2 : i64}> : (tensor<16x4xi32>) -> (tensor<16x2xi32>, tensor<16x2xi32>)
      return %0#0, %0#1 : tensor<16x2xi32>, tensor<16x2xi32>
    }
    ```

    After:

    ```mlir
    func.func @choose(%gates: tensor<16x4xi32>) -> (tensor<16x2xi32>, tensor<16x2xi32>) {
      %c0 = arith.constant 0 : index
      %c16 = arith.constant 16 : index
      %c1 = arith.constant 1 : index
      %c0_0 = arith.constant 0 : index
      %c2 = arith.constant 2 : index
      %c1_1 = arith.constant 1 : index
      %0 = tensor.empty() : tensor<16x2xi32>
      %1 = tensor.empty() : tensor<16x2xi32>
      %2:3 = scf.for %arg1 = %c0 to %c16 step %c1 iter_args(%arg2 = %0, %arg3 = %1, %arg4 = %c0_0) -> (tensor<16x2xi32>, tensor<16x2xi32>, index) {
        %3:3 = scf.for %arg5 = %c0_0 to %c2 step %c1_1 iter_args(%arg6 = %arg2, %arg7 = %arg3, %arg8 = %arg4) -> (tensor<16x2xi32>, tensor<16x2xi32>, index) {
          %c4 = arith.constant 4 : index
          %c0_2 = arith.constant 0 : index
          %4 = arith.cmpi eq, %arg5, %c0_2 : index
          %extracted = tensor.extract %gates[%arg1, %arg8] : tensor<16x4xi32>
          %c0_3 = arith.constant 0 : index
          %c1_4 = arith.constant 1 : index
          %5 = scf.for %arg9 = %c0_3 to %c4 step %c1_4 iter_args(%arg10 = %c4) -> (index) {
            %extracted_7 = tensor.extract %gates[%arg1, %arg9] : tensor<16x4xi32>
            %7 = arith.cmpi slt, %extracted_7, %extracted : i32
            %8 = arith.cmpi eq, %extracted_7, %extracted : i32
            %9 = arith.cmpi ugt, %arg9, %arg8 : index
            %10 = arith.andi %8, %9 : i1
            %11 = arith.ori %7, %10 : i1
            %12 = arith.cmpi eq, %arg10, %c4 : index
            %13 = arith.select %12, %arg9, %arg10 : index
            %extracted_8 = tensor.extract %gates[%arg1, %13] : tensor<16x4xi32>
            %14 = arith.cmpi sgt, %extracted_7, %extracted_8 : i32
            %15 = arith.ori %12, %14 : i1
            %16 = arith.ori %4, %11 : i1
            %17 = arith.andi %16, %15 : i1
            %18 = arith.select %17, %arg9, %arg10 : index
            scf.yield %18 : index
          }
          %extracted_5 = tensor.extract %gates[%arg1, %5] : tensor<16x4xi32>
          %6 = arith.index_cast %5 : index to i32
          %inserted = tensor.insert %extracted_5 into %arg6[%arg1, %arg5] : tensor<16x2xi32>
          %inserted_6 = tensor.insert %6 into %arg7[%arg1, %arg5] : tensor<16x2xi32>
          scf.yield %inserted, %inserted_6, %5 : tensor<16x2xi32>, tensor<16x2xi32>, index
        }
        scf.yield %3#0, %3#1, %3#2 : tensor<16x2xi32>, tensor<16x2xi32>, index
      }
      return %2#0, %2#1 : tensor<16x2xi32>, tensor<16x2xi32>
    }
    ```
  }];
  let dependentDialects = ["::mlir::arith::ArithDialect",
                           "::mlir::scf::SCFDialect",
                           "::mlir::tensor::TensorDialect"];
}

#endif // DDPHOOK_CONVERSION_STABLEHLOTODDP_PASSES_TD
