// RUN: ddphook-opt %s -split-input-file --ddp-import-shard | FileCheck %s
// RUN: ddphook-opt %s -split-input-file --ddp-import-shard=gradient-axes=0 | FileCheck %s --check-prefix=EXACT
// RUN: ddphook-opt %s -split-input-file --ddp-import-shard --remarks-filter=ddp-import-shard 2>&1 >/dev/null | FileCheck %s --check-prefix=REMARK

// A reduce-scatter and an all-gather by themselves, as of parameters in parts. Parts along
// a first dimension lie in one piece, and so they do behind dimensions of one element.

// REMARK: [Passed] Exchange {{.+}}g_1, exact=false
// CHECK-DAG:   ddp.process_group @g_0 size 2 ranks {{\[}}[0, 3], [1, 4], [2, 5]]
// CHECK-DAG:   ddp.process_group @g_1 size 3 ranks {{\[}}[0, 1, 2], [3, 4, 5]]
// CHECK-DAG:   ddp.process_group @g_0_1 size 6
// CHECK-LABEL: func.func @first(
// CHECK-SAME:      %[[A:.+]]: tensor<6x4xf32>, %[[B:.+]]: tensor<1x12xbf16>, %[[C:.+]]: tensor<2x3xf64>
// CHECK-NEXT:    %[[P:.+]] = ddp.reduce_scatter mean %[[A]] on @g_1 {test.of = "a"} : tensor<6x4xf32> -> tensor<8xf32>
// CHECK-NEXT:    %[[R:.+]] = tensor.expand_shape %[[P]] {{\[}}[0, 1]] output_shape [2, 4]
// CHECK-NEXT:    %[[Q:.+]] = ddp.reduce_scatter sum %[[B]] on @g_0_1 : tensor<1x12xbf16> -> tensor<2xbf16>
// CHECK-NEXT:    %[[S:.+]] = tensor.expand_shape %[[Q]] {{\[}}[0, 1]] output_shape [1, 2]
// CHECK-NEXT:    %[[F:.+]] = tensor.collapse_shape %[[C]] {{\[}}[0, 1]]
// CHECK-NEXT:    %[[G:.+]] = ddp.all_gather %[[F]] on @g_0 : tensor<6xf64> -> tensor<4x3xf64>
// CHECK-NEXT:    return %[[R]], %[[S]], %[[G]]
// Over axis 1 no gradients are reduced.
// EXACT: ddp.reduce_scatter mean %{{.+}} on @g_1 {ddp.hook = #ddp.allreduce, test.of = "a"}
// EXACT: ddp.reduce_scatter sum %{{.+}} on @g_0_1 {ddp.hook = #ddp.allreduce}
shard.grid @g(shape = 2x3)
func.func @first(%a: tensor<6x4xf32>, %b: tensor<1x12xbf16>, %c: tensor<2x3xf64>)
    -> (tensor<2x4xf32>, tensor<1x2xbf16>, tensor<4x3xf64>) {
  %0 = shard.reduce_scatter %a on @g grid_axes = [1] reduction = average
      scatter_axis = 0 {test.of = "a"} : tensor<6x4xf32> -> tensor<2x4xf32>
  %1 = shard.reduce_scatter %b on @g grid_axes = [0, 1] scatter_axis = 1
      : tensor<1x12xbf16> -> tensor<1x2xbf16>
  %2 = shard.all_gather %c on @g grid_axes = [0] gather_axis = 0
      : tensor<2x3xf64> -> tensor<4x3xf64>
  return %0, %1, %2 : tensor<2x4xf32>, tensor<1x2xbf16>, tensor<4x3xf64>
}

// -----

// Others are transposed, so that they do. What is used beside its all-gather, or gathered
// along another dimension, is two exchanges.

// CHECK-LABEL: func.func @other(
// CHECK-SAME:      %[[A:.+]]: tensor<4x6x2xf32>
// CHECK:         %[[T:.+]] = linalg.transpose ins(%[[A]] : tensor<4x6x2xf32>) outs(%{{.+}} : tensor<6x4x2xf32>) permutation = [1, 0, 2]
// CHECK-NEXT:    %[[P:.+]] = ddp.reduce_scatter sum %[[T]] on @g_0 : tensor<6x4x2xf32> -> tensor<24xf32>
// CHECK-NEXT:    %[[E:.+]] = tensor.expand_shape %[[P]] {{\[}}[0, 1, 2]] output_shape [3, 4, 2]
// CHECK:         %[[R:.+]] = linalg.transpose ins(%[[E]] : tensor<3x4x2xf32>) outs(%{{.+}} : tensor<4x3x2xf32>) permutation = [1, 0, 2]
// CHECK:         %[[U:.+]] = linalg.transpose ins(%[[R]] : tensor<4x3x2xf32>) outs(%{{.+}} : tensor<2x4x3xf32>) permutation = [2, 0, 1]
// CHECK-NEXT:    %[[F:.+]] = tensor.collapse_shape %[[U]] {{\[}}[0, 1, 2]]
// CHECK-NEXT:    %[[G:.+]] = ddp.all_gather %[[F]] on @g_0 : tensor<24xf32> -> tensor<4x4x3xf32>
// CHECK:         %[[B:.+]] = linalg.transpose ins(%[[G]] : tensor<4x4x3xf32>) outs(%{{.+}} : tensor<4x3x4xf32>) permutation = [1, 2, 0]
// CHECK:         return %[[R]], %[[B]]
shard.grid @g(shape = 2)
func.func @other(%a: tensor<4x6x2xf32>) -> (tensor<4x3x2xf32>, tensor<4x3x4xf32>) {
  %0 = shard.reduce_scatter %a on @g grid_axes = [0] scatter_axis = 1
      : tensor<4x6x2xf32> -> tensor<4x3x2xf32>
  %1 = shard.all_gather %0 on @g grid_axes = [0] gather_axis = 2
      : tensor<4x3x2xf32> -> tensor<4x3x4xf32>
  return %0, %1 : tensor<4x3x2xf32>, tensor<4x3x4xf32>
}

// -----

// All-to-alls and broadcasts. The parts move to the first dimension for the exchange, and
// the received parts to the dimension along which they are concatenated.

// CHECK-LABEL: func.func @every(
// CHECK-SAME:      %[[A:.+]]: tensor<3x4xf32>
// CHECK-NEXT:    %[[E:.+]] = tensor.expand_shape %[[A]] {{\[}}[0], [1, 2]] output_shape [3, 2, 2]
// CHECK:         %[[T:.+]] = linalg.transpose ins(%[[E]] : tensor<3x2x2xf32>) outs(%{{.+}} : tensor<2x3x2xf32>) permutation = [1, 0, 2]
// CHECK-NEXT:    %[[X:.+]] = ddp.all_to_all %[[T]] on @g_1 : tensor<2x3x2xf32>
// CHECK-NEXT:    %[[C:.+]] = tensor.collapse_shape %[[X]] {{\[}}[0, 1], [2]]
// CHECK-NEXT:    %[[B:.+]] = ddp.broadcast %[[A]] from 5 on @g_0_1 : tensor<3x4xf32>
// CHECK-NEXT:    return %[[C]], %[[B]]
shard.grid @g(shape = 3x2)
func.func @every(%a: tensor<3x4xf32>) -> (tensor<6x2xf32>, tensor<3x4xf32>) {
  %0 = shard.all_to_all %a on @g grid_axes = [1] split_axis = 1 concat_axis = 0
      : tensor<3x4xf32> -> tensor<6x2xf32>
  %1 = shard.broadcast %a on @g grid_axes = [0, 1] root = [2, 1]
      : (tensor<3x4xf32>) -> tensor<3x4xf32>
  return %0, %1 : tensor<6x2xf32>, tensor<3x4xf32>
}
