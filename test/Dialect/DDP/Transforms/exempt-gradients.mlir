// RUN: ddphook-opt %s --split-input-file --ddp-exempt-gradients="exempt=bias|norm" | FileCheck %s
// RUN: ddphook-opt %s --split-input-file --ddp-exempt-gradients="exempt='^(bias|norm)' exempt-hook={powersgd matrix-approximation-rank=2}" | FileCheck %s --check-prefix=OTHER
// RUN: ddphook-opt %s --split-input-file --pass-pipeline='builtin.module(ddp-exempt-gradients{exempt=bias|norm},ddp-bucketize,ddp-expand-hooks{hook=int8})' | FileCheck %s --check-prefix=BUCKETS
// RUN: ddphook-opt %s --split-input-file --ddp-exempt-gradients="exempt=bias|norm" --remarks-filter='ddp-exempt.*' -o /dev/null 2>&1 | FileCheck %s --check-prefix=REMARK

// A name of the reduction's own, of an argument, in a location.

// CHECK-LABEL: func @by_name
// CHECK-DAG: mean %arg0 on @dp {ddp.name = "layer.weight"} :
// CHECK-DAG: mean %arg1 on @dp {ddp.hook = #ddp.allreduce, ddp.name = "layer.bias"} :
// CHECK-DAG: mean %arg2 on @dp {ddp.hook = #ddp.allreduce, ddp.name = "norm.0"} :
// CHECK-DAG: mean %arg3 on @dp {ddp.hook = #ddp.allreduce, ddp.name = "bias"} :

// OTHER-LABEL: func @by_name
// OTHER-DAG: mean %arg1 on @dp {ddp.name = "layer.bias"} :
// OTHER-DAG: mean %arg2 on @dp {ddp.hook = #ddp.powersgd<matrix_approximation_rank = 2>, ddp.name = "norm.0"} :
// OTHER-DAG: mean %arg3 on @dp {ddp.hook = #ddp.powersgd<matrix_approximation_rank = 2>, ddp.name = "bias"} :

// Those that are exempt share a bucket.

// BUCKETS-LABEL: func @by_name
// BUCKETS-DAG: ddp.all_reduce mean %{{.*}} on @dp wire !ddp.encoded<i8, 256> as "b0" {{.*}} : !ddp.bucket<f32, [4x8]>
// BUCKETS-DAG: ddp.bucket_info {{.*}} hook #ddp.int8 {{.*}} of ["layer.weight"]
// BUCKETS-DAG: ddp.bucket_info {{.*}} hook #ddp.allreduce {{.*}} of ["layer.bias", "norm.0", "bias"]

// REMARK: remark: [Passed] Exempt | Category:ddp-exempt-gradients | Remark=layer.bias, hook=#ddp.allreduce

ddp.process_group @dp
func.func @by_name(%a: tensor<4x8xf32>, %b: tensor<8xf32>,
                   %c: tensor<4xf32> {ddp.name = "norm.0"}, %d: tensor<3xf32>)
    -> (tensor<4x8xf32>, tensor<8xf32>, tensor<4xf32>, tensor<3xf32>) {
  %0 = ddp.all_reduce mean %a on @dp {ddp.name = "layer.weight"} : tensor<4x8xf32>
  %1 = ddp.all_reduce mean %b on @dp {ddp.name = "layer.bias"} : tensor<8xf32>
  %2 = ddp.all_reduce mean %c on @dp : tensor<4xf32>
  %3 = ddp.all_reduce mean %d on @dp : tensor<3xf32> loc("bias")
  return %0, %1, %2, %3
      : tensor<4x8xf32>, tensor<8xf32>, tensor<4xf32>, tensor<3xf32>
}

// -----

// A hook of the function counts less, one of the operation more.

// CHECK-LABEL: func @inner_hooks
// CHECK-SAME: ddp.hook = #ddp.fp16
// CHECK-DAG: mean %arg0 on @dp {ddp.hook = #ddp.allreduce, ddp.name = "bias.0"} :
// CHECK-DAG: mean %arg1 on @dp {ddp.hook = #ddp.bf16, ddp.name = "bias.1"} :

// OTHER-LABEL: func @inner_hooks
// OTHER-DAG: mean %arg1 on @dp {ddp.hook = #ddp.bf16, ddp.name = "bias.1"} :

// BUCKETS-LABEL: func @inner_hooks

ddp.process_group @dp
func.func @inner_hooks(%a: tensor<8xf32>, %b: tensor<8xf32>)
    -> (tensor<8xf32>, tensor<8xf32>) attributes {ddp.hook = #ddp.fp16} {
  %0 = ddp.all_reduce mean %a on @dp {ddp.name = "bias.0"} : tensor<8xf32>
  %1 = ddp.all_reduce mean %b on @dp {ddp.hook = #ddp.bf16, ddp.name = "bias.1"}
      : tensor<8xf32>
  return %0, %1 : tensor<8xf32>, tensor<8xf32>
}

// -----

// Reductions of memory, and buckets that the module has already.

// CHECK-LABEL: func @other_forms
// CHECK-DAG: mean %arg0 on @dp into %arg1 : memref<8xf32>, {ddp.hook = #ddp.allreduce, ddp.name = "bias"} : memref
// CHECK-DAG: mean %arg1 on @dp into %arg1 : memref<8xf32>, {ddp.hook = #ddp.allreduce, ddp.name = "norm.1"} : memref
// CHECK-DAG: mean %{{.*}} on @dp as "b0" {ddp.hook = #ddp.allreduce} : !ddp.bucket<f32, [8]> of ["norm"]
// CHECK-DAG: mean %{{.*}} on @dp as "b1" : !ddp.bucket<f32, [8]> of ["weight"]

// OTHER-LABEL: func @other_forms
// BUCKETS-LABEL: func @other_forms

ddp.process_group @dp
func.func @other_forms(%a: memref<8xf32>, %b: memref<8xf32> {ddp.name = "norm.1"},
                       %c: tensor<8xf32>)
    -> (tensor<8xf32>, tensor<8xf32>) {
  ddp.all_reduce mean %a on @dp into %b : memref<8xf32>, {ddp.name = "bias"} : memref<8xf32>
  ddp.all_reduce mean %b on @dp into %b : memref<8xf32>, : memref<8xf32>
  %0 = ddp.pack %c : tensor<8xf32> -> !ddp.bucket<f32, [8]>
  %1 = ddp.all_reduce mean %0 on @dp as "b0" : !ddp.bucket<f32, [8]> of ["norm"]
  %2 = ddp.all_reduce mean %0 on @dp as "b1" : !ddp.bucket<f32, [8]> of ["weight"]
  %3 = ddp.unpack %1 : !ddp.bucket<f32, [8]> -> tensor<8xf32>
  %4 = ddp.unpack %2 : !ddp.bucket<f32, [8]> -> tensor<8xf32>
  return %3, %4 : tensor<8xf32>, tensor<8xf32>
}
