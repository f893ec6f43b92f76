// RUN: ddphook-opt %s --ddp-import-stablehlo="keep-others=true allow-repeated=true gradient-axes=dp" --remarks-filter='ddp-.*' 2>%t.remarks | FileCheck %s
// RUN: FileCheck %s --check-prefix=REMARKS --input-file=%t.remarks
// RUN: not ddphook-opt %s --ddp-import-stablehlo="keep-others=true" 2>&1 | FileCheck %s --check-prefix=REPEATED
// RUN: not ddphook-opt %s --ddp-import-stablehlo="keep-others=true allow-repeated=true gradient-axes=dp,pp" 2>&1 | FileCheck %s --check-prefix=AXES
// RUN: echo 'module {}' | not ddphook-opt --ddp-import-stablehlo="gradient-axes=dp" 2>&1 | FileCheck %s --check-prefix=NO-MESH

// REPEATED: error: 'stablehlo.all_reduce' op expected a value that is not reduced over the same ranks yet
// AXES: error: expected gradient-axes to be axes of a mesh, but got 'pp'
// NO-MESH: error: expected gradient-axes to be axes of a mesh, but got 'dp'; the module has none, as 'sdy-drop-sharding-and-mesh' leaves it

"sdy.mesh"() <{mesh = #sdy.mesh<["dp"=2, "mp"=2]>, sym_name = "mesh"}> : () -> ()

// CHECK-LABEL: func.func @gradient_axes(
func.func @gradient_axes(%a: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) {
  // CHECK-NEXT: ddp.all_reduce sum %{{.+}} on @dp : tensor<4xf32>
  %0 = "stablehlo.all_reduce"(%a) <{replica_groups = dense<[[0, 2], [1, 3]]> : tensor<2x2xi64>}> ({
  ^bb0(%x: tensor<f32>, %y: tensor<f32>):
    %s = "stablehlo.add"(%x, %y) : (tensor<f32>, tensor<f32>) -> tensor<f32>
    "stablehlo.return"(%s) : (tensor<f32>) -> ()
  }) : (tensor<4xf32>) -> tensor<4xf32>
  // CHECK-NEXT: ddp.all_reduce sum %{{.+}} on @mp {ddp.hook = #ddp.allreduce} : tensor<4xf32>
  %1 = "stablehlo.all_reduce"(%a) <{replica_groups = dense<[[0, 1], [2, 3]]> : tensor<2x2xi64>}> ({
  ^bb0(%x: tensor<f32>, %y: tensor<f32>):
    %s = "stablehlo.add"(%x, %y) : (tensor<f32>, tensor<f32>) -> tensor<f32>
    "stablehlo.return"(%s) : (tensor<f32>) -> ()
  }) : (tensor<4xf32>) -> tensor<4xf32>
  // CHECK-NEXT: ddp.all_reduce sum %{{.+}} on @replicas {ddp.hook = #ddp.allreduce} : tensor<4xf32>
  %2 = "stablehlo.all_reduce"(%a) <{replica_groups = dense<[[0, 3], [2, 1]]> : tensor<2x2xi64>}> ({
  ^bb0(%x: tensor<f32>, %y: tensor<f32>):
    %s = "stablehlo.add"(%x, %y) : (tensor<f32>, tensor<f32>) -> tensor<f32>
    "stablehlo.return"(%s) : (tensor<f32>) -> ()
  }) : (tensor<4xf32>) -> tensor<4xf32>
  // CHECK-NEXT: ddp.all_reduce sum %{{.+}} on @dp : tensor<4xf32>
  %3 = "stablehlo.all_reduce"(%0) <{replica_groups = dense<[[0, 2], [1, 3]]> : tensor<2x2xi64>}> ({
  ^bb0(%x: tensor<f32>, %y: tensor<f32>):
    %s = "stablehlo.add"(%x, %y) : (tensor<f32>, tensor<f32>) -> tensor<f32>
    "stablehlo.return"(%s) : (tensor<f32>) -> ()
  }) : (tensor<4xf32>) -> tensor<4xf32>
  return %0, %1, %2, %3 : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
}

// CHECK-LABEL: func.func @others(
func.func @others(%a: tensor<4xi32>) -> (tensor<4xi32>, tensor<8xi32>, tensor<ui32>) {
  // CHECK-NEXT: "stablehlo.all_reduce"
  %0 = "stablehlo.all_reduce"(%a) <{replica_groups = dense<[[0, 1, 2, 3]]> : tensor<1x4xi64>}> ({
  ^bb0(%x: tensor<i32>, %y: tensor<i32>):
    %s = "stablehlo.add"(%x, %y) : (tensor<i32>, tensor<i32>) -> tensor<i32>
    "stablehlo.return"(%s) : (tensor<i32>) -> ()
  }) : (tensor<4xi32>) -> tensor<4xi32>
  // CHECK: "stablehlo.all_gather"
  %1 = "stablehlo.all_gather"(%a) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1], [2, 3]]> : tensor<2x2xi64>}> : (tensor<4xi32>) -> tensor<8xi32>
  // CHECK-NEXT: "stablehlo.partition_id"
  %2 = "stablehlo.partition_id"() : () -> tensor<ui32>
  return %0, %1, %2 : tensor<4xi32>, tensor<8xi32>, tensor<ui32>
}

// REMARKS-DAG: [Passed] Reduction | Category:ddp-import-stablehlo | {{.*}}Remark=dp, exact=false, mean=false
// REMARKS-DAG: [Passed] Reduction | Category:ddp-import-stablehlo | {{.*}}Remark=mp, exact=true, mean=false
// REMARKS-DAG: [Missed] Kept | Category:ddp-import-stablehlo | {{.*}}Remark="stablehlo.all_reduce: expected statically shaped tensors of {{.+}}, but got 'tensor<4xi32>'"
// REMARKS-DAG: [Missed] Kept | Category:ddp-import-stablehlo | {{.*}}Remark="stablehlo.all_gather: expected statically shaped tensors of {{.+}}"
