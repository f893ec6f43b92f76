// Lowering scf while the module contains a conditional start and its waits is an error at
// compile time, because it hides which of the waits is a no-op. Without collectives in
// flight, and after the pipeline, it works.

// RUN: not %default-opt %s --pass-pipeline="builtin.module(ddp-tensor-pipeline{hook=powersgd start-powersgd-iter=2 overlap=true},one-shot-bufferize{bufferize-function-boundaries=true function-boundary-type-conversion=identity-layout-map},convert-scf-to-cf,ddp-memory-pipeline)" -o /dev/null 2>&1 | FileCheck %s
// RUN: %default-opt %s --pass-pipeline="builtin.module(ddp-tensor-pipeline{hook=powersgd start-powersgd-iter=2 overlap=false},one-shot-bufferize{bufferize-function-boundaries=true function-boundary-type-conversion=identity-layout-map},convert-scf-to-cf,ddp-memory-pipeline)" -o /dev/null
// RUN: %default-opt %s --ddp-pipeline="hook=powersgd start-powersgd-iter=2 overlap=true" --convert-scf-to-cf -o /dev/null
// CHECK: error: 'ddp.flat.all_reduce_start' op expected to be awaited by one 'ddp.flat.wait' in each branch of an 'scf.if' on its condition
// CHECK: remark: lower 'scf' to 'cf' only after 'convert-ddp-to-runtime'

ddp.process_group @dp
func.func @step(%x: tensor<16x12xf32>) -> (tensor<16x12xf32>, tensor<16x12xf32>) {
  %e = tensor.empty() : tensor<16x12xf32>
  %g = linalg.exp ins(%x : tensor<16x12xf32>) outs(%e : tensor<16x12xf32>) -> tensor<16x12xf32>
  %r = ddp.all_reduce mean %g on @dp : tensor<16x12xf32>
  %f = tensor.empty() : tensor<16x12xf32>
  %h = linalg.abs ins(%x : tensor<16x12xf32>) outs(%f : tensor<16x12xf32>) -> tensor<16x12xf32>
  return %r, %h : tensor<16x12xf32>, tensor<16x12xf32>
}
