// RUN: ddphook-opt %s | ddphook-opt | FileCheck %s
// RUN: ddphook-opt %s --mlir-print-op-generic | ddphook-opt | FileCheck %s
// RUN: ddphook-opt %s --canonicalize | FileCheck %s --check-prefix=CANONICAL

// Wire types of all codes, and what elements lose.

ddp.process_group @dp
ddp.process_group @four size 4

// CHECK-LABEL: func.func @buckets
func.func @buckets(%b: !ddp.bucket<f32, [40x8]>, %i: i64) {
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
  // CHECK: ddp.all_reduce sum %{{.*}} on @dp wire !ddp.encoded<i8, 256 stochastic 17> as "b0" step %[[I:.*]] :
  %10 = ddp.all_reduce sum %b on @dp wire !ddp.encoded<i8, 256 stochastic 17> as "b0" step %i : !ddp.bucket<f32, [40x8]>
  // CHECK: ddp.all_reduce_start sum %{{.*}} on @dp wire !ddp.encoded<f8E5M2, 32 stochastic 0> step %[[I]] :
  %11 = ddp.all_reduce_start sum %b on @dp wire !ddp.encoded<f8E5M2, 32 stochastic 0> step %i
      : !ddp.bucket<f32, [40x8]> -> !ddp.future<!ddp.bucket<f32, [40x8]>>
  %12 = ddp.wait %11 : !ddp.future<!ddp.bucket<f32, [40x8]>>
  // CHECK: ddp.encoding_error %{{.*}} as !ddp.encoded<i4, 64 stochastic 17> step %[[I]] on @dp :
  %13 = ddp.encoding_error %b as !ddp.encoded<i4, 64 stochastic 17> step %i on @dp : !ddp.bucket<f32, [40x8]>
  return
}

// A start that is awaited at once keeps the step.
// CANONICAL: ddp.all_reduce sum %{{.*}} wire !ddp.encoded<f8E5M2, 32 stochastic 0> step %{{.*}} :

// CHECK-LABEL: func.func @parts
func.func @parts(%x: tensor<320xf32>, %y: tensor<80xf32>, %i: i64) -> (tensor<80xf32>, tensor<80xf32>) {
  // CHECK: ddp.reduce_scatter mean %{{.*}} on @four wire !ddp.encoded<i8, 32 stochastic 1> step %{{.*}} : tensor<320xf32> -> tensor<80xf32>
  %0 = ddp.reduce_scatter mean %x on @four wire !ddp.encoded<i8, 32 stochastic 1> step %i : tensor<320xf32> -> tensor<80xf32>
  // CHECK: ddp.flat.reduce_scatter mean %{{.*}} on @four wire !ddp.encoded<i8, 32 stochastic 1> step %{{.*}} into %{{.*}} : tensor<320xf32>, tensor<80xf32>
  %1 = ddp.flat.reduce_scatter mean %x on @four wire !ddp.encoded<i8, 32 stochastic 1> step %i into %y
      : tensor<320xf32>, tensor<80xf32>
  return %0, %1 : tensor<80xf32>, tensor<80xf32>
}

// CHECK-LABEL: func.func @flat_by_chance
func.func @flat_by_chance(%x: tensor<320xf32>, %y: tensor<320xf32>, %z: tensor<320xf32>, %i: i64)
    -> (tensor<320xf32>, tensor<320xf32>) {
  // CHECK: ddp.flat.all_reduce mean %{{.*}} on @dp wire !ddp.encoded<i8, 32 stochastic 1> step %{{.*}} as "b0" into %{{.*}} : tensor<320xf32>, tensor<320xf32>
  %0 = ddp.flat.all_reduce mean %x on @dp wire !ddp.encoded<i8, 32 stochastic 1> step %i as "b0" into %y
      : tensor<320xf32>, tensor<320xf32>
  // CHECK: ddp.flat.all_reduce_start mean %{{.*}} on @dp wire !ddp.encoded<i8, 32 stochastic 1> step %{{.*}} into %{{.*}} : tensor<320xf32>, tensor<320xf32>
  %1, %ticket = ddp.flat.all_reduce_start mean %0 on @dp wire !ddp.encoded<i8, 32 stochastic 1> step %i into %z
      : tensor<320xf32>, tensor<320xf32>
  %2 = ddp.flat.wait %1, %ticket reading %0 : tensor<320xf32>, tensor<320xf32>
  // CHECK: ddp.flat.encoding_error %{{.*}} as !ddp.encoded<i8, 32 stochastic 1> step %{{.*}} on @dp into %{{.*}} : tensor<320xf32>, tensor<320xf32>
  %3 = ddp.flat.encoding_error %2 as !ddp.encoded<i8, 32 stochastic 1> step %i on @dp into %y
      : tensor<320xf32>, tensor<320xf32>
  return %2, %3 : tensor<320xf32>, tensor<320xf32>
}

// CHECK-LABEL: func.func @flat
func.func @flat(%x: tensor<320xf32>, %y: tensor<320xf32>) -> tensor<320xf32> {
  // CHECK: ddp.flat.encoding_error %{{.*}} as !ddp.encoded<f16> into %{{.*}} : tensor<320xf32>, tensor<320xf32>
  %0 = ddp.flat.encoding_error %x as !ddp.encoded<f16> into %y : tensor<320xf32>, tensor<320xf32>
  return %0 : tensor<320xf32>
}
