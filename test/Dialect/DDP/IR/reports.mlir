// RUN: ddphook-opt %s | FileCheck %s
// RUN: ddphook-opt %s | ddphook-opt | FileCheck %s
// RUN: ddphook-opt %s --mlir-print-op-generic | ddphook-opt | FileCheck %s
// RUN: ddphook-opt %s --emit-bytecode | ddphook-opt | FileCheck %s
// RUN: ddphook-opt %s --canonicalize --cse | FileCheck %s --check-prefix=KEPT

// ddp.is_finite at each of the three levels, and ddp.count_compression.

// CHECK-LABEL: func.func @is_finite(
// CHECK-SAME:    %[[B:[a-z0-9]+]]: !ddp.bucket<f32, [64x2, scalar]>, %[[T:[a-z0-9]+]]: tensor<40xbf16>, %[[M:[a-z0-9]+]]: memref<40xf64>)
func.func @is_finite(%b: !ddp.bucket<f32, [64x2, scalar]>,
                     %t: tensor<40xbf16>, %m: memref<40xf64>) -> (i1, i1, i1) {
  // CHECK-NEXT: %[[X:.+]] = ddp.is_finite %[[B]] : !ddp.bucket<f32, [64x2, scalar]>
  %0 = ddp.is_finite %b : !ddp.bucket<f32, [64x2, scalar]>
  // CHECK-NEXT: %[[Y:.+]] = ddp.is_finite %[[T]] {note} : tensor<40xbf16>
  %1 = ddp.is_finite %t {note} : tensor<40xbf16>
  // CHECK-NEXT: %[[Z:.+]] = ddp.is_finite %[[M]] : memref<40xf64>
  %2 = ddp.is_finite %m : memref<40xf64>
  // CHECK-NEXT: return %[[X]], %[[Y]], %[[Z]] : i1, i1, i1
  return %0, %1, %2 : i1, i1, i1
}

// CHECK-LABEL: func.func @count(
// CHECK-SAME:    %[[ITERATION:[a-z0-9]+]]: i64)
// KEPT-LABEL: func.func @count(
func.func @count(%iteration: i64) {
  // CHECK-NEXT: ddp.count_compression "b0" before 2112 after 256 at %[[ITERATION]] every 10000
  // KEPT-NEXT: ddp.count_compression
  ddp.count_compression "b0" before 2112 after 256 at %iteration every 10000
  // The same once more counts once more.
  // CHECK-NEXT: ddp.count_compression "b0" before 2112 after 256 at %[[ITERATION]] every 10000
  // KEPT-NEXT: ddp.count_compression
  ddp.count_compression "b0" before 2112 after 256 at %iteration every 10000
  // CHECK-NEXT: ddp.count_compression "" before 0 after 0 at %[[ITERATION]] every 1 {note}
  // KEPT-NEXT: ddp.count_compression
  // KEPT-NEXT: return
  ddp.count_compression "" before 0 after 0 at %iteration every 1 {note}
  return
}

// An answer that nobody wants is not asked for; one that is wanted twice, once,
// unless memory may have changed in between.
// KEPT-LABEL: func.func @asked(
// KEPT-SAME:    %[[T:[a-z0-9]+]]: tensor<40xf32>, %[[M:[a-z0-9]+]]: memref<40xf32>)
// KEPT-NEXT:    %[[X:.+]] = ddp.is_finite %[[T]]
// KEPT-NEXT:    %[[Y:.+]] = ddp.is_finite %[[M]]
// KEPT-NEXT:    ddp.flat.scale %[[M]] by 2.0
// KEPT-NEXT:    %[[Z:.+]] = ddp.is_finite %[[M]]
// KEPT-NEXT:    return %[[X]], %[[X]], %[[Y]], %[[Z]]
func.func @asked(%t: tensor<40xf32>, %m: memref<40xf32>)
    -> (i1, i1, i1, i1) {
  %0 = ddp.is_finite %t : tensor<40xf32>
  %1 = ddp.is_finite %t : tensor<40xf32>
  %2 = ddp.is_finite %m : memref<40xf32>
  ddp.flat.scale %m by 2.0 into %m : memref<40xf32>, memref<40xf32>
  %3 = ddp.is_finite %m : memref<40xf32>
  %4 = ddp.is_finite %t : tensor<40xf32>
  return %0, %1, %2, %3 : i1, i1, i1, i1
}
