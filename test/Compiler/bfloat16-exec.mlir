// bf16 without help from the CPU or the compiler's library: rounded to nearest
// even, subnormal numbers kept, NaN stays NaN. In a body of several operations
// each of them rounds, in bf16 and in f16.
//
// RUN: rm -rf %t && mkdir %t
// RUN: ddphook-cc %s -o %t/model.o --header=%t/model.h --name=model
// RUN: llvm-nm --undefined-only %t/model.o | FileCheck %s --check-prefix=SYMBOLS
// SYMBOLS-NOT: {{__(trunc|extend)}}
// RUN: clang -I %t -I %runtime-include %S/Inputs/bfloat16-main.c %t/model.o \
// RUN:   -L %runtime-lib -lddphook_rt -lm -Wl,-rpath,%runtime-lib -o %t/main
// RUN: %t/main | FileCheck %s
// CHECK: {{^}}0 of 65536 differ
// CHECK: in one body: 0 of 65536 differ
// CHECK: in one body, f16: 0 of 65536 differ

// In kernels as well: the product is rounded before it is added to.
// RUN: %if codegen %{ ddphook-cc %s --device=cuda --emit=ptx -o %t/model.ptx %}
// RUN: %if codegen %{ FileCheck %s --check-prefix=PTX --input-file=%t/model.ptx %}
// PTX:      mul.rn.f32
// PTX-NOT:  add.rn.f32
// PTX:      and.b32 [[UPPER:%.+]], {{.+}}, -65536;
// PTX-NEXT: selp.f32 [[ROUNDED:%.+]], 0f7FC00000, [[UPPER]],
// PTX-NEXT: add.rn.f32 {{.+}}, [[ROUNDED]],

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

func.func @in_one_body(%a: tensor<65536xbf16>, %b: tensor<65536xbf16>)
    -> tensor<65536xbf16> {
  %e = tensor.empty() : tensor<65536xbf16>
  %r = linalg.map ins(%a, %b : tensor<65536xbf16>, tensor<65536xbf16>)
      outs(%e : tensor<65536xbf16>) (%x: bf16, %y: bf16, %init: bf16) {
    %0 = arith.mulf %x, %y : bf16
    %1 = arith.addf %0, %x : bf16
    %2 = math.absf %1 : bf16
    %3 = math.sqrt %2 : bf16
    %4 = arith.subf %3, %y : bf16
    linalg.yield %4 : bf16
  }
  return %r : tensor<65536xbf16>
}

// The same operations on f16, in one body and in bodies of their own.
func.func @in_one_body_f16(%a: tensor<65536xf16>, %b: tensor<65536xf16>)
    -> (tensor<65536xf16>, tensor<65536xf16>) {
  %e = tensor.empty() : tensor<65536xf16>
  %r = linalg.map ins(%a, %b : tensor<65536xf16>, tensor<65536xf16>)
      outs(%e : tensor<65536xf16>) (%x: f16, %y: f16, %init: f16) {
    %0 = arith.mulf %x, %y : f16
    %1 = arith.addf %0, %x : f16
    %2 = math.absf %1 : f16
    %3 = math.sqrt %2 : f16
    %4 = arith.subf %3, %y : f16
    linalg.yield %4 : f16
  }
  %m0 = tensor.empty() : tensor<65536xf16>
  %0 = linalg.mul ins(%a, %b : tensor<65536xf16>, tensor<65536xf16>)
      outs(%m0 : tensor<65536xf16>) -> tensor<65536xf16>
  %m1 = tensor.empty() : tensor<65536xf16>
  %1 = linalg.add ins(%0, %a : tensor<65536xf16>, tensor<65536xf16>)
      outs(%m1 : tensor<65536xf16>) -> tensor<65536xf16>
  %m2 = tensor.empty() : tensor<65536xf16>
  %2 = linalg.abs ins(%1 : tensor<65536xf16>)
      outs(%m2 : tensor<65536xf16>) -> tensor<65536xf16>
  %m3 = tensor.empty() : tensor<65536xf16>
  %3 = linalg.sqrt ins(%2 : tensor<65536xf16>)
      outs(%m3 : tensor<65536xf16>) -> tensor<65536xf16>
  %m4 = tensor.empty() : tensor<65536xf16>
  %4 = linalg.sub ins(%3, %b : tensor<65536xf16>, tensor<65536xf16>)
      outs(%m4 : tensor<65536xf16>) -> tensor<65536xf16>
  return %r, %4 : tensor<65536xf16>, tensor<65536xf16>
}
