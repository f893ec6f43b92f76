// A function that ends with an operation that nobody knows is not inlined; what it
// returns is unknown.

// RUN: ddphook-opt %s --inline | FileCheck %s

// CHECK-LABEL: func.func @caller(
// CHECK: call @callee
func.func @caller(%a: tensor<4xf32>) -> tensor<4xf32> {
  %0 = func.call @callee(%a) : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}
func.func private @callee(%a: tensor<4xf32>) -> tensor<4xf32> {
  "stablehlo.negate"(%a) : (tensor<4xf32>) -> ()
}
