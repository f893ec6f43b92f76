// From f64 to a narrow type there is one rounding, in compiled code that calls no
// library for it: what f32 in between would round to a tie goes where it belongs.

// RUN: rm -rf %t && mkdir %t
// RUN: ddphook-cc %s -o %t/casts.o --name=casts
// RUN: llvm-nm --undefined-only %t/casts.o | FileCheck %s --check-prefix=SYMBOLS
// SYMBOLS-NOT: __truncdfbf2
// RUN: ddphook-cc %s -o %t/casts.so --shared
// RUN: %python %S/Inputs/wide_casts.py ddphook-exec %t/casts.so %t

func.func @step(%a: tensor<4096xf64>) -> (tensor<4096xbf16>, tensor<4096xf16>) {
  %e = tensor.empty() : tensor<4096xbf16>
  %f = tensor.empty() : tensor<4096xf16>
  %b = linalg.map ins(%a : tensor<4096xf64>) outs(%e : tensor<4096xbf16>)
      (%x: f64, %init: bf16) {
    %0 = arith.truncf %x : f64 to bf16
    linalg.yield %0 : bf16
  }
  %h = linalg.map ins(%a : tensor<4096xf64>) outs(%f : tensor<4096xf16>)
      (%x: f64, %init: f16) {
    %0 = arith.truncf %x : f64 to f16
    linalg.yield %0 : f16
  }
  return %b, %h : tensor<4096xbf16>, tensor<4096xf16>
}
