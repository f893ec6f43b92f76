// RUN: split-file %s %t
// RUN: ddphook-opt %t/sums.mlir --ddp-expand-hooks="hook=allreduce_and_upcast reduce_dtype=f32" | FileCheck %s --check-prefixes=SUMS,F32
// RUN: ddphook-opt %t/sums.mlir --ddp-expand-hooks="hook='#ddp.allreduce_and_upcast<reduce_dtype = f32>'" | FileCheck %s --check-prefixes=SUMS,F32
// RUN: ddphook-opt %t/sums.mlir --ddp-expand-hooks="hook=allreduce-and-upcast" | FileCheck %s --check-prefixes=SUMS,OWN
// RUN: not ddphook-opt %t/sums.mlir --ddp-expand-hooks="hook=allreduce_and_upcast reduce_dtype=i8" 2>&1 | FileCheck %s --check-prefix=INTEGER
// RUN: not ddphook-opt %t/sums.mlir --ddp-expand-hooks="hook=allreduce_and_upcast reduce_dtype=wide" 2>&1 | FileCheck %s --check-prefix=UNKNOWN
// RUN: not ddphook-opt %t/sums.mlir --ddp-expand-hooks="hook=fp16 reduce_dtype=f32" 2>&1 | FileCheck %s --check-prefix=OTHER

// A sum in a type of its own: the division comes after the sum, and in its type.

// INTEGER: error: expected reduce_dtype to be f16, bf16, f32 or f64, but got 'i8'
// UNKNOWN: error: expected reduce-dtype to be a type such as f32, but got 'wide'
// OTHER: error: expected reduce-dtype only with hook=allreduce_and_upcast, but got hook=fp16

//--- sums.mlir
ddp.process_group @dp

// SUMS-LABEL: @mean(
// F32: %[[WIDE:.+]] = ddp.cast %{{.+}} : !ddp.bucket<bf16, [4]> -> !ddp.bucket<f32, [4]>
// F32: %[[SUM:.+]] = ddp.all_reduce sum %[[WIDE]] on @dp as "b0" {{.+}} : !ddp.bucket<f32, [4]>
// F32: %[[MEAN:.+]] = ddp.scale %[[SUM]] by_world_of @dp : !ddp.bucket<f32, [4]>
// F32: ddp.cast %[[MEAN]] : !ddp.bucket<f32, [4]> -> !ddp.bucket<bf16, [4]>
// OWN-NOT: ddp.cast
// OWN: %[[SUM:.+]] = ddp.all_reduce sum %{{.+}} on @dp as "b0" {{.+}} : !ddp.bucket<bf16, [4]>
// OWN: ddp.scale %[[SUM]] by_world_of @dp : !ddp.bucket<bf16, [4]>
// OWN-NOT: ddp.cast
func.func @mean(%bucket: !ddp.bucket<bf16, [4]>) -> !ddp.bucket<bf16, [4]> {
  %0 = ddp.all_reduce mean %bucket on @dp as "b0" : !ddp.bucket<bf16, [4]>
  return %0 : !ddp.bucket<bf16, [4]>
}

// A sum is not divided, and a type that is the sum's is not cast.
// SUMS-LABEL: @sum(
// SUMS-NOT: ddp.scale
// SUMS: ddp.all_reduce sum %{{.+}} on @dp as "b1" {{.+}} : !ddp.bucket<f32, [3]>
// SUMS-NOT: ddp.{{scale|cast}}
// SUMS: return
func.func @sum(%bucket: !ddp.bucket<f32, [3]>) -> !ddp.bucket<f32, [3]> {
  %0 = ddp.all_reduce sum %bucket on @dp as "b1" : !ddp.bucket<f32, [3]>
  return %0 : !ddp.bucket<f32, [3]>
}
