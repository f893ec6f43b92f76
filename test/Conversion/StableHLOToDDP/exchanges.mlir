// RUN: ddphook-opt %s -split-input-file --ddp-import-stablehlo | FileCheck %s

// Collectives on parts. ddp's parts are contiguous, so that a tensor that is split along
// another dimension is transposed first.
// CHECK-DAG:   ddp.process_group @replicas size 2
// CHECK-LABEL: func.func @parts(
// CHECK-SAME:      %[[A:.+]]: tensor<4x6xf32>, %[[B:.+]]: tensor<3x2xf32>
// CHECK-NEXT:    %[[S:.+]] = ddp.reduce_scatter sum %[[A]] on @replicas : tensor<4x6xf32> -> tensor<12xf32>
// CHECK-NEXT:    %[[T:.+]] = "stablehlo.reshape"(%[[S]]) : (tensor<12xf32>) -> tensor<2x6xf32>
// CHECK-NEXT:    %[[U:.+]] = "stablehlo.transpose"(%[[A]]) {{.+}}permutation = array<i64: 1, 0>{{.+}} -> tensor<6x4xf32>
// CHECK-NEXT:    %[[V:.+]] = ddp.reduce_scatter sum %[[U]] on @replicas : tensor<6x4xf32> -> tensor<12xf32>
// CHECK-NEXT:    %[[W:.+]] = "stablehlo.reshape"(%[[V]]) : (tensor<12xf32>) -> tensor<3x4xf32>
// CHECK-NEXT:    %[[X:.+]] = "stablehlo.transpose"(%[[W]])
// CHECK-NEXT:    %[[F:.+]] = "stablehlo.reshape"(%[[B]]) : (tensor<3x2xf32>) -> tensor<6xf32>
// CHECK-NEXT:    %[[G:.+]] = ddp.all_gather %[[F]] on @replicas : tensor<6xf32> -> tensor<6x2xf32>
// CHECK-NEXT:    return %[[T]], %[[X]], %[[G]]
func.func @parts(%a: tensor<4x6xf32>, %b: tensor<3x2xf32>)
    -> (tensor<2x6xf32>, tensor<4x3xf32>, tensor<6x2xf32>) {
  %0 = "stablehlo.reduce_scatter"(%a) <{channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>, scatter_dimension = 0 : i64, use_global_device_ids}> ({
  ^bb0(%x: tensor<f32>, %y: tensor<f32>):
    %s = "stablehlo.add"(%x, %y) : (tensor<f32>, tensor<f32>) -> tensor<f32>
    "stablehlo.return"(%s) : (tensor<f32>) -> ()
  }) : (tensor<4x6xf32>) -> tensor<2x6xf32>
  %1 = "stablehlo.reduce_scatter"(%a) <{replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>, scatter_dimension = 1 : i64}> ({
  ^bb0(%x: tensor<f32>, %y: tensor<f32>):
    %s = "stablehlo.add"(%x, %y) : (tensor<f32>, tensor<f32>) -> tensor<f32>
    "stablehlo.return"(%s) : (tensor<f32>) -> ()
  }) : (tensor<4x6xf32>) -> tensor<4x3xf32>
  %2 = "stablehlo.all_gather"(%b) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>}> : (tensor<3x2xf32>) -> tensor<6x2xf32>
  return %0, %1, %2 : tensor<2x6xf32>, tensor<4x3xf32>, tensor<6x2xf32>
}

// -----

// An all-to-all that splits along the second dimension and concatenates along the first,
// and a broadcast from the second rank of each pair.
// CHECK-DAG:   ddp.process_group @replicas size 2 ranks {{\[}}[0, 2], [1, 3]]
// CHECK-LABEL: func.func @others(
// CHECK-NEXT:    %[[R:.+]] = "stablehlo.reshape"(%{{.+}}) : (tensor<3x4xf32>) -> tensor<3x2x2xf32>
// CHECK-NEXT:    %[[T:.+]] = "stablehlo.transpose"(%[[R]]) {{.+}}permutation = array<i64: 1, 0, 2>{{.+}} -> tensor<2x3x2xf32>
// CHECK-NEXT:    %[[X:.+]] = ddp.all_to_all %[[T]] on @replicas : tensor<2x3x2xf32>
// CHECK-NEXT:    %[[Y:.+]] = "stablehlo.reshape"(%[[X]]) : (tensor<2x3x2xf32>) -> tensor<6x2xf32>
// CHECK-NEXT:    %[[B:.+]] = ddp.broadcast %{{.+}} from 1 on @replicas : tensor<3x4xf32>
// CHECK-NEXT:    return %[[Y]], %[[B]]
func.func @others(%a: tensor<3x4xf32>) -> (tensor<6x2xf32>, tensor<3x4xf32>) {
  %0 = "stablehlo.all_to_all"(%a) <{concat_dimension = 0 : i64, replica_groups = dense<[[0, 2], [1, 3]]> : tensor<2x2xi64>, split_count = 2 : i64, split_dimension = 1 : i64}> : (tensor<3x4xf32>) -> tensor<6x2xf32>
  %1 = "stablehlo.collective_broadcast"(%a) <{replica_groups = dense<[[2, 0], [3, 1]]> : tensor<2x2xi64>}> : (tensor<3x4xf32>) -> tensor<3x4xf32>
  return %0, %1 : tensor<6x2xf32>, tensor<3x4xf32>
}
