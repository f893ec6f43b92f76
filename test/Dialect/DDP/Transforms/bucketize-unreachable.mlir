// Where nothing gets to, values may depend on themselves: no order exists, and none is
// needed. A function that reduces nothing is left as it is.

// RUN: ddphook-opt %s --ddp-bucketize | FileCheck %s
// RUN: ddphook-opt %s --ddp-pipeline -o /dev/null

ddp.process_group @dp size 2

// CHECK-LABEL: func.func @step(
// CHECK: ddp.pack
// CHECK-NOT: arith.negf
// CHECK-LABEL: func.func @alone(
// CHECK: arith.negf
func.func @step(%a: tensor<4xf32>) -> tensor<4xf32> {
  %r = ddp.all_reduce mean %a on @dp : tensor<4xf32>
  return %r : tensor<4xf32>
^unreachable:
  %x = arith.negf %y : tensor<4xf32>
  %y = arith.negf %x : tensor<4xf32>
  %z = ddp.all_reduce mean %x on @dp : tensor<4xf32>
  return %z : tensor<4xf32>
}
func.func @alone(%a: tensor<4xf32>) -> tensor<4xf32> {
  return %a : tensor<4xf32>
^unreachable:
  %x = arith.negf %y : tensor<4xf32>
  %y = arith.negf %x : tensor<4xf32>
  return %x : tensor<4xf32>
}
