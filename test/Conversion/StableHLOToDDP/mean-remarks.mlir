// What a remark says of sums that look like means of another number of ranks. The groups
// have three.

// RUN: ddphook-opt %s --ddp-import-stablehlo --remarks-filter='ddp-.*' 2>&1 >/dev/null | FileCheck %s --check-prefix=REMARK --implicit-check-not='Mean |'
// RUN: ddphook-opt %s --ddp-import-stablehlo | FileCheck %s

// CHECK-COUNT-9: ddp.all_reduce sum
// CHECK-NOT: ddp.all_reduce

module attributes {mhlo.num_partitions = 3 : i32, mhlo.num_replicas = 1 : i32} {

func.func @behind(%a: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>, tensor<4xbf16>) {
  %0 = "stablehlo.all_reduce"(%a) <{replica_groups = dense<[[0, 1, 2]]> : tensor<1x3xi64>, use_global_device_ids}> ({
  ^bb0(%x: tensor<f32>, %y: tensor<f32>):
    %s = "stablehlo.add"(%x, %y) : (tensor<f32>, tensor<f32>) -> tensor<f32>
    "stablehlo.return"(%s) : (tensor<f32>) -> ()
  }) : (tensor<4xf32>) -> tensor<4xf32>
  %two = "stablehlo.constant"() <{value = dense<2.0> : tensor<4xf32>}> : () -> tensor<4xf32>
  // REMARK: mean-remarks.mlir:[[# @LINE + 1]]:{{[0-9]+}}: remark: [Missed] Mean | Category:ddp-import-stablehlo | {{.*}}Remark="no mean over @replicas: expected a quotient by 3, since the group has 3 ranks, but got one by 2"
  %1 = "stablehlo.divide"(%0, %two) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %2 = "stablehlo.all_reduce"(%a) <{replica_groups = dense<[[0, 1, 2]]> : tensor<1x3xi64>, use_global_device_ids}> ({
  ^bb0(%x: tensor<f32>, %y: tensor<f32>):
    %s = "stablehlo.add"(%x, %y) : (tensor<f32>, tensor<f32>) -> tensor<f32>
    "stablehlo.return"(%s) : (tensor<f32>) -> ()
  }) : (tensor<4xf32>) -> tensor<4xf32>
  %half = "stablehlo.constant"() <{value = dense<0.5> : tensor<4xf32>}> : () -> tensor<4xf32>
  // REMARK: mean-remarks.mlir:[[# @LINE + 1]]:{{[0-9]+}}: remark: [Missed] Mean | Category:ddp-import-stablehlo | {{.*}}Remark="no mean over @replicas: expected a product with 1/3, since the group has 3 ranks, but got one with 0.5"
  %3 = "stablehlo.multiply"(%half, %2) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %4 = "stablehlo.convert"(%a) : (tensor<4xf32>) -> tensor<4xbf16>
  %5 = "stablehlo.all_reduce"(%4) <{replica_groups = dense<[[0, 1, 2]]> : tensor<1x3xi64>, use_global_device_ids}> ({
  ^bb0(%x: tensor<bf16>, %y: tensor<bf16>):
    %s = "stablehlo.add"(%x, %y) : (tensor<bf16>, tensor<bf16>) -> tensor<bf16>
    "stablehlo.return"(%s) : (tensor<bf16>) -> ()
  }) : (tensor<4xbf16>) -> tensor<4xbf16>
  %quarter = "stablehlo.constant"() <{value = dense<0.25> : tensor<4xbf16>}> : () -> tensor<4xbf16>
  // REMARK: mean-remarks.mlir:[[# @LINE + 1]]:{{[0-9]+}}: remark: [Missed] Mean | Category:ddp-import-stablehlo | {{.*}}Remark="no mean over @replicas: expected a product with 1/3, since the group has 3 ranks, but got one with 0.25"
  %6 = "stablehlo.multiply"(%5, %quarter) : (tensor<4xbf16>, tensor<4xbf16>) -> tensor<4xbf16>
  return %1, %3, %6 : tensor<4xf32>, tensor<4xf32>, tensor<4xbf16>
}

// One behind comes before one in front.

func.func @in_front(%a: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
  %six = "stablehlo.constant"() <{value = dense<6.0> : tensor<4xf32>}> : () -> tensor<4xf32>
  // REMARK: mean-remarks.mlir:[[# @LINE + 1]]:{{[0-9]+}}: remark: [Missed] Mean | Category:ddp-import-stablehlo | {{.*}}Remark="no mean over @replicas: expected a quotient by 3, since the group has 3 ranks, but got one by 6"
  %0 = "stablehlo.divide"(%a, %six) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %1 = "stablehlo.all_reduce"(%0) <{replica_groups = dense<[[0, 1, 2]]> : tensor<1x3xi64>, use_global_device_ids}> ({
  ^bb0(%x: tensor<f32>, %y: tensor<f32>):
    %s = "stablehlo.add"(%x, %y) : (tensor<f32>, tensor<f32>) -> tensor<f32>
    "stablehlo.return"(%s) : (tensor<f32>) -> ()
  }) : (tensor<4xf32>) -> tensor<4xf32>
  %2 = "stablehlo.divide"(%a, %six) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %3 = "stablehlo.all_reduce"(%2) <{replica_groups = dense<[[0, 1, 2]]> : tensor<1x3xi64>, use_global_device_ids}> ({
  ^bb0(%x: tensor<f32>, %y: tensor<f32>):
    %s = "stablehlo.add"(%x, %y) : (tensor<f32>, tensor<f32>) -> tensor<f32>
    "stablehlo.return"(%s) : (tensor<f32>) -> ()
  }) : (tensor<4xf32>) -> tensor<4xf32>
  %four = "stablehlo.constant"() <{value = dense<4.0> : tensor<4xf32>}> : () -> tensor<4xf32>
  // REMARK: mean-remarks.mlir:[[# @LINE + 1]]:{{[0-9]+}}: remark: [Missed] Mean | Category:ddp-import-stablehlo | {{.*}}Remark="no mean over @replicas: expected a quotient by 3, since the group has 3 ranks, but got one by 4"
  %4 = "stablehlo.divide"(%3, %four) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  return %1, %4 : tensor<4xf32>, tensor<4xf32>
}

// Nothing is made smaller, or only in one of two uses.

func.func @none(%a: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) {
  %minus = "stablehlo.constant"() <{value = dense<-1.0> : tensor<4xf32>}> : () -> tensor<4xf32>
  %two = "stablehlo.constant"() <{value = dense<2.0> : tensor<4xf32>}> : () -> tensor<4xf32>
  %0 = "stablehlo.all_reduce"(%a) <{replica_groups = dense<[[0, 1, 2]]> : tensor<1x3xi64>, use_global_device_ids}> ({
  ^bb0(%x: tensor<f32>, %y: tensor<f32>):
    %s = "stablehlo.add"(%x, %y) : (tensor<f32>, tensor<f32>) -> tensor<f32>
    "stablehlo.return"(%s) : (tensor<f32>) -> ()
  }) : (tensor<4xf32>) -> tensor<4xf32>
  %1 = "stablehlo.multiply"(%0, %minus) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %2 = "stablehlo.all_reduce"(%a) <{replica_groups = dense<[[0, 1, 2]]> : tensor<1x3xi64>, use_global_device_ids}> ({
  ^bb0(%x: tensor<f32>, %y: tensor<f32>):
    %s = "stablehlo.add"(%x, %y) : (tensor<f32>, tensor<f32>) -> tensor<f32>
    "stablehlo.return"(%s) : (tensor<f32>) -> ()
  }) : (tensor<4xf32>) -> tensor<4xf32>
  %3 = "stablehlo.multiply"(%2, %two) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %4 = "stablehlo.all_reduce"(%a) <{replica_groups = dense<[[0, 1, 2]]> : tensor<1x3xi64>, use_global_device_ids}> ({
  ^bb0(%x: tensor<f32>, %y: tensor<f32>):
    %s = "stablehlo.add"(%x, %y) : (tensor<f32>, tensor<f32>) -> tensor<f32>
    "stablehlo.return"(%s) : (tensor<f32>) -> ()
  }) : (tensor<4xf32>) -> tensor<4xf32>
  %5 = "stablehlo.divide"(%4, %two) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %6 = "stablehlo.add"(%4, %5) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %7 = "stablehlo.all_reduce"(%a) <{replica_groups = dense<[[0, 1, 2]]> : tensor<1x3xi64>, use_global_device_ids}> ({
  ^bb0(%x: tensor<f32>, %y: tensor<f32>):
    %s = "stablehlo.add"(%x, %y) : (tensor<f32>, tensor<f32>) -> tensor<f32>
    "stablehlo.return"(%s) : (tensor<f32>) -> ()
  }) : (tensor<4xf32>) -> tensor<4xf32>
  %8 = "stablehlo.divide"(%two, %7) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  return %1, %3, %5, %6, %8 : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
}
}
