// RUN: ddphook-opt %s --ddp-fold-branches | FileCheck %s

// What all branches leave in one buffer is that buffer, not a choice. What they
// leave in two buffers stays one, and so does a number.
// CHECK-LABEL: func.func @one_buffer(
// CHECK-SAME:    %[[A:[a-z0-9]+]]: memref<4xf32>, %[[B:[a-z0-9]+]]: memref<4xf32>, %[[C:.+]]: i1
// CHECK:         %[[R:.+]]:2 = scf.if %[[C]] -> (i64, memref<4xf32>) {
// CHECK:           linalg.exp ins(%[[A]] : memref<4xf32>) outs(%[[A]] : memref<4xf32>)
// CHECK:           scf.yield %{{.+}}, %[[A]] : i64, memref<4xf32>
// CHECK:         } else {
// CHECK:           scf.yield %{{.+}}, %[[B]] : i64, memref<4xf32>
// CHECK:         }
// CHECK:         linalg.exp ins(%[[R]]#1 : {{.+}}) outs(%[[A]] : memref<4xf32>)
// CHECK:         return %[[R]]#0
func.func @one_buffer(%a: memref<4xf32>, %b: memref<4xf32>, %c: i1) -> i64 {
  %c1 = arith.constant 1 : i64
  %c2 = arith.constant 2 : i64
  %r:3 = scf.if %c -> (memref<4xf32>, i64, memref<4xf32>) {
    linalg.exp ins(%a : memref<4xf32>) outs(%a : memref<4xf32>)
    scf.yield %a, %c1, %a : memref<4xf32>, i64, memref<4xf32>
  } else {
    scf.yield %a, %c2, %b : memref<4xf32>, i64, memref<4xf32>
  }
  linalg.exp ins(%r#2 : memref<4xf32>) outs(%r#0 : memref<4xf32>)
  return %r#1 : i64
}

// Branches in branches: the inner one is folded first.
// CHECK-LABEL: func.func @nested(
// CHECK-SAME:    %[[A:[a-z0-9]+]]: memref<4xf32>
// CHECK-NOT:     scf.yield
// CHECK:         linalg.exp ins(%[[A]] : memref<4xf32>) outs(%[[A]] : memref<4xf32>)
// CHECK:         return
func.func @nested(%a: memref<4xf32>, %c: i1) {
  %r = scf.if %c -> memref<4xf32> {
    %s = scf.if %c -> memref<4xf32> {
      scf.yield %a : memref<4xf32>
    } else {
      scf.yield %a : memref<4xf32>
    }
    scf.yield %s : memref<4xf32>
  } else {
    scf.yield %a : memref<4xf32>
  }
  linalg.exp ins(%r : memref<4xf32>) outs(%r : memref<4xf32>)
  return
}
