// RUN: ddphook-opt %s --ddp-expand-hooks --ddp-pack-collectives --ddp-fuse --ddp-group-matrices="group-mb=0.0003" -split-input-file | FileCheck %s
// RUN: ddphook-opt %s --ddp-expand-hooks --ddp-pack-collectives --ddp-fuse -split-input-file > %t.fused
// RUN: ddphook-opt %t.fused --ddp-group-matrices -split-input-file | diff %t.fused -
// RUN: ddphook-opt %t.fused --ddp-group-matrices="group-mb=25" -split-input-file | diff %t.fused -
// RUN: ddphook-opt %s --ddp-expand-hooks --ddp-fuse --ddp-group-matrices="group-mb=0.0003" -split-input-file | FileCheck %s --check-prefix=APART
// RUN: ddphook-opt %s --ddp-expand-hooks --ddp-pack-collectives --ddp-fuse --ddp-group-matrices="group-mb=0.0003" -split-input-file --remarks-filter='ddp-group-.*' -o /dev/null 2>&1 | FileCheck %s --check-prefix=REMARK

// Groups of at most 314 bytes: two of 288 here, the vector with the first. Every
// group goes through all stages before the next one begins.

ddp.process_group @dp

// CHECK-LABEL: func.func @groups(
// CHECK-SAME:    %[[ARG0:[a-z0-9]+]]: !ddp.bucket<f32, [8x9, 5, 9x8]>) -> !ddp.bucket<f32, [8x9, 5, 9x8]>
// CHECK-NEXT:   %[[ITER:.+]] = ddp.load @powersgd.iter : i64
// CHECK-NEXT:   %[[K:.+]] = arith.constant 1000 : i64
// CHECK-NEXT:   %[[IS:.+]] = arith.cmpi slt, %[[ITER]], %[[K]] : i64
// CHECK-NEXT:   %[[OUT:.+]] = scf.if %[[IS]] -> (!ddp.bucket<f32, [8x9, 5, 9x8]>) {
// CHECK-NEXT:     %[[R:.+]] = ddp.all_reduce mean %[[ARG0]] on @dp as "b0" {ddp.hook = #ddp.allreduce} : !ddp.bucket<f32, [8x9, 5, 9x8]>
// CHECK-NEXT:     scf.yield %[[R]] : !ddp.bucket<f32, [8x9, 5, 9x8]>
// CHECK-NEXT:   } else {
// CHECK-NEXT:     ddp.count_compression "b0" before 149 after 39 at %[[ITER]] every 10000
// CHECK-NEXT:     %[[ERROR:.+]] = ddp.load @b0.error : !ddp.bucket<f32, [8x9, 5, 9x8]>
// CHECK-NEXT:     %[[LASTQ:.+]] = ddp.load @b0.q : !ddp.bucket<f32, [9x1, 8x1]>
// CHECK-NEXT:     %[[O:.+]] = ddp.orthogonalize %[[LASTQ]] epsilon 0.000000e+00 : !ddp.bucket<f32, [9x1, 8x1]>
// CHECK-NEXT:     %[[X:.+]] = ddp.extract %[[O]] [0] : !ddp.bucket<f32, [9x1, 8x1]>
// CHECK-NEXT:     %[[M:.+]]:2 = ddp.project %[[ARG0]] plus %[[ERROR]] members [0] others [1] by %[[X]] packed : (!ddp.bucket<f32, [8x9, 5, 9x8]>, !ddp.bucket<f32, [8x9, 5, 9x8]>, !ddp.bucket<f32, [9x1]>) -> (!ddp.bucket<f32, [8x9, 5, 9x8]>, !ddp.bucket<f32, [8x1, 5]>)
// CHECK-NEXT:     %[[R1:.+]] = ddp.all_reduce sum %[[M]]#1 on @dp as "b0" {ddp.hook = #ddp.allreduce} : !ddp.bucket<f32, [8x1, 5]>
// CHECK-NEXT:     %[[X1:.+]] = ddp.extract %[[R1]] [1] : !ddp.bucket<f32, [8x1, 5]>
// CHECK-NEXT:     %[[X2:.+]] = ddp.extract %[[R1]] [0] : !ddp.bucket<f32, [8x1, 5]>
// CHECK-NEXT:     %[[D:.+]] = ddp.scale %[[X1]] by_world_of @dp : !ddp.bucket<f32, [5]>
// CHECK-NEXT:     %[[O1:.+]] = ddp.orthogonalize %[[X2]] epsilon 0.000000e+00 : !ddp.bucket<f32, [8x1]>
// CHECK-NEXT:     %[[Q:.+]] = ddp.matmul transpose_lhs %[[M]]#0 members [0], %[[O1]] : (!ddp.bucket<f32, [8x9, 5, 9x8]>, !ddp.bucket<f32, [8x1]>) -> !ddp.bucket<f32, [9x1]>
// CHECK-NEXT:     %[[R2:.+]] = ddp.all_reduce sum %[[Q]] on @dp as "b0" {ddp.hook = #ddp.allreduce} : !ddp.bucket<f32, [9x1]>
// CHECK-NEXT:     %[[D1:.+]] = ddp.scale %[[R2]] by_world_of @dp : !ddp.bucket<f32, [9x1]>
// CHECK-NEXT:     %[[OUT1:.+]]:2 = ddp.reconstruct %[[O1]], %[[D1]] members [0] others [1] rest %[[D]] from %[[M]]#0 base %[[ARG0]] : (!ddp.bucket<f32, [8x1]>, !ddp.bucket<f32, [9x1]>, !ddp.bucket<f32, [5]>, !ddp.bucket<f32, [8x9, 5, 9x8]>, !ddp.bucket<f32, [8x9, 5, 9x8]>) -> (!ddp.bucket<f32, [8x9, 5, 9x8]>, !ddp.bucket<f32, [8x9, 5, 9x8]>)
// CHECK-NEXT:     %[[X3:.+]] = ddp.extract %[[O]] [1] : !ddp.bucket<f32, [9x1, 8x1]>
// CHECK-NEXT:     %[[M1:.+]]:2 = ddp.project %[[OUT1]]#0 plus %[[OUT1]]#1 members [2] others [] by %[[X3]] : (!ddp.bucket<f32, [8x9, 5, 9x8]>, !ddp.bucket<f32, [8x9, 5, 9x8]>, !ddp.bucket<f32, [8x1]>) -> (!ddp.bucket<f32, [8x9, 5, 9x8]>, !ddp.bucket<f32, [9x1]>)
// CHECK-NEXT:     %[[R3:.+]] = ddp.all_reduce sum %[[M1]]#1 on @dp as "b0" {ddp.hook = #ddp.allreduce} : !ddp.bucket<f32, [9x1]>
// CHECK-NEXT:     %[[O2:.+]] = ddp.orthogonalize %[[R3]] epsilon 0.000000e+00 : !ddp.bucket<f32, [9x1]>
// CHECK-NEXT:     %[[Q1:.+]] = ddp.matmul transpose_lhs %[[M1]]#0 members [2], %[[O2]] : (!ddp.bucket<f32, [8x9, 5, 9x8]>, !ddp.bucket<f32, [9x1]>) -> !ddp.bucket<f32, [8x1]>
// CHECK-NEXT:     %[[R4:.+]] = ddp.all_reduce sum %[[Q1]] on @dp as "b0" {ddp.hook = #ddp.allreduce} : !ddp.bucket<f32, [8x1]>
// CHECK-NEXT:     %[[D2:.+]] = ddp.scale %[[R4]] by_world_of @dp : !ddp.bucket<f32, [8x1]>
// CHECK-NEXT:     %[[OUT2:.+]]:2 = ddp.reconstruct %[[O2]], %[[D2]] members [2] others [] from %[[M1]]#0 base %[[OUT1]]#0 : (!ddp.bucket<f32, [9x1]>, !ddp.bucket<f32, [8x1]>, !ddp.bucket<f32, [8x9, 5, 9x8]>, !ddp.bucket<f32, [8x9, 5, 9x8]>) -> (!ddp.bucket<f32, [8x9, 5, 9x8]>, !ddp.bucket<f32, [8x9, 5, 9x8]>)
// CHECK-NEXT:     %[[C:.+]] = ddp.concat %[[D1]], %[[D2]] order [0, 1] : !ddp.bucket<f32, [9x1]>, !ddp.bucket<f32, [8x1]> -> !ddp.bucket<f32, [9x1, 8x1]>
// CHECK-NEXT:     ddp.store %[[C]], @b0.q : !ddp.bucket<f32, [9x1, 8x1]>
// CHECK-NEXT:     ddp.store %[[OUT2]]#1, @b0.error : !ddp.bucket<f32, [8x9, 5, 9x8]>
// CHECK-NEXT:     scf.yield %[[OUT2]]#0 : !ddp.bucket<f32, [8x9, 5, 9x8]>
// CHECK-NEXT:   }
// CHECK-NEXT:   %[[K1:.+]] = arith.constant 1 : i64
// CHECK-NEXT:   %[[NEXT:.+]] = arith.addi %[[ITER]], %[[K1]] : i64
// CHECK-NEXT:   ddp.store %[[NEXT]], @powersgd.iter : i64
// CHECK-NEXT:   return %[[OUT]] : !ddp.bucket<f32, [8x9, 5, 9x8]>
// Not packed, the vector of the first group has a collective of its own.
// APART-LABEL: func.func @groups(
// APART:         %[[M:.+]]:3 = ddp.project %{{.+}} plus %{{.+}} members [0] others [1] by
// APART-NEXT:    ddp.all_reduce sum %[[M]]#1
// APART-NEXT:    ddp.all_reduce sum %[[M]]#2
// APART:         ddp.project %{{.+}} members [2] others [] by
func.func @groups(%b: !ddp.bucket<f32, [8x9, 5, 9x8]>)
    -> !ddp.bucket<f32, [8x9, 5, 9x8]> {
  %r = ddp.all_reduce mean %b on @dp as "b0" {ddp.hook = #ddp.powersgd}
      : !ddp.bucket<f32, [8x9, 5, 9x8]>
  return %r : !ddp.bucket<f32, [8x9, 5, 9x8]>
}

// -----

ddp.process_group @dp

// Without error there is no M: the bucket goes from group to group. A matrix that
// is too large is a group of its own.
// CHECK-LABEL: func.func @without_error(
// CHECK-SAME:    %[[B:.+]]: !ddp.bucket
// CHECK:         ddp.project %[[B]] members [0] others [1, 2] by
// CHECK:         ddp.matmul transpose_lhs %[[B]] members [0],
// CHECK:         %[[G:.+]] = ddp.reconstruct {{.+}} members [0] others [1, 2] rest %{{.+}} base %[[B]]
// CHECK:         ddp.project %[[G]] members [3] others [] by
// CHECK:         ddp.matmul transpose_lhs %[[G]] members [3],
// CHECK:         %[[H:.+]] = ddp.reconstruct {{.+}} members [3] others [] base %[[G]]
// CHECK-NOT:     ddp.project
// CHECK:         return
func.func @without_error(%b: !ddp.bucket<f32, [16x16, 5, scalar, 16x16]>)
    -> !ddp.bucket<f32, [16x16, 5, scalar, 16x16]> {
  %r = ddp.all_reduce mean %b on @dp as "b0"
      {ddp.hook = #ddp.powersgd<use_error_feedback = false>}
      : !ddp.bucket<f32, [16x16, 5, scalar, 16x16]>
  return %r : !ddp.bucket<f32, [16x16, 5, scalar, 16x16]>
}

// -----

ddp.process_group @dp

// On `sum` the error of each group is that of the mean. Q's members are put
// together in the order of the factors, not of the groups.
// CHECK-LABEL: func.func @sum(
// CHECK:         ddp.extract %{{.+}} [0]
// CHECK:         ddp.reconstruct {{.+}} members [0] {{.+}} by_world_of @dp
// CHECK:         ddp.extract %{{.+}} [2]
// CHECK:         ddp.reconstruct {{.+}} members [1] {{.+}} by_world_of @dp
// CHECK:         ddp.extract %{{.+}} [1]
// CHECK:         ddp.reconstruct {{.+}} members [2] {{.+}} by_world_of @dp
// CHECK:         %[[Q:.+]] = ddp.concat %{{.+}}, %{{.+}}, %{{.+}} order [0, 2, 1] : !ddp.bucket<f32, [9x1]>, !ddp.bucket<f32, [8x1]>, !ddp.bucket<f32, [9x1]> -> !ddp.bucket<f32, [9x1, 9x1, 8x1]>
// CHECK:         ddp.store %[[Q]], @b0.q
func.func @sum(%b: !ddp.bucket<f32, [8x9, 9x8, 8x9]>)
    -> !ddp.bucket<f32, [8x9, 9x8, 8x9]> {
  %r = ddp.all_reduce sum %b on @dp as "b0" {ddp.hook = #ddp.powersgd}
      : !ddp.bucket<f32, [8x9, 9x8, 8x9]>
  return %r : !ddp.bucket<f32, [8x9, 9x8, 8x9]>
}

// -----

ddp.process_group @dp

// One matrix is one group, and nothing is taken apart.
// CHECK-LABEL: func.func @one_matrix(
// CHECK:         ddp.project
// CHECK-NOT:     others
// CHECK-NOT:     ddp.project
// CHECK:         return
func.func @one_matrix(%b: !ddp.bucket<f32, [16x16, 5]>)
    -> !ddp.bucket<f32, [16x16, 5]> {
  %r = ddp.all_reduce mean %b on @dp as "b0" {ddp.hook = #ddp.powersgd}
      : !ddp.bucket<f32, [16x16, 5]>
  return %r : !ddp.bucket<f32, [16x16, 5]>
}

// -----

ddp.process_group @dp

// Other sequences are left alone, and a remark says so.
// CHECK-LABEL: func.func @other(
// CHECK-NOT:     others
// CHECK:         return
// REMARK: remark: [Missed] Group | Category:ddp-group-matrices | Remark="not a step that can be taken apart"
func.func @other(%b: !ddp.bucket<f32, [8x9, 5, 9x8]>)
    -> !ddp.bucket<f32, [8x9, 5, 9x8]> {
  %r = ddp.all_reduce mean %b on @dp as "b0"
      {ddp.hook = #ddp.powersgd<local_error_feedback = true>}
      : !ddp.bucket<f32, [8x9, 5, 9x8]>
  return %r : !ddp.bucket<f32, [8x9, 5, 9x8]>
}
