// Every option of ddp-pipeline, by what it changes in the plan.

// RUN: ddphook-opt %s --ddp-pipeline | FileCheck %s --check-prefixes=CHECK,DEFAULT
// RUN: ddphook-opt %s --ddp-pipeline="hook=allreduce" | FileCheck %s --check-prefixes=CHECK,DEFAULT
// RUN: ddphook-opt %s --ddp-pipeline="hook=fp16" | FileCheck %s --check-prefixes=CHECK,FP16
// RUN: ddphook-opt %s --ddp-pipeline="hook=bf16" | FileCheck %s --check-prefixes=CHECK,BF16
// RUN: ddphook-opt %s --ddp-pipeline="hook=noop" | FileCheck %s --check-prefixes=CHECK,NOOP
// RUN: ddphook-opt %s --ddp-pipeline="wrapper=bf16" | FileCheck %s --check-prefixes=CHECK,WRAPPED
// RUN: ddphook-opt %s --ddp-pipeline="wrapper=fp16 hook=noop" | FileCheck %s --check-prefixes=CHECK,WRAPNOOP

// CHECK: ddp.plan
// DEFAULT-SAME:  hook = "#ddp.allreduce", wire_type = f32, wire_bytes = 32
// DEFAULT-SAME:  collectives = [<bucket = "b0", group = 0, count = 8, dtype = f32, divide = true>]
// FP16-SAME:     hook = "#ddp.fp16", wire_type = f16, wire_bytes = 16
// FP16-SAME:     collectives = [<bucket = "b0", group = 0, count = 8, dtype = f32, wire_dtype = f16, divide = true>]
// BF16-SAME:     hook = "#ddp.bf16", wire_type = bf16, wire_bytes = 16
// BF16-SAME:     collectives = [<bucket = "b0", group = 0, count = 8, dtype = f32, wire_dtype = bf16, divide = true>]
// NOOP-SAME:     hook = "#ddp.noop", wire_type = f32>
// NOOP-NOT:      collectives =
// WRAPPED-SAME:  hook = "#ddp.wrap<bf16, #ddp.allreduce>", wire_type = bf16, wire_bytes = 16
// WRAPPED-SAME:  collectives = [<bucket = "b0", group = 0, count = 8, dtype = f32, wire_dtype = bf16, divide = true>]
// WRAPNOOP-SAME: hook = "#ddp.wrap<f16, #ddp.noop>", wire_type = f16>
// WRAPNOOP-NOT:  collectives =
// CHECK-LABEL: func.func @step(
// DEFAULT-NOT:     llvm.call @ddphook_rt_cast
// DEFAULT:         llvm.call @ddphook_rt_collective
// DEFAULT-NOT:     llvm.call @ddphook_rt
// FP16-NOT:        llvm.call @ddphook_rt_cast
// FP16:            llvm.call @ddphook_rt_collective
// NOOP-NOT:        llvm.call
// WRAPNOOP:        llvm.call @ddphook_rt_cast
// WRAPNOOP:        llvm.call @ddphook_rt_cast
// WRAPNOOP-NOT:    llvm.call @ddphook_rt_collective
// CHECK:           return

// Without fusion the casts are calls of their own, and the collective is one of
// halves.
// RUN: ddphook-opt %s --ddp-pipeline="hook=fp16 fuse=false" | FileCheck %s --check-prefix=UNFUSED
// RUN: ddphook-opt %s --ddp-pipeline="hook=fp16 fuse=true" | FileCheck %s --check-prefixes=CHECK,FP16
// UNFUSED: collectives = [<bucket = "b0", group = 0, count = 8, dtype = f16, divide = true>]
// UNFUSED-LABEL: func.func @step(
// UNFUSED:         llvm.call @ddphook_rt_cast
// UNFUSED:         llvm.call @ddphook_rt_collective
// UNFUSED:         llvm.call @ddphook_rt_cast
// UNFUSED:         return

// Limits and order.
// RUN: ddphook-opt %s --ddp-pipeline="bucket-cap-mb=0" | FileCheck %s --check-prefix=ZERO
// RUN: ddphook-opt %s --ddp-pipeline="bucket-cap-mb=0 first-bucket-mb=1" | FileCheck %s --check-prefix=READY
// RUN: ddphook-opt %s --ddp-pipeline="first-bucket-mb=0" | FileCheck %s --check-prefix=ZERO
// RUN: ddphook-opt %s --ddp-pipeline="order=ready" | FileCheck %s --check-prefix=READY
// RUN: ddphook-opt %s --ddp-pipeline="order=forward" | FileCheck %s --check-prefix=FORWARD
// RUN: ddphook-opt %s --ddp-pipeline="order=reverse" | FileCheck %s --check-prefix=REVERSE
// Numbered in ready order, listed in program order: b1's reduction comes first.
// ZERO:      name = "b1", group = "dp", reduction = mean, type = <f32, [3x2]>
// ZERO-SAME: name = "b0", group = "dp", reduction = mean, type = <f32, [2]>
// READY:   type = <f32, [2, 3x2]>
// FORWARD: type = <f32, [3x2, 2]>
// REVERSE: type = <f32, [2, 3x2]>

// Dashes or underscores, in any case; the order does not matter.
// RUN: ddphook-opt %s --ddp-pipeline="hook=fp16 bucket-cap-mb=0 order=forward first-bucket-mb=2" > %t.dashes
// RUN: ddphook-opt %s --ddp-pipeline="First_Bucket_MB=2 hook=fp16 bucket_cap_mb=0 Order=forward" > %t.underscores
// RUN: ddphook-opt %s --ddp-pipeline="HOOK=fp16 Bucket-Cap_MB=0 ORDER=forward first-bucket_mb=2.0" > %t.mixed
// RUN: diff %t.dashes %t.underscores
// RUN: diff %t.dashes %t.mixed
// RUN: ddphook-opt %s --ddp-pipeline="FUSE=false Require_No_Copy=false hook=fp16" | FileCheck %s --check-prefix=UNFUSED

// The proof is asked for, and fails for a program that returns its gradients.
// RUN: not ddphook-opt %s --ddp-pipeline="require-no-copy=true" 2>&1 | FileCheck %s --check-prefix=COPY
// RUN: not ddphook-opt %s --ddp-pipeline="require_no_copy" 2>&1 | FileCheck %s --check-prefix=COPY
// COPY: error: 'memref.copy' op expected a step without allocations and copies

ddp.process_group @dp
func.func @step(%x: tensor<3x2xf32>, %g1: tensor<2xf32>)
    -> (tensor<3x2xf32>, tensor<2xf32>) {
  %e = tensor.empty() : tensor<3x2xf32>
  %g0 = linalg.exp ins(%x : tensor<3x2xf32>) outs(%e : tensor<3x2xf32>)
      -> tensor<3x2xf32>
  %r0 = ddp.all_reduce mean %g0 on @dp : tensor<3x2xf32>
  %r1 = ddp.all_reduce mean %g1 on @dp : tensor<2xf32>
  return %r0, %r1 : tensor<3x2xf32>, tensor<2xf32>
}
