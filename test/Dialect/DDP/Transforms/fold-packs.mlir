// RUN: ddphook-opt %s --pass-pipeline="builtin.module(func.func(ddp-fold-packs))" | FileCheck %s
// RUN: ddphook-opt %s --pass-pipeline="builtin.module(func.func(ddp-fold-packs))" --remarks-filter=.* --remark-format=emitRemark 2>&1 >/dev/null | FileCheck %s --check-prefix=REMARK

// Each function is what ddp-prepare-entries leaves: what the argument holds at
// first is read once, and a result is left in it at the end.

ddp.process_group @dp

// Of all ranks, with an empty gradient between two others.
// CHECK-LABEL: func @whole(
// CHECK-SAME:    %[[ARG:.+]]: memref<9xf32>
// CHECK:         %[[FLAT:.+]] = bufferization.to_tensor %[[ARG]] restrict writable
// CHECK-NEXT:    %[[D:.+]] = tensor.empty
// CHECK-NEXT:    %[[R:.+]] = ddp.flat.all_reduce mean %[[FLAT]] on @dp into %[[D]]
// CHECK-NEXT:    bufferization.materialize_in_destination %[[R]] in restrict writable %[[ARG]]
// CHECK-NEXT:    return
// REMARK: fold-packs.mlir:[[@LINE+9]]:{{.+}} FlatBucket
// REMARK-SAME: elements=9, offset=0
func.func @whole(%arg: memref<9xf32>) {
  %flat = bufferization.to_tensor %arg restrict writable : memref<9xf32> to tensor<9xf32>
  %s = tensor.extract_slice %flat[0] [6] [1] : tensor<9xf32> to tensor<6xf32>
  %g0 = tensor.expand_shape %s [[0, 1, 2]] output_shape [1, 3, 2] : tensor<6xf32> into tensor<1x3x2xf32>
  %g1 = tensor.extract_slice %flat[0] [0] [1] : tensor<9xf32> to tensor<0xf32>
  %g2 = tensor.extract_slice %flat[6] [1] [1] : tensor<9xf32> to tensor<f32>
  %g3 = tensor.extract_slice %flat[7] [2] [1] : tensor<9xf32> to tensor<2xf32>
  %p = ddp.pack %g0, %g1, %g2, %g3 : tensor<1x3x2xf32>, tensor<0xf32>, tensor<f32>, tensor<2xf32> -> tensor<9xf32>
  %d = tensor.empty() : tensor<9xf32>
  %r = ddp.flat.all_reduce mean %p on @dp into %d : tensor<9xf32>, tensor<9xf32>
  %u:4 = ddp.unpack %r : tensor<9xf32> -> tensor<1x3x2xf32>, tensor<0xf32>, tensor<f32>, tensor<2xf32>
  %t = tensor.collapse_shape %u#0 [[0, 1, 2]] : tensor<1x3x2xf32> into tensor<6xf32>
  // In any order.
  %0 = tensor.insert_slice %u#3 into %flat[7] [2] [1] : tensor<2xf32> into tensor<9xf32>
  %1 = tensor.insert_slice %t into %0[0] [6] [1] : tensor<6xf32> into tensor<9xf32>
  %2 = tensor.insert_slice %u#2 into %1[6] [1] [1] : tensor<f32> into tensor<9xf32>
  %3 = tensor.insert_slice %u#1 into %2[0] [0] [1] : tensor<0xf32> into tensor<9xf32>
  bufferization.materialize_in_destination %3 in restrict writable %arg : (tensor<9xf32>, memref<9xf32>) -> ()
  return
}

// Two buckets, the second one first, with elements before, between and behind
// them that are in none.
// CHECK-LABEL: func @parts(
// CHECK:         %[[FLAT:.+]] = bufferization.to_tensor
// CHECK:         %[[S:.+]]:5 = ddp.split %[[FLAT]] : tensor<10xf32> -> tensor<1xf32>, tensor<3xf32>, tensor<1xf32>, tensor<4xf32>, tensor<1xf32>
// CHECK:         %[[R1:.+]] = ddp.flat.all_reduce mean %[[S]]#3
// CHECK:         %[[R0:.+]] = ddp.flat.all_reduce mean %[[S]]#1
// CHECK:         %[[C:.+]] = ddp.concat %[[S]]#0, %[[R0]], %[[S]]#2, %[[R1]], %[[S]]#4 :
// CHECK-NEXT:    bufferization.materialize_in_destination %[[C]]
// REMARK: FlatBucket{{.*}} elements=4, offset=5
// REMARK: FlatBucket{{.*}} elements=3, offset=1
func.func @parts(%arg: memref<10xf32>) {
  %flat = bufferization.to_tensor %arg restrict writable : memref<10xf32> to tensor<10xf32>
  %g0 = tensor.extract_slice %flat[1] [3] [1] : tensor<10xf32> to tensor<3xf32>
  %both = tensor.extract_slice %flat[5] [4] [1] : tensor<10xf32> to tensor<4xf32>
  %g1 = tensor.extract_slice %both[0] [2] [1] : tensor<4xf32> to tensor<2xf32>
  %g2 = tensor.extract_slice %both[2] [2] [1] : tensor<4xf32> to tensor<2xf32>
  %p1 = ddp.pack %g1, %g2 : tensor<2xf32>, tensor<2xf32> -> tensor<4xf32>
  %d1 = tensor.empty() : tensor<4xf32>
  %r1 = ddp.flat.all_reduce mean %p1 on @dp into %d1 : tensor<4xf32>, tensor<4xf32>
  %p0 = ddp.pack %g0 : tensor<3xf32> -> tensor<3xf32>
  %d0 = tensor.empty() : tensor<3xf32>
  %r0 = ddp.flat.all_reduce mean %p0 on @dp into %d0 : tensor<3xf32>, tensor<3xf32>
  %u1:2 = ddp.unpack %r1 : tensor<4xf32> -> tensor<2xf32>, tensor<2xf32>
  %u0 = ddp.unpack %r0 : tensor<3xf32> -> tensor<3xf32>
  %0 = tensor.insert_slice %u0 into %flat[1] [3] [1] : tensor<3xf32> into tensor<10xf32>
  %1 = tensor.insert_slice %u1#0 into %0[5] [2] [1] : tensor<2xf32> into tensor<10xf32>
  %2 = tensor.insert_slice %u1#1 into %1[7] [2] [1] : tensor<2xf32> into tensor<10xf32>
  bufferization.materialize_in_destination %2 in restrict writable %arg : (tensor<10xf32>, memref<10xf32>) -> ()
  return
}

// In another order than they lie in the argument; what is put back is the
// bucket in halves.
// CHECK-LABEL: func @order(
// REMARK-NOT: FlatBucket
// CHECK:         ddp.pack
// CHECK:         %[[R:.+]] = ddp.flat.all_reduce
// CHECK:         %[[U:.+]]:2 = ddp.unpack %[[R]]
// CHECK:         tensor.insert_slice %[[U]]#1 into
// CHECK:         tensor.insert_slice %[[U]]#0 into
func.func @order(%arg: memref<4xf32>) {
  %flat = bufferization.to_tensor %arg restrict writable : memref<4xf32> to tensor<4xf32>
  %g0 = tensor.extract_slice %flat[0] [2] [1] : tensor<4xf32> to tensor<2xf32>
  %g1 = tensor.extract_slice %flat[2] [2] [1] : tensor<4xf32> to tensor<2xf32>
  %p = ddp.pack %g1, %g0 : tensor<2xf32>, tensor<2xf32> -> tensor<4xf32>
  %d = tensor.empty() : tensor<4xf32>
  %r = ddp.flat.all_reduce mean %p on @dp into %d : tensor<4xf32>, tensor<4xf32>
  %u:2 = ddp.unpack %r : tensor<4xf32> -> tensor<2xf32>, tensor<2xf32>
  %0 = tensor.insert_slice %u#1 into %flat[0] [2] [1] : tensor<2xf32> into tensor<4xf32>
  %1 = tensor.insert_slice %u#0 into %0[2] [2] [1] : tensor<2xf32> into tensor<4xf32>
  bufferization.materialize_in_destination %1 in restrict writable %arg : (tensor<4xf32>, memref<4xf32>) -> ()
  return
}

// Slices that overlap: one bucket is the argument's part, the other is packed.
// The second insertion writes over an element of the first.
// CHECK-LABEL: func @overlap(
// REMARK: FlatBucket{{.*}} elements=3, offset=0
// REMARK-NOT: FlatBucket
// CHECK:         %[[FLAT:.+]] = bufferization.to_tensor
// CHECK:         %[[S:.+]]:2 = ddp.split %[[FLAT]] : tensor<5xf32> -> tensor<3xf32>, tensor<2xf32>
// CHECK:         %[[R0:.+]] = ddp.flat.all_reduce mean %[[S]]#0
// CHECK:         %[[P:.+]] = ddp.pack
// CHECK:         %[[R1:.+]] = ddp.flat.all_reduce mean %[[P]]
// CHECK:         %[[HEAD:.+]] = tensor.extract_slice %[[R0]][0] [2] [1]
// CHECK:         ddp.concat %[[HEAD]], %[[R1]] :
func.func @overlap(%arg: memref<5xf32>) {
  %flat = bufferization.to_tensor %arg restrict writable : memref<5xf32> to tensor<5xf32>
  %g0 = tensor.extract_slice %flat[0] [3] [1] : tensor<5xf32> to tensor<3xf32>
  %g1 = tensor.extract_slice %flat[2] [3] [1] : tensor<5xf32> to tensor<3xf32>
  %p0 = ddp.pack %g0 : tensor<3xf32> -> tensor<3xf32>
  %d0 = tensor.empty() : tensor<3xf32>
  %r0 = ddp.flat.all_reduce mean %p0 on @dp into %d0 : tensor<3xf32>, tensor<3xf32>
  %p1 = ddp.pack %g1 : tensor<3xf32> -> tensor<3xf32>
  %d1 = tensor.empty() : tensor<3xf32>
  %r1 = ddp.flat.all_reduce mean %p1 on @dp into %d1 : tensor<3xf32>, tensor<3xf32>
  %u0 = ddp.unpack %r0 : tensor<3xf32> -> tensor<3xf32>
  %u1 = ddp.unpack %r1 : tensor<3xf32> -> tensor<3xf32>
  %0 = tensor.insert_slice %u0 into %flat[0] [3] [1] : tensor<3xf32> into tensor<5xf32>
  %1 = tensor.insert_slice %u1 into %0[2] [3] [1] : tensor<3xf32> into tensor<5xf32>
  bufferization.materialize_in_destination %1 in restrict writable %arg : (tensor<5xf32>, memref<5xf32>) -> ()
  return
}

// Every second element is no run; nor is an argument whose memory something
// else reads.
// CHECK-LABEL: func @strided(
// CHECK-COUNT-2: ddp.pack
// CHECK-NOT:     ddp.pack
func.func @strided(%arg: memref<4xf32>, %read: memref<2xf32>) -> f32 {
  %flat = bufferization.to_tensor %arg restrict writable : memref<4xf32> to tensor<4xf32>
  %g = tensor.extract_slice %flat[0] [2] [2] : tensor<4xf32> to tensor<2xf32>
  %p = ddp.pack %g : tensor<2xf32> -> tensor<2xf32>
  %d = tensor.empty() : tensor<2xf32>
  %r = ddp.flat.all_reduce mean %p on @dp into %d : tensor<2xf32>, tensor<2xf32>
  %u = ddp.unpack %r : tensor<2xf32> -> tensor<2xf32>
  %0 = tensor.insert_slice %u into %flat[0] [2] [2] : tensor<2xf32> into tensor<4xf32>
  bufferization.materialize_in_destination %0 in restrict writable %arg : (tensor<4xf32>, memref<4xf32>) -> ()
  %also = bufferization.to_tensor %read restrict writable : memref<2xf32> to tensor<2xf32>
  %q = ddp.pack %also : tensor<2xf32> -> tensor<2xf32>
  %e = tensor.empty() : tensor<2xf32>
  %s = ddp.flat.all_reduce mean %q on @dp into %e : tensor<2xf32>, tensor<2xf32>
  bufferization.materialize_in_destination %s in restrict writable %read : (tensor<2xf32>, memref<2xf32>) -> ()
  %zero = arith.constant 0 : index
  %x = memref.load %read[%zero] : memref<2xf32>
  return %x : f32
}

// The other argument has its new value before this one does: what it held at
// first, and slices of it, are copied where they are put in.
// CHECK-LABEL: func @other_argument(
// CHECK-DAG:     %[[A:.+]] = bufferization.to_tensor %arg0
// CHECK-DAG:     %[[B:.+]] = bufferization.to_tensor %arg1
// CHECK:         %[[R:.+]] = ddp.flat.all_reduce mean %[[A]]
// CHECK:         %[[Y:.+]] = tensor.insert_slice %[[A]] into %[[B]]
// CHECK-DAG:     bufferization.materialize_in_destination %[[R]] in restrict writable %arg0
// CHECK-DAG:     bufferization.materialize_in_destination %[[Y]] in restrict writable %arg1
// REMARK: FlatBucket{{.*}} elements=4, offset=0
func.func @other_argument(%arg0: memref<4xf32>, %arg1: memref<4xf32>) {
  %a = bufferization.to_tensor %arg0 restrict writable : memref<4xf32> to tensor<4xf32>
  %b = bufferization.to_tensor %arg1 restrict writable : memref<4xf32> to tensor<4xf32>
  %p = ddp.pack %a : tensor<4xf32> -> tensor<4xf32>
  %d = tensor.empty() : tensor<4xf32>
  %r = ddp.flat.all_reduce mean %p on @dp into %d : tensor<4xf32>, tensor<4xf32>
  %u = ddp.unpack %r : tensor<4xf32> -> tensor<4xf32>
  %x = tensor.insert_slice %u into %a[0] [4] [1] : tensor<4xf32> into tensor<4xf32>
  %y = tensor.insert_slice %a into %b[0] [4] [1] : tensor<4xf32> into tensor<4xf32>
  bufferization.materialize_in_destination %x in restrict writable %arg0 : (tensor<4xf32>, memref<4xf32>) -> ()
  bufferization.materialize_in_destination %y in restrict writable %arg1 : (tensor<4xf32>, memref<4xf32>) -> ()
  return
}

// More insertions than One-Shot Bufferize compares in no time are one operation.
// CHECK-LABEL: func @many_insertions(
// CHECK-DAG:     %[[A:.+]] = bufferization.to_tensor %arg0
// CHECK-DAG:     bufferization.to_tensor %arg1
// CHECK-NOT:     tensor.insert_slice
// CHECK:         %[[Y:.+]] = ddp.concat %[[A]] : tensor<4xf32> -> tensor<4xf32>
// CHECK:         bufferization.materialize_in_destination %[[Y]] in restrict writable %arg1
func.func @many_insertions(%arg0: memref<4xf32>, %arg1: memref<4xf32>) {
  %a = bufferization.to_tensor %arg0 restrict writable : memref<4xf32> to tensor<4xf32>
  %b = bufferization.to_tensor %arg1 restrict writable : memref<4xf32> to tensor<4xf32>
  %0 = tensor.insert_slice %a into %b[0] [4] [1] : tensor<4xf32> into tensor<4xf32>
  %1 = tensor.insert_slice %a into %0[0] [4] [1] : tensor<4xf32> into tensor<4xf32>
  %2 = tensor.insert_slice %a into %1[0] [4] [1] : tensor<4xf32> into tensor<4xf32>
  %3 = tensor.insert_slice %a into %2[0] [4] [1] : tensor<4xf32> into tensor<4xf32>
  %4 = tensor.insert_slice %a into %3[0] [4] [1] : tensor<4xf32> into tensor<4xf32>
  %5 = tensor.insert_slice %a into %4[0] [4] [1] : tensor<4xf32> into tensor<4xf32>
  %6 = tensor.insert_slice %a into %5[0] [4] [1] : tensor<4xf32> into tensor<4xf32>
  %7 = tensor.insert_slice %a into %6[0] [4] [1] : tensor<4xf32> into tensor<4xf32>
  %8 = tensor.insert_slice %a into %7[0] [4] [1] : tensor<4xf32> into tensor<4xf32>
  %9 = tensor.insert_slice %a into %8[0] [4] [1] : tensor<4xf32> into tensor<4xf32>
  %10 = tensor.insert_slice %a into %9[0] [4] [1] : tensor<4xf32> into tensor<4xf32>
  %11 = tensor.insert_slice %a into %10[0] [4] [1] : tensor<4xf32> into tensor<4xf32>
  %12 = tensor.insert_slice %a into %11[0] [4] [1] : tensor<4xf32> into tensor<4xf32>
  %13 = tensor.insert_slice %a into %12[0] [4] [1] : tensor<4xf32> into tensor<4xf32>
  %14 = tensor.insert_slice %a into %13[0] [4] [1] : tensor<4xf32> into tensor<4xf32>
  %15 = tensor.insert_slice %a into %14[0] [4] [1] : tensor<4xf32> into tensor<4xf32>
  %16 = tensor.insert_slice %a into %15[0] [4] [1] : tensor<4xf32> into tensor<4xf32>
  bufferization.materialize_in_destination %b in restrict writable %arg0 : (tensor<4xf32>, memref<4xf32>) -> ()
  bufferization.materialize_in_destination %16 in restrict writable %arg1 : (tensor<4xf32>, memref<4xf32>) -> ()
  return
}
