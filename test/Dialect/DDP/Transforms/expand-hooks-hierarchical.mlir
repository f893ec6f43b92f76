// RUN: ddphook-opt %s --ddp-bucketize="bucket-cap-mb=0" --ddp-expand-hooks --ddp-fuse -split-input-file -verify-diagnostics | FileCheck %s

// A node adds gradients as they are, and casts the sum: the cast is the wire's.
// That of operations is everybody's own, and stays one.

ddp.process_group @nodes topology hierarchical
ddp.process_group @alike

// CHECK-LABEL: func.func @cast_hooks
// CHECK-NOT:     ddp.cast
// CHECK:         ddp.all_reduce mean %{{.+}} on @nodes wire f16 as
// CHECK-NOT:     ddp.cast
// CHECK:         ddp.all_reduce mean %{{.+}} on @nodes wire bf16 as
// CHECK-NOT:     ddp.cast
// CHECK:         ddp.all_reduce mean %{{.+}} on @nodes wire !ddp.encoded<f16> as
// CHECK-NOT:     ddp.cast
// CHECK:         ddp.all_reduce mean %{{.+}} on @nodes as
// CHECK-NOT:     ddp.cast
func.func @cast_hooks(%a: tensor<64xf32>, %h: tensor<64xf16>)
    -> (tensor<64xf32>, tensor<64xf32>, tensor<64xf32>, tensor<64xf16>) {
  %0 = ddp.all_reduce mean %a on @nodes {ddp.hook = #ddp.fp16} : tensor<64xf32>
  %1 = ddp.all_reduce mean %a on @nodes {ddp.hook = #ddp.bf16} : tensor<64xf32>
  %2 = ddp.all_reduce mean %a on @nodes {ddp.hook = #ddp.fp16<accumulate = f32>} : tensor<64xf32>
  %3 = ddp.all_reduce mean %h on @nodes {ddp.hook = #ddp.fp16} : tensor<64xf16>
  return %0, %1, %2, %3
      : tensor<64xf32>, tensor<64xf32>, tensor<64xf32>, tensor<64xf16>
}

// CHECK-LABEL: func.func @written(
// CHECK:         %[[H:.+]] = ddp.cast
// CHECK-NEXT:    %[[R:.+]] = ddp.all_reduce mean %[[H]] on @nodes
// CHECK-NEXT:    ddp.cast %[[R]]
// CHECK:         ddp.all_reduce mean %{{.+}} on @alike wire f16
// CHECK-NOT:     ddp.cast
func.func @written(%b: !ddp.bucket<f32, [64]>)
    -> (!ddp.bucket<f32, [64]>, !ddp.bucket<f32, [64]>) {
  %h = ddp.cast %b : !ddp.bucket<f32, [64]> -> !ddp.bucket<f16, [64]>
  %r = ddp.all_reduce mean %h on @nodes as "c" {ddp.hook = #ddp.allreduce} : !ddp.bucket<f16, [64]>
  %0 = ddp.cast %r : !ddp.bucket<f16, [64]> -> !ddp.bucket<f32, [64]>
  %s = ddp.all_reduce mean %h on @alike as "d" {ddp.hook = #ddp.allreduce} : !ddp.bucket<f16, [64]>
  %1 = ddp.cast %s : !ddp.bucket<f16, [64]> -> !ddp.bucket<f32, [64]>
  return %0, %1 : !ddp.bucket<f32, [64]>, !ddp.bucket<f32, [64]>
}

// -----

ddp.process_group @nodes topology hierarchical

// CHECK-LABEL: func.func @encoded
// CHECK:         ddp.all_reduce mean %{{.+}} on @nodes wire !ddp.encoded<i8, 256> as
func.func @encoded(%a: tensor<64xf32>) -> tensor<64xf32> {
  %0 = ddp.all_reduce mean %a on @nodes {ddp.hook = #ddp.int8<error_feedback = false>} : tensor<64xf32>
  return %0 : tensor<64xf32>
}

// -----

ddp.process_group @nodes topology hierarchical

// The error is that of a rank's share: the state belongs to the whole bucket,
// and the collective itself reads and writes it.

// CHECK:       ddp.state @b0.share_error : !ddp.bucket<f32, [64]> per_rank zero kind share_error role "int4.share_error" of {{\[\[}}"feedback.arg0"]]
// CHECK-LABEL: func.func @feedback
// CHECK-NOT:     ddp.load
// CHECK-NOT:     ddp.encoding_error
// CHECK:         ddp.all_reduce mean %{{.+}} on @nodes wire !ddp.encoded<i4, 64> as "b0" {ddp.error = @b0.share_error
// CHECK-NOT:     ddp.store
func.func @feedback(%a: tensor<64xf32>) -> tensor<64xf32> {
  %0 = ddp.all_reduce mean %a on @nodes {ddp.hook = #ddp.int4<error_feedback = true>} : tensor<64xf32>
  return %0 : tensor<64xf32>
}
