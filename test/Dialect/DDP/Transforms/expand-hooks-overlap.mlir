// RUN: ddphook-opt %s --ddp-expand-hooks=hook=allreduce | FileCheck %s

// The runtime refuses an operand and a destination that overlap without being equal, so
// that these go through a bucket. Disjoint or equal slices do not.
// CHECK-LABEL: func.func @overlapping(
// CHECK:         ddp.pack
// CHECK:         bufferization.materialize_in_destination
// CHECK-LABEL: func.func @apart(
// CHECK-NOT:     ddp.pack
// CHECK:         ddp.all_reduce mean %{{.+}} on @dp into
// CHECK:         ddp.all_reduce mean %{{.+}} on @dp into
// CHECK:         return
ddp.process_group @dp
func.func @overlapping(%m: memref<12xf32>) {
  %a = memref.subview %m[0] [8] [1] : memref<12xf32> to memref<8xf32, strided<[1]>>
  %b = memref.subview %m[4] [8] [1] : memref<12xf32> to memref<8xf32, strided<[1], offset: 4>>
  ddp.all_reduce mean %a on @dp into %b : memref<8xf32, strided<[1], offset: 4>>,
      : memref<8xf32, strided<[1]>>
  return
}
func.func @apart(%m: memref<12xf32>) {
  %a = memref.subview %m[0] [4] [1] : memref<12xf32> to memref<4xf32, strided<[1]>>
  %b = memref.subview %m[4] [4] [1] : memref<12xf32> to memref<4xf32, strided<[1], offset: 4>>
  %c = memref.subview %m[4] [4] [1] : memref<12xf32> to memref<4xf32, strided<[1], offset: 4>>
  ddp.all_reduce mean %a on @dp into %b : memref<4xf32, strided<[1], offset: 4>>,
      : memref<4xf32, strided<[1]>>
  ddp.all_reduce mean %b on @dp into %c : memref<4xf32, strided<[1], offset: 4>>,
      : memref<4xf32, strided<[1], offset: 4>>
  return
}
