// RUN: ddphook-opt %s --ddp-expand-hooks | FileCheck %s
// RUN: ddphook-opt %s --ddp-bucketize --ddp-expand-hooks --ddp-verify-order | FileCheck %s
// RUN: ddphook-opt %s --ddp-pipeline="require-no-copy=true verify-order=true" | FileCheck %s --check-prefix=CALLS
// RUN: ddphook-opt %s --ddp-pipeline="topology=hierarchical memory=device" | FileCheck %s --check-prefix=CALLS

// Reduce-scatters whose hooks encode, with and without an error that is fed back.

// CHECK: ddp.state @feedback.result0.error : !ddp.bucket<f32, [4x8]> per_rank zero kind error role "int4.error" of {{\[\[}}"feedback.result0"{{\]\]}} under "mean #ddp.int4"
// CHECK: ddp.state @given.error : !ddp.bucket<f32, [4x8, 2]> per_rank zero kind error role "int8.error" of {{\[\[}}"given.0"], ["given.1"{{\]\]}} under "sum #ddp.int8<error_feedback = true>"

// CALLS: <kind = reduce_scatter, group = 0, count = 32, dtype = f32, wire_dtype = !ddp.encoded<i8, 256>, divide = true>
// CALLS-SAME: <kind = reduce_scatter, group = 0, count = 32, dtype = bf16, wire_dtype = !ddp.encoded<f16>, divide = false>
// CALLS-SAME: <kind = reduce_scatter, group = 0, count = 32, dtype = f32, wire_dtype = !ddp.encoded<i4, 64>, divide = true>
// CALLS-SAME: <kind = reduce_scatter, group = 0, count = 34, dtype = f32, wire_dtype = !ddp.encoded<i8, 256>, divide = false>

ddp.process_group @dp size 4

// CHECK-LABEL: func.func @tensors(
// CHECK-SAME:    %[[G:.+]]: tensor<4x8xf32>, %[[H:.+]]: tensor<4x8xbf16>
// CHECK-NEXT:    ddp.reduce_scatter mean %[[G]] on @dp wire !ddp.encoded<i8, 256> {ddp.hook = #ddp.allreduce} : tensor<4x8xf32> -> tensor<8xf32>
// CHECK-NEXT:    ddp.reduce_scatter sum %[[H]] on @dp wire !ddp.encoded<f16> {ddp.hook = #ddp.allreduce} : tensor<4x8xbf16> -> tensor<8xbf16>
func.func @tensors(%g: tensor<4x8xf32>, %h: tensor<4x8xbf16>) -> (tensor<8xf32>, tensor<8xbf16>) {
  %s = ddp.reduce_scatter mean %g on @dp {ddp.hook = #ddp.int8} : tensor<4x8xf32> -> tensor<8xf32>
  %t = ddp.reduce_scatter sum %h on @dp {ddp.hook = #ddp.fp16<accumulate = f32>} : tensor<4x8xbf16> -> tensor<8xbf16>
  return %s, %t : tensor<8xf32>, tensor<8xbf16>
}

// The error is one of all that is sent.
// CHECK-LABEL: func.func @feedback(
// CALLS-LABEL: func.func @feedback(
func.func @feedback(%a: tensor<4x8xf32>) -> tensor<8xf32> {
  %e = tensor.empty() : tensor<4x8xf32>
  // CHECK: %[[G:.+]] = linalg.exp
  %g = linalg.exp ins(%a : tensor<4x8xf32>) outs(%e : tensor<4x8xf32>) -> tensor<4x8xf32>
  // CHECK: %[[B:.+]] = ddp.pack %[[G]] : tensor<4x8xf32> -> !ddp.bucket<f32, [4x8]>
  // CHECK: %[[LAST:.+]] = ddp.load @feedback.result0.error
  // CHECK: %[[M:.+]] = ddp.add %[[B]], %[[LAST]]
  // CHECK: %[[LOST:.+]] = ddp.encoding_error %[[M]] as !ddp.encoded<i4, 64>
  // CHECK: ddp.store %[[LOST]], @feedback.result0.error
  // CHECK: ddp.reduce_scatter mean %[[M]] on @dp wire !ddp.encoded<i4, 64> {ddp.hook = #ddp.allreduce} : !ddp.bucket<f32, [4x8]> -> tensor<8xf32>
  // CALLS: llvm.call @ddphook_rt_add
  // CALLS: llvm.call @ddphook_rt_encoding_error
  // CALLS: llvm.call @ddphook_rt_collective
  %s = ddp.reduce_scatter mean %g on @dp {ddp.hook = #ddp.int4} : tensor<4x8xf32> -> tensor<8xf32>
  return %s : tensor<8xf32>
}

// CHECK-LABEL: func.func @bucket(
func.func @bucket(%a: tensor<4x8xf32>, %b: tensor<2xf32>) -> tensor<9xf32> {
  %e = tensor.empty() : tensor<4x8xf32>
  %x = linalg.exp ins(%a : tensor<4x8xf32>) outs(%e : tensor<4x8xf32>) -> tensor<4x8xf32>
  %f = tensor.empty() : tensor<2xf32>
  %y = linalg.exp ins(%b : tensor<2xf32>) outs(%f : tensor<2xf32>) -> tensor<2xf32>
  %p = ddp.pack %x, %y : tensor<4x8xf32>, tensor<2xf32> -> !ddp.bucket<f32, [4x8, 2]>
  // CHECK: %[[M:.+]] = ddp.add
  // CHECK: ddp.reduce_scatter sum %[[M]] on @dp wire !ddp.encoded<i8, 256> {ddp.hook = #ddp.allreduce} : !ddp.bucket<f32, [4x8, 2]> -> tensor<9xf32>
  %s = ddp.reduce_scatter sum %p on @dp {ddp.hook = #ddp.int8<error_feedback = true>, ddp.name = "given"}
      : !ddp.bucket<f32, [4x8, 2]> -> tensor<9xf32>
  return %s : tensor<9xf32>
}

// The codes and the stream are in the plan, the step is in the call.
// CALLS-LABEL: func.func @by_chance(
// What is lost is computed while the codes travel.
// CALLS: llvm.call @ddphook_rt_collective_start
// CALLS: llvm.call @ddphook_rt_encoding_error
// CALLS: llvm.call @ddphook_rt_wait
// CHECK-LABEL: func.func @by_chance(
func.func @by_chance(%a: tensor<4x8xf32>) -> tensor<8xf32> {
  %e = tensor.empty() : tensor<4x8xf32>
  %g = linalg.exp ins(%a : tensor<4x8xf32>) outs(%e : tensor<4x8xf32>) -> tensor<4x8xf32>
  // CHECK: %[[STEP:.+]] = ddp.load @rounding.iter : i64
  // CHECK: %[[M:.+]] = ddp.add
  // CHECK: ddp.encoding_error %[[M]] as !ddp.encoded<i4, 64 stochastic [[STREAM:[0-9]+]]> step %[[STEP]] on @dp
  // CHECK: ddp.reduce_scatter mean %[[M]] on @dp wire !ddp.encoded<i4, 64 stochastic [[STREAM]]> step %[[STEP]]
  %s = ddp.reduce_scatter mean %g on @dp {ddp.hook = #ddp.int4<rounding = stochastic>}
      : tensor<4x8xf32> -> tensor<8xf32>
  return %s : tensor<8xf32>
}
