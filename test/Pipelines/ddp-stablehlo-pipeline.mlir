// From gradients in a program of StableHLO to StableHLO: called functions are inlined, so
// that states become arguments of the entry, and what has no collectives stays as it is.

// RUN: ddphook-opt %s -split-input-file -verify-diagnostics \
// RUN:     --ddp-stablehlo-pipeline="hook=powersgd start-powersgd-iter=2 verify-order=true manifest=%t.json" \
// RUN:   | FileCheck %s

// CHECK-NOT: private @reduce
// CHECK-LABEL: func.func public @main
// CHECK-SAME: tensor<i32> {tf.aliasing_output = 1 : i32}
// CHECK-SAME: tensor<512xf32> {tf.aliasing_output = 2 : i32}
// CHECK-SAME: tensor<16xf32> {tf.aliasing_output = 3 : i32}
// CHECK: "stablehlo.if"
// CHECK: handle = 1, type = 1>
// CHECK: }, {
// CHECK: handle = 2, type = 1>
// CHECK: handle = 3, type = 1>
// CHECK: func.func @other
// CHECK-NEXT: "stablehlo.negate"
// CHECK: func.func private @ddp_orthogonalize_1x16x1_f32
// CHECK: func.func private @ddp_orthogonalize_1x32x1_f32
ddp.process_group @dp size 2
func.func public @main(%g: tensor<32x16xf32>) -> tensor<32x16xf32> {
  %0 = call @reduce(%g) : (tensor<32x16xf32>) -> tensor<32x16xf32>
  return %0 : tensor<32x16xf32>
}
func.func private @reduce(%g: tensor<32x16xf32>) -> tensor<32x16xf32> {
  %0 = ddp.all_reduce mean %g on @dp {ddp.name = "w"} : tensor<32x16xf32>
  return %0 : tensor<32x16xf32>
}
func.func @other(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = "stablehlo.negate"(%x) : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// -----

// What XLA cannot read is an error wherever it is.

func.func @other(%x: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error @below {{'arith.negf' op has no form in StableHLO}}
  %0 = arith.negf %x : tensor<4xf32>
  return %0 : tensor<4xf32>
}
