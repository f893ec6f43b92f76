// RUN: ddphook-opt %s --canonicalize | FileCheck %s

ddp.process_group @dp

// Awaited at once: an all-reduce, of all the same clauses.

// CHECK-LABEL: func @at_once(
// CHECK-SAME:      %[[B:.+]]: !ddp.bucket<f32, [8]>
// CHECK-NEXT:    %[[R:.+]] = ddp.all_reduce mean %[[B]] on @dp wire f16 as "b0" : !ddp.bucket<f32, [8]>
// CHECK-NEXT:    return %[[R]]
func.func @at_once(%b: !ddp.bucket<f32, [8]>) -> !ddp.bucket<f32, [8]> {
  %f = ddp.all_reduce_start mean %b on @dp wire f16 as "b0"
      : !ddp.bucket<f32, [8]> -> !ddp.future<!ddp.bucket<f32, [8]>>
  %r = ddp.wait %f : !ddp.future<!ddp.bucket<f32, [8]>>
  return %r : !ddp.bucket<f32, [8]>
}

// Something runs in between, another collective even: as it was.

// CHECK-LABEL: func @in_between(
// CHECK:         %[[F:.+]] = ddp.all_reduce_start
// CHECK-NEXT:    ddp.scale
// CHECK-NEXT:    ddp.wait %[[F]]
// CHECK:         %[[G:.+]] = ddp.all_reduce_start
// CHECK-NEXT:    %[[H:.+]] = ddp.all_reduce_start
// CHECK-NEXT:    ddp.wait %[[G]]
// CHECK-NEXT:    ddp.wait %[[H]]
func.func @in_between(%x: tensor<8xf32>)
    -> (tensor<8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<8xf32>) {
  %f = ddp.all_reduce_start mean %x on @dp : tensor<8xf32> -> !ddp.future<tensor<8xf32>>
  %y = ddp.scale %x by 2.0 : tensor<8xf32>
  %r = ddp.wait %f : !ddp.future<tensor<8xf32>>
  %g = ddp.all_reduce_start mean %x on @dp : tensor<8xf32> -> !ddp.future<tensor<8xf32>>
  %h = ddp.all_reduce_start mean %y on @dp : tensor<8xf32> -> !ddp.future<tensor<8xf32>>
  %s = ddp.wait %g : !ddp.future<tensor<8xf32>>
  %t = ddp.wait %h : !ddp.future<tensor<8xf32>>
  return %y, %r, %s, %t : tensor<8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<8xf32>
}

// Nobody needs the sum; the other ranks need this one's part.

// CHECK-LABEL: func @unused(
// CHECK:         ddp.all_reduce_start
// CHECK:         ddp.wait
func.func @unused(%x: tensor<8xf32>) -> tensor<8xf32> {
  %f = ddp.all_reduce_start mean %x on @dp : tensor<8xf32> -> !ddp.future<tensor<8xf32>>
  %y = ddp.scale %x by 2.0 : tensor<8xf32>
  %r = ddp.wait %f : !ddp.future<tensor<8xf32>>
  return %y : tensor<8xf32>
}
