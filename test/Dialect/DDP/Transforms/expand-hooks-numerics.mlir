// RUN: ddphook-opt %s --ddp-expand-hooks="hook=powersgd numerics=eager" | FileCheck %s --check-prefixes=CHECK,EAGER
// RUN: ddphook-opt %s --ddp-expand-hooks="hook=powersgd" | FileCheck %s --check-prefixes=CHECK,EAGER
// RUN: ddphook-opt %s --ddp-expand-hooks="hook=powersgd numerics=improved" | FileCheck %s --check-prefixes=CHECK,IMPROVED
// RUN: ddphook-opt %s --ddp-expand-hooks="Hook=batched-powersgd Numerics=improved" | FileCheck %s --check-prefixes=CHECK,BATCHED
// RUN: ddphook-opt %s --ddp-expand-hooks="hook=powersgd numerics=improved use-error-feedback=false" | FileCheck %s --check-prefixes=CHECK,NOERROR
// RUN: ddphook-opt %s --ddp-expand-hooks="hook=powersgd numerics=improved wrapper=fp16" | FileCheck %s --check-prefixes=CHECK,WIRE
// RUN: ddphook-opt %s --ddp-expand-hooks="hook=powersgd numerics=improved wrapper=bf16 fp32_error=0" | FileCheck %s --check-prefixes=CHECK,WRAPPED
// RUN: ddphook-opt %s --ddp-expand-hooks="hook=powersgd local-error-feedback=True" | FileCheck %s --check-prefixes=CHECK,LOCAL
// RUN: ddphook-opt %s --ddp-expand-hooks="hook=powersgd keep_zero_columns=0" | FileCheck %s --check-prefixes=CHECK,ZEROS
// RUN: ddphook-opt %s --ddp-expand-hooks="hook=powersgd SKIP_NONFINITE=TRUE" | FileCheck %s --check-prefixes=CHECK,SKIP
// RUN: ddphook-opt %s --ddp-expand-hooks="hook=powersgd wrapper=bf16 fp32-error=true" | FileCheck %s --check-prefixes=CHECK,FP32
// RUN: ddphook-opt %s --ddp-expand-hooks="hook=powersgd numerics=improved local-error-feedback=false independent-columns=0 skip-nonfinite=FALSE" | FileCheck %s --check-prefixes=CHECK,EAGER

// Options of the numerics beyond PyTorch, and what makes no sense. What they
// change is in expand-hooks-improved.mlir.

// RUN: not ddphook-opt --ddp-expand-hooks="hook=powersgd numerics=better" %S/Inputs/empty.mlir 2>&1 | FileCheck %s --check-prefix=BAD-NUMERICS
// BAD-NUMERICS: error: expected numerics=eager or improved, but got 'better'
// RUN: not ddphook-opt --ddp-expand-hooks="hook=powersgd numerics=Improved" %S/Inputs/empty.mlir 2>&1 | FileCheck %s --check-prefix=BAD-CASE
// BAD-CASE: error: expected numerics=eager or improved, but got 'Improved'
// RUN: not ddphook-opt --ddp-expand-hooks="hook=powersgd fp32-error=true" %S/Inputs/empty.mlir 2>&1 | FileCheck %s --check-prefix=BAD-WRAPPER
// BAD-WRAPPER: error: expected fp32-error only with a wrapper
// RUN: not ddphook-opt --ddp-expand-hooks="hook=batched_powersgd use-error-feedback=0 local-error-feedback=1" %S/Inputs/empty.mlir 2>&1 | FileCheck %s --check-prefix=BAD-LOCAL
// BAD-LOCAL: error: expected local_error_feedback only with use_error_feedback
// RUN: not ddphook-opt --ddp-expand-hooks="hook=powersgd skip-nonfinite=2" %S/Inputs/empty.mlir 2>&1 | FileCheck %s --check-prefix=BAD-SKIP
// BAD-SKIP: error: expected skip-nonfinite to be true or false, but got '2'
// RUN: not ddphook-opt --ddp-expand-hooks="hook=powersgd keep-zero-columns=no" %S/Inputs/empty.mlir 2>&1 | FileCheck %s --check-prefix=BAD-ZEROS
// BAD-ZEROS: error: expected keep-zero-columns to be true or false, but got 'no'
// RUN: not ddphook-opt --ddp-expand-hooks="hook=powersgd independent-columns=no" %S/Inputs/empty.mlir 2>&1 | FileCheck %s --check-prefix=BAD-INDEPENDENT
// BAD-INDEPENDENT: error: expected independent-columns to be true or false, but got 'no'
// RUN: not ddphook-opt --ddp-expand-hooks="hook=powersgd local-error-feedback=on" %S/Inputs/empty.mlir 2>&1 | FileCheck %s --check-prefix=BAD-FEEDBACK
// BAD-FEEDBACK: error: expected local-error-feedback to be true or false, but got 'on'
// RUN: not ddphook-opt --ddp-expand-hooks="hook=powersgd wrapper=fp16 fp32-error=f32" %S/Inputs/empty.mlir 2>&1 | FileCheck %s --check-prefix=BAD-FP32
// BAD-FP32: error: expected fp32-error to be true or false, but got 'f32'
// RUN: not ddphook-opt --ddp-expand-hooks="hook=fp16 numerics=improved" %S/Inputs/empty.mlir 2>&1 | FileCheck %s --check-prefix=OTHER-NUMERICS
// OTHER-NUMERICS: error: expected numerics only with hook=powersgd or batched_powersgd, but got hook=fp16
// RUN: not ddphook-opt --ddp-expand-hooks="skip-nonfinite=1" %S/Inputs/empty.mlir 2>&1 | FileCheck %s --check-prefix=OTHER-SKIP
// OTHER-SKIP: error: expected skip-nonfinite only with hook=powersgd or batched_powersgd, but got hook=allreduce
// RUN: not ddphook-opt --ddp-expand-hooks="hook=post_local_sgd wrapper=fp16 fp32-error=1" %S/Inputs/empty.mlir 2>&1 | FileCheck %s --check-prefix=OTHER-FP32
// OTHER-FP32: error: expected fp32-error only with hook=powersgd or batched_powersgd, but got hook=post_local_sgd

ddp.process_group @dp

// CHECK:     ddp.state @b0.q
// IMPROVED:  ddp.state @powersgd.nonfinite : i64 replicated zero
// EAGER-NOT: powersgd.nonfinite
func.func @step(%b: !ddp.bucket<f32, [64x32, 64]>)
    -> !ddp.bucket<f32, [64x32, 64]> {
  %r = ddp.all_reduce mean %b on @dp as "b0" : !ddp.bucket<f32, [64x32, 64]>
  return %r : !ddp.bucket<f32, [64x32, 64]>
}

// Twice the bytes on the wire in f32.
// CHECK:    ddp.bucket_info "b0" mean on @dp hook
// EAGER-SAME:    #ddp.powersgd wire f32 bytes 640 state_bytes 8576 :
// IMPROVED-SAME: #ddp.powersgd<local_error_feedback = true, independent_columns = true, skip_nonfinite = true> wire f32 bytes 640 state_bytes 8576 :
// BATCHED-SAME:  #ddp.batched_powersgd<local_error_feedback = true, independent_columns = true, skip_nonfinite = true> wire f32 bytes 368 state_bytes 8648 :
// NOERROR-SAME:  #ddp.powersgd<use_error_feedback = false, independent_columns = true, skip_nonfinite = true> wire f32 bytes 640 state_bytes 128 :
// WIRE-SAME:     #ddp.powersgd<local_error_feedback = true, independent_columns = true, skip_nonfinite = true, wire_type = f16> wire f16 bytes 320 state_bytes 8576 :
// WRAPPED-SAME:  #ddp.wrap<bf16, #ddp.powersgd<local_error_feedback = true, independent_columns = true, skip_nonfinite = true>> wire bf16 bytes 320 state_bytes 4288 :
// LOCAL-SAME:    #ddp.powersgd<local_error_feedback = true> wire f32 bytes 640 state_bytes 8576 :
// ZEROS-SAME:    #ddp.powersgd<keep_zero_columns = false> wire f32 bytes 640 state_bytes 8576 :
// SKIP-SAME:     #ddp.powersgd<skip_nonfinite = true> wire f32 bytes 640 state_bytes 8576 :
// FP32-SAME:     #ddp.powersgd<wire_type = bf16> wire bf16 bytes 320 state_bytes 8576 :
