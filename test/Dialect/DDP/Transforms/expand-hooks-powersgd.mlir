// RUN: ddphook-opt %s --ddp-expand-hooks -split-input-file | FileCheck %s

// PowerSGD on one bucket: the states, the phase that is not compressed, the
// compressed one, the counter. Options are in expand-hooks-powersgd-options.mlir.

ddp.process_group @dp

// CHECK:      ddp.state @powersgd.iter : i64 replicated zero
// CHECK-NEXT: ddp.state @powersgd.generator : tensor<625xi32> replicated mt19937 seed 0
// CHECK-NEXT: ddp.state @b0.error : !ddp.bucket<f32, [64x32, 64]> per_rank zero
// CHECK-NEXT: ddp.state @b0.q : !ddp.bucket<f32, [32x2]> replicated normal from @powersgd.generator draws [64]
// CHECK-LABEL: func.func @mean(
// CHECK-SAME:    %[[ARG0:[a-z0-9]+]]: !ddp.bucket<f32, [64x32, 64]>) -> !ddp.bucket<f32, [64x32, 64]>
// CHECK-NEXT:   %[[ITER:.+]] = ddp.load @powersgd.iter : i64
// CHECK-NEXT:   %[[K:.+]] = arith.constant 2 : i64
// CHECK-NEXT:   %[[IS:.+]] = arith.cmpi slt, %[[ITER]], %[[K]] : i64
// CHECK-NEXT:   %[[OUT:.+]] = scf.if %[[IS]] -> (!ddp.bucket<f32, [64x32, 64]>) {
// CHECK-NEXT:     %[[R:.+]] = ddp.all_reduce mean %[[ARG0]] on @dp as "b0" {ddp.hook = #ddp.allreduce} : !ddp.bucket<f32, [64x32, 64]>
// CHECK-NEXT:     scf.yield %[[R]] : !ddp.bucket<f32, [64x32, 64]>
// CHECK-NEXT:   } else {
// CHECK-NEXT:     ddp.count_compression "b0" before 2112 after 256 at %[[ITER]] every 10000
// CHECK-NEXT:     %[[ERROR:.+]] = ddp.load @b0.error : !ddp.bucket<f32, [64x32, 64]>
// CHECK-NEXT:     %[[LASTQ:.+]] = ddp.load @b0.q : !ddp.bucket<f32, [32x2]>
// CHECK-NEXT:     %[[O:.+]] = ddp.orthogonalize %[[LASTQ]] epsilon 0.000000e+00 : !ddp.bucket<f32, [32x2]>
// CHECK-NEXT:     %[[M:.+]] = ddp.add %[[ARG0]], %[[ERROR]] : !ddp.bucket<f32, [64x32, 64]>, !ddp.bucket<f32, [64x32, 64]>
// CHECK-NEXT:     %[[X:.+]] = ddp.extract %[[M]] [0] : !ddp.bucket<f32, [64x32, 64]>
// CHECK-NEXT:     %[[P:.+]] = ddp.matmul %[[X]], %[[O]] : (!ddp.bucket<f32, [64x32]>, !ddp.bucket<f32, [32x2]>) -> !ddp.bucket<f32, [64x2]>
// CHECK-NEXT:     %[[X1:.+]] = ddp.extract %[[M]] [1] : !ddp.bucket<f32, [64x32, 64]>
// CHECK-NEXT:     %[[R1:.+]] = ddp.all_reduce sum %[[P]] on @dp as "b0" {ddp.hook = #ddp.allreduce} : !ddp.bucket<f32, [64x2]>
// CHECK-NEXT:     %[[R2:.+]] = ddp.all_reduce sum %[[X1]] on @dp as "b0" {ddp.hook = #ddp.allreduce} : !ddp.bucket<f32, [64]>
// CHECK-NEXT:     %[[D:.+]] = ddp.scale %[[R2]] by_world_of @dp : !ddp.bucket<f32, [64]>
// CHECK-NEXT:     %[[O1:.+]] = ddp.orthogonalize %[[R1]] epsilon 0.000000e+00 : !ddp.bucket<f32, [64x2]>
// CHECK-NEXT:     %[[Q:.+]] = ddp.matmul transpose_lhs %[[X]], %[[O1]] : (!ddp.bucket<f32, [64x32]>, !ddp.bucket<f32, [64x2]>) -> !ddp.bucket<f32, [32x2]>
// CHECK-NEXT:     %[[R3:.+]] = ddp.all_reduce sum %[[Q]] on @dp as "b0" {ddp.hook = #ddp.allreduce} : !ddp.bucket<f32, [32x2]>
// CHECK-NEXT:     %[[D1:.+]] = ddp.scale %[[R3]] by_world_of @dp : !ddp.bucket<f32, [32x2]>
// CHECK-NEXT:     %[[MHAT:.+]] = ddp.matmul transpose_rhs %[[O1]], %[[D1]] : (!ddp.bucket<f32, [64x2]>, !ddp.bucket<f32, [32x2]>) -> !ddp.bucket<f32, [64x32]>
// CHECK-NEXT:     %[[C:.+]] = ddp.concat %[[MHAT]], %[[D]] order [0, 1] : !ddp.bucket<f32, [64x32]>, !ddp.bucket<f32, [64]> -> !ddp.bucket<f32, [64x32, 64]>
// CHECK-NEXT:     %[[E:.+]] = ddp.sub %[[M]], %[[C]] : !ddp.bucket<f32, [64x32, 64]>, !ddp.bucket<f32, [64x32, 64]>
// CHECK-NEXT:     ddp.store %[[D1]], @b0.q : !ddp.bucket<f32, [32x2]>
// CHECK-NEXT:     ddp.store %[[E]], @b0.error : !ddp.bucket<f32, [64x32, 64]>
// CHECK-NEXT:     scf.yield %[[C]] : !ddp.bucket<f32, [64x32, 64]>
// CHECK-NEXT:   }
// CHECK-NEXT:   %[[K1:.+]] = arith.constant 1 : i64
// CHECK-NEXT:   %[[NEXT:.+]] = arith.addi %[[ITER]], %[[K1]] : i64
// CHECK-NEXT:   ddp.store %[[NEXT]], @powersgd.iter : i64
// CHECK-NEXT:   return %[[OUT]] : !ddp.bucket<f32, [64x32, 64]>
func.func @mean(%b: !ddp.bucket<f32, [64x32, 64]>)
    -> !ddp.bucket<f32, [64x32, 64]> {
  %r = ddp.all_reduce mean %b on @dp as "b0"
      {ddp.hook = #ddp.powersgd<matrix_approximation_rank = 2,
                                start_powerSGD_iter = 2>}
      : !ddp.bucket<f32, [64x32, 64]>
  return %r : !ddp.bucket<f32, [64x32, 64]>
}
// CHECK: ddp.bucket_info "b0" mean on @dp hook #ddp.powersgd<matrix_approximation_rank = 2, start_powerSGD_iter = 2> wire f32 bytes 1024 state_bytes 8704 : !ddp.bucket<f32, [64x32, 64]>

// -----

// With `sum` neither Q nor the other members are divided; the error is that of
// the mean.

ddp.process_group @dp

// CHECK-LABEL: func.func @sum(
// CHECK-SAME:    %[[ARG0:[a-z0-9]+]]: !ddp.bucket<f32, [64x32, 64]>) -> !ddp.bucket<f32, [64x32, 64]>
// CHECK-NEXT:   %[[ITER:.+]] = ddp.load @powersgd.iter : i64
// CHECK-NEXT:   %[[K:.+]] = arith.constant 2 : i64
// CHECK-NEXT:   %[[IS:.+]] = arith.cmpi slt, %[[ITER]], %[[K]] : i64
// CHECK-NEXT:   %[[OUT:.+]] = scf.if %[[IS]] -> (!ddp.bucket<f32, [64x32, 64]>) {
// CHECK-NEXT:     %[[R:.+]] = ddp.all_reduce sum %[[ARG0]] on @dp as "b0" {ddp.hook = #ddp.allreduce} : !ddp.bucket<f32, [64x32, 64]>
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
// CHECK-NEXT:     %[[O1:.+]] = ddp.orthogonalize %[[R1]] epsilon 0.000000e+00 : !ddp.bucket<f32, [64x1]>
// CHECK-NEXT:     %[[Q:.+]] = ddp.matmul transpose_lhs %[[X]], %[[O1]] : (!ddp.bucket<f32, [64x32]>, !ddp.bucket<f32, [64x1]>) -> !ddp.bucket<f32, [32x1]>
// CHECK-NEXT:     %[[R3:.+]] = ddp.all_reduce sum %[[Q]] on @dp as "b0" {ddp.hook = #ddp.allreduce} : !ddp.bucket<f32, [32x1]>
// CHECK-NEXT:     %[[MHAT:.+]] = ddp.matmul transpose_rhs %[[O1]], %[[R3]] : (!ddp.bucket<f32, [64x1]>, !ddp.bucket<f32, [32x1]>) -> !ddp.bucket<f32, [64x32]>
// CHECK-NEXT:     %[[C:.+]] = ddp.concat %[[MHAT]], %[[R2]] order [0, 1] : !ddp.bucket<f32, [64x32]>, !ddp.bucket<f32, [64]> -> !ddp.bucket<f32, [64x32, 64]>
// CHECK-NEXT:     %[[D:.+]] = ddp.scale %[[C]] by_world_of @dp : !ddp.bucket<f32, [64x32, 64]>
// CHECK-NEXT:     %[[E:.+]] = ddp.sub %[[M]], %[[D]] : !ddp.bucket<f32, [64x32, 64]>, !ddp.bucket<f32, [64x32, 64]>
// CHECK-NEXT:     ddp.store %[[R3]], @b0.q : !ddp.bucket<f32, [32x1]>
// CHECK-NEXT:     ddp.store %[[E]], @b0.error : !ddp.bucket<f32, [64x32, 64]>
// CHECK-NEXT:     scf.yield %[[C]] : !ddp.bucket<f32, [64x32, 64]>
// CHECK-NEXT:   }
// CHECK-NEXT:   %[[K1:.+]] = arith.constant 1 : i64
// CHECK-NEXT:   %[[NEXT:.+]] = arith.addi %[[ITER]], %[[K1]] : i64
// CHECK-NEXT:   ddp.store %[[NEXT]], @powersgd.iter : i64
// CHECK-NEXT:   return %[[OUT]] : !ddp.bucket<f32, [64x32, 64]>
func.func @sum(%b: !ddp.bucket<f32, [64x32, 64]>)
    -> !ddp.bucket<f32, [64x32, 64]> {
  %r = ddp.all_reduce sum %b on @dp as "b0"
      {ddp.hook = #ddp.powersgd<start_powerSGD_iter = 2>}
      : !ddp.bucket<f32, [64x32, 64]>
  return %r : !ddp.bucket<f32, [64x32, 64]>
}

// -----

// Nothing is compressed: matrices that would not become smaller by half, a
// vector, a scalar, one row, one column, nothing at all. Q has no members, but
// it is drawn, so that the generator goes on as PyTorch's does.

ddp.process_group @dp

// CHECK:      ddp.state @powersgd.iter : i64 replicated zero
// CHECK-NEXT: ddp.state @powersgd.generator : tensor<625xi32> replicated mt19937 seed 0
// CHECK-NEXT: ddp.state @b0.error : !ddp.bucket<f32, [3x5, 100, scalar, 1x9, 9x1, 0x7]> per_rank zero
// CHECK-NEXT: ddp.state @b0.q : !ddp.bucket<f32, []> replicated normal from @powersgd.generator draws []
// CHECK-LABEL: func.func @nothing(
// CHECK-SAME:    %[[ARG0:[a-z0-9]+]]: !ddp.bucket<f32, [3x5, 100, scalar, 1x9, 9x1, 0x7]>) -> !ddp.bucket<f32, [3x5, 100, scalar, 1x9, 9x1, 0x7]>
// CHECK-NEXT:   %[[ITER:.+]] = ddp.load @powersgd.iter : i64
// CHECK-NEXT:   %[[K:.+]] = arith.constant 1000 : i64
// CHECK-NEXT:   %[[IS:.+]] = arith.cmpi slt, %[[ITER]], %[[K]] : i64
// CHECK-NEXT:   %[[OUT:.+]] = scf.if %[[IS]] -> (!ddp.bucket<f32, [3x5, 100, scalar, 1x9, 9x1, 0x7]>) {
// CHECK-NEXT:     %[[R:.+]] = ddp.all_reduce mean %[[ARG0]] on @dp as "b0" {ddp.hook = #ddp.allreduce} : !ddp.bucket<f32, [3x5, 100, scalar, 1x9, 9x1, 0x7]>
// CHECK-NEXT:     scf.yield %[[R]] : !ddp.bucket<f32, [3x5, 100, scalar, 1x9, 9x1, 0x7]>
// CHECK-NEXT:   } else {
// CHECK-NEXT:     ddp.count_compression "b0" before 134 after 134 at %[[ITER]] every 10000
// CHECK-NEXT:     %[[ERROR:.+]] = ddp.load @b0.error : !ddp.bucket<f32, [3x5, 100, scalar, 1x9, 9x1, 0x7]>
// CHECK-NEXT:     %[[LASTQ:.+]] = ddp.load @b0.q : !ddp.bucket<f32, []>
// CHECK-NEXT:     %[[M:.+]] = ddp.add %[[ARG0]], %[[ERROR]] : !ddp.bucket<f32, [3x5, 100, scalar, 1x9, 9x1, 0x7]>, !ddp.bucket<f32, [3x5, 100, scalar, 1x9, 9x1, 0x7]>
// CHECK-NEXT:     %[[X:.+]] = ddp.extract %[[M]] [0, 1, 2, 3, 4, 5] : !ddp.bucket<f32, [3x5, 100, scalar, 1x9, 9x1, 0x7]>
// CHECK-NEXT:     %[[R1:.+]] = ddp.all_reduce sum %[[X]] on @dp as "b0" {ddp.hook = #ddp.allreduce} : !ddp.bucket<f32, [3x5, 100, scalar, 1x9, 9x1, 0x7]>
// CHECK-NEXT:     %[[D:.+]] = ddp.scale %[[R1]] by_world_of @dp : !ddp.bucket<f32, [3x5, 100, scalar, 1x9, 9x1, 0x7]>
// CHECK-NEXT:     %[[C:.+]] = ddp.concat %[[D]] order [0, 1, 2, 3, 4, 5] : !ddp.bucket<f32, [3x5, 100, scalar, 1x9, 9x1, 0x7]> -> !ddp.bucket<f32, [3x5, 100, scalar, 1x9, 9x1, 0x7]>
// CHECK-NEXT:     %[[E:.+]] = ddp.sub %[[M]], %[[C]] : !ddp.bucket<f32, [3x5, 100, scalar, 1x9, 9x1, 0x7]>, !ddp.bucket<f32, [3x5, 100, scalar, 1x9, 9x1, 0x7]>
// CHECK-NEXT:     ddp.store %[[E]], @b0.error : !ddp.bucket<f32, [3x5, 100, scalar, 1x9, 9x1, 0x7]>
// CHECK-NEXT:     scf.yield %[[C]] : !ddp.bucket<f32, [3x5, 100, scalar, 1x9, 9x1, 0x7]>
// CHECK-NEXT:   }
// CHECK-NEXT:   %[[K1:.+]] = arith.constant 1 : i64
// CHECK-NEXT:   %[[NEXT:.+]] = arith.addi %[[ITER]], %[[K1]] : i64
// CHECK-NEXT:   ddp.store %[[NEXT]], @powersgd.iter : i64
// CHECK-NEXT:   return %[[OUT]] : !ddp.bucket<f32, [3x5, 100, scalar, 1x9, 9x1, 0x7]>
func.func @nothing(%b: !ddp.bucket<f32, [3x5, 100, scalar, 1x9, 9x1, 0x7]>)
    -> !ddp.bucket<f32, [3x5, 100, scalar, 1x9, 9x1, 0x7]> {
  %r = ddp.all_reduce mean %b on @dp as "b0" {ddp.hook = #ddp.powersgd}
      : !ddp.bucket<f32, [3x5, 100, scalar, 1x9, 9x1, 0x7]>
  return %r : !ddp.bucket<f32, [3x5, 100, scalar, 1x9, 9x1, 0x7]>
}
// CHECK: ddp.bucket_info "b0" mean on @dp hook #ddp.powersgd wire f32 bytes 536 state_bytes 536 : !ddp.bucket<f32, [3x5, 100, scalar, 1x9, 9x1, 0x7]>

// -----

// Everything is compressed.

ddp.process_group @dp

// CHECK-LABEL: func.func @everything(
// CHECK-SAME:    %[[ARG0:[a-z0-9]+]]: !ddp.bucket<f64, [16x16]>) -> !ddp.bucket<f64, [16x16]>
// CHECK-NEXT:   %[[ITER:.+]] = ddp.load @powersgd.iter : i64
// CHECK-NEXT:   %[[K:.+]] = arith.constant 1000 : i64
// CHECK-NEXT:   %[[IS:.+]] = arith.cmpi slt, %[[ITER]], %[[K]] : i64
// CHECK-NEXT:   %[[OUT:.+]] = scf.if %[[IS]] -> (!ddp.bucket<f64, [16x16]>) {
// CHECK-NEXT:     %[[R:.+]] = ddp.all_reduce mean %[[ARG0]] on @dp as "b0" {ddp.hook = #ddp.allreduce} : !ddp.bucket<f64, [16x16]>
// CHECK-NEXT:     scf.yield %[[R]] : !ddp.bucket<f64, [16x16]>
// CHECK-NEXT:   } else {
// CHECK-NEXT:     ddp.count_compression "b0" before 256 after 32 at %[[ITER]] every 10000
// CHECK-NEXT:     %[[ERROR:.+]] = ddp.load @b0.error : !ddp.bucket<f64, [16x16]>
// CHECK-NEXT:     %[[LASTQ:.+]] = ddp.load @b0.q : !ddp.bucket<f64, [16x1]>
// CHECK-NEXT:     %[[O:.+]] = ddp.orthogonalize %[[LASTQ]] epsilon 1.000000e-08 : !ddp.bucket<f64, [16x1]>
// CHECK-NEXT:     %[[M:.+]] = ddp.add %[[ARG0]], %[[ERROR]] : !ddp.bucket<f64, [16x16]>, !ddp.bucket<f64, [16x16]>
// CHECK-NEXT:     %[[X:.+]] = ddp.extract %[[M]] [0] : !ddp.bucket<f64, [16x16]>
// CHECK-NEXT:     %[[P:.+]] = ddp.matmul %[[X]], %[[O]] : (!ddp.bucket<f64, [16x16]>, !ddp.bucket<f64, [16x1]>) -> !ddp.bucket<f64, [16x1]>
// CHECK-NEXT:     %[[R1:.+]] = ddp.all_reduce sum %[[P]] on @dp as "b0" {ddp.hook = #ddp.allreduce} : !ddp.bucket<f64, [16x1]>
// CHECK-NEXT:     %[[O1:.+]] = ddp.orthogonalize %[[R1]] epsilon 1.000000e-08 : !ddp.bucket<f64, [16x1]>
// CHECK-NEXT:     %[[Q:.+]] = ddp.matmul transpose_lhs %[[X]], %[[O1]] : (!ddp.bucket<f64, [16x16]>, !ddp.bucket<f64, [16x1]>) -> !ddp.bucket<f64, [16x1]>
// CHECK-NEXT:     %[[R2:.+]] = ddp.all_reduce sum %[[Q]] on @dp as "b0" {ddp.hook = #ddp.allreduce} : !ddp.bucket<f64, [16x1]>
// CHECK-NEXT:     %[[D:.+]] = ddp.scale %[[R2]] by_world_of @dp : !ddp.bucket<f64, [16x1]>
// CHECK-NEXT:     %[[MHAT:.+]] = ddp.matmul transpose_rhs %[[O1]], %[[D]] : (!ddp.bucket<f64, [16x1]>, !ddp.bucket<f64, [16x1]>) -> !ddp.bucket<f64, [16x16]>
// CHECK-NEXT:     %[[C:.+]] = ddp.concat %[[MHAT]] order [0] : !ddp.bucket<f64, [16x16]> -> !ddp.bucket<f64, [16x16]>
// CHECK-NEXT:     %[[E:.+]] = ddp.sub %[[M]], %[[C]] : !ddp.bucket<f64, [16x16]>, !ddp.bucket<f64, [16x16]>
// CHECK-NEXT:     ddp.store %[[D]], @b0.q : !ddp.bucket<f64, [16x1]>
// CHECK-NEXT:     ddp.store %[[E]], @b0.error : !ddp.bucket<f64, [16x16]>
// CHECK-NEXT:     scf.yield %[[C]] : !ddp.bucket<f64, [16x16]>
// CHECK-NEXT:   }
// CHECK-NEXT:   %[[K1:.+]] = arith.constant 1 : i64
// CHECK-NEXT:   %[[NEXT:.+]] = arith.addi %[[ITER]], %[[K1]] : i64
// CHECK-NEXT:   ddp.store %[[NEXT]], @powersgd.iter : i64
// CHECK-NEXT:   return %[[OUT]] : !ddp.bucket<f64, [16x16]>
func.func @everything(%b: !ddp.bucket<f64, [16x16]>)
    -> !ddp.bucket<f64, [16x16]> {
  %r = ddp.all_reduce mean %b on @dp as "b0"
      {ddp.hook = #ddp.powersgd<orthogonalization_epsilon = 1.0e-8 : f64>}
      : !ddp.bucket<f64, [16x16]>
  return %r : !ddp.bucket<f64, [16x16]>
}

// -----

// Matrices come first, grouped by their shape as 2-D views in the order in which
// the shapes are first seen: [0, 4], [2], of which 4 has four dimensions; then
// the others, in order. Rank 4 is more than the 3 rows of [5]'s shape allow,
// where 3 columns would not be smaller by half.

ddp.process_group @dp

// CHECK:      ddp.state @powersgd.iter : i64 replicated zero
// CHECK-NEXT: ddp.state @powersgd.generator : tensor<625xi32> replicated mt19937 seed 0
// CHECK-NEXT: ddp.state @b0.error : !ddp.bucket<f32, [32x36, 36, 64x64, 32, 32x4x3x3, 3x400, scalar]> per_rank zero
// CHECK-NEXT: ddp.state @b0.q : !ddp.bucket<f32, [36x4, 36x4, 64x4]> replicated normal from @powersgd.generator draws [144, 144, 256]
// CHECK-LABEL: func.func @interleaved(
// CHECK-SAME:    %[[ARG0:[a-z0-9]+]]: !ddp.bucket<f32, [32x36, 36, 64x64, 32, 32x4x3x3, 3x400, scalar]>) -> !ddp.bucket<f32, [32x36, 36, 64x64, 32, 32x4x3x3, 3x400, scalar]>
// CHECK-NEXT:   %[[ITER:.+]] = ddp.load @powersgd.iter : i64
// CHECK-NEXT:   %[[K:.+]] = arith.constant 1000 : i64
// CHECK-NEXT:   %[[IS:.+]] = arith.cmpi slt, %[[ITER]], %[[K]] : i64
// CHECK-NEXT:   %[[OUT:.+]] = scf.if %[[IS]] -> (!ddp.bucket<f32, [32x36, 36, 64x64, 32, 32x4x3x3, 3x400, scalar]>) {
// CHECK-NEXT:     %[[R:.+]] = ddp.all_reduce mean %[[ARG0]] on @dp as "b0" {ddp.hook = #ddp.allreduce} : !ddp.bucket<f32, [32x36, 36, 64x64, 32, 32x4x3x3, 3x400, scalar]>
// CHECK-NEXT:     scf.yield %[[R]] : !ddp.bucket<f32, [32x36, 36, 64x64, 32, 32x4x3x3, 3x400, scalar]>
// CHECK-NEXT:   } else {
// CHECK-NEXT:     ddp.count_compression "b0" before 7669 after 2325 at %[[ITER]] every 10000
// CHECK-NEXT:     %[[ERROR:.+]] = ddp.load @b0.error : !ddp.bucket<f32, [32x36, 36, 64x64, 32, 32x4x3x3, 3x400, scalar]>
// CHECK-NEXT:     %[[LASTQ:.+]] = ddp.load @b0.q : !ddp.bucket<f32, [36x4, 36x4, 64x4]>
// CHECK-NEXT:     %[[O:.+]] = ddp.orthogonalize %[[LASTQ]] epsilon 0.000000e+00 : !ddp.bucket<f32, [36x4, 36x4, 64x4]>
// CHECK-NEXT:     %[[M:.+]] = ddp.add %[[ARG0]], %[[ERROR]] : !ddp.bucket<f32, [32x36, 36, 64x64, 32, 32x4x3x3, 3x400, scalar]>, !ddp.bucket<f32, [32x36, 36, 64x64, 32, 32x4x3x3, 3x400, scalar]>
// CHECK-NEXT:     %[[X:.+]] = ddp.extract %[[M]] [0, 4, 2] : !ddp.bucket<f32, [32x36, 36, 64x64, 32, 32x4x3x3, 3x400, scalar]>
// CHECK-NEXT:     %[[P:.+]] = ddp.matmul %[[X]], %[[O]] : (!ddp.bucket<f32, [32x36, 32x4x3x3, 64x64]>, !ddp.bucket<f32, [36x4, 36x4, 64x4]>) -> !ddp.bucket<f32, [32x4, 32x4, 64x4]>
// CHECK-NEXT:     %[[X1:.+]] = ddp.extract %[[M]] [1, 3, 5, 6] : !ddp.bucket<f32, [32x36, 36, 64x64, 32, 32x4x3x3, 3x400, scalar]>
// CHECK-NEXT:     %[[R1:.+]] = ddp.all_reduce sum %[[P]] on @dp as "b0" {ddp.hook = #ddp.allreduce} : !ddp.bucket<f32, [32x4, 32x4, 64x4]>
// CHECK-NEXT:     %[[R2:.+]] = ddp.all_reduce sum %[[X1]] on @dp as "b0" {ddp.hook = #ddp.allreduce} : !ddp.bucket<f32, [36, 32, 3x400, scalar]>
// CHECK-NEXT:     %[[D:.+]] = ddp.scale %[[R2]] by_world_of @dp : !ddp.bucket<f32, [36, 32, 3x400, scalar]>
// CHECK-NEXT:     %[[O1:.+]] = ddp.orthogonalize %[[R1]] epsilon 0.000000e+00 : !ddp.bucket<f32, [32x4, 32x4, 64x4]>
// CHECK-NEXT:     %[[Q:.+]] = ddp.matmul transpose_lhs %[[X]], %[[O1]] : (!ddp.bucket<f32, [32x36, 32x4x3x3, 64x64]>, !ddp.bucket<f32, [32x4, 32x4, 64x4]>) -> !ddp.bucket<f32, [36x4, 36x4, 64x4]>
// CHECK-NEXT:     %[[R3:.+]] = ddp.all_reduce sum %[[Q]] on @dp as "b0" {ddp.hook = #ddp.allreduce} : !ddp.bucket<f32, [36x4, 36x4, 64x4]>
// CHECK-NEXT:     %[[D1:.+]] = ddp.scale %[[R3]] by_world_of @dp : !ddp.bucket<f32, [36x4, 36x4, 64x4]>
// CHECK-NEXT:     %[[MHAT:.+]] = ddp.matmul transpose_rhs %[[O1]], %[[D1]] : (!ddp.bucket<f32, [32x4, 32x4, 64x4]>, !ddp.bucket<f32, [36x4, 36x4, 64x4]>) -> !ddp.bucket<f32, [32x36, 32x4x3x3, 64x64]>
// CHECK-NEXT:     %[[C:.+]] = ddp.concat %[[MHAT]], %[[D]] order [0, 4, 2, 1, 3, 5, 6] : !ddp.bucket<f32, [32x36, 32x4x3x3, 64x64]>, !ddp.bucket<f32, [36, 32, 3x400, scalar]> -> !ddp.bucket<f32, [32x36, 36, 64x64, 32, 32x4x3x3, 3x400, scalar]>
// CHECK-NEXT:     %[[E:.+]] = ddp.sub %[[M]], %[[C]] : !ddp.bucket<f32, [32x36, 36, 64x64, 32, 32x4x3x3, 3x400, scalar]>, !ddp.bucket<f32, [32x36, 36, 64x64, 32, 32x4x3x3, 3x400, scalar]>
// CHECK-NEXT:     ddp.store %[[D1]], @b0.q : !ddp.bucket<f32, [36x4, 36x4, 64x4]>
// CHECK-NEXT:     ddp.store %[[E]], @b0.error : !ddp.bucket<f32, [32x36, 36, 64x64, 32, 32x4x3x3, 3x400, scalar]>
// CHECK-NEXT:     scf.yield %[[C]] : !ddp.bucket<f32, [32x36, 36, 64x64, 32, 32x4x3x3, 3x400, scalar]>
// CHECK-NEXT:   }
// CHECK-NEXT:   %[[K1:.+]] = arith.constant 1 : i64
// CHECK-NEXT:   %[[NEXT:.+]] = arith.addi %[[ITER]], %[[K1]] : i64
// CHECK-NEXT:   ddp.store %[[NEXT]], @powersgd.iter : i64
// CHECK-NEXT:   return %[[OUT]] : !ddp.bucket<f32, [32x36, 36, 64x64, 32, 32x4x3x3, 3x400, scalar]>
func.func @interleaved(
    %b: !ddp.bucket<f32, [32x36, 36, 64x64, 32, 32x4x3x3, 3x400, scalar]>)
    -> !ddp.bucket<f32, [32x36, 36, 64x64, 32, 32x4x3x3, 3x400, scalar]> {
  %r = ddp.all_reduce mean %b on @dp as "b0"
      {ddp.hook = #ddp.powersgd<matrix_approximation_rank = 4>}
      : !ddp.bucket<f32, [32x36, 36, 64x64, 32, 32x4x3x3, 3x400, scalar]>
  return %r
      : !ddp.bucket<f32, [32x36, 36, 64x64, 32, 32x4x3x3, 3x400, scalar]>
}
// CHECK: ddp.bucket_info "b0" mean on @dp hook #ddp.powersgd<matrix_approximation_rank = 4> wire f32 bytes 9300 state_bytes 32852 : !ddp.bucket<f32, [32x36, 36, 64x64, 32, 32x4x3x3, 3x400, scalar]>
