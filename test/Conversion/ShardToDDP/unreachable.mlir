// Where nothing gets to, values may depend on themselves.

// RUN: ddphook-opt %s --ddp-import-shard | FileCheck %s

shard.grid @g(shape = 2)

// CHECK-LABEL: func.func @step(
// CHECK: ddp.all_reduce sum
// CHECK: return
func.func @step(%a: tensor<4xf32>) -> tensor<4xf32> {
  %r = shard.all_reduce %a on @g grid_axes = [0] : tensor<4xf32> -> tensor<4xf32>
  return %r : tensor<4xf32>
^unreachable:
  %x = arith.negf %y : tensor<4xf32>
  %y = arith.negf %x : tensor<4xf32>
  %z = shard.all_reduce %x on @g grid_axes = [0] : tensor<4xf32> -> tensor<4xf32>
  return %z : tensor<4xf32>
}
