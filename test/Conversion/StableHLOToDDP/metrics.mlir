// RUN: ddphook-opt %s -split-input-file --ddp-import-stablehlo | FileCheck %s

// In a step that updates parameters, a reduction that is only returned is no gradient. One
// that is combined with a state may be one, as with flattened parameters.
// CHECK-LABEL: func.func @metrics(
// CHECK: ddp.all_reduce sum %{{.+}} on @replicas {ddp.name = "w"} : tensor<4x4xf32>
// CHECK: ddp.all_reduce sum %{{.+}} on @replicas {ddp.hook = #ddp.allreduce, ddp.name = "confusion"} : tensor<4x4xf32>
// CHECK: ddp.all_reduce sum %{{.+}} on @replicas : tensor<16xf32>
func.func @metrics(%w: tensor<4x4xf32>, %m: tensor<32xf32>, %g: tensor<4x4xf32>,
                   %c: tensor<4x4xf32>, %h: tensor<16xf32>)
    -> (tensor<4x4xf32> {jax.result_info = "result['w']"},
        tensor<4x4xf32> {jax.result_info = "result['confusion']"},
        tensor<32xf32> {jax.result_info = "result['m']"}) {
  %0 = "stablehlo.all_reduce"(%g) <{replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>}> ({
  ^bb0(%x: tensor<f32>, %y: tensor<f32>):
    %s = "stablehlo.add"(%x, %y) : (tensor<f32>, tensor<f32>) -> tensor<f32>
    "stablehlo.return"(%s) : (tensor<f32>) -> ()
  }) : (tensor<4x4xf32>) -> tensor<4x4xf32>
  %1 = "stablehlo.subtract"(%w, %0) : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  %2 = "stablehlo.all_reduce"(%c) <{replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>}> ({
  ^bb0(%x: tensor<f32>, %y: tensor<f32>):
    %s = "stablehlo.add"(%x, %y) : (tensor<f32>, tensor<f32>) -> tensor<f32>
    "stablehlo.return"(%s) : (tensor<f32>) -> ()
  }) : (tensor<4x4xf32>) -> tensor<4x4xf32>
  %3 = "stablehlo.multiply"(%2, %2) : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  %4 = "stablehlo.all_reduce"(%h) <{replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>}> ({
  ^bb0(%x: tensor<f32>, %y: tensor<f32>):
    %s = "stablehlo.add"(%x, %y) : (tensor<f32>, tensor<f32>) -> tensor<f32>
    "stablehlo.return"(%s) : (tensor<f32>) -> ()
  }) : (tensor<16xf32>) -> tensor<16xf32>
  %5 = "stablehlo.concatenate"(%4, %h) <{dimension = 0 : i64}> : (tensor<16xf32>, tensor<16xf32>) -> tensor<32xf32>
  %6 = "stablehlo.add"(%m, %5) : (tensor<32xf32>, tensor<32xf32>) -> tensor<32xf32>
  return %1, %3, %6 : tensor<4x4xf32>, tensor<4x4xf32>, tensor<32xf32>
}

// -----

// In a step that updates no parameters, every reduction may be a gradient.
// CHECK-LABEL: func.func @gradients(
// CHECK: ddp.all_reduce sum %{{.+}} on @replicas {ddp.name = "g"} : tensor<4x4xf32>
func.func @gradients(%g: tensor<4x4xf32>)
    -> (tensor<4x4xf32> {jax.result_info = "result['g']"}) {
  %0 = "stablehlo.all_reduce"(%g) <{replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>}> ({
  ^bb0(%x: tensor<f32>, %y: tensor<f32>):
    %s = "stablehlo.add"(%x, %y) : (tensor<f32>, tensor<f32>) -> tensor<f32>
    "stablehlo.return"(%s) : (tensor<f32>) -> ()
  }) : (tensor<4x4xf32>) -> tensor<4x4xf32>
  return %0 : tensor<4x4xf32>
}

// -----

// The import removes Shardy's sharding rules and keeps other attributes. The module has
// numbers of 16 bits, so it requests wide accumulators.
// CHECK: module attributes {ddp.widen_accumulators}
// CHECK-LABEL: func.func @rules(
// CHECK-SAME:      %{{.+}}: tensor<4x4xbf16>)
// CHECK-NEXT:    "stablehlo.custom_call"(%{{.+}}) <{call_target_name = "lapack_spotrf_ffi"}> {test.kept} :
func.func @rules(%a: tensor<4x4xbf16> {sdy.note = 1 : i64}) -> tensor<4x4xbf16> {
  %0 = "stablehlo.custom_call"(%a) <{call_target_name = "lapack_spotrf_ffi"}> {sdy.sharding_rule = #sdy.op_sharding_rule<([i, j])->([i, j]) {i=4, j=4}, custom>, test.kept} : (tensor<4x4xbf16>) -> tensor<4x4xbf16>
  return %0 : tensor<4x4xbf16>
}
