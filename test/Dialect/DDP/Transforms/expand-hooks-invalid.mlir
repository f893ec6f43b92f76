// RUN: ddphook-test-opt %s --ddp-expand-hooks -split-input-file -verify-diagnostics

// RUN: not ddphook-opt --ddp-expand-hooks="hook=gzip" %S/Inputs/empty.mlir 2>&1 | FileCheck %s --check-prefix=HOOK
// HOOK: error: expected hook=allreduce, fp16, bf16, noop, {{.+}} or an attribute, but got 'gzip'
// RUN: not ddphook-opt --ddp-expand-hooks="hook=FP16" %S/Inputs/empty.mlir 2>&1 | FileCheck %s --check-prefix=CASE
// CASE: error: expected hook=allreduce, fp16, bf16, noop, {{.+}} or an attribute, but got 'FP16'
// RUN: not ddphook-opt --ddp-expand-hooks="wrapper=fp32" %S/Inputs/empty.mlir 2>&1 | FileCheck %s --check-prefix=WRAPPER
// WRAPPER: error: expected wrapper=fp16, bf16, int8, int4 or fp8, but got 'fp32'
// RUN: not ddphook-opt --ddp-expand-hooks="rank=2" %S/Inputs/empty.mlir 2>&1 | FileCheck %s --check-prefix=OPTION
// OPTION: error: in the options of ddp-expand-hooks: no such option rank{{$}}
// RUN: not ddphook-opt --ddp-expand-hooks="hok=fp16" %S/Inputs/empty.mlir 2>&1 | FileCheck %s --check-prefix=HOK
// HOK: error: in the options of ddp-expand-hooks: no such option hok, did you mean hook?
// RUN: not ddphook-opt --ddp-expand-hooks="matrix-aproximation-rank=2" %S/Inputs/empty.mlir 2>&1 | FileCheck %s --check-prefix=PARAMETER
// PARAMETER: error: in the options of ddp-expand-hooks: no such option matrix-aproximation-rank, did you mean matrix-approximation-rank?
// Of two values one would be lost, in whatever spelling and place they are.
// RUN: not ddphook-opt --ddp-expand-hooks="hook=fp16 hook=bf16" %S/Inputs/empty.mlir 2>&1 | FileCheck %s --check-prefix=TWICE
// TWICE: error: expected hook once, but got 'fp16' and 'bf16'
// RUN: not ddphook-opt --ddp-expand-hooks="hook=powersgd random-seed=2 Random_Seed=3" %S/Inputs/empty.mlir 2>&1 | FileCheck %s --check-prefix=SPELLINGS
// SPELLINGS: error: expected random-seed once, but got '2' and '3'
// RUN: not ddphook-opt --ddp-expand-hooks="hook='powersgd random-seed=2' random-seed=3" %S/Inputs/empty.mlir 2>&1 | FileCheck %s --check-prefix=SPELLINGS
// RUN: not ddphook-opt --ddp-bucketize="bucket-cap-mb=1 bucket_cap_mb=2" %S/Inputs/empty.mlir 2>&1 | FileCheck %s --check-prefix=LIMITS
// LIMITS: error: expected bucket-cap-mb once, but got '1' and '2'
// RUN: not ddphook-opt --ddp-pipeline="wrapper=fp16 wrapper=bf16" %S/Inputs/empty.mlir 2>&1 | FileCheck %s --check-prefix=WRAPPERS
// WRAPPERS: error: in the options of ddp-pipeline: expected wrapper once, but got 'fp16' and 'bf16'
// RUN: not ddphook-opt --ddp-pipeline="=3" %S/Inputs/empty.mlir 2>&1 | FileCheck %s --check-prefix=NAMELESS
// NAMELESS: error: in the options of ddp-pipeline: expected the name of an option, but got '=3'

ddp.process_group @dp
func.func @tensor(%t: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error @+1 {{expected a named bucket; run 'ddp-bucketize' first}}
  %r = ddp.all_reduce mean %t on @dp : tensor<4xf32>
  return %r : tensor<4xf32>
}

// -----

ddp.process_group @dp
func.func @nameless(%b: !ddp.bucket<f32, [4]>) -> !ddp.bucket<f32, [4]> {
  // expected-error @+1 {{expected a named bucket; run 'ddp-bucketize' first}}
  %r = ddp.all_reduce mean %b on @dp : !ddp.bucket<f32, [4]>
  return %r : !ddp.bucket<f32, [4]>
}

// -----

// A hook refuses a bucket.
ddp.process_group @dp
func.func @refused(%b: !ddp.bucket<f64, [4]>) -> !ddp.bucket<f64, [4]> {
  // expected-error @+1 {{expected a bucket of 16 or 32 bits, but got '!ddp.bucket<f64, [4]>'}}
  %r = ddp.all_reduce mean %b on @dp as "b0"
      {ddp.hook = #testhook.scaled<0.5>} : !ddp.bucket<f64, [4]>
  return %r : !ddp.bucket<f64, [4]>
}

// -----

// A hook cannot do it.
ddp.process_group @dp
func.func @failing(%b: !ddp.bucket<f32, [4]>) -> !ddp.bucket<f32, [4]> {
  // expected-error @+1 {{hook #testhook.failing could not be expanded}}
  %r = ddp.all_reduce mean %b on @dp as "b0"
      {ddp.hook = #testhook.failing} : !ddp.bucket<f32, [4]>
  return %r : !ddp.bucket<f32, [4]>
}

// -----

// The same under a wrapper.
ddp.process_group @dp
func.func @failing_inside(%b: !ddp.bucket<f32, [4]>) -> !ddp.bucket<f32, [4]> {
  // expected-error @+1 {{hook #ddp.wrap<f16, #testhook.failing> could not be expanded}}
  %r = ddp.all_reduce mean %b on @dp as "b0"
      {ddp.hook = #ddp.wrap<f16, #testhook.failing>} : !ddp.bucket<f32, [4]>
  return %r : !ddp.bucket<f32, [4]>
}

// -----

// A hook breaks its contract.
ddp.process_group @dp
func.func @narrowing(%b: !ddp.bucket<f32, [4]>) -> !ddp.bucket<f32, [4]> {
  // expected-error @+1 {{expected hook #testhook.narrowing to return '!ddp.bucket<f32, [4]>', but got '!ddp.bucket<f16, [4]>'}}
  %r = ddp.all_reduce mean %b on @dp as "b0"
      {ddp.hook = #testhook.narrowing} : !ddp.bucket<f32, [4]>
  return %r : !ddp.bucket<f32, [4]>
}

// -----

ddp.process_group @dp
func.func @twice(%b: !ddp.bucket<f32, [4]>, %c: !ddp.bucket<f32, [4]>)
    -> (!ddp.bucket<f32, [4]>, !ddp.bucket<f32, [4]>) {
  %r = ddp.all_reduce mean %b on @dp as "b0" : !ddp.bucket<f32, [4]>
  // expected-error @+1 {{expected a unique bucket name, but another bucket is called 'b0'}}
  %s = ddp.all_reduce mean %c on @dp as "b0" : !ddp.bucket<f32, [4]>
  return %r, %s : !ddp.bucket<f32, [4]>, !ddp.bucket<f32, [4]>
}

// -----

ddp.process_group @dp
func.func @wire(%b: !ddp.bucket<f32, [4]>) -> !ddp.bucket<f32, [4]> {
  // expected-error @+1 {{expected no wire type, since hook #ddp.fp16 chooses it}}
  %r = ddp.all_reduce mean %b on @dp wire bf16 as "b0" {ddp.hook = #ddp.fp16}
      : !ddp.bucket<f32, [4]>
  return %r : !ddp.bucket<f32, [4]>
}
