// RUN: ddphook-opt %s --ddp-expand-hooks | FileCheck %s --check-prefixes=CHECK,ALLREDUCE
// RUN: ddphook-opt %s --ddp-expand-hooks="hook=allreduce" | FileCheck %s --check-prefixes=CHECK,ALLREDUCE
// RUN: ddphook-opt %s --ddp-expand-hooks="hook=fp16" | FileCheck %s --check-prefixes=CHECK,FP16
// RUN: ddphook-opt %s --ddp-expand-hooks="hook=bf16" | FileCheck %s --check-prefixes=CHECK,BF16
// RUN: ddphook-opt %s --ddp-expand-hooks="hook=noop" | FileCheck %s --check-prefixes=CHECK,NOOP
// RUN: ddphook-opt %s --ddp-expand-hooks="wrapper=fp16" | FileCheck %s --check-prefixes=CHECK,WRAPPED
// RUN: ddphook-opt %s --ddp-expand-hooks="hook=fp16 wrapper=bf16" | FileCheck %s --check-prefixes=CHECK,TWICE
// RUN: ddphook-opt %s --ddp-expand-hooks="HOOK=fp16 Wrapper=bf16" | FileCheck %s --check-prefixes=CHECK,TWICE

// A second run changes nothing.
// RUN: ddphook-opt %s --ddp-expand-hooks="hook=fp16" > %t.once
// RUN: ddphook-opt %t.once --ddp-expand-hooks="hook=fp16" > %t.twice
// RUN: diff %t.once %t.twice

ddp.process_group @dp

// CHECK-LABEL: func @step(
// CHECK-SAME:      %[[B:.+]]: !ddp.bucket<f32, [4]>
// ALLREDUCE-NEXT:  %[[R:.+]] = ddp.all_reduce mean %[[B]] on @dp as "b0" {ddp.hook = #ddp.allreduce} : !ddp.bucket<f32, [4]>
// ALLREDUCE-NEXT:  return %[[R]]
// FP16-NEXT:       ddp.cast %[[B]] : !ddp.bucket<f32, [4]> -> !ddp.bucket<f16, [4]>
// FP16-NEXT:       ddp.all_reduce mean %{{.+}} : !ddp.bucket<f16, [4]>
// FP16-NEXT:       ddp.cast
// BF16-NEXT:       ddp.cast %[[B]] : !ddp.bucket<f32, [4]> -> !ddp.bucket<bf16, [4]>
// BF16-NEXT:       ddp.all_reduce mean %{{.+}} : !ddp.bucket<bf16, [4]>
// BF16-NEXT:       ddp.cast
// NOOP-NEXT:       return %[[B]]
// WRAPPED-NEXT:    ddp.cast %[[B]] : !ddp.bucket<f32, [4]> -> !ddp.bucket<f16, [4]>
// WRAPPED-NEXT:    ddp.all_reduce mean %{{.+}} : !ddp.bucket<f16, [4]>
// WRAPPED-NEXT:    ddp.cast
// TWICE-NEXT:      ddp.cast %[[B]] : !ddp.bucket<f32, [4]> -> !ddp.bucket<bf16, [4]>
// TWICE-NEXT:      ddp.cast %{{.+}} : !ddp.bucket<bf16, [4]> -> !ddp.bucket<f16, [4]>
// TWICE-NEXT:      ddp.all_reduce
func.func @step(%b: !ddp.bucket<f32, [4]>) -> !ddp.bucket<f32, [4]> {
  %r = ddp.all_reduce mean %b on @dp as "b0" : !ddp.bucket<f32, [4]>
  return %r : !ddp.bucket<f32, [4]>
}

// The options are a default: attributes win.
// CHECK-LABEL: func @attribute(
// CHECK-SAME:    %[[B:.+]]: !ddp.bucket<f32, [4]>
// CHECK-NEXT:    ddp.all_reduce mean %[[B]] on @dp as "b1" {ddp.hook = #ddp.allreduce}
// CHECK-NEXT:    return
func.func @attribute(%b: !ddp.bucket<f32, [4]>)
    attributes {ddp.hook = #ddp.allreduce} {
  %r = ddp.all_reduce mean %b on @dp as "b1" : !ddp.bucket<f32, [4]>
  return
}

// CHECK: ddp.bucket_info "b0"
// ALLREDUCE-SAME: hook #ddp.allreduce
// FP16-SAME: hook #ddp.fp16
// WRAPPED-SAME: hook #ddp.wrap<f16, #ddp.allreduce>
// TWICE-SAME: hook #ddp.wrap<bf16, #ddp.fp16>
