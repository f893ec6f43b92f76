// An object file and its header, in a C program that is linked with the runtime.
//
// RUN: rm -rf %t && mkdir %t
// RUN: ddphook-cc %s -o %t/model.o --header=%t/model.h --name=model
// RUN: clang -O1 -ffp-contract=off -I %t -I %runtime-include \
// RUN:   %S/Inputs/link-main.c %t/model.o -L %runtime-lib -lddphook_rt -lm \
// RUN:   -Wl,-rpath,%runtime-lib -o %t/main
// RUN: %t/main | FileCheck %s
// CHECK: {{^}}0 failures
//
// Nothing but the entry point and the module is visible, nothing but the
// runtime is called: no allocation, no helper library.
// RUN: llvm-nm --extern-only %t/model.o | FileCheck %s --check-prefix=SYMBOLS
// SYMBOLS-NOT: {{ [TDRBV] }}
// SYMBOLS:     U ddphook_rt_collective
// SYMBOLS-NOT: {{malloc|free|memrefCopy}}
// SYMBOLS:     D model_module
// SYMBOLS-NEXT: T model_step
// SYMBOLS-NOT: {{ [A-Z] }}

ddp.process_group @dp
func.func @step(%a: tensor<5x7xf32>, %b: tensor<7x3xf32>, %bias: tensor<3xf32>,
                %m: tensor<3xf32> {bufferization.writable = true}, %decay: f32)
    -> (tensor<5x3xf32>, tensor<3xf32>, f64) {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<5x3xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<5x3xf32>) -> tensor<5x3xf32>
  %p = linalg.matmul ins(%a, %b : tensor<5x7xf32>, tensor<7x3xf32>)
      outs(%f : tensor<5x3xf32>) -> tensor<5x3xf32>
  %q = linalg.generic {
      indexing_maps = [affine_map<(i, j) -> (j)>, affine_map<(i, j) -> (i, j)>],
      iterator_types = ["parallel", "parallel"]}
      ins(%bias : tensor<3xf32>) outs(%p : tensor<5x3xf32>) {
  ^bb0(%x: f32, %y: f32):
    %0 = arith.addf %y, %x : f32
    linalg.yield %0 : f32
  } -> tensor<5x3xf32>
  %g = ddp.all_reduce mean %bias on @dp : tensor<3xf32>
  %m1 = linalg.generic {
      indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>],
      iterator_types = ["parallel"]}
      ins(%g : tensor<3xf32>) outs(%m : tensor<3xf32>) {
  ^bb0(%x: f32, %y: f32):
    %0 = arith.mulf %y, %decay : f32
    %1 = arith.addf %0, %x : f32
    linalg.yield %1 : f32
  } -> tensor<3xf32>
  %total = arith.extf %decay : f32 to f64
  return %q, %m1, %total : tensor<5x3xf32>, tensor<3xf32>, f64
}
