// What PowerSGD leaves is the same on all ranks, in flight in the vanilla phase or
// computed in the other branch: so it may decide what is reduced afterwards. After
// every pass, on tensors and in memory.

// RUN: ddphook-opt %s --ddp-pipeline="hook=powersgd start-powersgd-iter=2 bucket-cap-mb=0 verify-order=true" | FileCheck %s
// RUN: ddphook-opt %s --ddp-pipeline="hook=powersgd start-powersgd-iter=2 bucket-cap-mb=0 verify-order=true overlap=false" -o /dev/null

// CHECK-LABEL: func.func @step(
// CHECK:         linalg.add
// CHECK:         scf.if
// CHECK:           llvm.call @ddphook_rt_reconstruct(
// CHECK:         scf.if
// CHECK:           llvm.call @ddphook_rt_collective_start(
// CHECK:         linalg.mul
// CHECK:         scf.if
// CHECK-NEXT:      llvm.call @ddphook_rt_wait(
// CHECK:         arith.cmpf
ddp.process_group @dp
func.func @step(%x: tensor<8x8xf32>, %y: tensor<8x8xf32>, %p: tensor<8x8xf32> {bufferization.writable = true})
    -> tensor<8x8xf32> {
  %e0 = tensor.empty() : tensor<8x8xf32>
  %g0 = linalg.add ins(%x, %y : tensor<8x8xf32>, tensor<8x8xf32>) outs(%e0 : tensor<8x8xf32>) -> tensor<8x8xf32>
  %r0 = ddp.all_reduce mean %g0 on @dp : tensor<8x8xf32>
  %e1 = tensor.empty() : tensor<8x8xf32>
  %g1 = linalg.mul ins(%x, %y : tensor<8x8xf32>, tensor<8x8xf32>) outs(%e1 : tensor<8x8xf32>) -> tensor<8x8xf32>
  %zero = arith.constant 0.0 : f32
  %i = arith.constant 0 : index
  %first = tensor.extract %r0[%i, %i] : tensor<8x8xf32>
  %isLarge = arith.cmpf ogt, %first, %zero : f32
  %r1 = scf.if %isLarge -> (tensor<8x8xf32>) {
    %s = ddp.all_reduce mean %g1 on @dp : tensor<8x8xf32>
    scf.yield %s : tensor<8x8xf32>
  } else {
    scf.yield %r0 : tensor<8x8xf32>
  }
  %n = linalg.sub ins(%p, %r1 : tensor<8x8xf32>, tensor<8x8xf32>) outs(%p : tensor<8x8xf32>) -> tensor<8x8xf32>
  return %n : tensor<8x8xf32>
}
