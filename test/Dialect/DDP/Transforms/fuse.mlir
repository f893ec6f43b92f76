// RUN: ddphook-opt %s --ddp-fuse | FileCheck %s

ddp.process_group @dp

// CHECK-LABEL: func @casts(
// CHECK-SAME:    %[[B:.+]]: !ddp.bucket<f32, [4x8]>
// CHECK-NEXT:    %[[R:.+]] = ddp.all_reduce mean %[[B]] on @dp wire f16 as "b0" {ddp.hook = #ddp.allreduce} : !ddp.bucket<f32, [4x8]>
// CHECK-NEXT:    return %[[R]]
func.func @casts(%b: !ddp.bucket<f32, [4x8]>) -> !ddp.bucket<f32, [4x8]> {
  %h = ddp.cast %b : !ddp.bucket<f32, [4x8]> -> !ddp.bucket<f16, [4x8]>
  %s = ddp.all_reduce mean %h on @dp as "b0" {ddp.hook = #ddp.allreduce}
      : !ddp.bucket<f16, [4x8]>
  %r = ddp.cast %s : !ddp.bucket<f16, [4x8]> -> !ddp.bucket<f32, [4x8]>
  return %r : !ddp.bucket<f32, [4x8]>
}

// From f64, and on tensors.
// CHECK-LABEL: func @double(
// CHECK-SAME:    %[[T:.+]]: tensor<32xf64>
// CHECK-NEXT:    %[[R:.+]] = ddp.all_reduce sum %[[T]] on @dp wire bf16 : tensor<32xf64>
// CHECK-NEXT:    return %[[R]]
func.func @double(%t: tensor<32xf64>) -> tensor<32xf64> {
  %h = ddp.cast %t : tensor<32xf64> -> tensor<32xbf16>
  %s = ddp.all_reduce sum %h on @dp : tensor<32xbf16>
  %r = ddp.cast %s : tensor<32xbf16> -> tensor<32xf64>
  return %r : tensor<32xf64>
}

// The compressed value has other users: it stays for them.
// CHECK-LABEL: func @compressed_is_used(
// CHECK-SAME:    %[[T:.+]]: tensor<32xf32>
// CHECK-NEXT:    %[[H:.+]] = ddp.cast %[[T]]
// CHECK-NEXT:    %[[R:.+]] = ddp.all_reduce mean %[[T]] on @dp wire f16 : tensor<32xf32>
// CHECK-NEXT:    return %[[R]], %[[H]]
func.func @compressed_is_used(%t: tensor<32xf32>)
    -> (tensor<32xf32>, tensor<32xf16>) {
  %h = ddp.cast %t : tensor<32xf32> -> tensor<32xf16>
  %s = ddp.all_reduce mean %h on @dp : tensor<32xf16>
  %r = ddp.cast %s : tensor<32xf16> -> tensor<32xf32>
  return %r, %h : tensor<32xf32>, tensor<32xf16>
}

// The order of collectives stays, whatever stands between.
// CHECK-LABEL: func @order(
// CHECK:         ddp.all_reduce mean %{{.+}} on @dp wire f16 as "b0"
// CHECK-NEXT:    ddp.all_reduce sum %{{.+}} on @dp as "b1"
// CHECK-NEXT:    return
func.func @order(%t: tensor<32xf32>, %u: tensor<32xf32>)
    -> (tensor<32xf32>, tensor<32xf32>) {
  %h = ddp.cast %t : tensor<32xf32> -> tensor<32xf16>
  %s = ddp.all_reduce mean %h on @dp as "b0" : tensor<32xf16>
  %v = ddp.all_reduce sum %u on @dp as "b1" : tensor<32xf32>
  %r = ddp.cast %s : tensor<32xf16> -> tensor<32xf32>
  return %r, %v : tensor<32xf32>, tensor<32xf32>
}

// Not the same: the reduced half is used itself; back to another type; a wire
// type that is not narrower; memory of its own; a wire type already.
// CHECK-LABEL: func @not_fused(
// CHECK-COUNT-4: ddp.cast
// CHECK-NOT:     wire f16
// CHECK:         ddp.cast
// CHECK:         return
func.func @not_fused(%t: tensor<32xf32>)
    -> (tensor<32xf32>, tensor<32xf16>, tensor<32xf64>, tensor<32xf32>) {
  %h = ddp.cast %t : tensor<32xf32> -> tensor<32xf16>
  %s = ddp.all_reduce mean %h on @dp : tensor<32xf16>
  %r = ddp.cast %s : tensor<32xf16> -> tensor<32xf32>

  %s2 = ddp.all_reduce mean %h on @dp : tensor<32xf16>
  %r2 = ddp.cast %s2 : tensor<32xf16> -> tensor<32xf64>

  %d3 = ddp.cast %t : tensor<32xf32> -> tensor<32xf64>
  %s3 = ddp.all_reduce mean %d3 on @dp : tensor<32xf64>
  %r3 = ddp.cast %s3 : tensor<32xf64> -> tensor<32xf32>
  return %r, %s, %r2, %r3
      : tensor<32xf32>, tensor<32xf16>, tensor<32xf64>, tensor<32xf32>
}

// CHECK-LABEL: func @wire_already(
// CHECK:         ddp.all_reduce mean %{{.+}} on @dp wire bf16 :
// CHECK:         return
func.func @wire_already(%t: tensor<32xf32>) -> tensor<32xf32> {
  %h = ddp.cast %t : tensor<32xf32> -> tensor<32xf16>
  %s = ddp.all_reduce mean %h on @dp wire bf16 : tensor<32xf16>
  %r = ddp.cast %s : tensor<32xf16> -> tensor<32xf32>
  return %r : tensor<32xf32>
}

// A bucket without elements.
// CHECK-LABEL: func @empty(
// CHECK:         ddp.all_reduce mean %{{.+}} on @dp wire f16 : !ddp.bucket<f32, []>
func.func @empty(%b: !ddp.bucket<f32, []>) -> !ddp.bucket<f32, []> {
  %h = ddp.cast %b : !ddp.bucket<f32, []> -> !ddp.bucket<f16, []>
  %s = ddp.all_reduce mean %h on @dp : !ddp.bucket<f16, []>
  %r = ddp.cast %s : !ddp.bucket<f16, []> -> !ddp.bucket<f32, []>
  return %r : !ddp.bucket<f32, []>
}
