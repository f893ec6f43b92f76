// RUN: ddphook-opt %s --ddp-lower-to-llvm -split-input-file -verify-diagnostics

func.func @softmax(%a: memref<2x2xf32>, %b: memref<2x2xf32>) {
  // One diagnostic a kind of operation.
  // expected-error @below {{'linalg.softmax' has no lowering to LLVM}}
  linalg.softmax dimension(1) ins(%a : memref<2x2xf32>) outs(%b : memref<2x2xf32>)
  linalg.softmax dimension(1) ins(%a : memref<2x2xf32>) outs(%b : memref<2x2xf32>)
  return
}

// -----

// expected-error @below {{'memref.copy' of unranked memory has no lowering to LLVM}}
module {
  func.func @unranked(%a: memref<*xf32>, %b: memref<*xf32>) {
    memref.copy %a, %b : memref<*xf32> to memref<*xf32>
    return
  }
}

// -----

func.func @token(%a: memref<4xf32>) {
  %c0 = arith.constant 0 : index
  // expected-error @below {{'async.runtime.create' has no lowering to LLVM}}
  %0 = async.runtime.create : !async.token
  // expected-error @below {{'async.runtime.await' has no lowering to LLVM}}
  async.runtime.await %0 : !async.token
  return
}
