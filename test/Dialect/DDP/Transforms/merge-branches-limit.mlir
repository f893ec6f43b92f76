// No more than 16 branches become one, or as the option says.

// RUN: ddphook-opt %s --pass-pipeline='builtin.module(ddp-bucketize{bucket-cap-mb=0},ddp-expand-hooks{hook=powersgd},ddp-merge-branches)' | FileCheck %s
// RUN: ddphook-opt %s --pass-pipeline='builtin.module(ddp-bucketize{bucket-cap-mb=0},ddp-expand-hooks{hook=powersgd},ddp-merge-branches{limit=5})' | FileCheck %s --check-prefix=FIVE

// CHECK-COUNT-15: ddp.pack
// CHECK-NOT:      scf.if
// CHECK:          ddp.pack
// CHECK:          %[[FIRST:.+]]:16 = scf.if
// CHECK:          %[[LAST:.+]] = scf.if {{.+}} -> (!ddp.bucket<f32, [4x8]>) {
// CHECK-NOT:      scf.if

// FIVE-COUNT-3:   :5 = scf.if
// FIVE:           :2 = scf.if
// FIVE-NOT:       scf.if

!t = tensor<4x8xf32>
ddp.process_group @dp
func.func @step(%g0: !t, %g1: !t, %g2: !t, %g3: !t, %g4: !t, %g5: !t, %g6: !t,
               %g7: !t, %g8: !t, %g9: !t, %g10: !t, %g11: !t, %g12: !t, %g13:
               !t, %g14: !t, %g15: !t, %g16: !t)
    -> (!t, !t, !t, !t, !t, !t, !t, !t, !t, !t, !t, !t, !t, !t, !t, !t, !t) {
  %r0 = ddp.all_reduce mean %g0 on @dp : !t
  %r1 = ddp.all_reduce mean %g1 on @dp : !t
  %r2 = ddp.all_reduce mean %g2 on @dp : !t
  %r3 = ddp.all_reduce mean %g3 on @dp : !t
  %r4 = ddp.all_reduce mean %g4 on @dp : !t
  %r5 = ddp.all_reduce mean %g5 on @dp : !t
  %r6 = ddp.all_reduce mean %g6 on @dp : !t
  %r7 = ddp.all_reduce mean %g7 on @dp : !t
  %r8 = ddp.all_reduce mean %g8 on @dp : !t
  %r9 = ddp.all_reduce mean %g9 on @dp : !t
  %r10 = ddp.all_reduce mean %g10 on @dp : !t
  %r11 = ddp.all_reduce mean %g11 on @dp : !t
  %r12 = ddp.all_reduce mean %g12 on @dp : !t
  %r13 = ddp.all_reduce mean %g13 on @dp : !t
  %r14 = ddp.all_reduce mean %g14 on @dp : !t
  %r15 = ddp.all_reduce mean %g15 on @dp : !t
  %r16 = ddp.all_reduce mean %g16 on @dp : !t
  return %r0, %r1, %r2, %r3, %r4, %r5, %r6, %r7, %r8, %r9, %r10, %r11, %r12,
      %r13, %r14, %r15, %r16
      : !t, !t, !t, !t, !t, !t, !t, !t, !t, !t, !t, !t, !t, !t, !t, !t, !t
}
