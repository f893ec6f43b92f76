// RUN: ddphook-opt %s | ddphook-opt | FileCheck %s
// RUN: ddphook-opt %s --mlir-print-op-generic | ddphook-opt | FileCheck %s

// Wire types of all codes, and what elements lose.

ddp.process_group @dp

// CHECK-LABEL: func.func @buckets
func.func @buckets(%b: !ddp.bucket<f32, [40x8]>) {
  // CHECK: ddp.all_reduce mean %{{.*}} on @dp wire !ddp.encoded<i8, 256> :
  %0 = ddp.all_reduce mean %b on @dp wire !ddp.encoded<i8, 256> : !ddp.bucket<f32, [40x8]>
  // CHECK: wire !ddp.encoded<i4, 64>
  %1 = ddp.all_reduce sum %b on @dp wire !ddp.encoded<i4, 64> : !ddp.bucket<f32, [40x8]>
  // CHECK: wire !ddp.encoded<f8E4M3FN, 4096>
  %2 = ddp.all_reduce mean %b on @dp wire !ddp.encoded<f8E4M3FN, 4096> : !ddp.bucket<f32, [40x8]>
  // CHECK: wire !ddp.encoded<bf16> :
  %3 = ddp.all_reduce mean %b on @dp wire !ddp.encoded<bf16> : !ddp.bucket<f32, [40x8]>
  // CHECK: wire !ddp.encoded<ui8> :
  %4 = ddp.all_reduce mean %b on @dp wire !ddp.encoded<ui8> : !ddp.bucket<f32, [40x8]>
  // CHECK: wire !ddp.encoded<ui8, 512>
  %5 = ddp.all_reduce_start mean %b on @dp wire !ddp.encoded<ui8, 512> : !ddp.bucket<f32, [40x8]>
      -> !ddp.future<!ddp.bucket<f32, [40x8]>>
  %6 = ddp.wait %5 : !ddp.future<!ddp.bucket<f32, [40x8]>>
  // CHECK: ddp.encoding_error %{{.*}} as !ddp.encoded<i8, 256> : !ddp.bucket<f32, [40x8]>
  %7 = ddp.encoding_error %b as !ddp.encoded<i8, 256> : !ddp.bucket<f32, [40x8]>
  // CHECK: wire !ddp.encoded<ui1, 40>
  %8 = ddp.all_reduce mean %b on @dp wire !ddp.encoded<ui1, 40> : !ddp.bucket<f32, [40x8]>
  // CHECK: ddp.encoding_error %{{.*}} as !ddp.encoded<ui1> : !ddp.bucket<f32, [40x8]>
  %9 = ddp.encoding_error %b as !ddp.encoded<ui1> : !ddp.bucket<f32, [40x8]>
  return
}

// CHECK-LABEL: func.func @flat
func.func @flat(%x: tensor<320xf32>, %y: tensor<320xf32>) -> tensor<320xf32> {
  // CHECK: ddp.flat.encoding_error %{{.*}} as !ddp.encoded<f16> into %{{.*}} : tensor<320xf32>, tensor<320xf32>
  %0 = ddp.flat.encoding_error %x as !ddp.encoded<f16> into %y : tensor<320xf32>, tensor<320xf32>
  return %0 : tensor<320xf32>
}
