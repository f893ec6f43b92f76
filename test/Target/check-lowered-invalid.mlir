// RUN: ddphook-opt %s --ddp-lower-to-llvm -split-input-file -verify-diagnostics

func.func @softmax(%a: memref<2x2xf32>, %b: memref<2x2xf32>) {
  // One diagnostic a kind of operation.
  // expected-error @below {{'linalg.softmax' has no lowering to LLVM}}
  linalg.softmax dimension(1) ins(%a : memref<2x2xf32>) outs(%b : memref<2x2xf32>)
  linalg.softmax dimension(1) ins(%a : memref<2x2xf32>) outs(%b : memref<2x2xf32>)
  return
}

// -----

func.func @tensors() -> i64 {
  // expected-error @below {{'tensor.empty' has no lowering to LLVM}}
  %0 = tensor.empty() : tensor<2xf32>
  %c0 = arith.constant 0 : index
  // expected-error @below {{'tensor.dim' has no lowering to LLVM}}
  %1 = tensor.dim %0, %c0 : tensor<2xf32>
  %2 = arith.index_cast %1 : index to i64
  return %2 : i64
}
