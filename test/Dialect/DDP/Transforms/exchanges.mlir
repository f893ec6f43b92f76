// RUN: ddphook-opt %s --ddp-verify-sync --ddp-expand-hooks=hook=bf16 --ddp-verify-order | FileCheck %s --check-prefix=EXPAND
// RUN: ddphook-opt %s --ddp-expand-hooks=hook=bf16 --ddp-expand-hooks=hook=fp16 | FileCheck %s --check-prefix=EXPAND
// RUN: ddphook-opt %s --ddp-flatten | FileCheck %s --check-prefix=FLAT
// RUN: ddphook-opt %s --ddp-pipeline="require-no-copy=true" | FileCheck %s --check-prefix=CALLS
// RUN: ddphook-opt %s --ddp-pipeline="hook=bf16 verify-order=true" | FileCheck %s --check-prefix=PLAN
// RUN: ddphook-opt %s --ddp-pipeline="memory=device" | FileCheck %s --check-prefix=PLAN16

// Collectives on parts, from values to calls: hooks that are legal, flat
// arrays, no copies, the plan.

// CALLS:       collectives = [
// CALLS-SAME:    <kind = reduce_scatter, group = 0, count = 32, dtype = f32, divide = true>,
// CALLS-SAME:    <kind = all_gather, group = 0, count = 32, dtype = f32, divide = false>,
// CALLS-SAME:    <kind = reduce_scatter, group = 0, count = 9, dtype = f64, wire_dtype = f16, divide = false>,
// CALLS-SAME:    <kind = all_gather, group = 0, count = 9, dtype = f64, wire_dtype = bf16, divide = false>,
// CALLS-SAME:    <kind = all_gather, group = 0, count = 9, dtype = f64, wire_dtype = !ddp.encoded<i8, 32>, divide = false>,
// CALLS-SAME:    <kind = reduce_scatter, group = 0, count = 34, dtype = f32, wire_dtype = f16, divide = true>,
// CALLS-SAME:    <kind = all_gather, group = 0, count = 34, dtype = f32, divide = false>,
// CALLS-SAME:    <kind = all_to_all, group = 0, count = 32, dtype = f32, divide = false>,
// CALLS-SAME:    <kind = broadcast, group = 1, count = 32, dtype = f32, divide = false, root = 3>]

// PLAN:        <kind = reduce_scatter, group = 0, count = 32, dtype = f32, wire_dtype = bf16, divide = true>,
// PLAN16:      <kind = reduce_scatter, group = 0, count = 34, dtype = f32, wire_dtype = f16, divide = true>,

ddp.process_group @dp size 4
ddp.process_group @all

// An update of parameters by parts: the optimizer of ZeRO.
// EXPAND-LABEL: func.func @update(
// FLAT-LABEL:   func.func @update(
// CALLS-LABEL:  func.func @update(
func.func @update(%w: tensor<4x8xf32>, %g: tensor<4x8xf32>, %m: tensor<8xf32>)
    -> (tensor<4x8xf32> {ddp.gradient}) {
  // EXPAND: %[[S:.+]] = ddp.reduce_scatter mean %{{.+}} on @dp wire bf16 {ddp.hook = #ddp.allreduce} : tensor<4x8xf32> -> tensor<8xf32>
  // FLAT:   %[[E:.+]] = tensor.empty() : tensor<8xf32>
  // FLAT:   %[[S:.+]] = ddp.flat.reduce_scatter mean %{{.+}} on @dp into %[[E]] : tensor<4x8xf32>, tensor<8xf32>
  // CALLS:  llvm.call @ddphook_rt_collective(%{{.+}}, %{{.+}}, %{{.+}}, %{{.+}}, %{{.+}}) : (!llvm.ptr, i32, !llvm.ptr, !llvm.ptr, i64) -> ()
  %s = ddp.reduce_scatter mean %g on @dp : tensor<4x8xf32> -> tensor<8xf32>
  %e = tensor.empty() : tensor<8xf32>
  %n = linalg.add ins(%s, %m : tensor<8xf32>, tensor<8xf32>) outs(%e : tensor<8xf32>) -> tensor<8xf32>
  // EXPAND: ddp.all_gather %{{.+}} on @dp : tensor<8xf32> -> tensor<4x8xf32>
  // FLAT:   %[[F:.+]] = tensor.empty() : tensor<4x8xf32>
  // FLAT:   ddp.flat.all_gather %{{.+}} on @dp into %[[F]] : tensor<8xf32>, tensor<4x8xf32>
  // CALLS:  llvm.call @ddphook_rt_collective(
  %p = ddp.all_gather %n on @dp : tensor<8xf32> -> tensor<4x8xf32>
  return %p : tensor<4x8xf32>
}

// Wire types that the program asks for, and a hook that casts to another one.
// EXPAND-LABEL: func.func @wires(
// CALLS-LABEL:  func.func @wires(
func.func @wires(%g: tensor<9xf64>) -> tensor<9xf64> {
  // EXPAND: ddp.reduce_scatter sum %{{.+}} on @dp wire f16 {ddp.hook = #ddp.allreduce}
  %s = ddp.reduce_scatter sum %g on @dp wire f16 {ddp.hook = #ddp.allreduce} : tensor<9xf64> -> tensor<3xf64>
  // EXPAND: ddp.all_gather %{{.+}} on @dp wire bf16 : tensor<3xf64> -> tensor<9xf64>
  %p = ddp.all_gather %s on @dp wire bf16 : tensor<3xf64> -> tensor<9xf64>
  return %p : tensor<9xf64>
}

// Codes of parameters.
// CALLS-LABEL:  func.func @codes(
func.func @codes(%s: tensor<3xf64>) -> tensor<9xf64> {
  // FLAT:   ddp.flat.all_gather %{{.+}} on @dp wire !ddp.encoded<i8, 32> into %{{.+}} : tensor<3xf64>, tensor<9xf64>
  %p = ddp.all_gather %s on @dp wire !ddp.encoded<i8, 32> : tensor<3xf64> -> tensor<9xf64>
  return %p : tensor<9xf64>
}

// Several gradients in one collective; the shape of a bucket comes back.
// EXPAND-LABEL: func.func @bucket(
// FLAT-LABEL:   func.func @bucket(
// CALLS-LABEL:  func.func @bucket(
func.func @bucket(%a: tensor<4x8xf32>, %b: tensor<2xf32>) -> (tensor<4x8xf32>, tensor<2xf32>) {
  %e = tensor.empty() : tensor<4x8xf32>
  %x = linalg.exp ins(%a : tensor<4x8xf32>) outs(%e : tensor<4x8xf32>) -> tensor<4x8xf32>
  %f = tensor.empty() : tensor<2xf32>
  %y = linalg.exp ins(%b : tensor<2xf32>) outs(%f : tensor<2xf32>) -> tensor<2xf32>
  %p = ddp.pack %x, %y : tensor<4x8xf32>, tensor<2xf32> -> !ddp.bucket<f32, [4x8, 2]>
  // EXPAND: ddp.reduce_scatter mean %{{.+}} on @dp wire f16 {ddp.hook = #ddp.allreduce} : !ddp.bucket<f32, [4x8, 2]> -> tensor<9xf32>
  // FLAT:   ddp.flat.reduce_scatter mean %{{.+}} on @dp into %{{.+}} : tensor<34xf32>, tensor<9xf32>
  %s = ddp.reduce_scatter mean %p on @dp {ddp.hook = #ddp.fp16} : !ddp.bucket<f32, [4x8, 2]> -> tensor<9xf32>
  // FLAT:   ddp.flat.all_gather %{{.+}} on @dp into %{{.+}} : tensor<9xf32>, tensor<34xf32>
  %q = ddp.all_gather %s on @dp : tensor<9xf32> -> !ddp.bucket<f32, [4x8, 2]>
  %0, %1 = ddp.unpack %q : !ddp.bucket<f32, [4x8, 2]> -> tensor<4x8xf32>, tensor<2xf32>
  %u = tensor.empty() : tensor<4x8xf32>
  %v = linalg.add ins(%a, %0 : tensor<4x8xf32>, tensor<4x8xf32>) outs(%u : tensor<4x8xf32>) -> tensor<4x8xf32>
  %w = tensor.empty() : tensor<2xf32>
  %z = linalg.add ins(%b, %1 : tensor<2xf32>, tensor<2xf32>) outs(%w : tensor<2xf32>) -> tensor<2xf32>
  return %v, %z : tensor<4x8xf32>, tensor<2xf32>
}

// The all-to-all may not write where it reads, the broadcast does.
// FLAT-LABEL:  func.func @others(
// CALLS-LABEL: func.func @others(
func.func @others(%a: tensor<4x8xf32>) -> tensor<4x8xf32> {
  // FLAT: ddp.flat.all_to_all %{{.+}} on @dp into %{{.+}} : tensor<4x8xf32>, tensor<4x8xf32>
  // CALLS: llvm.call @ddphook_rt_collective(
  %x = ddp.all_to_all %a on @dp : tensor<4x8xf32>
  // FLAT: ddp.flat.broadcast %{{.+}} from 3 on @all into %{{.+}} : tensor<4x8xf32>, tensor<4x8xf32>
  // CALLS: llvm.call @ddphook_rt_collective(
  %y = ddp.broadcast %x from 3 on @all : tensor<4x8xf32>
  return %y : tensor<4x8xf32>
}
