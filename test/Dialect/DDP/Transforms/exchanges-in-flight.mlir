// RUN: ddphook-opt %s --ddp-overlap=depth=1 --ddp-flatten | FileCheck %s --check-prefix=FLAT
// RUN: ddphook-opt %s --ddp-pipeline="require-no-copy=true verify-order=true" | FileCheck %s --check-prefix=CALLS
// RUN: ddphook-opt %s --ddp-pipeline="hook=int8 error-feedback=true rounding=stochastic verify-order=true" | FileCheck %s --check-prefix=STOCHASTIC
// RUN: ddphook-opt %s --ddp-pipeline="require-no-copy=true overlap=false" | FileCheck %s --check-prefix=WHOLE

// A step with sharded optimizer states, from values to calls: what is in flight is
// neither read nor written, nothing is copied, and without overlap nothing is
// started.

!x = tensor<16x8xf32>
!d = tensor<8x4xf32>
!w = tensor<16x4xf32>
!p = tensor<16xf32>

ddp.process_group @dp size 4

// FLAT-LABEL: func.func @step(
// FLAT:         %[[G1:.+]] = linalg.matmul
// FLAT-NEXT:    %[[E1:.+]] = tensor.empty() : tensor<16xf32>
// FLAT-NEXT:    %[[F1:.+]], %[[T1:.+]] = ddp.flat.exchange_start reduce_scatter mean %[[G1]] on @dp into %[[E1]] : tensor<16x4xf32>, tensor<16xf32>
// FLAT:         linalg.matmul
// FLAT-NEXT:    ddp.flat.wait %[[F1]], %[[T1]] reading %[[G1]] : tensor<16xf32>, tensor<16x4xf32>
// FLAT:         ddp.flat.exchange_start reduce_scatter
// FLAT-NEXT:    %[[U1:.+]] = linalg.sub
// FLAT-NEXT:    ddp.flat.wait
// FLAT-NEXT:    %[[E2:.+]] = tensor.empty() : tensor<16x4xf32>
// FLAT-NEXT:    %[[F2:.+]], %[[T2:.+]] = ddp.flat.exchange_start all_gather %[[U1]] on @dp into %[[E2]] : tensor<16xf32>, tensor<16x4xf32>
// FLAT-NEXT:    linalg.sub
// FLAT-NEXT:    ddp.flat.wait %[[F2]], %[[T2]] reading %[[U1]] : tensor<16x4xf32>, tensor<16xf32>

// CALLS:       collectives = [
// CALLS-SAME:    <kind = reduce_scatter, group = 0, count = 64, dtype = f32, divide = true>,
// CALLS-SAME:    <kind = reduce_scatter, group = 0, count = 64, dtype = f32, divide = true>,
// CALLS-SAME:    <kind = all_gather, group = 0, count = 64, dtype = f32, divide = false>,
// CALLS-SAME:    <kind = all_gather, group = 0, count = 64, dtype = f32, divide = false>]
// CALLS-LABEL: func.func @step(
// CALLS:         %[[T1:.+]] = llvm.call @ddphook_rt_collective_start(
// CALLS:         linalg.matmul
// CALLS:         llvm.call @ddphook_rt_wait(%{{.+}}, %[[T1]])
// CALLS:         %[[T2:.+]] = llvm.call @ddphook_rt_collective_start(
// CALLS:         linalg.sub
// CALLS:         llvm.call @ddphook_rt_wait(%{{.+}}, %[[T2]])
// CALLS:         %[[T3:.+]] = llvm.call @ddphook_rt_collective_start(
// CALLS:         linalg.sub
// CALLS:         llvm.call @ddphook_rt_wait(%{{.+}}, %[[T3]])
// CALLS:         llvm.call @ddphook_rt_collective(

// STOCHASTIC-LABEL: func.func @step(
// STOCHASTIC:         %[[T1:.+]] = llvm.call @ddphook_rt_collective_start(
// STOCHASTIC:         linalg.matmul
// STOCHASTIC:         llvm.call @ddphook_rt_wait(%{{.+}}, %[[T1]])

// WHOLE-LABEL: func.func @step(
// WHOLE-NOT:     start(
// WHOLE-COUNT-4: llvm.call @ddphook_rt_collective(
// WHOLE-NOT:     start(
func.func @step(%x: !x, %d1: !d, %d0: !d,
                %p1: !p {bufferization.writable = true}, %p0: !p {bufferization.writable = true})
    -> (!w, !w, !p, !p) {
  %zero = arith.constant 0.0 : f32
  %e1 = tensor.empty() : !w
  %z1 = linalg.fill ins(%zero : f32) outs(%e1 : !w) -> !w
  %g1 = linalg.matmul ins(%x, %d1 : !x, !d) outs(%z1 : !w) -> !w
  %s1 = ddp.reduce_scatter mean %g1 on @dp : !w -> !p
  %e0 = tensor.empty() : !w
  %z0 = linalg.fill ins(%zero : f32) outs(%e0 : !w) -> !w
  %g0 = linalg.matmul ins(%x, %d0 : !x, !d) outs(%z0 : !w) -> !w
  %u1 = linalg.sub ins(%p1, %s1 : !p, !p) outs(%p1 : !p) -> !p
  %s0 = ddp.reduce_scatter mean %g0 on @dp : !w -> !p
  %u0 = linalg.sub ins(%p0, %s0 : !p, !p) outs(%p0 : !p) -> !p
  %w1 = ddp.all_gather %u1 on @dp : !p -> !w
  %w0 = ddp.all_gather %u0 on @dp : !p -> !w
  return %w1, %w0, %u1, %u0 : !w, !w, !p, !p
}
