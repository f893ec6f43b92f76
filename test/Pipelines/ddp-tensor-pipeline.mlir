// The halves of ddp-pipeline with upstream's bufferization between them, in stock
// mlir-opt, give what the whole gives.

// RUN: mlir-opt %s --load-dialect-plugin=%plugin --pass-pipeline="builtin.module(ddp-tensor-pipeline{hook=fp16 bucket_cap_mb=2})" > %t.tensors
// RUN: FileCheck %s < %t.tensors
// RUN: mlir-opt %t.tensors --load-dialect-plugin=%plugin --pass-pipeline="builtin.module(one-shot-bufferize{bufferize-function-boundaries=true function-boundary-type-conversion=identity-layout-map},ddp-memory-pipeline)" > %t.halves
// RUN: ddphook-opt %s --ddp-pipeline="hook=fp16 bucket_cap_mb=2" > %t.whole
// RUN: diff %t.halves %t.whole

// With states, with collectives in flight, for a device, with all functions.
// RUN: mlir-opt %s --load-dialect-plugin=%plugin --pass-pipeline="builtin.module(ddp-tensor-pipeline{hook=powersgd start-powersgd-iter=2 overlap=true},one-shot-bufferize{bufferize-function-boundaries=true function-boundary-type-conversion=identity-layout-map},ddp-memory-pipeline)" > %t.halves
// RUN: ddphook-opt %s --ddp-pipeline="hook=powersgd start-powersgd-iter=2 overlap=true" > %t.whole
// RUN: diff %t.halves %t.whole
// RUN: mlir-opt %s --load-dialect-plugin=%plugin --pass-pipeline="builtin.module(ddp-tensor-pipeline{all-functions=true verify-order=true},one-shot-bufferize{bufferize-function-boundaries=true function-boundary-type-conversion=identity-layout-map},ddp-memory-pipeline{all-functions=true memory=device verify-order=true})" > %t.halves
// RUN: ddphook-opt %s --ddp-pipeline="all-functions=true memory=device" > %t.whole
// RUN: diff %t.halves %t.whole

// Our own bufferization in a pipeline of others.
// RUN: ddphook-opt %t.tensors --pass-pipeline="builtin.module(ddp-bufferize,ddp-memory-pipeline)" > %t.halves
// RUN: ddphook-opt %s --ddp-pipeline="hook=fp16 bucket_cap_mb=2" > %t.whole
// RUN: diff %t.halves %t.whole

// Each half has its own options, and says whose error it is.
// RUN: not ddphook-opt %s --ddp-tensor-pipeline="memory=device" 2>&1 | FileCheck %s --check-prefix=TENSOR
// TENSOR: in the options of ddp-tensor-pipeline: {{.*}}memory
// RUN: not ddphook-opt %s --ddp-memory-pipeline="hook=fp16" 2>&1 | FileCheck %s --check-prefix=MEMORY
// MEMORY: in the options of ddp-memory-pipeline: {{.*}}hook
// RUN: not ddphook-opt %s --ddp-tensor-pipeline="group-mb=-1" 2>&1 | FileCheck %s --check-prefix=GROUP
// GROUP: in the options of ddp-tensor-pipeline: expected group-mb to be at least 0, but got '-1'

// Without a bufferization in between, or with tensors left at a boundary.
// RUN: not ddphook-opt %t.tensors --ddp-memory-pipeline 2>&1 | FileCheck %s --check-prefix=NONE
// NONE: error: 'ddp.flat.all_reduce' op could not be converted to a call of the runtime
// RUN: not ddphook-opt %s --ddp-memory-pipeline 2>&1 | FileCheck %s --check-prefix=BOTH
// BOTH: error: 'func.func' op expected argument 0 to be a memref or scalar of integers or floats, but got 'tensor<300x200xf32>'

// The results leave the bucket in a copy.
// RUN: not ddphook-opt %t.tensors --pass-pipeline="builtin.module(ddp-bufferize,ddp-memory-pipeline{require-no-copy=true})" 2>&1 | FileCheck %s --check-prefix=COPY
// COPY: error: 'memref.copy' op expected a step without allocations and copies

// The interface is in memory already; everything else is flat tensors, and every
// operation knows where it writes.
// CHECK-NOT:   ddp.bucket<
// CHECK:       func.func @step(%{{.*}}: memref<300x200xf32>
// CHECK-NOT:     ddp.all_reduce
// CHECK:         bufferization.to_tensor
// CHECK:         ddp.flat.all_reduce mean {{.*}} wire f16 {{.*}} into
// CHECK:         return

ddp.process_group @dp
func.func @step(%x: tensor<300x200xf32>, %b: tensor<200xf32>)
    -> (tensor<300x200xf32>, tensor<200xf32>) {
  %0 = tensor.empty() : tensor<300x200xf32>
  %g = linalg.mul ins(%x, %x : tensor<300x200xf32>, tensor<300x200xf32>) outs(%0 : tensor<300x200xf32>) -> tensor<300x200xf32>
  %1 = tensor.empty() : tensor<200xf32>
  %h = linalg.mul ins(%b, %b : tensor<200xf32>, tensor<200xf32>) outs(%1 : tensor<200xf32>) -> tensor<200xf32>
  %r0 = ddp.all_reduce mean %g on @dp : tensor<300x200xf32>
  %r1 = ddp.all_reduce mean %h on @dp : tensor<200xf32>
  return %r0, %r1 : tensor<300x200xf32>, tensor<200xf32>
}
