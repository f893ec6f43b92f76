// Every option of ddp-pipeline, by what it changes in the plan.

// RUN: ddphook-opt %s --ddp-pipeline | FileCheck %s --check-prefixes=CHECK,DEFAULT
// RUN: ddphook-opt %s --ddp-pipeline="hook=allreduce" | FileCheck %s --check-prefixes=CHECK,DEFAULT
// RUN: ddphook-opt %s --ddp-pipeline="hook=fp16" | FileCheck %s --check-prefixes=CHECK,FP16
// RUN: ddphook-opt %s --ddp-pipeline="hook=bf16" | FileCheck %s --check-prefixes=CHECK,BF16
// RUN: ddphook-opt %s --ddp-pipeline="hook=noop" | FileCheck %s --check-prefixes=CHECK,NOOP
// RUN: ddphook-opt %s --ddp-pipeline="wrapper=bf16" | FileCheck %s --check-prefixes=CHECK,WRAPPED
// RUN: ddphook-opt %s --ddp-pipeline="wrapper=fp16 hook=noop" | FileCheck %s --check-prefixes=CHECK,WRAPNOOP

// CHECK: @__ddphook_plan(
// DEFAULT-SAME:  \22hook\22:\22#ddp.allreduce\22,\22wire_dtype\22:\22\22,\22wire_bytes\22:32,
// DEFAULT-SAME:  \22collectives\22:[{\22bucket\22:\22b0\22,\22group\22:0,\22count\22:8,\22dtype\22:\22f32\22,\22wire_dtype\22:\22\22,\22divide\22:true}]
// FP16-SAME:     \22hook\22:\22#ddp.fp16\22,\22wire_dtype\22:\22f16\22,\22wire_bytes\22:16,
// FP16-SAME:     \22collectives\22:[{\22bucket\22:\22b0\22,\22group\22:0,\22count\22:8,\22dtype\22:\22f32\22,\22wire_dtype\22:\22f16\22,\22divide\22:true}]
// BF16-SAME:     \22hook\22:\22#ddp.bf16\22,\22wire_dtype\22:\22bf16\22,\22wire_bytes\22:16,
// BF16-SAME:     \22collectives\22:[{\22bucket\22:\22b0\22,\22group\22:0,\22count\22:8,\22dtype\22:\22f32\22,\22wire_dtype\22:\22bf16\22,\22divide\22:true}]
// NOOP-SAME:     \22hook\22:\22#ddp.noop\22,\22wire_dtype\22:\22\22,\22wire_bytes\22:0,
// NOOP-SAME:     \22collectives\22:[]
// WRAPPED-SAME:  \22hook\22:\22#ddp.wrap<bf16, #ddp.allreduce>\22,\22wire_dtype\22:\22bf16\22,\22wire_bytes\22:16,
// WRAPPED-SAME:  \22collectives\22:[{\22bucket\22:\22b0\22,\22group\22:0,\22count\22:8,\22dtype\22:\22f32\22,\22wire_dtype\22:\22bf16\22,\22divide\22:true}]
// WRAPNOOP-SAME: \22hook\22:\22#ddp.wrap<f16, #ddp.noop>\22,\22wire_dtype\22:\22f16\22,\22wire_bytes\22:0,
// WRAPNOOP-SAME: \22collectives\22:[]
// CHECK-LABEL: func.func @step(
// DEFAULT-NOT:     llvm.call @ddphook_rt_cast
// DEFAULT:         llvm.call @ddphook_rt_all_reduce
// DEFAULT-NOT:     llvm.call @ddphook_rt
// FP16-NOT:        llvm.call @ddphook_rt_cast
// FP16:            llvm.call @ddphook_rt_all_reduce
// NOOP-NOT:        llvm.call
// WRAPNOOP:        llvm.call @ddphook_rt_cast
// WRAPNOOP:        llvm.call @ddphook_rt_cast
// WRAPNOOP-NOT:    llvm.call @ddphook_rt_all_reduce
// CHECK:           return

// Without fusion the casts are calls of their own, and the collective is one of
// halves.
// RUN: ddphook-opt %s --ddp-pipeline="hook=fp16 fuse=false" | FileCheck %s --check-prefix=UNFUSED
// RUN: ddphook-opt %s --ddp-pipeline="hook=fp16 fuse=true" | FileCheck %s --check-prefixes=CHECK,FP16
// UNFUSED: \22collectives\22:[{\22bucket\22:\22b0\22,\22group\22:0,\22count\22:8,\22dtype\22:\22f16\22,\22wire_dtype\22:\22\22,\22divide\22:true}]
// UNFUSED-LABEL: func.func @step(
// UNFUSED:         llvm.call @ddphook_rt_cast
// UNFUSED:         llvm.call @ddphook_rt_all_reduce
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
// ZERO:      \22name\22:\22b1\22,\22group\22:\22dp\22,\22reduction\22:\22mean\22,\22dtype\22:\22f32\22,\22shapes\22:{{\[\[}}3,2]]
// ZERO-SAME: \22name\22:\22b0\22,\22group\22:\22dp\22,\22reduction\22:\22mean\22,\22dtype\22:\22f32\22,\22shapes\22:{{\[\[}}2]]
// READY:   \22shapes\22:{{\[\[}}2],[3,2]]
// FORWARD: \22shapes\22:{{\[\[}}3,2],[2]]
// REVERSE: \22shapes\22:{{\[\[}}2],[3,2]]

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
