// RUN: ddphook-opt %s --ddp-bucketize | FileCheck %s --check-prefix=DEFAULT
// RUN: ddphook-opt %s --ddp-bucketize="bucket-cap-mb=2" | FileCheck %s --check-prefix=CAP2
// RUN: ddphook-opt %s --ddp-bucketize="bucket-cap-mb=2 first-bucket-mb=0.5" | FileCheck %s --check-prefix=FIRST
// RUN: ddphook-opt %s --ddp-bucketize="first-bucket-mb=1.25" | FileCheck %s --check-prefix=FIRSTONLY
// RUN: ddphook-opt %s --ddp-bucketize="bucket-cap-mb=0" | FileCheck %s --check-prefix=ZERO
// RUN: ddphook-opt %s --ddp-bucketize="bucket-cap-mb=0.5000001" | FileCheck %s --check-prefix=FRACTION
// RUN: ddphook-opt %s --ddp-bucketize="bucket-cap-mb=1e300" | FileCheck %s --check-prefix=HUGE
// RUN: ddphook-opt %s --ddp-bucketize="bucket-cap-mb=inf" | FileCheck %s --check-prefix=HUGE
// RUN: ddphook-opt %s --ddp-bucketize="bucket_cap_mb=2 First_Bucket-MB=0.5" | FileCheck %s --check-prefix=FIRST

// PyTorch's rule: a gradient is appended, *then* the bucket is closed if its
// bytes reach the limit. So a bucket may be (much) larger than its limit, and is
// never closed by the gradient that comes.

ddp.process_group @dp

// 0.5 MiB each: six of them, then one of 30 MiB, then one more.

// 1 MiB for the first: two. 25 MiB for the next: four, and the large one. The
// last is left over.
// DEFAULT-LABEL: func @step(
// DEFAULT: as "b0" : !ddp.bucket<f32, [131072, 131072]>
// DEFAULT: as "b1" : !ddp.bucket<f32, [131072, 131072, 131072, 131072, 7864320]>
// DEFAULT: as "b2" : !ddp.bucket<f32, [131072]>
// DEFAULT-NOT: ddp.all_reduce

// An explicit limit is the first bucket's as well.
// CAP2-LABEL: func @step(
// CAP2: as "b0" : !ddp.bucket<f32, [131072, 131072, 131072, 131072]>
// CAP2: as "b1" : !ddp.bucket<f32, [131072, 131072, 7864320]>
// CAP2: as "b2" : !ddp.bucket<f32, [131072]>
// CAP2-NOT: ddp.all_reduce

// Unless that has one of its own.
// FIRST-LABEL: func @step(
// FIRST: as "b0" : !ddp.bucket<f32, [131072]>
// FIRST: as "b1" : !ddp.bucket<f32, [131072, 131072, 131072, 131072]>
// FIRST: as "b2" : !ddp.bucket<f32, [131072, 7864320]>
// FIRST: as "b3" : !ddp.bucket<f32, [131072]>
// FIRST-NOT: ddp.all_reduce

// FIRSTONLY-LABEL: func @step(
// FIRSTONLY: as "b0" : !ddp.bucket<f32, [131072, 131072, 131072]>
// FIRSTONLY: as "b1" : !ddp.bucket<f32, [131072, 131072, 131072, 7864320]>
// FIRSTONLY: as "b2" : !ddp.bucket<f32, [131072]>
// FIRSTONLY-NOT: ddp.all_reduce

// Zero is reached by any gradient: one bucket each.
// ZERO-LABEL: func @step(
// ZERO-COUNT-6: as "b{{[0-5]}}" : !ddp.bucket<f32, [131072]>
// ZERO: as "b6" : !ddp.bucket<f32, [7864320]>
// ZERO: as "b7" : !ddp.bucket<f32, [131072]>
// ZERO-NOT: ddp.all_reduce

// No limit at all.
// HUGE-LABEL: func @step(
// HUGE: as "b0" : !ddp.bucket<f32, [131072, 131072, 131072, 131072, 131072, 131072, 7864320, 131072]>
// HUGE-NOT: ddp.all_reduce

// A fraction of a byte more than 0.5 MiB is rounded down to 0.5 MiB, as PyTorch
// does.
// FRACTION-LABEL: func @step(
// FRACTION-COUNT-6: as "b{{[0-5]}}" : !ddp.bucket<f32, [131072]>
// FRACTION: as "b6" : !ddp.bucket<f32, [7864320]>
// FRACTION: as "b7" : !ddp.bucket<f32, [131072]>
// FRACTION-NOT: ddp.all_reduce
func.func @step(%a: tensor<131072xf32>, %b: tensor<7864320xf32>) {
  %0 = ddp.all_reduce mean %a on @dp : tensor<131072xf32>
  %1 = ddp.all_reduce mean %a on @dp : tensor<131072xf32>
  %2 = ddp.all_reduce mean %a on @dp : tensor<131072xf32>
  %3 = ddp.all_reduce mean %a on @dp : tensor<131072xf32>
  %4 = ddp.all_reduce mean %a on @dp : tensor<131072xf32>
  %5 = ddp.all_reduce mean %a on @dp : tensor<131072xf32>
  %6 = ddp.all_reduce mean %b on @dp : tensor<7864320xf32>
  %7 = ddp.all_reduce mean %a on @dp : tensor<131072xf32>
  return
}

// Every kind has a first bucket of its own, and its own bytes: a half counts
// two.
// CAP2-LABEL: func @kinds(
// FIRST-LABEL: func @kinds(
// FIRSTONLY-LABEL: func @kinds(
// ZERO-LABEL: func @kinds(
// FRACTION-LABEL: func @kinds(
// HUGE-LABEL: func @kinds(
// DEFAULT-LABEL: func @kinds(
// DEFAULT-DAG: as "b3" : !ddp.bucket<f32, [262144]>
// DEFAULT-DAG: as "b4" : !ddp.bucket<f16, [262144, 262144]>
// DEFAULT-DAG: as "b5" : !ddp.bucket<f32, [262144, 262144]>
// DEFAULT-DAG: as "b6" : !ddp.bucket<f16, [262144]>
// DEFAULT-NOT: ddp.all_reduce
func.func @kinds(%f: tensor<262144xf32>, %h: tensor<262144xf16>) {
  %0 = ddp.all_reduce mean %f on @dp : tensor<262144xf32>
  %1 = ddp.all_reduce mean %h on @dp : tensor<262144xf16>
  %2 = ddp.all_reduce mean %f on @dp : tensor<262144xf32>
  %3 = ddp.all_reduce mean %h on @dp : tensor<262144xf16>
  %4 = ddp.all_reduce mean %h on @dp : tensor<262144xf16>
  %5 = ddp.all_reduce mean %f on @dp : tensor<262144xf32>
  return
}

// Zero-sized gradients close no bucket but one whose limit is zero.
// DEFAULT-LABEL: func @zero_sized(
// DEFAULT: as "b7" : !ddp.bucket<f32, [0, 0x3]>
// ZERO-LABEL: func @zero_sized(
// ZERO: !ddp.bucket<f32, [0]>
// ZERO: !ddp.bucket<f32, [0x3]>
func.func @zero_sized(%a: tensor<0xf32>, %b: tensor<0x3xf32>) {
  %0 = ddp.all_reduce mean %a on @dp : tensor<0xf32>
  %1 = ddp.all_reduce mean %b on @dp : tensor<0x3xf32>
  return
}
