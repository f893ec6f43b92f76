// bf16 without help from the CPU or the compiler's library: rounded to nearest
// even, subnormal numbers kept, NaN stays NaN.
//
// RUN: rm -rf %t && mkdir %t
// RUN: ddphook-cc %s -o %t/model.o --header=%t/model.h --name=model
// RUN: llvm-nm --undefined-only %t/model.o | FileCheck %s --check-prefix=SYMBOLS
// SYMBOLS-NOT: {{__(trunc|extend)}}
// RUN: clang -I %t -I %runtime-include %S/Inputs/bfloat16-main.c %t/model.o \
// RUN:   -L %runtime-lib -lddphook_rt -lm -Wl,-rpath,%runtime-lib -o %t/main
// RUN: %t/main | FileCheck %s
// CHECK: {{^}}0 of 65536 differ

func.func @round(%a: tensor<65536xf32>, %b: tensor<65536xbf16>)
    -> (tensor<65536xbf16>, tensor<65536xbf16>) {
  %e = tensor.empty() : tensor<65536xbf16>
  %rounded = linalg.map ins(%a : tensor<65536xf32>)
      outs(%e : tensor<65536xbf16>) (%x: f32, %init: bf16) {
    %0 = arith.truncf %x : f32 to bf16
    linalg.yield %0 : bf16
  }
  %f = tensor.empty() : tensor<65536xbf16>
  %sum = linalg.map ins(%rounded, %b : tensor<65536xbf16>, tensor<65536xbf16>)
      outs(%f : tensor<65536xbf16>) (%x: bf16, %y: bf16, %init: bf16) {
    %0 = arith.addf %x, %y : bf16
    linalg.yield %0 : bf16
  }
  return %rounded, %sum : tensor<65536xbf16>, tensor<65536xbf16>
}
