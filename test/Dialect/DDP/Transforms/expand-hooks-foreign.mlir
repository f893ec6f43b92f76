// RUN: ddphook-test-opt %s --ddp-expand-hooks | FileCheck %s
// RUN: ddphook-test-opt %s --ddp-pipeline | FileCheck %s --check-prefix=RUNTIME
// RUN: ddphook-test-opt %s --emit-bytecode | ddphook-test-opt --ddp-expand-hooks | FileCheck %s

// A hook from a dialect that ddphook has never heard of (test/lib): its
// expansion, and all the way down to calls of the runtime.

// CHECK: ddp.process_group @dp
// CHECK: ddp.state @b4.feedback : !ddp.bucket<f32, [4]> per_rank zero
ddp.process_group @dp

// CHECK-LABEL: func @step(
// CHECK-SAME:    %[[B:.+]]: !ddp.bucket<f32, [4x8, 8]>
// CHECK-NEXT:    %[[S:.+]] = ddp.scale %[[B]] by 5.000000e-01 : !ddp.bucket<f32, [4x8, 8]>
// CHECK-NEXT:    %[[A:.+]] = ddp.all_reduce mean %[[S]] on @dp as "b0" {ddp.hook = #ddp.allreduce} : !ddp.bucket<f32, [4x8, 8]>
// CHECK-NEXT:    %[[R:.+]] = ddp.scale %[[A]] by 2.000000e+00 : !ddp.bucket<f32, [4x8, 8]>
// CHECK-NEXT:    return %[[R]]
func.func @step(%b: !ddp.bucket<f32, [4x8, 8]>) -> !ddp.bucket<f32, [4x8, 8]> {
  %r = ddp.all_reduce mean %b on @dp as "b0"
      {ddp.hook = #testhook.scaled<0.5>} : !ddp.bucket<f32, [4x8, 8]>
  return %r : !ddp.bucket<f32, [4x8, 8]>
}

// Under one of our wrappers.
// CHECK-LABEL: func @wrapped(
// CHECK-SAME:    %[[B:.+]]: !ddp.bucket<f32, [4]>
// CHECK-NEXT:    %[[H:.+]] = ddp.cast %[[B]] : !ddp.bucket<f32, [4]> -> !ddp.bucket<f16, [4]>
// CHECK-NEXT:    %[[S:.+]] = ddp.scale %[[H]] by 2.500000e-01 : !ddp.bucket<f16, [4]>
// CHECK-NEXT:    %[[A:.+]] = ddp.all_reduce sum %[[S]] on @dp as "b1" {ddp.hook = #ddp.allreduce} : !ddp.bucket<f16, [4]>
// CHECK-NEXT:    %[[D:.+]] = ddp.scale %[[A]] by 4.000000e+00 : !ddp.bucket<f16, [4]>
// CHECK-NEXT:    %[[R:.+]] = ddp.cast %[[D]] : !ddp.bucket<f16, [4]> -> !ddp.bucket<f32, [4]>
// CHECK-NEXT:    return %[[R]]
func.func @wrapped(%b: !ddp.bucket<f32, [4]>) -> !ddp.bucket<f32, [4]> {
  %r = ddp.all_reduce sum %b on @dp as "b1"
      {ddp.hook = #ddp.wrap<f16, #testhook.scaled<0.25>>}
      : !ddp.bucket<f32, [4]>
  return %r : !ddp.bucket<f32, [4]>
}

// A hook with a state: error feedback.
// CHECK-LABEL: func @feedback(
// CHECK-SAME:    %[[B:.+]]: !ddp.bucket<f32, [4]>
// CHECK-NEXT:    %[[E:.+]] = ddp.load @b4.feedback : !ddp.bucket<f32, [4]>
// CHECK-NEXT:    %[[M:.+]] = ddp.add %[[B]], %[[E]]
// CHECK-NEXT:    %[[H:.+]] = ddp.cast %[[M]] : !ddp.bucket<f32, [4]> -> !ddp.bucket<f16, [4]>
// CHECK-NEXT:    %[[K:.+]] = ddp.cast %[[H]] : !ddp.bucket<f16, [4]> -> !ddp.bucket<f32, [4]>
// CHECK-NEXT:    %[[L:.+]] = ddp.sub %[[M]], %[[K]]
// CHECK-NEXT:    ddp.store %[[L]], @b4.feedback : !ddp.bucket<f32, [4]>
// CHECK-NEXT:    %[[S:.+]] = ddp.all_reduce mean %[[H]] on @dp as "b4" {ddp.hook = #ddp.allreduce} : !ddp.bucket<f16, [4]>
// CHECK-NEXT:    %[[R:.+]] = ddp.cast %[[S]] : !ddp.bucket<f16, [4]> -> !ddp.bucket<f32, [4]>
// CHECK-NEXT:    return %[[R]]
func.func @feedback(%b: !ddp.bucket<f32, [4]>) -> !ddp.bucket<f32, [4]> {
  %r = ddp.all_reduce mean %b on @dp as "b4" {ddp.hook = #testhook.feedback}
      : !ddp.bucket<f32, [4]>
  return %r : !ddp.bucket<f32, [4]>
}

// CHECK: ddp.bucket_info "b0" mean on @dp hook #testhook.scaled<5.000000e-01 : f64> wire f32 bytes 160 state_bytes 0 : !ddp.bucket<f32, [4x8, 8]>
// CHECK: ddp.bucket_info "b1" sum on @dp hook #ddp.wrap<f16, #testhook.scaled<2.500000e-01 : f64>> wire f16 bytes 8 state_bytes 0 : !ddp.bucket<f32, [4]>
// CHECK: ddp.bucket_info "b4" mean on @dp hook #testhook.feedback wire f16 bytes 8 state_bytes 16

// RUNTIME: hook = "#testhook.scaled<5.000000e-01 : f64>"
// RUNTIME-SAME: hook = "#ddp.wrap<f16, #testhook.scaled<2.500000e-01 : f64>>"
// RUNTIME-LABEL: func.func @step(
// RUNTIME:         %[[HALF:.+]] = llvm.mlir.constant(5.000000e-01 : f64) : f64
// RUNTIME:         llvm.call @ddphook_rt_scale(%{{.+}}, %[[HALF]],
// RUNTIME:         llvm.call @ddphook_rt_collective
// RUNTIME:         %[[TWO:.+]] = llvm.mlir.constant(2.000000e+00 : f64) : f64
// RUNTIME:         llvm.call @ddphook_rt_scale(%{{.+}}, %[[TWO]],
// RUNTIME-LABEL: func.func @wrapped(
// RUNTIME:         llvm.call @ddphook_rt_cast
// RUNTIME:         llvm.call @ddphook_rt_scale
// RUNTIME:         llvm.call @ddphook_rt_collective
// RUNTIME:         llvm.call @ddphook_rt_scale
// RUNTIME:         llvm.call @ddphook_rt_cast
