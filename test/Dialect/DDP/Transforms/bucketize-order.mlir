// RUN: ddphook-opt %s --ddp-bucketize | FileCheck %s --check-prefixes=CHECK,READY
// RUN: ddphook-opt %s --ddp-bucketize="order=ready" | FileCheck %s --check-prefixes=CHECK,READY
// RUN: ddphook-opt %s --ddp-bucketize="order=forward" | FileCheck %s --check-prefixes=CHECK,FORWARD
// RUN: ddphook-opt %s --ddp-bucketize="order=reverse" | FileCheck %s --check-prefixes=CHECK,REVERSE
// RUN: ddphook-opt %s --ddp-bucketize="order=reverse bucket-cap-mb=0.00003" | FileCheck %s --check-prefix=SMALL

ddp.process_group @dp

// Produced as 2, 0, 1; reduced as 0, 1, 2. An argument is there from the start.

// CHECK-LABEL: func @step(
// CHECK-SAME:    %[[A:[a-z0-9]+]]: tensor<3xf32>, %[[X0:[a-z0-9]+]]: tensor<4xf32>, %[[X1:[a-z0-9]+]]: tensor<5xf32>, %[[X2:[a-z0-9]+]]: tensor<6xf32>
// CHECK:         %[[G2:.+]] = arith.negf %[[X2]]
// CHECK:         %[[G0:.+]] = arith.negf %[[X0]]
// CHECK:         %[[G1:.+]] = arith.negf %[[X1]]
// READY:         %[[P:.+]] = ddp.pack %[[A]], %[[G2]], %[[G0]], %[[G1]] : tensor<3xf32>, tensor<6xf32>, tensor<4xf32>, tensor<5xf32>
// READY:         %[[R:.+]]:4 = ddp.unpack
// READY:         return %[[R]]#2, %[[R]]#3, %[[R]]#1, %[[R]]#0
// FORWARD:       %[[P:.+]] = ddp.pack %[[G0]], %[[G1]], %[[G2]], %[[A]] : tensor<4xf32>, tensor<5xf32>, tensor<6xf32>, tensor<3xf32>
// FORWARD:       %[[R:.+]]:4 = ddp.unpack
// FORWARD:       return %[[R]]#0, %[[R]]#1, %[[R]]#2, %[[R]]#3
// REVERSE:       %[[P:.+]] = ddp.pack %[[A]], %[[G2]], %[[G1]], %[[G0]] : tensor<3xf32>, tensor<6xf32>, tensor<5xf32>, tensor<4xf32>
// REVERSE:       %[[R:.+]]:4 = ddp.unpack
// REVERSE:       return %[[R]]#3, %[[R]]#2, %[[R]]#1, %[[R]]#0

// Numbers follow the order that was asked for: the bucket that is packed first
// is b0. (31 bytes: 12 + 24, then 20 + 16.)
// SMALL-LABEL: func @step(
// SMALL-DAG:     as "b0" : !ddp.bucket<f32, [3, 6]>
// SMALL-DAG:     as "b1" : !ddp.bucket<f32, [5, 4]>
func.func @step(%a: tensor<3xf32>, %x0: tensor<4xf32>, %x1: tensor<5xf32>,
                %x2: tensor<6xf32>)
    -> (tensor<4xf32>, tensor<5xf32>, tensor<6xf32>, tensor<3xf32>) {
  %g2 = arith.negf %x2 : tensor<6xf32>
  %g0 = arith.negf %x0 : tensor<4xf32>
  %g1 = arith.negf %x1 : tensor<5xf32>
  %0 = ddp.all_reduce mean %g0 on @dp : tensor<4xf32>
  %1 = ddp.all_reduce mean %g1 on @dp : tensor<5xf32>
  %2 = ddp.all_reduce mean %g2 on @dp : tensor<6xf32>
  %3 = ddp.all_reduce mean %a on @dp : tensor<3xf32>
  return %0, %1, %2, %3
      : tensor<4xf32>, tensor<5xf32>, tensor<6xf32>, tensor<3xf32>
}

// Ties, such as arguments, are in program order.
// CHECK-LABEL: func @ties(
// CHECK-SAME:    %[[X0:[a-z0-9]+]]: tensor<4xf32>, %[[X1:[a-z0-9]+]]: tensor<5xf32>, %[[X2:[a-z0-9]+]]: tensor<6xf32>
// READY:         ddp.pack %[[X1]], %[[X2]], %[[X0]]
// FORWARD:       ddp.pack %[[X1]], %[[X2]], %[[X0]]
// REVERSE:       ddp.pack %[[X0]], %[[X2]], %[[X1]]
func.func @ties(%x0: tensor<4xf32>, %x1: tensor<5xf32>, %x2: tensor<6xf32>) {
  %1 = ddp.all_reduce mean %x1 on @dp : tensor<5xf32>
  %2 = ddp.all_reduce mean %x2 on @dp : tensor<6xf32>
  %0 = ddp.all_reduce mean %x0 on @dp : tensor<4xf32>
  return
}

// Several results of one operation are ready at once.
// CHECK-LABEL: func @several_results(
// CHECK:         %[[T:.+]]:2 = scf.if
// READY:         ddp.pack %[[T]]#1, %[[T]]#0
// FORWARD:       ddp.pack %[[T]]#1, %[[T]]#0
// REVERSE:       ddp.pack %[[T]]#0, %[[T]]#1
func.func @several_results(%c: i1, %x: tensor<4xf32>, %y: tensor<5xf32>) {
  %t:2 = scf.if %c -> (tensor<4xf32>, tensor<5xf32>) {
    scf.yield %x, %y : tensor<4xf32>, tensor<5xf32>
  } else {
    %n = arith.negf %x : tensor<4xf32>
    scf.yield %n, %y : tensor<4xf32>, tensor<5xf32>
  }
  %1 = ddp.all_reduce mean %t#1 on @dp : tensor<5xf32>
  %0 = ddp.all_reduce mean %t#0 on @dp : tensor<4xf32>
  return
}
