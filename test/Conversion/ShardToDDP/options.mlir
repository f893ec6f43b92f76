// RUN: ddphook-opt %s --ddp-import-shard="keep-others=true allow-repeated=true gradient-axes=0" --remarks-filter='ddp-.*' 2>%t.remarks | FileCheck %s
// RUN: FileCheck %s --check-prefix=REMARKS --input-file=%t.remarks
// RUN: not ddphook-opt %s --ddp-import-shard="keep-others=true" 2>&1 | FileCheck %s --check-prefix=REPEATED
// RUN: not ddphook-opt %s --ddp-import-shard="keep-others=true allow-repeated=true gradient-axes=0,2" 2>&1 | FileCheck %s --check-prefix=AXES
// RUN: not ddphook-opt %s --ddp-import-shard="keep-others=true allow-repeated=true gradient-axes=-1" 2>&1 | FileCheck %s --check-prefix=NEGATIVE

// REPEATED: error: 'shard.all_reduce' op expected a value that is not reduced over axis 0 of @g yet
// AXES: error: expected gradient-axes to be axes of a grid, but got 2
// NEGATIVE: error: expected gradient-axes to be axes of a grid, but got -1

// The grid stays, for those who still use it.
// CHECK: shard.grid @g
shard.grid @g(shape = 2x2)

// CHECK-LABEL: func.func @gradient_axes
func.func @gradient_axes(%a: tensor<4xf32>, %b: tensor<4xf32>)
    -> (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) {
  // CHECK-NEXT: ddp.all_reduce sum %{{.+}} on @g_0 : tensor<4xf32>
  %0 = shard.all_reduce %a on @g grid_axes = [0] : tensor<4xf32> -> tensor<4xf32>
  // CHECK-NEXT: ddp.all_reduce sum %{{.+}} on @g_1 {ddp.hook = #ddp.allreduce} : tensor<4xf32>
  %1 = shard.all_reduce %a on @g grid_axes = [1] : tensor<4xf32> -> tensor<4xf32>
  // CHECK-NEXT: ddp.all_reduce sum %{{.+}} on @g_0_1 {ddp.hook = #ddp.allreduce} : tensor<4xf32>
  %2 = shard.all_reduce %b on @g grid_axes = [0, 1] : tensor<4xf32> -> tensor<4xf32>
  // CHECK-NEXT: ddp.all_reduce sum %{{.+}} on @g_0 : tensor<4xf32>
  %3 = shard.all_reduce %0 on @g grid_axes = [0] : tensor<4xf32> -> tensor<4xf32>
  return %0, %1, %2, %3
      : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
}

// CHECK-LABEL: func.func @others
func.func @others(%a: tensor<4xi32>, %b: tensor<4xf32>)
    -> (tensor<4xi32>, tensor<4xf32>, tensor<4xf32>, index) {
  // CHECK-NEXT: shard.all_reduce %{{.+}} on @g grid_axes = [0] : tensor<4xi32>
  %0 = shard.all_reduce %a on @g grid_axes = [0] : tensor<4xi32> -> tensor<4xi32>
  // CHECK-NEXT: shard.all_reduce %{{.+}} on @g grid_axes = [0] reduction = {{ *}}max
  %1 = shard.all_reduce %b on @g grid_axes = [0] reduction = max
      : tensor<4xf32> -> tensor<4xf32>
  // CHECK-NEXT: ddp.broadcast %{{.+}} from 0 on @g_0
  %2 = shard.broadcast %b on @g grid_axes = [0] root = [0]
      : (tensor<4xf32>) -> tensor<4xf32>
  // CHECK-NEXT: shard.process_linear_index
  %3 = shard.process_linear_index on @g : index
  return %0, %1, %2, %3 : tensor<4xi32>, tensor<4xf32>, tensor<4xf32>, index
}

// REMARKS-DAG: [Passed] Reduction | Category:ddp-import-shard | Remark=g_0, exact=false
// REMARKS-DAG: [Passed] Reduction | Category:ddp-import-shard | Remark=g_1, exact=true
// REMARKS-DAG: [Missed] Kept | Category:ddp-import-shard | Remark="shard.all_reduce: expected the reduction sum or average, but got max"
// REMARKS-DAG: [Passed] Exchange | Category:ddp-import-shard | Remark=g_0, exact=false
