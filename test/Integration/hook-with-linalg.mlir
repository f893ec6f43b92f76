// A hook that computes with linalg between ddp.unpack and ddp.pack (#testhook.clipped
// of test/lib) gives the bits of a program that does so itself.

// RUN: rm -rf %t && split-file %s %t
// RUN: ddphook-run %t/hook.mlir --entry=step --ranks=2 --inputs=random:5 --outputs='%t/hook.{rank}' --load-dialect-plugin=%testhook-plugin --ddp-pipeline="hook=testhook.clipped limit=0.5"
// RUN: ddphook-run %t/itself.mlir --entry=step --ranks=2 --inputs=random:5 --outputs='%t/itself.{rank}'
// RUN: ddphook-run %t/hook.mlir --entry=step --ranks=2 --inputs=random:5 --outputs='%t/plain.{rank}'
// RUN: cmp %t/hook.0 %t/hook.1
// RUN: cmp %t/hook.0 %t/itself.0
// RUN: not cmp %t/hook.0 %t/plain.0

// Under a wrapper it clips 16 bits.
// RUN: ddphook-run %t/hook.mlir --entry=step --ranks=2 --inputs=random:5 --outputs='%t/wrapped.{rank}' --load-dialect-plugin=%testhook-plugin --ddp-pipeline="hook=testhook.clipped limit=0.5 wrapper=bf16"
// RUN: cmp %t/wrapped.0 %t/wrapped.1
// RUN: not cmp %t/wrapped.0 %t/hook.0

// The bucket is clipped where it lies: nothing is copied before the all-reduce.
// RUN: ddphook-opt %t/hook.mlir --load-dialect-plugin=%testhook-plugin --ddp-pipeline="hook=testhook.clipped" | FileCheck %s
// CHECK-LABEL: func.func @step(
// CHECK-NOT:     memref.copy
// CHECK:         linalg.map
// CHECK-NOT:     memref.copy
// CHECK:         linalg.map
// CHECK-NOT:     memref.copy
// CHECK:         llvm.call @ddphook_rt_collective

//--- hook.mlir
ddp.process_group @dp
func.func @step(%x: tensor<40x30xf32>, %b: tensor<30xf32>)
    -> (tensor<40x30xf32>, tensor<30xf32>) {
  %0 = tensor.empty() : tensor<40x30xf32>
  %g = linalg.add ins(%x, %x : tensor<40x30xf32>, tensor<40x30xf32>) outs(%0 : tensor<40x30xf32>) -> tensor<40x30xf32>
  %1 = tensor.empty() : tensor<30xf32>
  %h = linalg.add ins(%b, %b : tensor<30xf32>, tensor<30xf32>) outs(%1 : tensor<30xf32>) -> tensor<30xf32>
  %r0 = ddp.all_reduce mean %g on @dp : tensor<40x30xf32>
  %r1 = ddp.all_reduce mean %h on @dp : tensor<30xf32>
  return %r0, %r1 : tensor<40x30xf32>, tensor<30xf32>
}
//--- itself.mlir
ddp.process_group @dp
func.func @step(%x: tensor<40x30xf32>, %b: tensor<30xf32>)
    -> (tensor<40x30xf32>, tensor<30xf32>) {
  %high = arith.constant 0.5 : f32
  %low = arith.constant -0.5 : f32
  %0 = tensor.empty() : tensor<40x30xf32>
  %g = linalg.map ins(%x : tensor<40x30xf32>) outs(%0 : tensor<40x30xf32>) (%e: f32, %o: f32) {
    %t = arith.addf %e, %e : f32
    %u = arith.minimumf %t, %high : f32
    %c = arith.maximumf %u, %low : f32
    linalg.yield %c : f32
  }
  %1 = tensor.empty() : tensor<30xf32>
  %h = linalg.map ins(%b : tensor<30xf32>) outs(%1 : tensor<30xf32>) (%e: f32, %o: f32) {
    %t = arith.addf %e, %e : f32
    %u = arith.minimumf %t, %high : f32
    %c = arith.maximumf %u, %low : f32
    linalg.yield %c : f32
  }
  %r0 = ddp.all_reduce mean %g on @dp : tensor<40x30xf32>
  %r1 = ddp.all_reduce mean %h on @dp : tensor<30xf32>
  return %r0, %r1 : tensor<40x30xf32>, tensor<30xf32>
}
