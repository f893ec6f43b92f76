// Code for CPUs without AVX512-BF16 rounds bf16 by itself, also a scalar
// parameter of an internal function that lives across a loop.
//
// RUN: ddphook-cc %s --march=haswell -o %t.o --name=model
// RUN: llvm-nm --undefined-only %t.o | FileCheck %s
// CHECK-NOT: {{__(trunc|extend)}}

func.func private @scale(%t: tensor<64xbf16>, %x: bf16, %steps: index) -> tensor<64xbf16> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %r = scf.for %i = %c0 to %steps step %c1 iter_args(%s = %t) -> tensor<64xbf16> {
    %e = tensor.empty() : tensor<64xbf16>
    %m = linalg.map ins(%s : tensor<64xbf16>) outs(%e : tensor<64xbf16>) (%y: bf16, %init: bf16) {
      %0 = arith.mulf %y, %x : bf16
      linalg.yield %0 : bf16
    }
    scf.yield %m : tensor<64xbf16>
  }
  return %r : tensor<64xbf16>
}
func.func @twice(%t: tensor<64xbf16>, %u: tensor<2xbf16>, %n: tensor<index>) -> (tensor<64xbf16>, tensor<64xbf16>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %x = tensor.extract %u[%c0] : tensor<2xbf16>
  %y = tensor.extract %u[%c1] : tensor<2xbf16>
  %s = tensor.extract %n[] : tensor<index>
  %0 = func.call @scale(%t, %x, %s) : (tensor<64xbf16>, bf16, index) -> tensor<64xbf16>
  %1 = func.call @scale(%0, %y, %s) : (tensor<64xbf16>, bf16, index) -> tensor<64xbf16>
  return %0, %1 : tensor<64xbf16>, tensor<64xbf16>
}
