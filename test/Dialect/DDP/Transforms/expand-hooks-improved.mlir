// RUN: ddphook-opt %s --ddp-expand-hooks -split-input-file | FileCheck %s

// What each part of numerics=improved changes in PowerSGD's expansion.

ddp.process_group @dp

// The error is what this rank lost; what is not compressed has none.
// CHECK-LABEL: func.func @local_error(
// CHECK:          %[[M:.+]] = ddp.add
// CHECK:          %[[REST:.+]] = ddp.extract %[[M]] [1]
// CHECK:          %[[R:.+]] = ddp.all_reduce sum %[[REST]]
// CHECK:          %[[D:.+]] = ddp.scale %[[R]]
// CHECK:          %[[P:.+]] = ddp.orthogonalize
// CHECK:          %[[Q:.+]] = ddp.matmul transpose_lhs %{{.+}}, %[[P]]
// CHECK:          %[[R1:.+]] = ddp.all_reduce sum %[[Q]]
// CHECK:          %[[D1:.+]] = ddp.scale %[[R1]]
// CHECK:          %[[MHAT:.+]] = ddp.matmul transpose_rhs %[[P]], %[[D1]]
// CHECK:          %[[OUT:.+]] = ddp.concat %[[MHAT]], %[[D]] order [0, 1]
// CHECK:          %[[MHAT1:.+]] = ddp.matmul transpose_rhs %[[P]], %[[Q]]
// CHECK:          %[[OWN:.+]] = ddp.concat %[[MHAT1]], %[[REST]] order [0, 1]
// CHECK:          %[[E:.+]] = ddp.sub %[[M]], %[[OWN]]
// CHECK-DAG:      ddp.store %[[D1]], @b0.q
// CHECK-DAG:      ddp.store %[[E]], @b0.error
// CHECK:          scf.yield %[[OUT]]
func.func @local_error(%b: !ddp.bucket<f32, [64x32, 64]>)
    -> !ddp.bucket<f32, [64x32, 64]> {
  %r = ddp.all_reduce mean %b on @dp as "b0"
      {ddp.hook = #ddp.powersgd<local_error_feedback = true>}
      : !ddp.bucket<f32, [64x32, 64]>
  return %r : !ddp.bucket<f32, [64x32, 64]>
}

// -----

ddp.process_group @dp

// On `sum`, too: nothing is divided.
// CHECK-LABEL: func @local_error_of_sum(
// CHECK-NOT:     ddp.scale
// CHECK:         ddp.sub
// CHECK-NOT:     ddp.scale
// CHECK:         return
func.func @local_error_of_sum(%b: !ddp.bucket<f32, [64x32, 64]>)
    -> !ddp.bucket<f32, [64x32, 64]> {
  %r = ddp.all_reduce sum %b on @dp as "b0"
      {ddp.hook = #ddp.powersgd<local_error_feedback = true>}
      : !ddp.bucket<f32, [64x32, 64]>
  return %r : !ddp.bucket<f32, [64x32, 64]>
}

// -----

ddp.process_group @dp

// Error and Q are stored where Q and the rest are finite, that is where all that
// was reduced is; what is not finite is counted.
// CHECK: ddp.state @powersgd.nonfinite : i64 replicated zero kind counter
// CHECK-LABEL: func.func @skip(
// CHECK:          %[[R:.+]] = ddp.all_reduce sum {{.+}} : !ddp.bucket<f32, [64]>
// CHECK:          %[[REST:.+]] = ddp.scale %[[R]]
// CHECK:          %[[R1:.+]] = ddp.all_reduce sum {{.+}} : !ddp.bucket<f32, [32x1]>
// CHECK:          %[[Q:.+]] = ddp.scale %[[R1]]
// CHECK:          %[[E:.+]] = ddp.sub
// CHECK-NOT:      ddp.store
// CHECK-DAG:      %[[FINITE:.+]] = ddp.is_finite %[[Q]] : !ddp.bucket<f32, [32x1]>
// CHECK-DAG:      %[[FINITE1:.+]] = ddp.is_finite %[[REST]] : !ddp.bucket<f32, [64]>
// CHECK:          %[[ALL:.+]] = arith.andi %[[FINITE]], %[[FINITE1]] : i1
// CHECK-NEXT:     scf.if %[[ALL]] {
// CHECK-DAG:        ddp.store %[[Q]], @b0.q
// CHECK-DAG:        ddp.store %[[E]], @b0.error
// CHECK-NEXT:     } else {
// CHECK:            %[[COUNT:.+]] = ddp.load @powersgd.nonfinite : i64
// CHECK:            %[[ONE:.+]] = arith.constant 1 : i64
// CHECK:            %[[NEXT:.+]] = arith.addi %[[COUNT]], %[[ONE]] : i64
// CHECK-NEXT:       ddp.store %[[NEXT]], @powersgd.nonfinite : i64
// CHECK-NEXT:     }
// CHECK-NEXT:     scf.yield
func.func @skip(%b: !ddp.bucket<f32, [64x32, 64]>)
    -> !ddp.bucket<f32, [64x32, 64]> {
  %r = ddp.all_reduce mean %b on @dp as "b0"
      {ddp.hook = #ddp.powersgd<skip_nonfinite = true>}
      : !ddp.bucket<f32, [64x32, 64]>
  return %r : !ddp.bucket<f32, [64x32, 64]>
}

// -----

ddp.process_group @dp

// Two buckets share the count.
// CHECK-COUNT-1: ddp.state @powersgd.nonfinite
// CHECK-NOT:     ddp.state @powersgd.nonfinite
// CHECK-LABEL: func @skip_twice(
// CHECK-COUNT-2: ddp.load @powersgd.nonfinite
func.func @skip_twice(%b: !ddp.bucket<f32, [64x32]>)
    -> !ddp.bucket<f32, [64x32]> {
  %r = ddp.all_reduce mean %b on @dp as "b0"
      {ddp.hook = #ddp.powersgd<skip_nonfinite = true>}
      : !ddp.bucket<f32, [64x32]>
  %s = ddp.all_reduce mean %r on @dp as "b1"
      {ddp.hook = #ddp.powersgd<skip_nonfinite = true>}
      : !ddp.bucket<f32, [64x32]>
  return %s : !ddp.bucket<f32, [64x32]>
}

// -----

ddp.process_group @dp

// Columns that PyTorch divides by a norm of zero become unit vectors by default.
// Columns that depend on others do so without an epsilon.
// CHECK-LABEL: func @columns(
// CHECK-COUNT-2: ddp.orthogonalize %{{.+}} epsilon 1.000000e-08 :
// CHECK-COUNT-2: ddp.orthogonalize %{{.+}} epsilon 0.000000e+00 unit_columns independent_columns :
func.func @columns(%b: !ddp.bucket<f32, [64x32]>)
    -> !ddp.bucket<f32, [64x32]> {
  %r = ddp.all_reduce mean %b on @dp as "b0"
      {ddp.hook = #ddp.powersgd<keep_zero_columns = false,
                                orthogonalization_epsilon = 1.0e-8 : f64>}
      : !ddp.bucket<f32, [64x32]>
  %s = ddp.all_reduce mean %r on @dp as "b1"
      {ddp.hook = #ddp.powersgd<independent_columns = true,
                                orthogonalization_epsilon = 1.0e-8 : f64>}
      : !ddp.bucket<f32, [64x32]>
  return %s : !ddp.bucket<f32, [64x32]>
}

// -----

ddp.process_group @dp

// 16 bits on the wire, in all collectives, and nowhere else.
// CHECK: ddp.state @b0.error : !ddp.bucket<f32, [64x32, 64]>
// CHECK-LABEL: func @wire(
// CHECK-NOT:     f16, [
// CHECK:         ddp.all_reduce mean %{{.+}} on @dp wire f16 as "b0"
// CHECK-COUNT-3: ddp.all_reduce sum %{{.+}} on @dp wire f16 as "b0"
// CHECK-NOT:     f16, [
// CHECK:         return
// CHECK: ddp.bucket_info "b0" mean on @dp hook #ddp.powersgd<wire_type = f16> wire f16 bytes 320 state_bytes 8576
func.func @wire(%b: !ddp.bucket<f32, [64x32, 64]>)
    -> !ddp.bucket<f32, [64x32, 64]> {
  %r = ddp.all_reduce mean %b on @dp as "b0"
      {ddp.hook = #ddp.powersgd<wire_type = f16>}
      : !ddp.bucket<f32, [64x32, 64]>
  return %r : !ddp.bucket<f32, [64x32, 64]>
}
