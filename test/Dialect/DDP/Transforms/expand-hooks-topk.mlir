// RUN: split-file %s %t
// RUN: ddphook-opt %t/kinds.mlir --ddp-bucketize=bucket-cap-mb=0 --ddp-expand-hooks="hook=topk density=0.05" --ddp-verify-order | FileCheck %s --check-prefix=KINDS
// RUN: ddphook-opt %t/kinds.mlir --ddp-bucketize --ddp-expand-hooks="hook='#ddp.topk<density = 0.05, error_feedback = true>'" -o %t/attribute
// RUN: ddphook-opt %t/kinds.mlir --ddp-bucketize --ddp-expand-hooks="Error_Feedback hook=topk density=5e-2" | diff - %t/attribute
// RUN: mlir-opt %t/kinds.mlir --load-dialect-plugin=%plugin --pass-pipeline="builtin.module(ddp-bucketize,ddp-expand-hooks{hook=topk density=0.05})" | diff - %t/attribute
// RUN: ddphook-opt %t/kinds.mlir --ddp-bucketize=bucket-cap-mb=0 --ddp-expand-hooks="hook=topk error-feedback=false" | FileCheck %s --check-prefix=FORGETS
// RUN: ddphook-opt %t/kinds.mlir --ddp-bucketize=bucket-cap-mb=0 --ddp-expand-hooks="hook=topk wrapper=bf16" | FileCheck %s --check-prefix=WRAPPED
// RUN: ddphook-opt %t/attributes.mlir | FileCheck %s --check-prefix=PRINTED
// RUN: ddphook-opt %t/steps.mlir --ddp-pipeline="hook=topk require-no-copy=true" | FileCheck %s --check-prefix=CALLS
// RUN: ddphook-opt %t/refused.mlir -split-input-file -verify-diagnostics --ddp-bucketize --ddp-expand-hooks
// RUN: not ddphook-opt %t/kinds.mlir --ddp-bucketize --ddp-expand-hooks="hook=topk density=1%" 2>&1 | FileCheck %s --check-prefix=NUMBER

// RUN: not ddphook-opt %t/step.mlir --ddp-stablehlo-pipeline="hook=topk manifest=%t/manifest" 2>&1 | FileCheck %s --check-prefix=XLA

// Sparsification with error feedback: states keep their roles and f32 whatever
// gradients are of, and a checkpoint does not depend on the density.

// KINDS:      ddp.state @b0.error : !ddp.bucket<f32, [100]> per_rank zero kind error role "topk.error" of {{\[\[}}"step.arg0"]] under "mean #ddp.topk"
// KINDS-NEXT: ddp.state @b1.error : !ddp.bucket<f32, [4x5]> per_rank zero kind error role "topk.error" of {{\[\[}}"step.arg1"]] under "sum #ddp.topk"
// KINDS-NOT:  ddp.state
// KINDS-LABEL: func.func @step(
// KINDS:         %[[G:.+]] = ddp.cast %{{.+}} : !ddp.bucket<f16, [100]> -> !ddp.bucket<f32, [100]>
// KINDS-NEXT:    %[[E:.+]] = ddp.load @b0.error
// KINDS-NEXT:    %[[M:.+]] = ddp.add %[[G]], %[[E]]
// KINDS-NEXT:    %[[LARGEST:.+]], %[[REST:.+]] = ddp.sparsify %[[M]] keep 5 {ddp.compresses = "b0"}
// KINDS-NEXT:    ddp.store %[[REST]], @b0.error
// KINDS-NEXT:    %[[ALL:.+]] = ddp.all_gather %[[LARGEST]] on @dp as "b0" : tensor<10xf32> -> tensor<30xf32>
// KINDS-NEXT:    %[[SUM:.+]] = ddp.densify %[[ALL]] keep 5
// KINDS-NEXT:    %[[MEAN:.+]] = ddp.scale %[[SUM]] by_world_of @dp
// KINDS-NEXT:    ddp.cast %[[MEAN]] : !ddp.bucket<f32, [100]> -> !ddp.bucket<f16, [100]>
// A sum is not divided, and of few elements one is sent.
// KINDS:         ddp.add
// KINDS-NEXT:    ddp.sparsify %{{.+}} keep 1
// KINDS:         %[[TOTAL:.+]] = ddp.densify
// KINDS-NEXT:    ddp.unpack %[[TOTAL]]
// Nothing is kept of no elements.
// KINDS:         ddp.all_reduce mean %{{.+}} on @dp as "b2" {ddp.hook = #ddp.allreduce}
// KINDS:         ddp.bucket_info "b0" mean on @dp hook #ddp.topk<density = 5.000000e-02 : f64> wire f32 bytes 40 state_bytes 400
// KINDS:         ddp.bucket_info "b1" sum on @dp hook #ddp.topk<density = 5.000000e-02 : f64> wire f32 bytes 8 state_bytes 80
// KINDS:         ddp.bucket_info "b2" mean on @dp hook #ddp.topk<density = 5.000000e-02 : f64> wire f32 bytes 0 state_bytes 0

// FORGETS-NOT: ddp.state
// FORGETS:     %{{.+}}, %{{.+}} = ddp.sparsify
// FORGETS-NOT: ddp.store
// FORGETS:     ddp.bucket_info "b0" mean on @dp hook #ddp.topk<error_feedback = false> wire f32 bytes 8 state_bytes 0

// WRAPPED: ddp.state @b1.error : !ddp.bucket<f32, [4x5]>
// WRAPPED: %[[NARROW:.+]] = ddp.cast %{{.+}} : !ddp.bucket<f32, [4x5]> -> !ddp.bucket<bf16, [4x5]>
// WRAPPED: ddp.cast %[[NARROW]] : !ddp.bucket<bf16, [4x5]> -> !ddp.bucket<f32, [4x5]>
// WRAPPED: hook #ddp.wrap<bf16, #ddp.topk> wire f32 bytes 8 state_bytes 80

// CALLS-NOT:   memref.alloc
// CALLS-NOT:   memref.copy
// CALLS:       extract_aligned_pointer_as_index %[[ENTRIES:.+]] : memref<6xf32>
// CALLS:       extract_aligned_pointer_as_index %[[REST:.+]] : memref<320xf32>
// CALLS:       llvm.call @ddphook_rt_sparsify(
// CALLS:       extract_aligned_pointer_as_index %[[ENTRIES]] : memref<6xf32>
// CALLS-NEXT:  arith.index_cast
// CALLS-NEXT:  %[[ENTRIES_POINTER:.+]] = llvm.inttoptr
// CALLS-NEXT:  extract_aligned_pointer_as_index %[[REST]] : memref<320xf32>
// CALLS-NEXT:  arith.index_cast
// CALLS-NEXT:  %[[REST_POINTER:.+]] = llvm.inttoptr
// CALLS:       llvm.call @ddphook_rt_measure_entries(%{{.+}}, %{{.+}}, %{{.+}}, %[[ENTRIES_POINTER]], %[[REST_POINTER]], %{{.+}}) :
// CALLS-NOT:   memref.alloc
// CALLS-NOT:   memref.copy
// CALLS:       llvm.call @ddphook_rt_densify(

// XLA: error: {{.*}}'ddp.sparsify' op has no form in StableHLO

// NUMBER: error: expected density to be a number, but got '1%'

//--- kinds.mlir

ddp.process_group @dp size 3
func.func @step(%g: tensor<100xf16>, %h: tensor<4x5xf32>, %e: tensor<0x3xf64>)
    -> (tensor<100xf16>, tensor<4x5xf32>, tensor<0x3xf64>) {
  %r = ddp.all_reduce mean %g on @dp : tensor<100xf16>
  %s = ddp.all_reduce sum %h on @dp : tensor<4x5xf32>
  %t = ddp.all_reduce mean %e on @dp : tensor<0x3xf64>
  return %r, %s, %t : tensor<100xf16>, tensor<4x5xf32>, tensor<0x3xf64>
}

//--- step.mlir

ddp.process_group @dp size 2
func.func public @main(%g: tensor<32x16xf32>) -> tensor<32x16xf32> {
  %0 = ddp.all_reduce mean %g on @dp {ddp.name = "w"} : tensor<32x16xf32>
  return %0 : tensor<32x16xf32>
}

//--- attributes.mlir

// PRINTED: ddp.hook = #ddp.topk}
module attributes {ddp.hook = #ddp.topk<density = 0.01, error_feedback = true>} {
  // PRINTED: ddp.hook = #ddp.topk<density = 1.000000e+00 : f64, error_feedback = false>
  module attributes {ddp.hook = #ddp.topk<error_feedback = false, density = 1.0>} {}
}

//--- steps.mlir

// A gradient that is born in its bucket, and used where it was averaged.
ddp.process_group @dp size 2
func.func @step(%x: tensor<40x8xf32>,
                %w: tensor<40x8xf32> {bufferization.writable = true})
    -> tensor<40x8xf32> {
  %none = tensor.empty() : tensor<40x8xf32>
  %g = linalg.mul ins(%x, %w : tensor<40x8xf32>, tensor<40x8xf32>)
                  outs(%none : tensor<40x8xf32>) -> tensor<40x8xf32>
  %r = ddp.all_reduce mean %g on @dp : tensor<40x8xf32>
  %n = linalg.sub ins(%w, %r : tensor<40x8xf32>, tensor<40x8xf32>)
                  outs(%w : tensor<40x8xf32>) -> tensor<40x8xf32>
  return %n : tensor<40x8xf32>
}

//--- refused.mlir

ddp.process_group @dp
func.func @unknown_size(%g: tensor<100xf32>) -> tensor<100xf32> {
  // expected-error @+2 {{hook #ddp.topk could not be expanded}}
  // expected-error @+1 {{expected process group @dp to declare its size, as in 'ddp.process_group @dp size 2', for hook #ddp.topk, in which every rank receives what all ranks send}}
  %r = ddp.all_reduce mean %g on @dp {ddp.hook = #ddp.topk} : tensor<100xf32>
  return %r : tensor<100xf32>
}

// -----

ddp.process_group @dp size 4 topology hierarchical
func.func @hierarchical(%g: tensor<100xf32>) -> tensor<100xf32> {
  // expected-error @+2 {{hook #ddp.topk<density = 5.000000e-01 : f64> could not be expanded}}
  // expected-error @+1 {{expected a flat group for hook #ddp.topk<density = 5.000000e-01 : f64>, but got @dp, which is hierarchical}}
  %r = ddp.all_reduce mean %g on @dp {ddp.hook = #ddp.topk<density = 0.5>} : tensor<100xf32>
  return %r : tensor<100xf32>
}

// -----

ddp.process_group @dp size 4
func.func @parts(%g: tensor<100xf32>) -> tensor<25xf32> {
  // expected-error @+1 {{expected a hook that can reduce parts of a gradient, but got #ddp.topk, which reduces whole gradients only}}
  %r = ddp.reduce_scatter mean %g on @dp {ddp.hook = #ddp.topk} : tensor<100xf32> -> tensor<25xf32>
  return %r : tensor<25xf32>
}

// -----

ddp.process_group @dp size 2
func.func @many(%g: tensor<2147483648xf32>) -> tensor<2147483648xf32> {
  // expected-error @+1 {{expected less than 2^31 elements in a bucket with hook #ddp.topk, but got '!ddp.bucket<f32, [2147483648]>'}}
  %r = ddp.all_reduce mean %g on @dp {ddp.hook = #ddp.topk} : tensor<2147483648xf32>
  return %r : tensor<2147483648xf32>
}

// -----

// expected-error @+1 {{expected density to be above 0 and at most 1, but got 0}}
module attributes {ddp.hook = #ddp.topk<density = 0.0>} {}

// -----

// expected-error @+1 {{expected density to be above 0 and at most 1, but got 1.5}}
module attributes {ddp.hook = #ddp.topk<density = 1.5>} {}

// -----

// expected-error @+1 {{expected density to be above 0 and at most 1, but got nan}}
module attributes {ddp.hook = #ddp.topk<density = 0x7FF8000000000000 : f64>} {}

// -----

// expected-error @+1 {{expected density to be above 0 and at most 1, but got 1.0000000000000002}}
module attributes {ddp.hook = #ddp.topk<density = 0x3FF0000000000001 : f64>} {}

// -----

// expected-error @+1 {{expected density to be above 0 and at most 1, but got -1}}
module attributes {ddp.hook = #ddp.topk<density = -1>} {}

// -----

// expected-error @+1 {{expected density to be above 0 and at most 1, but got 1e+300}}
module attributes {ddp.hook = #ddp.topk<density = 1.0e300>} {}

// -----

// expected-error @+2 {{expected a number, but got true}}
// expected-error @+1 {{failed to parse DDP_TopKHook parameter 'density'}}
module attributes {ddp.hook = #ddp.topk<density = true>} {}

// -----

// A whole number is a number.
module attributes {ddp.hook = #ddp.topk<density = 1>} {}
