// RUN: ddphook-opt %s --split-input-file --ddp-import-shard | FileCheck %s

// How upstream's partitioner begins a sum that is split: with zeros in both branches,
// which then need not ask for the process. Two axes, and a branch in a branch.

// CHECK-LABEL: func.func @zeros
// CHECK-SAME: (%[[A:.+]]: tensor<8x4xf32>)
// CHECK-NEXT: %[[ZERO:.+]] = arith.constant 0.000000e+00 : f32
// CHECK-NEXT: %[[E:.+]] = tensor.empty() : tensor<4xf32>
// CHECK-NEXT: %[[Z:.+]] = linalg.fill ins(%[[ZERO]] : f32) outs(%[[E]] : tensor<4xf32>)
// CHECK-NEXT: %[[S:.+]] = linalg.reduce { arith.addf } ins(%[[A]] : tensor<8x4xf32>) outs(%[[Z]] : tensor<4xf32>)
// CHECK-NEXT: %[[R:.+]] = ddp.all_reduce sum %[[S]] on @g_0_1
// CHECK-NEXT: return %[[R]]
shard.grid @g(shape = 2x2)
func.func @zeros(%a: tensor<8x4xf32>) -> tensor<4xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<4xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<4xf32>) -> tensor<4xf32>
  %i:2 = shard.process_multi_index on @g axes = [0, 1] : index, index
  %shape:2 = shard.grid_shape @g axes = [0, 1] : index, index
  %linear = affine.apply affine_map<()[s0, s1, s2] -> (s0 * s1 + s2)>()
      [%i#0, %shape#1, %i#1]
  %c0 = arith.constant 0 : index
  %first = arith.cmpi eq, %linear, %c0 : index
  %begin = scf.if %first -> (tensor<4xf32>) {
    scf.yield %z : tensor<4xf32>
  } else {
    %again = scf.if %first -> (tensor<4xf32>) {
      %e2 = tensor.empty() : tensor<4xf32>
      %zero2 = arith.constant 0.0 : f32
      %z2 = linalg.fill ins(%zero2 : f32) outs(%e2 : tensor<4xf32>) -> tensor<4xf32>
      scf.yield %z2 : tensor<4xf32>
    } else {
      scf.yield %z : tensor<4xf32>
    }
    scf.yield %again : tensor<4xf32>
  }
  %s = linalg.reduce {arith.addf} ins(%a : tensor<8x4xf32>)
      outs(%begin : tensor<4xf32>) dimensions = [0]
  %r = shard.all_reduce %s on @g grid_axes = [0, 1] : tensor<4xf32> -> tensor<4xf32>
  return %r : tensor<4xf32>
}

// -----

// The shape of a grid is a number of the program. Branches that ask for no process
// stay as they are.

// CHECK-LABEL: func.func @shape
// CHECK-DAG: %[[C3:.+]] = arith.constant 3 : index
// CHECK-DAG: %[[C2:.+]] = arith.constant 2 : index
// CHECK: scf.if
// CHECK: return %[[C2]], %[[C3]], %[[C3]]
shard.grid @g(shape = 2x3)
func.func @shape(%c: i1, %a: tensor<4xf32>)
    -> (index, index, index, tensor<4xf32>) {
  %all:2 = shard.grid_shape @g : index, index
  %last = shard.grid_shape @g axes = [1] : index
  %b = scf.if %c -> (tensor<4xf32>) {
    scf.yield %a : tensor<4xf32>
  } else {
    scf.yield %a : tensor<4xf32>
  }
  return %all#0, %all#1, %last, %b : index, index, index, tensor<4xf32>
}
