// RUN: ddphook-opt %s --split-input-file --ddp-import-shard | FileCheck %s
// RUN: ddphook-opt %s --split-input-file --ddp-import-shard --ddp-import-shard | FileCheck %s

// Over all axes: the whole job. Over some: groups of processes that agree on the
// others, numbered with the last axis first. Axes in any order are one group.

// CHECK-NOT: shard.grid
// CHECK-DAG: ddp.process_group @g_0 size 2 ranks {{\[\[}}0, 3], [1, 4], [2, 5]]
// CHECK-DAG: ddp.process_group @g_1 size 3 ranks {{\[\[}}0, 1, 2], [3, 4, 5]]
// CHECK-DAG: ddp.process_group @g_0_1 size 6{{$}}
// CHECK-LABEL: func.func @axes
// CHECK-SAME: (%[[A:.+]]: tensor<4xf32>, %[[B:.+]]: tensor<4xf16>, %[[C:.+]]: tensor<2x3xbf16>, %[[D:.+]]: tensor<4xf64>)
shard.grid @g(shape = 2x3)
func.func @axes(%a: tensor<4xf32>, %b: tensor<4xf16>, %c: tensor<2x3xbf16>,
                %d: tensor<4xf64>)
    -> (tensor<4xf32>, tensor<4xf16>, tensor<2x3xbf16>, tensor<4xf64>) {
  // CHECK: ddp.all_reduce sum %[[A]] on @g_0 : tensor<4xf32>
  %0 = shard.all_reduce %a on @g grid_axes = [0] : tensor<4xf32> -> tensor<4xf32>
  // CHECK: ddp.all_reduce mean %[[B]] on @g_1 : tensor<4xf16>
  %1 = shard.all_reduce %b on @g grid_axes = [1] reduction = average
      : tensor<4xf16> -> tensor<4xf16>
  // CHECK: ddp.all_reduce sum %[[C]] on @g_0_1 : tensor<2x3xbf16>
  %2 = shard.all_reduce %c on @g grid_axes = [0, 1] reduction = sum
      : tensor<2x3xbf16> -> tensor<2x3xbf16>
  // CHECK: ddp.all_reduce sum %[[D]] on @g_0_1 : tensor<4xf64>
  %3 = shard.all_reduce %d on @g grid_axes = [1, 0] : tensor<4xf64> -> tensor<4xf64>
  return %0, %1, %2, %3
      : tensor<4xf32>, tensor<4xf16>, tensor<2x3xbf16>, tensor<4xf64>
}

// -----

// Three axes; one along which there is one process.

// CHECK-DAG: ddp.process_group @g_1 size 2 ranks {{\[\[}}0, 2], [1, 3], [4, 6], [5, 7]]
// CHECK-DAG: ddp.process_group @g_0_2 size 4 ranks {{\[\[}}0, 1, 4, 5], [2, 3, 6, 7]]
// CHECK-DAG: ddp.process_group @thin_0 size 3{{$}}
// CHECK-DAG: ddp.process_group @thin_1 size 1 ranks {{\[\[}}0], [1], [2]]
// CHECK-LABEL: func.func @more_axes
shard.grid @g(shape = 2x2x2)
shard.grid @thin(shape = 3x1)
func.func @more_axes(%a: tensor<4xf32>)
    -> (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) {
  %0 = shard.all_reduce %a on @g grid_axes = [1] : tensor<4xf32> -> tensor<4xf32>
  %1 = shard.all_reduce %a on @g grid_axes = [0, 2] : tensor<4xf32> -> tensor<4xf32>
  %2 = shard.all_reduce %a on @thin grid_axes = [0] : tensor<4xf32> -> tensor<4xf32>
  %3 = shard.all_reduce %a on @thin grid_axes = [1] : tensor<4xf32> -> tensor<4xf32>
  return %0, %1, %2, %3
      : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
}

// -----

// A job of any size. A name that the program has already is another one's.

// CHECK: ddp.process_group @[[GROUP:g_0_.+]]{{$}}
// CHECK-LABEL: func.func @any_size
shard.grid @g(shape = ?)
func.func private @g_0()
func.func @any_size(%a: tensor<4xf32>) -> tensor<4xf32> {
  // CHECK: ddp.all_reduce mean %{{.+}} on @[[GROUP]] : tensor<4xf32>
  %0 = shard.all_reduce %a on @g grid_axes = [0] reduction = average
      : tensor<4xf32> -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// -----

// Scalars are reduced exactly. Attributes stay.

// CHECK-LABEL: func.func @attributes
shard.grid @g(shape = 2)
func.func @attributes(%loss: tensor<f32>, %a: tensor<4xf32>)
    -> (tensor<f32>, tensor<4xf32>) {
  // CHECK: ddp.all_reduce mean %{{.+}} on @g_0 {ddp.hook = #ddp.allreduce} : tensor<f32>
  %0 = shard.all_reduce %loss on @g grid_axes = [0] reduction = average
      : tensor<f32> -> tensor<f32>
  // CHECK: ddp.all_reduce sum %{{.+}} on @g_0 {test.of = "layer.weight"} : tensor<4xf32>
  %1 = shard.all_reduce %a on @g grid_axes = [0] {test.of = "layer.weight"}
      : tensor<4xf32> -> tensor<4xf32>
  return %0, %1 : tensor<f32>, tensor<4xf32>
}

// -----

// A reduce-scatter with its all-gather. The all-reduce takes the place, and keeps
// the attributes, of the former.

// CHECK-LABEL: func.func @scatter_gather
// CHECK-SAME: (%[[A:.+]]: tensor<4x6xf32>, %[[B:.+]]: tensor<4x6xf32>)
// CHECK-NEXT: %[[R:.+]] = ddp.all_reduce mean %[[A]] on @g_0_1 {test.of = "a"} : tensor<4x6xf32>
// CHECK-NEXT: %[[S:.+]] = ddp.all_reduce sum %[[B]] on @g_1 : tensor<4x6xf32>
// CHECK-NEXT: return %[[R]], %[[S]]
shard.grid @g(shape = 2x3)
func.func @scatter_gather(%a: tensor<4x6xf32>, %b: tensor<4x6xf32>)
    -> (tensor<4x6xf32>, tensor<4x6xf32>) {
  %0 = shard.reduce_scatter %a on @g grid_axes = [1, 0] reduction = average
      scatter_axis = 1 {test.of = "a"} : tensor<4x6xf32> -> tensor<4x1xf32>
  %1 = shard.reduce_scatter %b on @g grid_axes = [1] scatter_axis = 1
      : tensor<4x6xf32> -> tensor<4x2xf32>
  %2 = shard.all_gather %0 on @g grid_axes = [1, 0] gather_axis = 1
      : tensor<4x1xf32> -> tensor<4x6xf32>
  %3 = shard.all_gather %1 on @g grid_axes = [1] gather_axis = 1
      : tensor<4x2xf32> -> tensor<4x6xf32>
  return %2, %3 : tensor<4x6xf32>, tensor<4x6xf32>
}

// -----

// Over one axis and then over another is no repetition; nor is over an axis with
// one process, or of a value to which something was added.

// CHECK-LABEL: func.func @not_repeated
// CHECK-COUNT-5: ddp.all_reduce
shard.grid @g(shape = 2x2x1)
func.func @not_repeated(%a: tensor<4xf32>, %b: tensor<4xf32>)
    -> (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) {
  %0 = shard.all_reduce %a on @g grid_axes = [0] : tensor<4xf32> -> tensor<4xf32>
  %1 = shard.all_reduce %0 on @g grid_axes = [1] : tensor<4xf32> -> tensor<4xf32>
  %2 = shard.all_reduce %b on @g grid_axes = [2] : tensor<4xf32> -> tensor<4xf32>
  %3 = shard.all_reduce %2 on @g grid_axes = [2, 0] : tensor<4xf32> -> tensor<4xf32>
  %sum = arith.addf %0, %b : tensor<4xf32>
  %4 = shard.all_reduce %sum on @g grid_axes = [0] : tensor<4xf32> -> tensor<4xf32>
  return %1, %3, %4 : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
}

// -----

// What nothing uses goes, with the grid: collectives of the shard dialect are pure.

// CHECK-LABEL: func.func @unused
// CHECK-NEXT: return
// CHECK-NOT: shard
shard.grid @g(shape = 2)
func.func @unused(%a: tensor<4xf32>) {
  %0 = shard.all_reduce %a on @g grid_axes = [0] : tensor<4xf32> -> tensor<4xf32>
  %1 = shard.all_gather %0 on @g grid_axes = [0] gather_axis = 0
      : tensor<4xf32> -> tensor<8xf32>
  %2 = shard.process_linear_index on @g : index
  return
}

// -----

// In a module of a module.

// CHECK: module @inner
// CHECK-NEXT: ddp.process_group @g_0 size 2
// CHECK: ddp.all_reduce sum %{{.+}} on @g_0
module @inner {
  shard.grid @g(shape = 2)
  func.func @step(%a: tensor<4xf32>) -> tensor<4xf32> {
    %0 = shard.all_reduce %a on @g grid_axes = [0] : tensor<4xf32> -> tensor<4xf32>
    return %0 : tensor<4xf32>
  }
}
