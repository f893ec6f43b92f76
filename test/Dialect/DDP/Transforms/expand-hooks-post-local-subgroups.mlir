// RUN: ddphook-opt %s --ddp-expand-hooks -split-input-file | FileCheck %s

ddp.process_group @dp

// Over all ranks up to iteration 100, among those of one machine afterwards.
// CHECK: ddp.process_group @dp.node placement intra_node parent @dp
// CHECK: ddp.state @post_local_sgd.iter : i64 replicated zero
// CHECK-LABEL: func.func @default(
// CHECK-SAME:    %[[ARG0:[a-z0-9]+]]: !ddp.bucket<f32, [4]>) -> !ddp.bucket<f32, [4]>
// CHECK-DAG:    %[[ITER:.+]] = ddp.load @post_local_sgd.iter : i64
// CHECK-DAG:    %[[K:.+]] = arith.constant 100 : i64
// CHECK-DAG:    %[[IS:.+]] = arith.cmpi slt, %[[ITER]], %[[K]] : i64
// CHECK:        %[[OUT:.+]] = scf.if %[[IS]] -> (!ddp.bucket<f32, [4]>) {
// CHECK-NEXT:     %[[R:.+]] = ddp.all_reduce mean %[[ARG0]] on @dp as "b0" {ddp.hook = #ddp.allreduce} : !ddp.bucket<f32, [4]>
// CHECK-NEXT:     scf.yield %[[R]] : !ddp.bucket<f32, [4]>
// CHECK-NEXT:   } else {
// CHECK-NEXT:     %[[R1:.+]] = ddp.all_reduce mean %[[ARG0]] on @dp.node as "b0" {ddp.hook = #ddp.allreduce} : !ddp.bucket<f32, [4]>
// CHECK-NEXT:     scf.yield %[[R1]] : !ddp.bucket<f32, [4]>
// CHECK-NEXT:   }
// CHECK-DAG:    %[[K1:.+]] = arith.constant 1 : i64
// CHECK-DAG:    %[[NEXT:.+]] = arith.addi %[[ITER]], %[[K1]] : i64
// CHECK:        ddp.store %[[NEXT]], @post_local_sgd.iter : i64
// CHECK-NEXT:   return %[[OUT]] : !ddp.bucket<f32, [4]>
func.func @default(%b: !ddp.bucket<f32, [4]>) -> !ddp.bucket<f32, [4]> {
  %r = ddp.all_reduce mean %b on @dp as "b0" {ddp.hook = #ddp.post_local_sgd}
      : !ddp.bucket<f32, [4]>
  return %r : !ddp.bucket<f32, [4]>
}

// -----

ddp.process_group @dp
ddp.process_group @pairs ranks [[0, 1], [2, 3]]

// A subgroup of one's own; not at all.
// CHECK-LABEL: func.func @subgroup(
// CHECK-SAME:    %[[ARG0:[a-z0-9]+]]: !ddp.bucket<f32, [4]>) -> !ddp.bucket<f32, [4]>
// CHECK-DAG:    %[[ITER:.+]] = ddp.load @post_local_sgd.iter : i64
// CHECK-DAG:    %[[K:.+]] = arith.constant 5 : i64
// CHECK-DAG:    %[[IS:.+]] = arith.cmpi slt, %[[ITER]], %[[K]] : i64
// CHECK:        %[[OUT:.+]] = scf.if %[[IS]] -> (!ddp.bucket<f32, [4]>) {
// CHECK-NEXT:     %[[R:.+]] = ddp.all_reduce sum %[[ARG0]] on @dp as "b0" {ddp.hook = #ddp.allreduce} : !ddp.bucket<f32, [4]>
// CHECK-NEXT:     scf.yield %[[R]] : !ddp.bucket<f32, [4]>
// CHECK-NEXT:   } else {
// CHECK-NEXT:     %[[R1:.+]] = ddp.all_reduce sum %[[ARG0]] on @pairs as "b0" {ddp.hook = #ddp.allreduce} : !ddp.bucket<f32, [4]>
// CHECK-NEXT:     scf.yield %[[R1]] : !ddp.bucket<f32, [4]>
// CHECK-NEXT:   }
// CHECK-DAG:    %[[K1:.+]] = arith.constant 1 : i64
// CHECK-DAG:    %[[NEXT:.+]] = arith.addi %[[ITER]], %[[K1]] : i64
// CHECK:        ddp.store %[[NEXT]], @post_local_sgd.iter : i64
// CHECK-NEXT:   return %[[OUT]] : !ddp.bucket<f32, [4]>
func.func @subgroup(%b: !ddp.bucket<f32, [4]>) -> !ddp.bucket<f32, [4]> {
  %r = ddp.all_reduce sum %b on @dp as "b0"
      {ddp.hook = #ddp.post_local_sgd<start_localSGD_iter = 5,
                                      subgroup = @pairs>}
      : !ddp.bucket<f32, [4]>
  return %r : !ddp.bucket<f32, [4]>
}
// CHECK-LABEL: func.func @alone(
// CHECK-SAME:    %[[ARG0:[a-z0-9]+]]: !ddp.bucket<f32, [4]>) -> !ddp.bucket<f32, [4]>
// CHECK-DAG:    %[[ITER:.+]] = ddp.load @post_local_sgd.iter.1 : i64
// CHECK-DAG:    %[[K:.+]] = arith.constant 100 : i64
// CHECK-DAG:    %[[IS:.+]] = arith.cmpi slt, %[[ITER]], %[[K]] : i64
// CHECK:        %[[OUT:.+]] = scf.if %[[IS]] -> (!ddp.bucket<f32, [4]>) {
// CHECK-NEXT:     %[[R:.+]] = ddp.all_reduce mean %[[ARG0]] on @dp as "b1" {ddp.hook = #ddp.allreduce} : !ddp.bucket<f32, [4]>
// CHECK-NEXT:     scf.yield %[[R]] : !ddp.bucket<f32, [4]>
// CHECK-NEXT:   } else {
// CHECK-NEXT:     scf.yield %[[ARG0]] : !ddp.bucket<f32, [4]>
// CHECK-NEXT:   }
// CHECK-DAG:    %[[K1:.+]] = arith.constant 1 : i64
// CHECK-DAG:    %[[NEXT:.+]] = arith.addi %[[ITER]], %[[K1]] : i64
// CHECK:        ddp.store %[[NEXT]], @post_local_sgd.iter.1 : i64
// CHECK-NEXT:   return %[[OUT]] : !ddp.bucket<f32, [4]>
func.func @alone(%b: !ddp.bucket<f32, [4]>) -> !ddp.bucket<f32, [4]> {
  %r = ddp.all_reduce mean %b on @dp as "b1"
      {ddp.hook = #ddp.post_local_sgd<post_local_gradient_allreduce = false>}
      : !ddp.bucket<f32, [4]>
  return %r : !ddp.bucket<f32, [4]>
}
