// RUN: ddphook-opt %s --ddp-expand-copies | FileCheck %s

// CHECK-LABEL: func @strided
// CHECK-SAME:    %[[A:.*]]: memref<4x4xf32, strided<[8, 1]>>, %[[B:.*]]: memref<4x4xf32>
// CHECK-NOT:     memref.copy
// CHECK:         linalg.generic
// CHECK-SAME:      ins(%[[A]] : memref<4x4xf32, strided<[8, 1]>>) outs(%[[B]] : memref<4x4xf32>)
func.func @strided(%a: memref<4x4xf32, strided<[8, 1]>>, %b: memref<4x4xf32>) {
  memref.copy %a, %b : memref<4x4xf32, strided<[8, 1]>> to memref<4x4xf32>
  return
}

// CHECK-LABEL: func @strided_target
// CHECK:         linalg.generic
func.func @strided_target(%a: memref<4xf32>, %b: memref<4xf32, strided<[2], offset: ?>>) {
  memref.copy %a, %b : memref<4xf32> to memref<4xf32, strided<[2], offset: ?>>
  return
}

// Contiguous memory that begins anywhere is a memcpy.
// CHECK-LABEL: func @contiguous
// CHECK-NOT:     linalg.generic
// CHECK:         memref.copy
// CHECK:         memref.copy
func.func @contiguous(%a: memref<4x4xf32, strided<[4, 1], offset: ?>>,
                      %b: memref<4x4xf32>, %c: memref<?xf32>, %d: memref<?xf32>) {
  memref.copy %a, %b : memref<4x4xf32, strided<[4, 1], offset: ?>> to memref<4x4xf32>
  memref.copy %c, %d : memref<?xf32> to memref<?xf32>
  return
}
