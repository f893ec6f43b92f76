// What a report tells of collectives that are no all-reduces: their kind, how they
// travel, and what runs beside them; also of those that round stochastically.
//
// RUN: ddphook-opt %s --ddp-pipeline="hook=int8 rounding=stochastic" --ddp-plan-report=- | FileCheck %s
//
// CHECK: {{^}}collectives outside buckets
// CHECK-NEXT: 0 reduce_scatter mean of 64 f32 as i8 in blocks of 256; in flight alongside 1 linalg.matmul, 1 linalg.exp
// CHECK-NEXT: 1 all_gather of 64 f32; the step waits for it
// CHECK: collectives overlap with computation: started=1, in-flight=1, in-flight-bytes=256

!x = tensor<16x8xf32>
!d = tensor<8x4xf32>
!w = tensor<16x4xf32>
!p = tensor<16xf32>

ddp.process_group @dp size 4
func.func @step(%x: !x, %d1: !d, %d0: !d, %p1: !p {bufferization.writable = true}) -> (!w, !w, !p) {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : !w
  %z = linalg.fill ins(%zero : f32) outs(%e : !w) -> !w
  %g1 = linalg.matmul ins(%x, %d1 : !x, !d) outs(%z : !w) -> !w
  %s1 = ddp.reduce_scatter mean %g1 on @dp : !w -> !p
  %g0 = linalg.matmul ins(%x, %d0 : !x, !d) outs(%z : !w) -> !w
  %u1 = linalg.sub ins(%p1, %s1 : !p, !p) outs(%p1 : !p) -> !p
  %w1 = ddp.all_gather %u1 on @dp : !p -> !w
  %y = linalg.exp ins(%g0 : !w) outs(%e : !w) -> !w
  return %w1, %y, %u1 : !w, !w, !p
}
