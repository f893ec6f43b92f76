// RUN: ddphook-opt %s --ddp-expand-hooks="group-mb=0.0003" -split-input-file | FileCheck %s
// RUN: ddphook-opt %s --ddp-expand-hooks="group-mb=0.0003" --ddp-pack-collectives --ddp-fuse -split-input-file | FileCheck %s --check-prefix=FUSED
// RUN: ddphook-opt %s --ddp-expand-hooks -split-input-file > %t.whole
// RUN: ddphook-opt %s --ddp-expand-hooks="group-mb=0" -split-input-file | diff %t.whole -
// RUN: ddphook-opt %s --ddp-expand-hooks="group-mb=25" -split-input-file | diff %t.whole -
// RUN: ddphook-opt %s --ddp-expand-hooks="group-mb=inf" -split-input-file | diff %t.whole -
// RUN: ddphook-opt %s --ddp-expand-hooks="group-mb=0.0003" -split-input-file --remarks-filter-missed='ddp-expand-.*' -o /dev/null 2>&1 | FileCheck %s --check-prefix=REMARK
// RUN: not ddphook-opt %s --ddp-expand-hooks="group-mb=-1" -split-input-file 2>&1 | FileCheck %s --check-prefix=NEGATIVE
// RUN: not ddphook-opt %s --ddp-expand-hooks="group-mb=nan" -split-input-file 2>&1 | FileCheck %s --check-prefix=NUMBER

// NEGATIVE: error: expected group-mb to be at least 0, but got -1
// NUMBER: error: expected group-mb to be at least 0, but got nan

// Groups of at most 314 bytes: two of 288 here, the vector with the first. Every
// group goes through all stages before the next one begins.

ddp.process_group @dp

// CHECK-LABEL: func.func @groups(
// CHECK-SAME:    %[[B:[a-z0-9]+]]: !ddp.bucket<f32, [8x9, 5, 9x8]>)
// CHECK:         } else {
// CHECK:           %[[ERROR:.+]] = ddp.load @b0.error
// CHECK:           %[[BASIS:.+]] = ddp.orthogonalize
// CHECK:           %[[G:.+]]:2 = ddp.split %[[B]] : !ddp.bucket<f32, [8x9, 5, 9x8]> -> !ddp.bucket<f32, [8x9, 5]>, !ddp.bucket<f32, [9x8]>
// CHECK:           %[[E:.+]]:2 = ddp.split %[[ERROR]] : !ddp.bucket<f32, [8x9, 5, 9x8]> -> !ddp.bucket<f32, [8x9, 5]>, !ddp.bucket<f32, [9x8]>
// CHECK:           %[[Q:.+]]:2 = ddp.split %[[BASIS]] : !ddp.bucket<f32, [9x1, 8x1]> -> !ddp.bucket<f32, [9x1]>, !ddp.bucket<f32, [8x1]>
// CHECK:           %[[M0:.+]] = ddp.add %[[G]]#0, %[[E]]#0
// CHECK:           ddp.matmul %{{.+}}, %[[Q]]#0 :
// CHECK:           %[[Q0:.+]] = ddp.scale %{{.+}} by_world_of @dp : !ddp.bucket<f32, [9x1]>
// CHECK:           %[[OUT0:.+]] = ddp.concat %{{.+}}, %{{.+}} order [0, 1] : !ddp.bucket<f32, [8x9]>, !ddp.bucket<f32, [5]>
// CHECK:           %[[ERR0:.+]] = ddp.sub %[[M0]], %[[OUT0]]
// CHECK:           %[[M1:.+]] = ddp.add %[[G]]#1, %[[E]]#1
// CHECK:           ddp.matmul %{{.+}}, %[[Q]]#1 :
// CHECK:           %[[Q1:.+]] = ddp.scale %{{.+}} by_world_of @dp : !ddp.bucket<f32, [8x1]>
// CHECK:           %[[OUT1:.+]] = ddp.concat %{{.+}} order [0] : !ddp.bucket<f32, [9x8]>
// CHECK:           %[[ERR1:.+]] = ddp.sub %[[M1]], %[[OUT1]]
// CHECK:           %[[NEWQ:.+]] = ddp.concat %[[Q0]], %[[Q1]] :
// CHECK:           %[[ERR:.+]] = ddp.concat %[[ERR0]], %[[ERR1]] :
// CHECK:           %[[OUT:.+]] = ddp.concat %[[OUT0]], %[[OUT1]] :
// CHECK:           ddp.store %[[NEWQ]], @b0.q
// CHECK:           ddp.store %[[ERR]], @b0.error
// CHECK:           scf.yield %[[OUT]]

// Each group is packed and fused as a bucket is.
// FUSED-LABEL: func.func @groups(
// FUSED:         %[[G:.+]]:2 = ddp.split
// FUSED:         %[[E:.+]]:2 = ddp.split
// FUSED:         %[[M0:.+]]:2 = ddp.project %[[G]]#0 plus %[[E]]#0 members [0] by %{{.+}} packed
// FUSED:         ddp.all_reduce sum %[[M0]]#1
// FUSED:         ddp.matmul transpose_lhs %[[M0]]#0 members [0]
// FUSED:         %[[R0:.+]]:2 = ddp.reconstruct {{.+}} rest %{{.+}} from %[[M0]]#0
// FUSED:         %[[M1:.+]]:2 = ddp.project %[[G]]#1 plus %[[E]]#1 members [0] by %{{[^ ]+}} :
// FUSED:         %[[R1:.+]]:2 = ddp.reconstruct {{.+}} from %[[M1]]#0
// FUSED:         ddp.concat %[[R0]]#1, %[[R1]]#1 :
// FUSED:         ddp.concat %[[R0]]#0, %[[R1]]#0 :
func.func @groups(%b: !ddp.bucket<f32, [8x9, 5, 9x8]>)
    -> !ddp.bucket<f32, [8x9, 5, 9x8]> {
  %r = ddp.all_reduce mean %b on @dp as "b0" {ddp.hook = #ddp.powersgd}
      : !ddp.bucket<f32, [8x9, 5, 9x8]>
  return %r : !ddp.bucket<f32, [8x9, 5, 9x8]>
}

// -----

ddp.process_group @dp

// Without error only the bucket and Q are split. A matrix that is too large is a group
// of its own.
// CHECK-LABEL: func.func @without_error(
// CHECK-SAME:    %[[B:.+]]: !ddp.bucket
// CHECK:         %[[G:.+]]:2 = ddp.split %[[B]] : {{.+}} -> !ddp.bucket<f32, [16x16, 5, scalar]>, !ddp.bucket<f32, [16x16]>
// CHECK:         ddp.split %{{.+}} : !ddp.bucket<f32, [16x1, 16x1]>
// CHECK-NOT:     ddp.split
// CHECK:         ddp.extract %[[G]]#0 [0]
// CHECK:         ddp.extract %[[G]]#0 [1, 2]
// CHECK:         ddp.extract %[[G]]#1 [0]
// CHECK-NOT:     ddp.sub
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
// together in the order of the factors, not of the groups. Each group's are
// adjacent: nothing has to be written to two places.
// FUSED-LABEL: func.func @sum(
// FUSED:         %[[BASIS:.+]]:3 = ddp.split %{{.+}} : !ddp.bucket<f32, [9x1, 9x1, 8x1]>
// FUSED:         ddp.project {{.+}} by %[[BASIS]]#0 :
// FUSED:         %[[Q0:.+]] = ddp.all_reduce sum %{{.+}} : !ddp.bucket<f32, [9x1]>
// FUSED:         ddp.reconstruct {{.+}} by_world_of @dp
// FUSED:         ddp.project {{.+}} by %[[BASIS]]#2 :
// FUSED:         %[[Q1:.+]] = ddp.all_reduce sum %{{.+}} : !ddp.bucket<f32, [8x1]>
// FUSED:         ddp.reconstruct {{.+}} by_world_of @dp
// FUSED:         ddp.project {{.+}} by %[[BASIS]]#1 :
// FUSED:         %[[Q2:.+]] = ddp.all_reduce sum %{{.+}} : !ddp.bucket<f32, [9x1]>
// FUSED:         ddp.reconstruct {{.+}} by_world_of @dp
// FUSED:         %[[Q:.+]] = ddp.concat %[[Q0]], %[[Q2]], %[[Q1]] : !ddp.bucket<f32, [9x1]>, !ddp.bucket<f32, [9x1]>, !ddp.bucket<f32, [8x1]> -> !ddp.bucket<f32, [9x1, 9x1, 8x1]>
// FUSED:         ddp.store %[[Q]], @b0.q
func.func @sum(%b: !ddp.bucket<f32, [8x9, 9x8, 8x9]>)
    -> !ddp.bucket<f32, [8x9, 9x8, 8x9]> {
  %r = ddp.all_reduce sum %b on @dp as "b0" {ddp.hook = #ddp.powersgd}
      : !ddp.bucket<f32, [8x9, 9x8, 8x9]>
  return %r : !ddp.bucket<f32, [8x9, 9x8, 8x9]>
}

// -----

ddp.process_group @dp

// Matrices of two shapes in each of two groups: the factors of a group are in two
// places. Each of these is orthogonalized into the group's basis, and divided into
// the new Q. The group's own Q is divided behind them, where it is.
// FUSED-LABEL: func.func @shapes(
// FUSED:         %[[LAST:.+]] = ddp.load @b0.q
// FUSED:         %[[OLD:.+]]:4 = ddp.split %[[LAST]] : !ddp.bucket<f32, [6x1, 6x1, 5x1, 5x1]>
// FUSED:         %[[U0:.+]] = ddp.orthogonalize %[[OLD]]#0
// FUSED:         %[[U2:.+]] = ddp.orthogonalize %[[OLD]]#2
// FUSED:         %[[BASIS0:.+]] = ddp.concat %[[U0]], %[[U2]] : {{.+}} -> !ddp.bucket<f32, [6x1, 5x1]>
// FUSED:         %[[U1:.+]] = ddp.orthogonalize %[[OLD]]#1
// FUSED:         %[[U3:.+]] = ddp.orthogonalize %[[OLD]]#3
// FUSED:         %[[BASIS1:.+]] = ddp.concat %[[U1]], %[[U3]] : {{.+}} -> !ddp.bucket<f32, [6x1, 5x1]>
// FUSED:         ddp.project {{.+}} by %[[BASIS0]] :
// FUSED:         %[[SUM0:.+]] = ddp.all_reduce sum %{{.+}} : !ddp.bucket<f32, [6x1, 5x1]>
// FUSED:         %[[S0:.+]]:2 = ddp.split %[[SUM0]]
// FUSED:         %[[N0:.+]] = ddp.scale %[[S0]]#0 by_world_of @dp
// FUSED:         %[[N2:.+]] = ddp.scale %[[S0]]#1 by_world_of @dp
// FUSED:         %[[Q0:.+]] = ddp.scale %[[SUM0]] by_world_of @dp
// FUSED:         ddp.reconstruct %{{.+}}, %[[Q0]]
// FUSED:         ddp.project {{.+}} by %[[BASIS1]] :
// FUSED:         %[[S1:.+]]:2 = ddp.split
// FUSED:         %[[N1:.+]] = ddp.scale %[[S1]]#0 by_world_of @dp
// FUSED:         %[[N3:.+]] = ddp.scale %[[S1]]#1 by_world_of @dp
// FUSED:         %[[NEW:.+]] = ddp.concat %[[N0]], %[[N1]], %[[N2]], %[[N3]] : {{.+}} -> !ddp.bucket<f32, [6x1, 6x1, 5x1, 5x1]>
// FUSED:         ddp.store %[[NEW]], @b0.q
func.func @shapes(%b: !ddp.bucket<f32, [6x6, 7x5, 6x6, 7x5]>)
    -> !ddp.bucket<f32, [6x6, 7x5, 6x6, 7x5]> {
  %r = ddp.all_reduce mean %b on @dp as "b0" {ddp.hook = #ddp.powersgd}
      : !ddp.bucket<f32, [6x6, 7x5, 6x6, 7x5]>
  return %r : !ddp.bucket<f32, [6x6, 7x5, 6x6, 7x5]>
}

// -----

ddp.process_group @dp

// A sum's Q is the state's as it is: it goes through the same pass, by one.
// FUSED-LABEL: func.func @shapes_sum(
// FUSED:         %[[SUM:.+]] = ddp.all_reduce sum %{{.+}} : !ddp.bucket<f32, [6x1, 5x1]>
// FUSED:         %[[S:.+]]:2 = ddp.split %[[SUM]]
// FUSED:         ddp.scale %[[S]]#0 by 1.000000e+00
// FUSED:         ddp.scale %[[S]]#1 by 1.000000e+00
// FUSED-NOT:     ddp.scale
// FUSED:         ddp.reconstruct %{{.+}}, %[[SUM]]
func.func @shapes_sum(%b: !ddp.bucket<f32, [6x6, 7x5, 6x6, 7x5]>)
    -> !ddp.bucket<f32, [6x6, 7x5, 6x6, 7x5]> {
  %r = ddp.all_reduce sum %b on @dp as "b0" {ddp.hook = #ddp.powersgd}
      : !ddp.bucket<f32, [6x6, 7x5, 6x6, 7x5]>
  return %r : !ddp.bucket<f32, [6x6, 7x5, 6x6, 7x5]>
}

// -----

ddp.process_group @dp

// Without a warm start no group leaves anything of Q.
// FUSED-LABEL: func.func @shapes_cold(
// FUSED:         %[[DRAWN:.+]] = ddp.random_normal
// FUSED:         ddp.split %[[DRAWN]] : !ddp.bucket<f32, [6x1, 6x1, 5x1, 5x1]>
// FUSED-COUNT-2: ddp.concat {{.+}} -> !ddp.bucket<f32, [6x1, 5x1]>
// FUSED-NOT:     ddp.concat {{.+}} -> !ddp.bucket<f32, [6x1, 6x1, 5x1, 5x1]>
// FUSED:         return
func.func @shapes_cold(%b: !ddp.bucket<f32, [6x6, 7x5, 6x6, 7x5]>)
    -> !ddp.bucket<f32, [6x6, 7x5, 6x6, 7x5]> {
  %r = ddp.all_reduce mean %b on @dp as "b0"
      {ddp.hook = #ddp.powersgd<warm_start = false>}
      : !ddp.bucket<f32, [6x6, 7x5, 6x6, 7x5]>
  return %r : !ddp.bucket<f32, [6x6, 7x5, 6x6, 7x5]>
}

// -----

ddp.process_group @dp

// One matrix is one group, and nothing is taken apart.
// CHECK-LABEL: func.func @one_matrix(
// CHECK-NOT:     ddp.split
// CHECK:         return
func.func @one_matrix(%b: !ddp.bucket<f32, [16x16, 5]>)
    -> !ddp.bucket<f32, [16x16, 5]> {
  %r = ddp.all_reduce mean %b on @dp as "b0" {ddp.hook = #ddp.powersgd}
      : !ddp.bucket<f32, [16x16, 5]>
  return %r : !ddp.bucket<f32, [16x16, 5]>
}

// -----

ddp.process_group @dp

// Where the error may not be written before all groups are through there are none,
// and a remark says so.
// CHECK-LABEL: func.func @none(
// CHECK-NOT:     ddp.split
// CHECK:         return
// REMARK-COUNT-1: remark: [Missed] Group | Category:ddp-expand-hooks | Remark="no groups with skip_nonfinite"
// REMARK-NOT: remark:
func.func @none(%b: !ddp.bucket<f32, [8x9, 5, 9x8]>)
    -> !ddp.bucket<f32, [8x9, 5, 9x8]> {
  %r = ddp.all_reduce mean %b on @dp as "b0"
      {ddp.hook = #ddp.powersgd<skip_nonfinite = true>}
      : !ddp.bucket<f32, [8x9, 5, 9x8]>
  return %r : !ddp.bucket<f32, [8x9, 5, 9x8]>
}

// -----

ddp.process_group @dp

// What a group keeps of this rank's own product is all it needs beside its parts.
// CHECK-LABEL: func.func @local(
// CHECK:         %[[G:.+]]:2 = ddp.split %{{.+}} : {{.+}} -> !ddp.bucket<f32, [8x9, 5]>, !ddp.bucket<f32, [9x8]>
// CHECK:         %[[E:.+]]:2 = ddp.split
// CHECK:         %[[M0:.+]] = ddp.add %[[G]]#0, %[[E]]#0
// CHECK:         %[[OWN0:.+]] = ddp.concat {{.+}} order [0, 1] :
// CHECK:         %[[OUT0:.+]] = ddp.concat {{.+}} order [0, 1] :
// CHECK:         ddp.sub %[[M0]],
// CHECK:         %[[M1:.+]] = ddp.add %[[G]]#1, %[[E]]#1
// CHECK:         ddp.sub %[[M1]],
func.func @local(%b: !ddp.bucket<f32, [8x9, 5, 9x8]>)
    -> !ddp.bucket<f32, [8x9, 5, 9x8]> {
  %r = ddp.all_reduce mean %b on @dp as "b0"
      {ddp.hook = #ddp.powersgd<local_error_feedback = true>}
      : !ddp.bucket<f32, [8x9, 5, 9x8]>
  return %r : !ddp.bucket<f32, [8x9, 5, 9x8]>
}
