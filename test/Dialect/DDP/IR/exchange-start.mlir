// RUN: ddphook-opt %s | ddphook-opt | FileCheck %s
// RUN: ddphook-opt %s --mlir-print-op-generic | ddphook-opt | FileCheck %s
// RUN: ddphook-opt %s --emit-bytecode | ddphook-opt | FileCheck %s

// Every kind in flight, on values and on flat arrays, with all clauses.

ddp.process_group @dp size 4
ddp.process_group @all

// CHECK-LABEL: func @values(
func.func @values(%g: tensor<6x3xf32>, %b: !ddp.bucket<f32, [6x3, 2]>, %x: tensor<8xf64>,
                  %y: tensor<f16>, %i: i64) {
  // CHECK-NEXT: ddp.exchange_start reduce_scatter mean %{{.+}} on @dp : tensor<6x3xf32> -> !ddp.future<tensor<5xf32>>
  %f0 = ddp.exchange_start reduce_scatter mean %g on @dp : tensor<6x3xf32> -> !ddp.future<tensor<5xf32>>
  // CHECK-NEXT: ddp.exchange_start reduce_scatter sum %{{.+}} on @dp wire !ddp.encoded<i8, 32 stochastic 3> step %{{.+}} : !ddp.bucket<f32, [6x3, 2]> -> !ddp.future<tensor<5xf32>>
  %f1 = ddp.exchange_start reduce_scatter sum %b on @dp wire !ddp.encoded<i8, 32 stochastic 3> step %i
      : !ddp.bucket<f32, [6x3, 2]> -> !ddp.future<tensor<5xf32>>
  // CHECK-NEXT: ddp.exchange_start all_to_all %{{.+}} on @dp : tensor<8xf64> -> !ddp.future<tensor<8xf64>>
  %f2 = ddp.exchange_start all_to_all %x on @dp : tensor<8xf64> -> !ddp.future<tensor<8xf64>>
  // CHECK-NEXT: ddp.exchange_start broadcast %{{.+}} from 0 on @all : tensor<f16> -> !ddp.future<tensor<f16>>
  %f3 = ddp.exchange_start broadcast %y from 0 on @all : tensor<f16> -> !ddp.future<tensor<f16>>
  // CHECK-NEXT: ddp.wait %{{.+}} : !ddp.future<tensor<5xf32>>
  %s0 = ddp.wait %f0 : !ddp.future<tensor<5xf32>>
  %s1 = ddp.wait %f1 : !ddp.future<tensor<5xf32>>
  %s2 = ddp.wait %f2 : !ddp.future<tensor<8xf64>>
  %s3 = ddp.wait %f3 : !ddp.future<tensor<f16>>
  // CHECK: ddp.exchange_start all_gather %{{.+}} on @dp wire bf16 as "b0" : tensor<5xf32> -> !ddp.future<!ddp.bucket<f32, [6x3]>>
  %f4 = ddp.exchange_start all_gather %s0 on @dp wire bf16 as "b0" : tensor<5xf32> -> !ddp.future<!ddp.bucket<f32, [6x3]>>
  // CHECK: ddp.wait %{{.+}} : !ddp.future<!ddp.bucket<f32, [6x3]>>
  %s4 = ddp.wait %f4 : !ddp.future<!ddp.bucket<f32, [6x3]>>
  return
}

// CHECK-LABEL: func @flat(
func.func @flat(%g: tensor<6x3xf32>, %p: tensor<5xf32>, %x: memref<8xf64>, %y: memref<8xf64>) {
  // CHECK-NEXT: %[[F:.+]], %[[T:.+]] = ddp.flat.exchange_start reduce_scatter mean %{{.+}} on @dp wire f16 into %{{.+}} : tensor<6x3xf32>, tensor<5xf32>
  %f, %t = ddp.flat.exchange_start reduce_scatter mean %g on @dp wire f16 into %p : tensor<6x3xf32>, tensor<5xf32>
  // CHECK-NEXT: ddp.flat.wait %[[F]], %[[T]] reading %{{.+}} : tensor<5xf32>, tensor<6x3xf32>
  %s = ddp.flat.wait %f, %t reading %g : tensor<5xf32>, tensor<6x3xf32>
  // CHECK-NEXT: %[[U:.+]] = ddp.flat.exchange_start broadcast %{{.+}} from 3 on @all into %{{.+}} : memref<8xf64>, memref<8xf64>
  %u = ddp.flat.exchange_start broadcast %x from 3 on @all into %y : memref<8xf64>, memref<8xf64>
  // CHECK-NEXT: ddp.flat.wait %{{.+}}, %[[U]] : memref<8xf64>
  ddp.flat.wait %y, %u : memref<8xf64>
  return
}
