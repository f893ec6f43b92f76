// RUN: ddphook-opt %s --canonicalize | FileCheck %s

// What is awaited at once is no collective in flight.

ddp.process_group @dp size 4

// CHECK-LABEL: func @at_once(
// CHECK-NEXT:    %[[S:.+]] = ddp.reduce_scatter mean %{{.+}} on @dp wire !ddp.encoded<i8, 32 stochastic 3> step %{{.+}} : tensor<6x3xf32> -> tensor<5xf32>
// CHECK-NEXT:    %[[G:.+]] = ddp.all_gather %[[S]] on @dp wire f16 as "b0" : tensor<5xf32> -> tensor<20xf32>
// CHECK-NEXT:    %[[A:.+]] = ddp.all_to_all %[[G]] on @dp : tensor<20xf32>
// CHECK-NEXT:    %[[B:.+]] = ddp.broadcast %[[A]] from 2 on @dp : tensor<20xf32>
// CHECK-NEXT:    return %[[B]]
func.func @at_once(%g: tensor<6x3xf32>, %i: i64) -> tensor<20xf32> {
  %f0 = ddp.exchange_start reduce_scatter mean %g on @dp wire !ddp.encoded<i8, 32 stochastic 3> step %i
      : tensor<6x3xf32> -> !ddp.future<tensor<5xf32>>
  %0 = ddp.wait %f0 : !ddp.future<tensor<5xf32>>
  %f1 = ddp.exchange_start all_gather %0 on @dp wire f16 as "b0" : tensor<5xf32> -> !ddp.future<tensor<20xf32>>
  %1 = ddp.wait %f1 : !ddp.future<tensor<20xf32>>
  %f2 = ddp.exchange_start all_to_all %1 on @dp : tensor<20xf32> -> !ddp.future<tensor<20xf32>>
  %2 = ddp.wait %f2 : !ddp.future<tensor<20xf32>>
  %f3 = ddp.exchange_start broadcast %2 from 2 on @dp : tensor<20xf32> -> !ddp.future<tensor<20xf32>>
  %3 = ddp.wait %f3 : !ddp.future<tensor<20xf32>>
  return %3 : tensor<20xf32>
}

// CHECK-LABEL: func @beside(
// CHECK-NEXT:    ddp.exchange_start broadcast
// CHECK-NEXT:    linalg.exp
// CHECK-NEXT:    ddp.wait
func.func @beside(%x: tensor<8xf32>, %e: tensor<8xf32>) -> (tensor<8xf32>, tensor<8xf32>) {
  %f = ddp.exchange_start broadcast %x from 2 on @dp : tensor<8xf32> -> !ddp.future<tensor<8xf32>>
  %y = linalg.exp ins(%x : tensor<8xf32>) outs(%e : tensor<8xf32>) -> tensor<8xf32>
  %z = ddp.wait %f : !ddp.future<tensor<8xf32>>
  return %y, %z : tensor<8xf32>, tensor<8xf32>
}
