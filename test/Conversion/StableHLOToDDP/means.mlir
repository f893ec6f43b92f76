// Which sums are means, and which only look like it. The groups have three ranks.

// RUN: ddphook-opt %s --ddp-import-stablehlo --allow-unregistered-dialect | FileCheck %s

module attributes {mhlo.num_partitions = 3 : i32, mhlo.num_replicas = 1 : i32} {

// Behind the sum: through what only moves elements, in all uses, by a constant that
// is spread, converted or kept from being folded.

// CHECK-LABEL: func.func @after(
// CHECK-SAME: %[[A:.+]]: tensor<2x4xf32>
// CHECK-NEXT: %[[M:.+]] = ddp.all_reduce mean %[[A]] on @replicas
// CHECK-NEXT: %[[R:.+]] = "stablehlo.reshape"(%[[M]])
// CHECK-NEXT: %[[T:.+]] = "stablehlo.transpose"(%[[R]])
// CHECK-NEXT: return %[[T]], %[[M]] :
func.func @after(%a: tensor<2x4xf32>) -> (tensor<4x2xf32>, tensor<2x4xf32>) {
  %0 = "stablehlo.all_reduce"(%a) <{replica_groups = dense<[[0, 1, 2]]> : tensor<1x3xi64>, use_global_device_ids}> ({
  ^bb0(%x: tensor<f32>, %y: tensor<f32>):
    %s = "stablehlo.add"(%x, %y) : (tensor<f32>, tensor<f32>) -> tensor<f32>
    "stablehlo.return"(%s) : (tensor<f32>) -> ()
  }) : (tensor<2x4xf32>) -> tensor<2x4xf32>
  %1 = "stablehlo.reshape"(%0) : (tensor<2x4xf32>) -> tensor<2x4xf32>
  %2 = "stablehlo.transpose"(%1) <{permutation = array<i64: 1, 0>}> : (tensor<2x4xf32>) -> tensor<4x2xf32>
  %3 = "stablehlo.constant"() <{value = dense<3.0> : tensor<bf16>}> : () -> tensor<bf16>
  %4 = "stablehlo.convert"(%3) : (tensor<bf16>) -> tensor<f32>
  %5 = "stablehlo.optimization_barrier"(%4) : (tensor<f32>) -> tensor<f32>
  %6 = "stablehlo.broadcast_in_dim"(%5) <{broadcast_dimensions = array<i64>}> : (tensor<f32>) -> tensor<4x2xf32>
  %7 = "stablehlo.divide"(%2, %6) : (tensor<4x2xf32>, tensor<4x2xf32>) -> tensor<4x2xf32>
  %8 = "stablehlo.constant"() <{value = dense<0.333333343> : tensor<2x4xf32>}> : () -> tensor<2x4xf32>
  %9 = "stablehlo.multiply"(%8, %0) : (tensor<2x4xf32>, tensor<2x4xf32>) -> tensor<2x4xf32>
  return %7, %9 : tensor<4x2xf32>, tensor<2x4xf32>
}

// From 32 bits to 16 behind the sum.

// CHECK-LABEL: func.func @narrow(
// CHECK-SAME: %[[A:.+]]: tensor<4xf32>
// CHECK-NEXT: %[[M:.+]] = ddp.all_reduce mean %[[A]] on @replicas
// CHECK-NEXT: %[[N:.+]] = "stablehlo.convert"(%[[M]])
// CHECK-NEXT: return %[[N]]
func.func @narrow(%a: tensor<4xf32>) -> tensor<4xbf16> {
  %0 = "stablehlo.all_reduce"(%a) <{replica_groups = dense<[[0, 1, 2]]> : tensor<1x3xi64>, use_global_device_ids}> ({
  ^bb0(%x: tensor<f32>, %y: tensor<f32>):
    %s = "stablehlo.add"(%x, %y) : (tensor<f32>, tensor<f32>) -> tensor<f32>
    "stablehlo.return"(%s) : (tensor<f32>) -> ()
  }) : (tensor<4xf32>) -> tensor<4xf32>
  %1 = "stablehlo.convert"(%0) : (tensor<4xf32>) -> tensor<4xbf16>
  %2 = "stablehlo.constant"() <{value = dense<3.0> : tensor<4xbf16>}> : () -> tensor<4xbf16>
  %3 = "stablehlo.divide"(%1, %2) : (tensor<4xbf16>, tensor<4xbf16>) -> tensor<4xbf16>
  return %3 : tensor<4xbf16>
}

// From 16 bits to 32: a mean would round each rank's third to 16 bits. (means-of-two.mlir:
// halves are exact.)

// CHECK-LABEL: func.func @widen(
// CHECK: ddp.all_reduce sum
// CHECK-NEXT: "stablehlo.convert"
// CHECK: %[[D:.+]] = "stablehlo.divide"
// CHECK-NEXT: return %[[D]]
func.func @widen(%a: tensor<4xbf16>) -> tensor<4xf32> {
  %0 = "stablehlo.all_reduce"(%a) <{replica_groups = dense<[[0, 1, 2]]> : tensor<1x3xi64>, use_global_device_ids}> ({
  ^bb0(%x: tensor<bf16>, %y: tensor<bf16>):
    %s = "stablehlo.add"(%x, %y) : (tensor<bf16>, tensor<bf16>) -> tensor<bf16>
    "stablehlo.return"(%s) : (tensor<bf16>) -> ()
  }) : (tensor<4xbf16>) -> tensor<4xbf16>
  %1 = "stablehlo.convert"(%0) : (tensor<4xbf16>) -> tensor<4xf32>
  %2 = "stablehlo.constant"() <{value = dense<3.0> : tensor<4xf32>}> : () -> tensor<4xf32>
  %3 = "stablehlo.divide"(%1, %2) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  return %3 : tensor<4xf32>
}

// Before the sum; who else uses the scaled value keeps it.

// CHECK-LABEL: func.func @before(
// CHECK-SAME: %[[A:.+]]: tensor<2x4xf16>
// CHECK: %[[D:.+]] = "stablehlo.divide"(%[[A]]
// CHECK-NEXT: %[[C:.+]] = "stablehlo.convert"(%[[A]])
// CHECK-NEXT: %[[R:.+]] = "stablehlo.reshape"(%[[C]])
// CHECK-NEXT: %[[M:.+]] = ddp.all_reduce mean %[[R]] on @replicas
// CHECK-NEXT: return %[[M]], %[[D]]
func.func @before(%a: tensor<2x4xf16>) -> (tensor<8xf32>, tensor<2x4xf16>) {
  %0 = "stablehlo.constant"() <{value = dense<3.0> : tensor<2x4xf16>}> : () -> tensor<2x4xf16>
  %1 = "stablehlo.divide"(%a, %0) : (tensor<2x4xf16>, tensor<2x4xf16>) -> tensor<2x4xf16>
  %2 = "stablehlo.convert"(%1) : (tensor<2x4xf16>) -> tensor<2x4xf32>
  %3 = "stablehlo.reshape"(%2) : (tensor<2x4xf32>) -> tensor<8xf32>
  %4 = "stablehlo.all_reduce"(%3) <{replica_groups = dense<[[0, 1, 2]]> : tensor<1x3xi64>, use_global_device_ids}> ({
  ^bb0(%x: tensor<f32>, %y: tensor<f32>):
    %s = "stablehlo.add"(%x, %y) : (tensor<f32>, tensor<f32>) -> tensor<f32>
    "stablehlo.return"(%s) : (tensor<f32>) -> ()
  }) : (tensor<8xf32>) -> tensor<8xf32>
  return %4, %1 : tensor<8xf32>, tensor<2x4xf16>
}

// A division on either side: one makes the mean, the other one stays.

// CHECK-LABEL: func.func @both(
// CHECK: %[[D:.+]] = "stablehlo.divide"
// CHECK-NEXT: %[[M:.+]] = ddp.all_reduce mean %[[D]] on @replicas
// CHECK-NEXT: return %[[M]]
func.func @both(%a: tensor<4xf32>) -> tensor<4xf32> {
  %0 = "stablehlo.constant"() <{value = dense<3.0> : tensor<4xf32>}> : () -> tensor<4xf32>
  %1 = "stablehlo.divide"(%a, %0) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %2 = "stablehlo.all_reduce"(%1) <{replica_groups = dense<[[0, 1, 2]]> : tensor<1x3xi64>, use_global_device_ids}> ({
  ^bb0(%x: tensor<f32>, %y: tensor<f32>):
    %s = "stablehlo.add"(%x, %y) : (tensor<f32>, tensor<f32>) -> tensor<f32>
    "stablehlo.return"(%s) : (tensor<f32>) -> ()
  }) : (tensor<4xf32>) -> tensor<4xf32>
  %3 = "stablehlo.divide"(%2, %0) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  return %3 : tensor<4xf32>
}

// CHECK-LABEL: func.func @no_means(
func.func @no_means(%a: tensor<4xf32>, %i: tensor<4xi1>) -> (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf16>, tensor<4xf32>, tensor<4xf32>) {
  %three = "stablehlo.constant"() <{value = dense<3.0> : tensor<4xf32>}> : () -> tensor<4xf32>
  // Another number, and the inverse of a quotient.
  // CHECK: ddp.all_reduce sum
  %0 = "stablehlo.all_reduce"(%a) <{replica_groups = dense<[[0, 1, 2]]> : tensor<1x3xi64>, use_global_device_ids}> ({
  ^bb0(%x: tensor<f32>, %y: tensor<f32>):
    %s = "stablehlo.add"(%x, %y) : (tensor<f32>, tensor<f32>) -> tensor<f32>
    "stablehlo.return"(%s) : (tensor<f32>) -> ()
  }) : (tensor<4xf32>) -> tensor<4xf32>
  %two = "stablehlo.constant"() <{value = dense<2.0> : tensor<4xf32>}> : () -> tensor<4xf32>
  // CHECK: "stablehlo.divide"
  %1 = "stablehlo.divide"(%0, %two) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  // CHECK: ddp.all_reduce sum
  %2 = "stablehlo.all_reduce"(%a) <{replica_groups = dense<[[0, 1, 2]]> : tensor<1x3xi64>, use_global_device_ids}> ({
  ^bb0(%x: tensor<f32>, %y: tensor<f32>):
    %s = "stablehlo.add"(%x, %y) : (tensor<f32>, tensor<f32>) -> tensor<f32>
    "stablehlo.return"(%s) : (tensor<f32>) -> ()
  }) : (tensor<4xf32>) -> tensor<4xf32>
  // CHECK: "stablehlo.divide"
  %3 = "stablehlo.divide"(%three, %2) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  // Times the size; and one use that is not divided.
  // CHECK: ddp.all_reduce sum
  %4 = "stablehlo.all_reduce"(%a) <{replica_groups = dense<[[0, 1, 2]]> : tensor<1x3xi64>, use_global_device_ids}> ({
  ^bb0(%x: tensor<f32>, %y: tensor<f32>):
    %s = "stablehlo.add"(%x, %y) : (tensor<f32>, tensor<f32>) -> tensor<f32>
    "stablehlo.return"(%s) : (tensor<f32>) -> ()
  }) : (tensor<4xf32>) -> tensor<4xf32>
  // CHECK: "stablehlo.multiply"
  %5 = "stablehlo.multiply"(%4, %three) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  // CHECK: ddp.all_reduce sum
  %6 = "stablehlo.all_reduce"(%a) <{replica_groups = dense<[[0, 1, 2]]> : tensor<1x3xi64>, use_global_device_ids}> ({
  ^bb0(%x: tensor<f32>, %y: tensor<f32>):
    %s = "stablehlo.add"(%x, %y) : (tensor<f32>, tensor<f32>) -> tensor<f32>
    "stablehlo.return"(%s) : (tensor<f32>) -> ()
  }) : (tensor<4xf32>) -> tensor<4xf32>
  // CHECK: "stablehlo.divide"
  %7 = "stablehlo.divide"(%6, %three) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %8 = "stablehlo.select"(%i, %6, %7) : (tensor<4xi1>, tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  // The value may be too large for the narrow type unless it is divided.
  // CHECK: "stablehlo.divide"
  %9 = "stablehlo.divide"(%a, %three) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %10 = "stablehlo.convert"(%9) : (tensor<4xf32>) -> tensor<4xf16>
  // CHECK: ddp.all_reduce sum
  %11 = "stablehlo.all_reduce"(%10) <{replica_groups = dense<[[0, 1, 2]]> : tensor<1x3xi64>, use_global_device_ids}> ({
  ^bb0(%x: tensor<f16>, %y: tensor<f16>):
    %s = "stablehlo.add"(%x, %y) : (tensor<f16>, tensor<f16>) -> tensor<f16>
    "stablehlo.return"(%s) : (tensor<f16>) -> ()
  }) : (tensor<4xf16>) -> tensor<4xf16>
  // The least f16, divided first, would be zero.
  // CHECK: ddp.all_reduce sum
  %15 = "stablehlo.all_reduce"(%10) <{replica_groups = dense<[[0, 1, 2]]> : tensor<1x3xi64>, use_global_device_ids}> ({
  ^bb0(%x: tensor<f16>, %y: tensor<f16>):
    %s = "stablehlo.add"(%x, %y) : (tensor<f16>, tensor<f16>) -> tensor<f16>
    "stablehlo.return"(%s) : (tensor<f16>) -> ()
  }) : (tensor<4xf16>) -> tensor<4xf16>
  // CHECK: "stablehlo.divide"
  %16 = "stablehlo.convert"(%15) : (tensor<4xf16>) -> tensor<4xf32>
  %17 = "stablehlo.divide"(%16, %three) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  // The elements differ.
  // CHECK: ddp.all_reduce sum
  %12 = "stablehlo.all_reduce"(%a) <{replica_groups = dense<[[0, 1, 2]]> : tensor<1x3xi64>, use_global_device_ids}> ({
  ^bb0(%x: tensor<f32>, %y: tensor<f32>):
    %s = "stablehlo.add"(%x, %y) : (tensor<f32>, tensor<f32>) -> tensor<f32>
    "stablehlo.return"(%s) : (tensor<f32>) -> ()
  }) : (tensor<4xf32>) -> tensor<4xf32>
  %13 = "stablehlo.constant"() <{value = dense<[3.0, 3.0, 3.0, 4.0]> : tensor<4xf32>}> : () -> tensor<4xf32>
  // CHECK: "stablehlo.divide"
  %14 = "stablehlo.divide"(%12, %13) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  // CHECK: return
  return %1, %3, %5, %7, %8, %11, %14, %17 : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf16>, tensor<4xf32>, tensor<4xf32>
}

// Operations that are not what they are called, and values that depend on themselves.

// CHECK-LABEL: func.func @malformed(
// CHECK-COUNT-2: ddp.all_reduce sum
func.func @malformed(%a: tensor<4xf32>) -> (tensor<4xf16>, tensor<4xf32>, tensor<4xf32>) {
  %three = "stablehlo.constant"() <{value = dense<3> : tensor<4xi32>}> : () -> tensor<4xf32>
  %0 = "stablehlo.all_reduce"(%a) <{replica_groups = dense<[[0, 1, 2]]> : tensor<1x3xi64>, use_global_device_ids}> ({
  ^bb0(%x: tensor<f32>, %y: tensor<f32>):
    %s = "stablehlo.add"(%x, %y) : (tensor<f32>, tensor<f32>) -> tensor<f32>
    "stablehlo.return"(%s) : (tensor<f32>) -> ()
  }) : (tensor<4xf32>) -> tensor<4xf32>
  %1 = "stablehlo.divide"(%0, %three) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf16>
  "stablehlo.divide"(%0, %0) : (tensor<4xf32>, tensor<4xf32>) -> ()
  "stablehlo.multiply"(%0) : (tensor<4xf32>) -> ()
  %2:2 = "stablehlo.reshape"(%0, %0) : (tensor<4xf32>, tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>)
  "test.graph"() ({
    %3 = "stablehlo.reshape"(%4) : (tensor<4xf32>) -> tensor<4xf32>
    %4 = "stablehlo.reshape"(%3) : (tensor<4xf32>) -> tensor<4xf32>
    %5 = "stablehlo.divide"(%3, %4) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  }) : () -> ()
  %6 = "stablehlo.all_reduce"(%a) <{replica_groups = dense<[[0, 1, 2]]> : tensor<1x3xi64>, use_global_device_ids}> ({
  ^bb0(%x: tensor<f32>, %y: tensor<f32>):
    %s = "stablehlo.add"(%x, %y) : (tensor<f32>, tensor<f32>) -> tensor<f32>
    "stablehlo.return"(%s) : (tensor<f32>) -> ()
  }) : (tensor<4xf32>) -> tensor<4xf32>
  return %1, %2#0, %6 : tensor<4xf16>, tensor<4xf32>, tensor<4xf32>
}
}
