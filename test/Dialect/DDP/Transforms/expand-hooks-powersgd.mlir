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
// CHECK-DAG:    %[[ITER:.+]] = ddp.load @powersgd.iter : i64
// CHECK-DAG:    %[[START:.+]] = arith.constant 2 : i64
// CHECK:        %[[IS:.+]] = arith.cmpi slt, %[[ITER]], %[[START]] : i64
// CHECK:        %[[OUT:.+]] = scf.if %[[IS]] -> (!ddp.bucket<f32, [64x32, 64]>) {
// CHECK-NEXT:     %[[R:.+]] = ddp.all_reduce mean %[[ARG0]] on @dp as "b0" {ddp.hook = #ddp.allreduce} : !ddp.bucket<f32, [64x32, 64]>
// CHECK-NEXT:     scf.yield %[[R]]
// CHECK-NEXT:   } else {
// CHECK:          ddp.count_compression "b0" before 2112 after 256 at %[[ITER]] every 10000
// CHECK-DAG:      %[[ERROR:.+]] = ddp.load @b0.error : !ddp.bucket<f32, [64x32, 64]>
// CHECK-DAG:      %[[LASTQ:.+]] = ddp.load @b0.q : !ddp.bucket<f32, [32x2]>
// CHECK-DAG:      %[[O:.+]] = ddp.orthogonalize %[[LASTQ]] epsilon 0.000000e+00 unit_columns : !ddp.bucket<f32, [32x2]>
// CHECK-DAG:      %[[M:.+]] = ddp.add %[[ARG0]], %[[ERROR]]
// CHECK-NEXT:     %[[X:.+]] = ddp.extract %[[M]] [0] : !ddp.bucket<f32, [64x32, 64]>
// CHECK-NEXT:     %[[P:.+]] = ddp.matmul %[[X]], %[[O]] : (!ddp.bucket<f32, [64x32]>, !ddp.bucket<f32, [32x2]>) -> !ddp.bucket<f32, [64x2]>
// CHECK-NEXT:     %[[X1:.+]] = ddp.extract %[[M]] [1] : !ddp.bucket<f32, [64x32, 64]>
// CHECK-NEXT:     %[[R1:.+]] = ddp.all_reduce sum %[[P]] on @dp as "b0" {ddp.hook = #ddp.allreduce} : !ddp.bucket<f32, [64x2]>
// CHECK-NEXT:     %[[R2:.+]] = ddp.all_reduce sum %[[X1]] on @dp as "b0" {ddp.hook = #ddp.allreduce} : !ddp.bucket<f32, [64]>
// CHECK-NEXT:     %[[D:.+]] = ddp.scale %[[R2]] by_world_of @dp
// CHECK-NEXT:     %[[O1:.+]] = ddp.orthogonalize %[[R1]] epsilon 0.000000e+00 unit_columns : !ddp.bucket<f32, [64x2]>
// CHECK-NEXT:     %[[Q:.+]] = ddp.matmul transpose_lhs %[[X]], %[[O1]] {ddp.compresses = "b0"} : (!ddp.bucket<f32, [64x32]>, !ddp.bucket<f32, [64x2]>) -> !ddp.bucket<f32, [32x2]>
// CHECK-NEXT:     %[[R3:.+]] = ddp.all_reduce sum %[[Q]] on @dp as "b0" {ddp.hook = #ddp.allreduce} : !ddp.bucket<f32, [32x2]>
// CHECK-NEXT:     %[[D1:.+]] = ddp.scale %[[R3]] by_world_of @dp
// CHECK-NEXT:     %[[MHAT:.+]] = ddp.matmul transpose_rhs %[[O1]], %[[D1]] : (!ddp.bucket<f32, [64x2]>, !ddp.bucket<f32, [32x2]>) -> !ddp.bucket<f32, [64x32]>
// CHECK-NEXT:     %[[C:.+]] = ddp.concat %[[MHAT]], %[[D]] order [0, 1] : !ddp.bucket<f32, [64x32]>, !ddp.bucket<f32, [64]> -> !ddp.bucket<f32, [64x32, 64]>
// CHECK-NEXT:     %[[E:.+]] = ddp.sub %[[M]], %[[C]]
// CHECK-DAG:      ddp.store %[[D1]], @b0.q
// CHECK-DAG:      ddp.store %[[E]], @b0.error
// CHECK-NEXT:     scf.yield %[[C]]
// CHECK-NEXT:   }
// CHECK:        %[[ONE:.+]] = arith.constant 1 : i64
// CHECK:        %[[NEXT:.+]] = arith.addi %[[ITER]], %[[ONE]] : i64
// CHECK:        ddp.store %[[NEXT]], @powersgd.iter : i64
// CHECK:        return %[[OUT]]
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
// CHECK:        %[[OUT:.+]] = scf.if
// CHECK-NEXT:     ddp.all_reduce sum %{{.+}} on @dp as "b0" {ddp.hook = #ddp.allreduce} : !ddp.bucket<f32, [64x32, 64]>
// CHECK:          %[[M:.+]] = ddp.add
// CHECK-NOT:      ddp.scale
// CHECK:          %[[REST:.+]] = ddp.all_reduce sum {{.+}} : !ddp.bucket<f32, [64]>
// CHECK-NOT:      ddp.scale
// CHECK:          %[[Q:.+]] = ddp.all_reduce sum {{.+}} : !ddp.bucket<f32, [32x1]>
// CHECK-NOT:      ddp.scale
// CHECK:          %[[MHAT:.+]] = ddp.matmul transpose_rhs %{{.+}}, %[[Q]]
// CHECK-NOT:      ddp.scale
// CHECK:          %[[C:.+]] = ddp.concat %[[MHAT]], %[[REST]] order [0, 1]
// CHECK:          %[[D:.+]] = ddp.scale %[[C]] by_world_of @dp : !ddp.bucket<f32, [64x32, 64]>
// CHECK:          %[[E:.+]] = ddp.sub %[[M]], %[[D]]
// CHECK-DAG:      ddp.store %[[Q]], @b0.q
// CHECK-DAG:      ddp.store %[[E]], @b0.error
// CHECK:          scf.yield %[[C]]
// CHECK:        return %[[OUT]]
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

// CHECK: ddp.state @b0.error : !ddp.bucket<f32, [3x5, 100, scalar, 1x9, 9x1, 0x7]> per_rank zero
// CHECK: ddp.state @b0.q : !ddp.bucket<f32, []> replicated normal from @powersgd.generator draws []
// CHECK-LABEL: func.func @nothing(
// CHECK-SAME:    %[[ARG0:[a-z0-9]+]]: !ddp.bucket<f32, [3x5, 100, scalar, 1x9, 9x1, 0x7]>)
// CHECK:        } else {
// CHECK:          ddp.count_compression "b0" before 134 after 134
// CHECK-NOT:      ddp.matmul
// CHECK-NOT:      ddp.orthogonalize
// CHECK:          %[[M:.+]] = ddp.add %[[ARG0]], %{{.+}}
// CHECK-NEXT:     %[[X:.+]] = ddp.extract %[[M]] [0, 1, 2, 3, 4, 5]
// CHECK-NEXT:     %[[R:.+]] = ddp.all_reduce sum %[[X]]
// CHECK-NEXT:     %[[D:.+]] = ddp.scale %[[R]] by_world_of @dp
// CHECK-NEXT:     %[[C:.+]] = ddp.concat %[[D]] order [0, 1, 2, 3, 4, 5]
// CHECK-NEXT:     %[[E:.+]] = ddp.sub %[[M]], %[[C]]
// CHECK-NEXT:     ddp.store %[[E]], @b0.error
// CHECK-NEXT:     scf.yield %[[C]]
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
// CHECK:          ddp.count_compression "b0" before 256 after 32
// CHECK:          ddp.orthogonalize %{{.+}} epsilon 1.000000e-08 unit_columns : !ddp.bucket<f64, [16x1]>
// CHECK:          %[[M:.+]] = ddp.add
// CHECK-NEXT:     %[[X:.+]] = ddp.extract %[[M]] [0] : !ddp.bucket<f64, [16x16]>
// CHECK-NEXT:     %[[P:.+]] = ddp.matmul %[[X]],
// CHECK-NEXT:     %[[R:.+]] = ddp.all_reduce sum %[[P]]
// CHECK-NEXT:     %[[O:.+]] = ddp.orthogonalize %[[R]] epsilon 1.000000e-08 unit_columns : !ddp.bucket<f64, [16x1]>
// CHECK:          %[[MHAT:.+]] = ddp.matmul transpose_rhs %[[O]],
// CHECK-NEXT:     ddp.concat %[[MHAT]] order [0] : !ddp.bucket<f64, [16x16]> -> !ddp.bucket<f64, [16x16]>
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

// CHECK: ddp.state @b0.error : !ddp.bucket<f32, [32x36, 36, 64x64, 32, 32x4x3x3, 3x400, scalar]> per_rank zero
// CHECK: ddp.state @b0.q : !ddp.bucket<f32, [36x4, 36x4, 64x4]> replicated normal from @powersgd.generator draws [144, 144, 256]
// CHECK-LABEL: func.func @interleaved(
// CHECK:          ddp.count_compression "b0" before 7669 after 2325
// CHECK:          %[[M:.+]] = ddp.add
// CHECK-DAG:      %[[X:.+]] = ddp.extract %[[M]] [0, 4, 2] :
// CHECK-DAG:      %[[REST:.+]] = ddp.extract %[[M]] [1, 3, 5, 6] :
// CHECK-DAG:      %[[P:.+]] = ddp.matmul %[[X]], %{{.+}} : (!ddp.bucket<f32, [32x36, 32x4x3x3, 64x64]>, !ddp.bucket<f32, [36x4, 36x4, 64x4]>) -> !ddp.bucket<f32, [32x4, 32x4, 64x4]>
// CHECK:          ddp.all_reduce sum %[[P]]
// CHECK:          %[[R:.+]] = ddp.all_reduce sum %[[REST]] {{.+}} : !ddp.bucket<f32, [36, 32, 3x400, scalar]>
// CHECK:          %[[D:.+]] = ddp.scale %[[R]]
// CHECK:          ddp.matmul transpose_lhs %[[X]], %{{.+}} {ddp.compresses = "b0"} : (!ddp.bucket<f32, [32x36, 32x4x3x3, 64x64]>, !ddp.bucket<f32, [32x4, 32x4, 64x4]>) -> !ddp.bucket<f32, [36x4, 36x4, 64x4]>
// CHECK:          %[[MHAT:.+]] = ddp.matmul transpose_rhs {{.+}} -> !ddp.bucket<f32, [32x36, 32x4x3x3, 64x64]>
// CHECK:          ddp.concat %[[MHAT]], %[[D]] order [0, 4, 2, 1, 3, 5, 6] :
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
