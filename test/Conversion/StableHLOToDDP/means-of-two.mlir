// Halves of bfloat16 are exact: a quotient behind a conversion to float32 makes a mean
// of two ranks, and with means.mlir's three it does not.

// RUN: ddphook-opt %s --ddp-import-stablehlo | FileCheck %s

module attributes {mhlo.num_partitions = 2 : i32, mhlo.num_replicas = 1 : i32} {

// CHECK-LABEL: func.func @widen(
// CHECK-SAME: %[[A:.+]]: tensor<4xbf16>
// CHECK-NEXT: %[[M:.+]] = ddp.all_reduce mean %[[A]] on @replicas
// CHECK-NEXT: %[[W:.+]] = "stablehlo.convert"(%[[M]])
// CHECK-NEXT: return %[[W]]
func.func @widen(%a: tensor<4xbf16>) -> tensor<4xf32> {
  %0 = "stablehlo.all_reduce"(%a) <{replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>, use_global_device_ids}> ({
  ^bb0(%x: tensor<bf16>, %y: tensor<bf16>):
    %s = "stablehlo.add"(%x, %y) : (tensor<bf16>, tensor<bf16>) -> tensor<bf16>
    "stablehlo.return"(%s) : (tensor<bf16>) -> ()
  }) : (tensor<4xbf16>) -> tensor<4xbf16>
  %1 = "stablehlo.convert"(%0) : (tensor<4xbf16>) -> tensor<4xf32>
  %2 = "stablehlo.constant"() <{value = dense<2.0> : tensor<4xf32>}> : () -> tensor<4xf32>
  %3 = "stablehlo.divide"(%1, %2) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  return %3 : tensor<4xf32>
}
}
