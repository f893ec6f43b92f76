// RUN: ddphook-opt %s | ddphook-opt | FileCheck %s
// RUN: ddphook-opt %s --mlir-print-op-generic | ddphook-opt | FileCheck %s
// RUN: ddphook-opt %s --ddp-flatten | FileCheck %s --check-prefix=FLAT
// RUN: ddphook-opt %s --ddp-pipeline | FileCheck %s --check-prefix=CALLS

// The largest elements: on buckets and tensors, on flat arrays, and as calls.

ddp.process_group @dp size 4
ddp.state @rest : !ddp.bucket<f32, [40x8]> per_rank zero

// CHECK-LABEL: func.func @bucket(
// FLAT-LABEL:  func.func @bucket(
// CALLS-LABEL: func.func @bucket(
func.func @bucket(%g: tensor<40x8xf32>) -> tensor<40x8xf32> {
  %b = ddp.pack %g : tensor<40x8xf32> -> !ddp.bucket<f32, [40x8]>
  %e = ddp.load @rest : !ddp.bucket<f32, [40x8]>
  %m = ddp.add %b, %e : !ddp.bucket<f32, [40x8]>, !ddp.bucket<f32, [40x8]>
  // CHECK: %[[E:.+]], %[[R:.+]] = ddp.sparsify %{{.+}} keep 8 : !ddp.bucket<f32, [40x8]>
  // FLAT:  %[[X:.+]] = tensor.empty() : tensor<16xf32>
  // FLAT:  %[[Y:.+]] = tensor.empty() : tensor<320xf32>
  // FLAT:  %[[E:.+]]:2 = ddp.flat.sparsify %{{.+}} keep 8 into(%[[X]], %[[Y]]) : tensor<320xf32>, tensor<16xf32>, tensor<320xf32>
  // What is left is computed where the state is.
  // CALLS:     llvm.call @ddphook_rt_add
  // CALLS-NOT: memref.copy
  // CALLS:     llvm.call @ddphook_rt_sparsify
  // CALLS-NOT: memref.copy
  %entries, %rest = ddp.sparsify %m keep 8 : !ddp.bucket<f32, [40x8]>
  // CHECK: ddp.store %[[R]], @rest
  ddp.store %rest, @rest : !ddp.bucket<f32, [40x8]>
  // CALLS: llvm.call @ddphook_rt_collective
  %all = ddp.all_gather %entries on @dp : tensor<16xf32> -> tensor<64xf32>
  // CHECK: ddp.densify %{{.+}} keep 8 : tensor<64xf32> -> !ddp.bucket<f32, [40x8]>
  // FLAT:  ddp.flat.densify %{{.+}} keep 8 into %{{.+}} : tensor<64xf32>, tensor<320xf32>
  // CALLS: %[[PARTS:.+]] = llvm.mlir.constant(4 : i64) : i64
  // CALLS: llvm.call @ddphook_rt_densify(%{{.+}}, %{{.+}}, %[[PARTS]],
  %sum = ddp.densify %all keep 8 : tensor<64xf32> -> !ddp.bucket<f32, [40x8]>
  %r = ddp.unpack %sum : !ddp.bucket<f32, [40x8]> -> tensor<40x8xf32>
  return %r : tensor<40x8xf32>
}

// CHECK-LABEL: func.func @tensors(
func.func @tensors(%x: tensor<3x4xf32>) -> tensor<3x4xf32> {
  // CHECK: ddp.sparsify %{{.+}} keep 0 : tensor<3x4xf32>
  %none, %whole = ddp.sparsify %x keep 0 : tensor<3x4xf32>
  // CHECK: ddp.sparsify %{{.+}} keep 12 : tensor<3x4xf32>
  %all, %zeros = ddp.sparsify %whole keep 12 : tensor<3x4xf32>
  // CHECK: ddp.densify %{{.+}} keep 12 : tensor<24xf32> -> tensor<3x4xf32>
  %same = ddp.densify %all keep 12 : tensor<24xf32> -> tensor<3x4xf32>
  return %same : tensor<3x4xf32>
}

// CHECK-LABEL: func.func @memory(
func.func @memory(%x: memref<3x4xf32>, %e: memref<4xf32>) {
  // CHECK: ddp.flat.sparsify %{{.+}} keep 2 into(%{{.+}}, %{{.+}}) : memref<3x4xf32>, memref<4xf32>, memref<3x4xf32>
  ddp.flat.sparsify %x keep 2 into (%e, %x) : memref<3x4xf32>, memref<4xf32>, memref<3x4xf32>
  // CHECK: ddp.flat.densify %{{.+}} keep 2 into %{{.+}} : memref<4xf32>, memref<3x4xf32>
  ddp.flat.densify %e keep 2 into %x : memref<4xf32>, memref<3x4xf32>
  return
}
