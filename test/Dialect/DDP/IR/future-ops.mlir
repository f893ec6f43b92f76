// RUN: ddphook-opt %s | ddphook-opt | FileCheck %s
// RUN: ddphook-opt %s --mlir-print-op-generic | ddphook-opt | FileCheck %s

// Collectives in flight, of values and of arrays.

ddp.process_group @dp

// CHECK-LABEL: func @buckets(
func.func @buckets(%b: !ddp.bucket<f32, [4x8, 8]>) -> !ddp.bucket<f32, [4x8, 8]> {
  // CHECK: %[[F:.+]] = ddp.all_reduce_start mean %{{.+}} on @dp wire bf16 as "b0" : !ddp.bucket<f32, [4x8, 8]> -> !ddp.future<!ddp.bucket<f32, [4x8, 8]>>
  %f = ddp.all_reduce_start mean %b on @dp wire bf16 as "b0"
      : !ddp.bucket<f32, [4x8, 8]> -> !ddp.future<!ddp.bucket<f32, [4x8, 8]>>
  // CHECK: %[[R:.+]] = ddp.wait %[[F]] : !ddp.future<!ddp.bucket<f32, [4x8, 8]>>
  // CHECK: return %[[R]]
  %r = ddp.wait %f : !ddp.future<!ddp.bucket<f32, [4x8, 8]>>
  return %r : !ddp.bucket<f32, [4x8, 8]>
}

// CHECK-LABEL: func @conditional(
// CHECK-SAME:      %[[B:[^:]+]]: {{[^,]+}}, [8]>, %[[C:[^:]+]]: i1
func.func @conditional(%b: !ddp.bucket<f32, [8]>, %c: i1) -> !ddp.bucket<f32, [8]> {
  // CHECK: %[[F:.+]] = ddp.all_reduce_start mean %[[B]] on @dp wire f16 as "b0" if %[[C]] : !ddp.bucket<f32, [8]> -> !ddp.future<!ddp.bucket<f32, [8]>>
  %f = ddp.all_reduce_start mean %b on @dp wire f16 as "b0" if %c
      : !ddp.bucket<f32, [8]> -> !ddp.future<!ddp.bucket<f32, [8]>>
  %r = scf.if %c -> !ddp.bucket<f32, [8]> {
    // CHECK: ddp.wait %[[F]]
    %s = ddp.wait %f : !ddp.future<!ddp.bucket<f32, [8]>>
    scf.yield %s : !ddp.bucket<f32, [8]>
  } else {
    // CHECK: ddp.wait %[[F]]
    %s = ddp.wait %f : !ddp.future<!ddp.bucket<f32, [8]>>
    scf.yield %s : !ddp.bucket<f32, [8]>
  }
  return %r : !ddp.bucket<f32, [8]>
}

// CHECK-LABEL: func @conditional_memory(
// CHECK-SAME:      %[[X:[^:]+]]: memref<4xf32>, %[[C:[^:]+]]: i1
func.func @conditional_memory(%x: memref<4xf32>, %c: i1) {
  // CHECK: %[[T:.+]] = ddp.flat.all_reduce_start sum %[[X]] on @dp into %[[X]] if %[[C]] : memref<4xf32>, memref<4xf32>
  %t = ddp.flat.all_reduce_start sum %x on @dp into %x if %c : memref<4xf32>, memref<4xf32>
  scf.if %c {
    // CHECK: ddp.flat.wait %[[X]], %[[T]] : memref<4xf32>
    ddp.flat.wait %x, %t : memref<4xf32>
  } else {
    // CHECK: ddp.flat.wait %[[X]], %[[T]] : memref<4xf32>
    ddp.flat.wait %x, %t : memref<4xf32>
  }
  return
}

// CHECK-LABEL: func @two(
func.func @two(%x: tensor<2x3xf16>, %y: tensor<f64>) -> (tensor<2x3xf16>, tensor<f64>) {
  // CHECK: %[[F:.+]] = ddp.all_reduce_start sum %{{.+}} on @dp : tensor<2x3xf16> -> !ddp.future<tensor<2x3xf16>>
  %f = ddp.all_reduce_start sum %x on @dp : tensor<2x3xf16> -> !ddp.future<tensor<2x3xf16>>
  // CHECK: %[[G:.+]] = ddp.all_reduce_start mean %{{.+}} on @dp : tensor<f64> -> !ddp.future<tensor<f64>>
  %g = ddp.all_reduce_start mean %y on @dp : tensor<f64> -> !ddp.future<tensor<f64>>
  // CHECK: ddp.wait %[[G]] : !ddp.future<tensor<f64>>
  %s = ddp.wait %g : !ddp.future<tensor<f64>>
  // CHECK: ddp.wait %[[F]] : !ddp.future<tensor<2x3xf16>>
  %r = ddp.wait %f : !ddp.future<tensor<2x3xf16>>
  return %r, %s : tensor<2x3xf16>, tensor<f64>
}

// CHECK-LABEL: func @flat(
func.func @flat(%x: tensor<40xf32>, %d: tensor<40xf32>) -> (tensor<40xf32>, tensor<40xf32>) {
  // CHECK: %[[S:.+]], %[[T:.+]] = ddp.flat.all_reduce_start mean %[[X:.+]] on @dp into %[[X]] : tensor<40xf32>, tensor<40xf32>
  %s, %t = ddp.flat.all_reduce_start mean %x on @dp into %x : tensor<40xf32>, tensor<40xf32>
  // CHECK: %[[U:.+]], %[[V:.+]] = ddp.flat.all_reduce_start mean %[[X]] on @dp as "b1" into %{{.+}} : tensor<40xf32>, tensor<40xf32>
  %u, %v = ddp.flat.all_reduce_start mean %x on @dp as "b1" into %d : tensor<40xf32>, tensor<40xf32>
  // CHECK: ddp.flat.wait %[[S]], %[[T]] reading %[[X]] : tensor<40xf32>, tensor<40xf32>
  %a = ddp.flat.wait %s, %t reading %x : tensor<40xf32>, tensor<40xf32>
  // CHECK: ddp.flat.wait %[[U]], %[[V]] reading %[[X]] : tensor<40xf32>, tensor<40xf32>
  %b = ddp.flat.wait %u, %v reading %x : tensor<40xf32>, tensor<40xf32>
  return %a, %b : tensor<40xf32>, tensor<40xf32>
}

// CHECK-LABEL: func @memory(
func.func @memory(%x: memref<40xf32>, %d: memref<40xf32>) {
  // CHECK: %[[T:.+]] = ddp.flat.all_reduce_start sum %[[X:.+]] on @dp into %[[D:.+]] : memref<40xf32>, memref<40xf32>
  %t = ddp.flat.all_reduce_start sum %x on @dp into %d : memref<40xf32>, memref<40xf32>
  // CHECK: ddp.flat.wait %[[D]], %[[T]] reading %[[X]] : memref<40xf32>, memref<40xf32>
  ddp.flat.wait %d, %t reading %x : memref<40xf32>, memref<40xf32>
  return
}
