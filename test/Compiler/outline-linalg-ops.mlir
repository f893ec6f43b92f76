// RUN: ddphook-opt %s --ddp-outline-linalg-ops=max-ops=2 -split-input-file \
// RUN:   | FileCheck %s

// One kernel for slices of one buffer; constants go with it, other values are
// arguments.
// CHECK-LABEL: func @step
// CHECK-SAME:    %[[A:.*]]: memref<8xf32>, %[[X:.*]]: f32
// CHECK-DAG:     %[[FIRST:.*]] = memref.cast %{{.*}} : memref<4xf32, strided<[1]>> to memref<4xf32, strided<[1], offset: ?>>
// CHECK-DAG:     call @ddphook.kernel.0(%[[FIRST]], %[[X]])
// CHECK:         call @ddphook.kernel.0(%{{.*}}, %[[X]])
// CHECK:         call @ddphook.kernel.1(%[[X]], %[[A]])
// CHECK-NOT:     linalg
// CHECK:       func.func private @ddphook.kernel.0(
// CHECK-SAME:    %[[S:.*]]: memref<4xf32, strided<[1], offset: ?>>, %[[FACTOR:.*]]: f32) attributes {llvm.linkage = #llvm.linkage<internal>, passthrough = ["noinline"]}
// CHECK-NEXT:    %[[ONE:.*]] = arith.constant 1.0
// CHECK:         linalg.map
// CHECK:           arith.mulf %{{.*}}, %[[FACTOR]]
// CHECK:           arith.addf %{{.*}}, %[[ONE]]
// CHECK:       func.func private @ddphook.kernel.1(
// CHECK-NOT:   @ddphook.kernel.2
func.func @step(%a: memref<8xf32>, %x: f32) {
  %one = arith.constant 1.0 : f32
  %s0 = memref.subview %a[0] [4] [1] : memref<8xf32> to memref<4xf32, strided<[1]>>
  %s1 = memref.subview %a[4] [4] [1] : memref<8xf32> to memref<4xf32, strided<[1], offset: 4>>
  linalg.map ins(%s0 : memref<4xf32, strided<[1]>>) outs(%s0 : memref<4xf32, strided<[1]>>)
    (%in: f32, %init: f32) {
      %0 = arith.mulf %in, %x : f32
      %1 = arith.addf %0, %one : f32
      linalg.yield %1 : f32
    }
  linalg.map ins(%s1 : memref<4xf32, strided<[1], offset: 4>>) outs(%s1 : memref<4xf32, strided<[1], offset: 4>>)
    (%in: f32, %init: f32) {
      %0 = arith.mulf %in, %x : f32
      %1 = arith.addf %0, %one : f32
      linalg.yield %1 : f32
    }
  linalg.fill ins(%x : f32) outs(%a : memref<8xf32>)
  return
}

// -----

// CHECK-LABEL: func @small
// CHECK-COUNT-2: linalg.fill
// CHECK-NOT:     call
func.func @small(%a: memref<8xf32>, %x: f32) {
  linalg.fill ins(%x : f32) outs(%a : memref<8xf32>)
  linalg.fill ins(%x : f32) outs(%a : memref<8xf32>)
  return
}
