// RUN: ddphook-opt %s -split-input-file --ddp-export-stablehlo | FileCheck %s

// Parts of tensors, cast on the wire like an all-reduce. The last part is padded with zeros.
// CHECK-LABEL: func.func @parts(
// CHECK-SAME:      %[[G:.+]]: tensor<5x1xf32>, %[[P:.+]]: tensor<3xf32>
// CHECK:         %[[F:.+]] = "stablehlo.reshape"(%[[G]]) : (tensor<5x1xf32>) -> tensor<5xf32>
// CHECK:         %[[Z:.+]] = "stablehlo.constant"() {value = dense<0.000000e+00> : tensor<1xf32>}
// CHECK:         %[[W:.+]] = "stablehlo.concatenate"(%[[F]], %[[Z]]) {{.+}} -> tensor<6xf32>
// CHECK:         "stablehlo.convert"(%[[W]]) : (tensor<6xf32>) -> tensor<6xf16>
// CHECK:         "stablehlo.reduce_scatter"(%{{.+}}) ({
// CHECK:         }) {channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, replica_groups = dense<{{\[\[}}0, 1]]> : tensor<1x2xi64>, scatter_dimension = 0 : i64, use_global_device_ids} : (tensor<6xf16>) -> tensor<3xf16>
// CHECK:         %[[A:.+]] = "stablehlo.all_gather"(%[[P]]) {all_gather_dim = 0 : i64, channel_handle = #stablehlo.channel_handle<handle = 2, type = 1>
// CHECK-SAME:      -> tensor<6xf32>
// CHECK:         %[[C:.+]] = "stablehlo.slice"(%[[A]]) {{.+}} -> tensor<5xf32>
// CHECK:         "stablehlo.reshape"(%[[C]]) : (tensor<5xf32>) -> tensor<5x1xf32>
ddp.process_group @dp size 2
func.func @parts(%g: tensor<5x1xf32>, %p: tensor<3xf32>) -> (tensor<3xf32>, tensor<5x1xf32>) {
  %0 = ddp.reduce_scatter mean %g on @dp wire f16 : tensor<5x1xf32> -> tensor<3xf32>
  %1 = ddp.all_gather %p on @dp : tensor<3xf32> -> tensor<5x1xf32>
  return %0, %1 : tensor<3xf32>, tensor<5x1xf32>
}

// -----

// CHECK-LABEL: func.func @others(
// CHECK:         "stablehlo.all_to_all"(%{{.+}}) {channel_handle = {{.+}}, concat_dimension = 0 : i64, replica_groups = dense<{{\[\[}}0, 2], [1, 3]]> : tensor<2x2xi64>, split_count = 2 : i64, split_dimension = 0 : i64} : (tensor<2x6xf32>) -> tensor<2x6xf32>
// CHECK:         "stablehlo.collective_broadcast"(%{{.+}}) {channel_handle = {{.+}}, replica_groups = dense<{{\[\[}}2, 0], [3, 1]]> : tensor<2x2xi64>} : (tensor<12xf32>) -> tensor<12xf32>
ddp.process_group @pairs size 2 ranks [[0, 2], [1, 3]]
func.func @others(%a: tensor<4x3xf32>) -> (tensor<4x3xf32>, tensor<4x3xf32>) {
  %0 = ddp.all_to_all %a on @pairs : tensor<4x3xf32>
  %1 = ddp.broadcast %a from 1 on @pairs : tensor<4x3xf32>
  return %0, %1 : tensor<4x3xf32>, tensor<4x3xf32>
}
