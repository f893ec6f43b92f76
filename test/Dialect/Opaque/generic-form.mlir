// What JAX prints in generic form is read with the verifier on and without
// --allow-unregistered-dialect, and printed byte for byte; in stock mlir-opt with the
// plugin, too: Plugin/generic-form.test.

// RUN: sed -e '/^\/\//d' -e '/^$/d' %s > %t.mlir
// RUN: ddphook-opt %t.mlir --mlir-print-op-generic | sed '/^$/d' | diff %t.mlir -
// RUN: ddphook-opt %t.mlir --inline --symbol-dce | FileCheck %s

// Upstream's inliner takes the callee into a region of an operation that MLIR does
// not know.
// CHECK-NOT: func.func private
// CHECK: sdy.manual_computation
// CHECK: stablehlo.while
// CHECK-NOT: call
// CHECK: "stablehlo.all_reduce"
// CHECK-NOT: call

"builtin.module"() <{sym_name = "jit_step"}> ({
  "sdy.mesh"() <{mesh = #sdy.mesh<["dp"=2]>, sym_name = "mesh"}> {stablehlo.mesh = {axes = [{name = "dp", size = 2 : i64}]}} : () -> ()
  "func.func"() <{arg_attrs = [{sdy.sharding = #sdy.sharding<@mesh, [{"dp"}]>}], function_type = (tensor<8xf32>) -> tensor<4xf32>, res_attrs = [{jax.result_info = "result"}], sym_name = "main", sym_visibility = "public"}> ({
  ^bb0(%arg5: tensor<8xf32>):
    %4 = "stablehlo.create_token"() : () -> !stablehlo.token
    %5 = "sdy.manual_computation"(%arg5) <{in_shardings = #sdy.sharding_per_value<[<@mesh, [{"dp"}]>]>, manual_axes = #sdy<manual_axes{"dp"}>, out_shardings = #sdy.sharding_per_value<[<@mesh, [{}]>]>}> ({
    ^bb0(%arg6: tensor<4xf32>):
      %6 = "chlo.erf"(%arg6) {mhlo.frontend_attributes = {a = "b"}, x = #stablehlo.type_extensions<bounds = [?, 4]>} : (tensor<4xf32>) -> tensor<4xf32>
      %7 = "stablehlo.while"(%6) ({
      ^bb0(%arg8: tensor<4xf32>):
        %9 = "stablehlo.constant"() <{value = dense<false> : tensor<i1>}> : () -> tensor<i1>
        "stablehlo.return"(%9) : (tensor<i1>) -> ()
      }, {
      ^bb0(%arg7: tensor<4xf32>):
        %8 = "func.call"(%arg7) <{callee = @closed_call}> : (tensor<4xf32>) -> tensor<4xf32>
        "stablehlo.return"(%8) : (tensor<4xf32>) -> ()
      }) : (tensor<4xf32>) -> tensor<4xf32>
      "sdy.return"(%7) : (tensor<4xf32>) -> ()
    }) : (tensor<8xf32>) -> tensor<4xf32>
    "func.return"(%5) : (tensor<4xf32>) -> ()
  }) : () -> ()
  "func.func"() <{function_type = (tensor<4xf32>) -> tensor<4xf32>, sym_name = "closed_call", sym_visibility = "private"}> ({
  ^bb0(%arg0: tensor<4xf32>):
    %0 = "stablehlo.all_reduce"(%arg0) <{channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>, use_global_device_ids}> ({
    ^bb0(%arg3: tensor<f32>, %arg4: tensor<f32>):
      %3 = "stablehlo.add"(%arg3, %arg4) : (tensor<f32>, tensor<f32>) -> tensor<f32>
      "stablehlo.return"(%3) : (tensor<f32>) -> ()
    }) : (tensor<4xf32>) -> tensor<4xf32>
    %1 = "stablehlo.reduce"(%0, %0) <{dimensions = array<i64: 0>}> ({
    ^bb0(%arg1: tensor<f32>, %arg2: tensor<f32>):
      %2 = "mhlo.add"(%arg1, %arg2) : (tensor<f32>, tensor<f32>) -> tensor<f32>
      "stablehlo.return"(%2) : (tensor<f32>) -> ()
    }) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
    "func.return"(%1) : (tensor<4xf32>) -> ()
  }) : () -> ()
}) {mhlo.num_partitions = 2 : i32, mhlo.num_replicas = 1 : i32} : () -> ()
