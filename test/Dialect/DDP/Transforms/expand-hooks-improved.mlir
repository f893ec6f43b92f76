// RUN: ddphook-opt %s --ddp-expand-hooks -split-input-file | FileCheck %s

// What each part of numerics=improved changes in PowerSGD's expansion.

ddp.process_group @dp

// The error is what this rank lost; what is not compressed has none.
// CHECK-LABEL: func.func @local_error(
// CHECK-SAME:    %[[ARG0:[a-z0-9]+]]: !ddp.bucket<f32, [64x32, 64]>) -> !ddp.bucket<f32, [64x32, 64]>
// CHECK-NEXT:   %[[ITER:.+]] = ddp.load @powersgd.iter : i64
// CHECK-NEXT:   %[[K:.+]] = arith.constant 1000 : i64
// CHECK-NEXT:   %[[IS:.+]] = arith.cmpi slt, %[[ITER]], %[[K]] : i64
// CHECK-NEXT:   %[[OUT:.+]] = scf.if %[[IS]] -> (!ddp.bucket<f32, [64x32, 64]>) {
// CHECK-NEXT:     %[[R:.+]] = ddp.all_reduce mean %[[ARG0]] on @dp as "b0" {ddp.hook = #ddp.allreduce} : !ddp.bucket<f32, [64x32, 64]>
// CHECK-NEXT:     scf.yield %[[R]] : !ddp.bucket<f32, [64x32, 64]>
// CHECK-NEXT:   } else {
// CHECK-NEXT:     ddp.count_compression "b0" before 2112 after 160 at %[[ITER]] every 10000
// CHECK-NEXT:     %[[ERROR:.+]] = ddp.load @b0.error : !ddp.bucket<f32, [64x32, 64]>
// CHECK-NEXT:     %[[LASTQ:.+]] = ddp.load @b0.q : !ddp.bucket<f32, [32x1]>
// CHECK-NEXT:     %[[O:.+]] = ddp.orthogonalize %[[LASTQ]] epsilon 0.000000e+00 : !ddp.bucket<f32, [32x1]>
// CHECK-NEXT:     %[[M:.+]] = ddp.add %[[ARG0]], %[[ERROR]] : !ddp.bucket<f32, [64x32, 64]>, !ddp.bucket<f32, [64x32, 64]>
// CHECK-NEXT:     %[[X:.+]] = ddp.extract %[[M]] [0] : !ddp.bucket<f32, [64x32, 64]>
// CHECK-NEXT:     %[[P:.+]] = ddp.matmul %[[X]], %[[O]] : (!ddp.bucket<f32, [64x32]>, !ddp.bucket<f32, [32x1]>) -> !ddp.bucket<f32, [64x1]>
// CHECK-NEXT:     %[[X1:.+]] = ddp.extract %[[M]] [1] : !ddp.bucket<f32, [64x32, 64]>
// CHECK-NEXT:     %[[R1:.+]] = ddp.all_reduce sum %[[P]] on @dp as "b0" {ddp.hook = #ddp.allreduce} : !ddp.bucket<f32, [64x1]>
// CHECK-NEXT:     %[[R2:.+]] = ddp.all_reduce sum %[[X1]] on @dp as "b0" {ddp.hook = #ddp.allreduce} : !ddp.bucket<f32, [64]>
// CHECK-NEXT:     %[[D:.+]] = ddp.scale %[[R2]] by_world_of @dp : !ddp.bucket<f32, [64]>
// CHECK-NEXT:     %[[O1:.+]] = ddp.orthogonalize %[[R1]] epsilon 0.000000e+00 : !ddp.bucket<f32, [64x1]>
// CHECK-NEXT:     %[[Q:.+]] = ddp.matmul transpose_lhs %[[X]], %[[O1]] : (!ddp.bucket<f32, [64x32]>, !ddp.bucket<f32, [64x1]>) -> !ddp.bucket<f32, [32x1]>
// CHECK-NEXT:     %[[R3:.+]] = ddp.all_reduce sum %[[Q]] on @dp as "b0" {ddp.hook = #ddp.allreduce} : !ddp.bucket<f32, [32x1]>
// CHECK-NEXT:     %[[D1:.+]] = ddp.scale %[[R3]] by_world_of @dp : !ddp.bucket<f32, [32x1]>
// CHECK-NEXT:     %[[MHAT:.+]] = ddp.matmul transpose_rhs %[[O1]], %[[D1]] : (!ddp.bucket<f32, [64x1]>, !ddp.bucket<f32, [32x1]>) -> !ddp.bucket<f32, [64x32]>
// CHECK-NEXT:     %[[C:.+]] = ddp.concat %[[MHAT]], %[[D]] order [0, 1] : !ddp.bucket<f32, [64x32]>, !ddp.bucket<f32, [64]> -> !ddp.bucket<f32, [64x32, 64]>
// CHECK-NEXT:     %[[MHAT1:.+]] = ddp.matmul transpose_rhs %[[O1]], %[[Q]] : (!ddp.bucket<f32, [64x1]>, !ddp.bucket<f32, [32x1]>) -> !ddp.bucket<f32, [64x32]>
// CHECK-NEXT:     %[[C1:.+]] = ddp.concat %[[MHAT1]], %[[X1]] order [0, 1] : !ddp.bucket<f32, [64x32]>, !ddp.bucket<f32, [64]> -> !ddp.bucket<f32, [64x32, 64]>
// CHECK-NEXT:     %[[E:.+]] = ddp.sub %[[M]], %[[C1]] : !ddp.bucket<f32, [64x32, 64]>, !ddp.bucket<f32, [64x32, 64]>
// CHECK-NEXT:     ddp.store %[[D1]], @b0.q : !ddp.bucket<f32, [32x1]>
// CHECK-NEXT:     ddp.store %[[E]], @b0.error : !ddp.bucket<f32, [64x32, 64]>
// CHECK-NEXT:     scf.yield %[[C]] : !ddp.bucket<f32, [64x32, 64]>
// CHECK-NEXT:   }
// CHECK-NEXT:   %[[K1:.+]] = arith.constant 1 : i64
// CHECK-NEXT:   %[[NEXT:.+]] = arith.addi %[[ITER]], %[[K1]] : i64
// CHECK-NEXT:   ddp.store %[[NEXT]], @powersgd.iter : i64
// CHECK-NEXT:   return %[[OUT]] : !ddp.bucket<f32, [64x32, 64]>
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
// CHECK: ddp.state @powersgd.nonfinite : i64 replicated zero
// CHECK-LABEL: func.func @skip(
// CHECK-SAME:    %[[ARG0:[a-z0-9]+]]: !ddp.bucket<f32, [64x32, 64]>) -> !ddp.bucket<f32, [64x32, 64]>
// CHECK-NEXT:   %[[ITER:.+]] = ddp.load @powersgd.iter : i64
// CHECK-NEXT:   %[[K:.+]] = arith.constant 1000 : i64
// CHECK-NEXT:   %[[IS:.+]] = arith.cmpi slt, %[[ITER]], %[[K]] : i64
// CHECK-NEXT:   %[[OUT:.+]] = scf.if %[[IS]] -> (!ddp.bucket<f32, [64x32, 64]>) {
// CHECK-NEXT:     %[[R:.+]] = ddp.all_reduce mean %[[ARG0]] on @dp as "b0" {ddp.hook = #ddp.allreduce} : !ddp.bucket<f32, [64x32, 64]>
// CHECK-NEXT:     scf.yield %[[R]] : !ddp.bucket<f32, [64x32, 64]>
// CHECK-NEXT:   } else {
// CHECK-NEXT:     ddp.count_compression "b0" before 2112 after 160 at %[[ITER]] every 10000
// CHECK-NEXT:     %[[ERROR:.+]] = ddp.load @b0.error : !ddp.bucket<f32, [64x32, 64]>
// CHECK-NEXT:     %[[LASTQ:.+]] = ddp.load @b0.q : !ddp.bucket<f32, [32x1]>
// CHECK-NEXT:     %[[O:.+]] = ddp.orthogonalize %[[LASTQ]] epsilon 0.000000e+00 : !ddp.bucket<f32, [32x1]>
// CHECK-NEXT:     %[[M:.+]] = ddp.add %[[ARG0]], %[[ERROR]] : !ddp.bucket<f32, [64x32, 64]>, !ddp.bucket<f32, [64x32, 64]>
// CHECK-NEXT:     %[[X:.+]] = ddp.extract %[[M]] [0] : !ddp.bucket<f32, [64x32, 64]>
// CHECK-NEXT:     %[[P:.+]] = ddp.matmul %[[X]], %[[O]] : (!ddp.bucket<f32, [64x32]>, !ddp.bucket<f32, [32x1]>) -> !ddp.bucket<f32, [64x1]>
// CHECK-NEXT:     %[[X1:.+]] = ddp.extract %[[M]] [1] : !ddp.bucket<f32, [64x32, 64]>
// CHECK-NEXT:     %[[R1:.+]] = ddp.all_reduce sum %[[P]] on @dp as "b0" {ddp.hook = #ddp.allreduce} : !ddp.bucket<f32, [64x1]>
// CHECK-NEXT:     %[[R2:.+]] = ddp.all_reduce sum %[[X1]] on @dp as "b0" {ddp.hook = #ddp.allreduce} : !ddp.bucket<f32, [64]>
// CHECK-NEXT:     %[[D:.+]] = ddp.scale %[[R2]] by_world_of @dp : !ddp.bucket<f32, [64]>
// CHECK-NEXT:     %[[O1:.+]] = ddp.orthogonalize %[[R1]] epsilon 0.000000e+00 : !ddp.bucket<f32, [64x1]>
// CHECK-NEXT:     %[[Q:.+]] = ddp.matmul transpose_lhs %[[X]], %[[O1]] : (!ddp.bucket<f32, [64x32]>, !ddp.bucket<f32, [64x1]>) -> !ddp.bucket<f32, [32x1]>
// CHECK-NEXT:     %[[R3:.+]] = ddp.all_reduce sum %[[Q]] on @dp as "b0" {ddp.hook = #ddp.allreduce} : !ddp.bucket<f32, [32x1]>
// CHECK-NEXT:     %[[D1:.+]] = ddp.scale %[[R3]] by_world_of @dp : !ddp.bucket<f32, [32x1]>
// CHECK-NEXT:     %[[MHAT:.+]] = ddp.matmul transpose_rhs %[[O1]], %[[D1]] : (!ddp.bucket<f32, [64x1]>, !ddp.bucket<f32, [32x1]>) -> !ddp.bucket<f32, [64x32]>
// CHECK-NEXT:     %[[C:.+]] = ddp.concat %[[MHAT]], %[[D]] order [0, 1] : !ddp.bucket<f32, [64x32]>, !ddp.bucket<f32, [64]> -> !ddp.bucket<f32, [64x32, 64]>
// CHECK-NEXT:     %[[E:.+]] = ddp.sub %[[M]], %[[C]] : !ddp.bucket<f32, [64x32, 64]>, !ddp.bucket<f32, [64x32, 64]>
// CHECK-NEXT:     %[[FINITE:.+]] = ddp.is_finite %[[D1]] : !ddp.bucket<f32, [32x1]>
// CHECK-NEXT:     %[[FINITE1:.+]] = ddp.is_finite %[[D]] : !ddp.bucket<f32, [64]>
// CHECK-NEXT:     %[[ANDI:.+]] = arith.andi %[[FINITE]], %[[FINITE1]] : i1
// CHECK-NEXT:     scf.if %[[ANDI]] {
// CHECK-NEXT:       ddp.store %[[D1]], @b0.q : !ddp.bucket<f32, [32x1]>
// CHECK-NEXT:       ddp.store %[[E]], @b0.error : !ddp.bucket<f32, [64x32, 64]>
// CHECK-NEXT:     } else {
// CHECK-NEXT:       %[[LOAD:.+]] = ddp.load @powersgd.nonfinite : i64
// CHECK-NEXT:       %[[K1:.+]] = arith.constant 1 : i64
// CHECK-NEXT:       %[[NEXT:.+]] = arith.addi %[[LOAD]], %[[K1]] : i64
// CHECK-NEXT:       ddp.store %[[NEXT]], @powersgd.nonfinite : i64
// CHECK-NEXT:     }
// CHECK-NEXT:     scf.yield %[[C]] : !ddp.bucket<f32, [64x32, 64]>
// CHECK-NEXT:   }
// CHECK-NEXT:   %[[K2:.+]] = arith.constant 1 : i64
// CHECK-NEXT:   %[[NEXT1:.+]] = arith.addi %[[ITER]], %[[K2]] : i64
// CHECK-NEXT:   ddp.store %[[NEXT1]], @powersgd.iter : i64
// CHECK-NEXT:   return %[[OUT]] : !ddp.bucket<f32, [64x32, 64]>
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

// Columns of zeros become unit vectors.
// CHECK-LABEL: func @zero_columns(
// CHECK-COUNT-2: ddp.orthogonalize %{{.+}} epsilon 1.000000e-08 unit_columns :
func.func @zero_columns(%b: !ddp.bucket<f32, [64x32]>)
    -> !ddp.bucket<f32, [64x32]> {
  %r = ddp.all_reduce mean %b on @dp as "b0"
      {ddp.hook = #ddp.powersgd<keep_zero_columns = true,
                                orthogonalization_epsilon = 1.0e-8 : f64>}
      : !ddp.bucket<f32, [64x32]>
  return %r : !ddp.bucket<f32, [64x32]>
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
