// Groups are the default where they pay: 4 MiB of matrices at a time. Their parts of
// Q are copied nowhere, though matrices of two shapes are in each.

// RUN: ddphook-opt %s --ddp-pipeline="hook=powersgd bucket-cap-mb=25 require-no-copy=true overlap=false" | FileCheck %s
// RUN: ddphook-opt %s --ddp-pipeline="hook=powersgd bucket-cap-mb=25 require-no-copy=true overlap=false group-mb=4" > %t.four
// RUN: ddphook-opt %s --ddp-pipeline="hook=powersgd bucket-cap-mb=25 require-no-copy=true overlap=false" | diff %t.four -

// In a device's memory, and where PyTorch's messages are asked for, a bucket stays
// whole unless the options say otherwise.
// RUN: ddphook-opt %s --ddp-pipeline="hook=powersgd bucket-cap-mb=25 require-no-copy=true overlap=false group-mb=0" | FileCheck %s --check-prefix=WHOLE
// RUN: ddphook-opt %s --ddp-pipeline="hook=powersgd bucket-cap-mb=25 require-no-copy=true overlap=false memory=device" | FileCheck %s --check-prefix=WHOLE
// RUN: ddphook-opt %s --ddp-pipeline="hook=powersgd bucket-cap-mb=25 require-no-copy=true overlap=false pack-collectives=false" | FileCheck %s --check-prefix=WHOLE
// RUN: ddphook-opt %s --ddp-pipeline="hook=powersgd bucket-cap-mb=25 require-no-copy=true overlap=false memory=device group-mb=4" | FileCheck %s
// RUN: ddphook-opt %s --ddp-tensor-pipeline="hook=powersgd bucket-cap-mb=25" | FileCheck %s --check-prefix=TENSORS

// Nothing is copied with any other option, either.
// RUN: ddphook-opt %s --ddp-pipeline="hook=powersgd bucket-cap-mb=25 require-no-copy=true overlap=true" -o /dev/null
// RUN: ddphook-opt %s --ddp-pipeline="hook=powersgd bucket-cap-mb=25 require-no-copy=true interleave=true" -o /dev/null
// RUN: ddphook-opt %s --ddp-pipeline="hook=powersgd bucket-cap-mb=25 require-no-copy=true interleave=true overlap-depth=4" -o /dev/null
// RUN: ddphook-opt %s --ddp-pipeline="hook=powersgd bucket-cap-mb=25 require-no-copy=true pack-collectives=false group-mb=4" -o /dev/null
// RUN: ddphook-opt %s --ddp-pipeline="hook=powersgd bucket-cap-mb=25 require-no-copy=true use-error-feedback=false" -o /dev/null
// RUN: ddphook-opt %s --ddp-pipeline="hook=powersgd bucket-cap-mb=25 require-no-copy=true warm-start=false use-error-feedback=false start-powersgd-iter=0" -o /dev/null
// RUN: ddphook-opt %s --ddp-pipeline="hook=powersgd bucket-cap-mb=25 require-no-copy=true warm-start=false" -o /dev/null
// RUN: ddphook-opt %s --ddp-pipeline="hook=powersgd bucket-cap-mb=25 require-no-copy=true wrapper=bf16 matrix-approximation-rank=4" -o /dev/null
// RUN: ddphook-opt %s --ddp-pipeline="hook=powersgd bucket-cap-mb=25 require-no-copy=true order=reverse" -o /dev/null
// RUN: ddphook-opt %s --ddp-pipeline="hook=powersgd bucket-cap-mb=25 require-no-copy=true batch-tensors-with-same-shape=true" -o /dev/null
// RUN: ddphook-opt %s --ddp-pipeline="hook=powersgd bucket-cap-mb=25 require-no-copy=true group-mb=2" -o /dev/null
// RUN: ddphook-opt %s --ddp-pipeline="hook=powersgd bucket-cap-mb=25 require-no-copy=true group-mb=6.5" -o /dev/null

ddp.process_group @dp

// Two groups. Each divides its Q by the size of the group: both runs of it into the
// state, and the whole where it is.
// CHECK-LABEL: func.func @mean(
// CHECK:         } else {
// CHECK-COUNT-2: llvm.call @ddphook_rt_orthogonalize(
// CHECK-NOT:     ddphook_rt_project
// CHECK-COUNT-2: llvm.call @ddphook_rt_orthogonalize(
// CHECK:         llvm.call @ddphook_rt_project(
// CHECK:         llvm.call @ddphook_rt_orthogonalize(
// CHECK:         llvm.call @ddphook_rt_matmul(
// CHECK:         llvm.call @ddphook_rt_collective(
// CHECK-COUNT-3: llvm.call @ddphook_rt_divide_by_group_size(
// CHECK:         llvm.call @ddphook_rt_reconstruct(
// CHECK:         llvm.call @ddphook_rt_project(
// CHECK:         llvm.call @ddphook_rt_reconstruct(
// CHECK-NOT:     llvm.call @ddphook_rt_reconstruct(
// CHECK:         return
// WHOLE-LABEL: func.func @mean(
// WHOLE:         llvm.call @ddphook_rt_project(
// WHOLE-NOT:     llvm.call @ddphook_rt_project(
// WHOLE:         return
// TENSORS-LABEL: func.func @mean(
// TENSORS-COUNT-2: ddp.flat.project
// TENSORS:         return
func.func @mean(%w0: tensor<1024x512xf32> {bufferization.writable = true},
    %w1: tensor<512x1024xf32> {bufferization.writable = true},
    %w2: tensor<7xf32> {bufferization.writable = true},
    %w3: tensor<1024x512xf32> {bufferization.writable = true},
    %w4: tensor<512x1024xf32> {bufferization.writable = true})
    -> (tensor<1024x512xf32>, tensor<512x1024xf32>, tensor<7xf32>, tensor<1024x512xf32>, tensor<512x1024xf32>) {
  %e0 = tensor.empty() : tensor<1024x512xf32>
  %g0 = linalg.exp ins(%w0 : tensor<1024x512xf32>) outs(%e0 : tensor<1024x512xf32>) -> tensor<1024x512xf32>
  %e1 = tensor.empty() : tensor<512x1024xf32>
  %g1 = linalg.exp ins(%w1 : tensor<512x1024xf32>) outs(%e1 : tensor<512x1024xf32>) -> tensor<512x1024xf32>
  %e2 = tensor.empty() : tensor<7xf32>
  %g2 = linalg.exp ins(%w2 : tensor<7xf32>) outs(%e2 : tensor<7xf32>) -> tensor<7xf32>
  %e3 = tensor.empty() : tensor<1024x512xf32>
  %g3 = linalg.exp ins(%w3 : tensor<1024x512xf32>) outs(%e3 : tensor<1024x512xf32>) -> tensor<1024x512xf32>
  %e4 = tensor.empty() : tensor<512x1024xf32>
  %g4 = linalg.exp ins(%w4 : tensor<512x1024xf32>) outs(%e4 : tensor<512x1024xf32>) -> tensor<512x1024xf32>
  %r0 = ddp.all_reduce mean %g0 on @dp : tensor<1024x512xf32>
  %r1 = ddp.all_reduce mean %g1 on @dp : tensor<512x1024xf32>
  %r2 = ddp.all_reduce mean %g2 on @dp : tensor<7xf32>
  %r3 = ddp.all_reduce mean %g3 on @dp : tensor<1024x512xf32>
  %r4 = ddp.all_reduce mean %g4 on @dp : tensor<512x1024xf32>
  %n0 = linalg.sub ins(%w0, %r0 : tensor<1024x512xf32>, tensor<1024x512xf32>)
      outs(%w0 : tensor<1024x512xf32>) -> tensor<1024x512xf32>
  %n1 = linalg.sub ins(%w1, %r1 : tensor<512x1024xf32>, tensor<512x1024xf32>)
      outs(%w1 : tensor<512x1024xf32>) -> tensor<512x1024xf32>
  %n2 = linalg.sub ins(%w2, %r2 : tensor<7xf32>, tensor<7xf32>)
      outs(%w2 : tensor<7xf32>) -> tensor<7xf32>
  %n3 = linalg.sub ins(%w3, %r3 : tensor<1024x512xf32>, tensor<1024x512xf32>)
      outs(%w3 : tensor<1024x512xf32>) -> tensor<1024x512xf32>
  %n4 = linalg.sub ins(%w4, %r4 : tensor<512x1024xf32>, tensor<512x1024xf32>)
      outs(%w4 : tensor<512x1024xf32>) -> tensor<512x1024xf32>
  return %n0, %n1, %n2, %n3, %n4
      : tensor<1024x512xf32>, tensor<512x1024xf32>, tensor<7xf32>, tensor<1024x512xf32>, tensor<512x1024xf32>
}

// CHECK-LABEL: func.func @sum(
// CHECK:         } else {
// CHECK:         llvm.call @ddphook_rt_matmul(
// CHECK:         llvm.call @ddphook_rt_collective(
// CHECK-COUNT-2: llvm.call @ddphook_rt_scale(
// CHECK:         llvm.call @ddphook_rt_reconstruct(
func.func @sum(%w0: tensor<1024x512xf32> {bufferization.writable = true},
    %w1: tensor<512x1024xf32> {bufferization.writable = true},
    %w2: tensor<7xf32> {bufferization.writable = true},
    %w3: tensor<1024x512xf32> {bufferization.writable = true},
    %w4: tensor<512x1024xf32> {bufferization.writable = true})
    -> (tensor<1024x512xf32>, tensor<512x1024xf32>, tensor<7xf32>, tensor<1024x512xf32>, tensor<512x1024xf32>) {
  %e0 = tensor.empty() : tensor<1024x512xf32>
  %g0 = linalg.exp ins(%w0 : tensor<1024x512xf32>) outs(%e0 : tensor<1024x512xf32>) -> tensor<1024x512xf32>
  %e1 = tensor.empty() : tensor<512x1024xf32>
  %g1 = linalg.exp ins(%w1 : tensor<512x1024xf32>) outs(%e1 : tensor<512x1024xf32>) -> tensor<512x1024xf32>
  %e2 = tensor.empty() : tensor<7xf32>
  %g2 = linalg.exp ins(%w2 : tensor<7xf32>) outs(%e2 : tensor<7xf32>) -> tensor<7xf32>
  %e3 = tensor.empty() : tensor<1024x512xf32>
  %g3 = linalg.exp ins(%w3 : tensor<1024x512xf32>) outs(%e3 : tensor<1024x512xf32>) -> tensor<1024x512xf32>
  %e4 = tensor.empty() : tensor<512x1024xf32>
  %g4 = linalg.exp ins(%w4 : tensor<512x1024xf32>) outs(%e4 : tensor<512x1024xf32>) -> tensor<512x1024xf32>
  %r0 = ddp.all_reduce sum %g0 on @dp : tensor<1024x512xf32>
  %r1 = ddp.all_reduce sum %g1 on @dp : tensor<512x1024xf32>
  %r2 = ddp.all_reduce sum %g2 on @dp : tensor<7xf32>
  %r3 = ddp.all_reduce sum %g3 on @dp : tensor<1024x512xf32>
  %r4 = ddp.all_reduce sum %g4 on @dp : tensor<512x1024xf32>
  %n0 = linalg.sub ins(%w0, %r0 : tensor<1024x512xf32>, tensor<1024x512xf32>)
      outs(%w0 : tensor<1024x512xf32>) -> tensor<1024x512xf32>
  %n1 = linalg.sub ins(%w1, %r1 : tensor<512x1024xf32>, tensor<512x1024xf32>)
      outs(%w1 : tensor<512x1024xf32>) -> tensor<512x1024xf32>
  %n2 = linalg.sub ins(%w2, %r2 : tensor<7xf32>, tensor<7xf32>)
      outs(%w2 : tensor<7xf32>) -> tensor<7xf32>
  %n3 = linalg.sub ins(%w3, %r3 : tensor<1024x512xf32>, tensor<1024x512xf32>)
      outs(%w3 : tensor<1024x512xf32>) -> tensor<1024x512xf32>
  %n4 = linalg.sub ins(%w4, %r4 : tensor<512x1024xf32>, tensor<512x1024xf32>)
      outs(%w4 : tensor<512x1024xf32>) -> tensor<512x1024xf32>
  return %n0, %n1, %n2, %n3, %n4
      : tensor<1024x512xf32>, tensor<512x1024xf32>, tensor<7xf32>, tensor<1024x512xf32>, tensor<512x1024xf32>
}
