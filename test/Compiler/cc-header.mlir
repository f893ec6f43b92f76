// RUN: ddphook-cc %s -o %t.o --header=%t.h --name=model
// RUN: FileCheck %s < %t.h
//
// The name comes from the file when none is given; characters that C does not
// allow become underscores.
// RUN: ddphook-cc %s -o %t.o --header=- | FileCheck %s --check-prefix=NAME
// NAME: extern const ddphook_compiled_module_t cc_header_module;
// NAME: cc_header_step(
//
// The header is C and C++ without warnings.
// RUN: clang -std=c99 -Wall -Wextra -Wpedantic -Werror -fsyntax-only \
// RUN:   -I %runtime-include -x c %t.h
// RUN: clang -std=c++17 -Wall -Wextra -Wpedantic -Werror -fsyntax-only \
// RUN:   -I %runtime-include -x c++ %t.h

// CHECK:      /* Written by ddphook-cc from cc-header.mlir; do not edit.
// CHECK:      #ifndef DDPHOOK_COMPILED_MODEL_H
// CHECK:      #include "ddphook/runtime/compiled.h"
// CHECK:      extern "C" {
// CHECK:      extern const ddphook_compiled_module_t model_module;

// CHECK:      /* Entry point "step".
// CHECK-NEXT:  *   arg0: f32[4, 3], read
// CHECK-NEXT:  *   arg1: bf16[5], read
// CHECK-NEXT:  *   arg2: i64[], read
// CHECK-NEXT:  *   arg3: f64, by value
// CHECK-NEXT:  *   arg4: i1, by value
// CHECK-NEXT:  *   arg5: f16, by value
// CHECK-NEXT:  *   result0: f32[4, 3], written
// CHECK-NEXT:  *   result1: bf16[5], written
// CHECK-NEXT:  *   result2: f64[], written
// CHECK-NEXT:  */
// CHECK-NEXT: ddphook_status_t model_step(const float *arg0,
// CHECK-NEXT:     const uint16_t *arg1,
// CHECK-NEXT:     const int64_t *arg2,
// CHECK-NEXT:     double arg3,
// CHECK-NEXT:     uint8_t arg4,
// CHECK-NEXT:     uint16_t arg5,
// CHECK-NEXT:     float *result0,
// CHECK-NEXT:     uint16_t *result1,
// CHECK-NEXT:     double *result2);
ddp.process_group @dp
func.func @step(%g: tensor<4x3xf32>, %h: tensor<5xbf16>, %n: tensor<i64>,
                %x: f64, %flag: i1, %y: f16)
    -> (tensor<4x3xf32>, tensor<5xbf16>, f64) {
  %r = ddp.all_reduce mean %g on @dp : tensor<4x3xf32>
  %s = ddp.all_reduce mean %h on @dp : tensor<5xbf16>
  return %r, %s, %x : tensor<4x3xf32>, tensor<5xbf16>, f64
}

// The runtime reads the first array and writes the second.
// CHECK:      /* Entry point "reduce".
// CHECK-NEXT:  *   arg0: f32[4], read
// CHECK-NEXT:  *   arg1: f32[4], updated in place
func.func @reduce(%in: memref<4xf32>, %out: memref<4xf32>) {
  ddp.all_reduce mean %in on @dp into %out : memref<4xf32>, : memref<4xf32>
  return
}

// CHECK:      /* Entry point "eval.loss".
// CHECK-NEXT:  */
// CHECK-NEXT: ddphook_status_t model_eval_loss(void);
func.func @eval.loss() {
  return
}

// What an entry may write but does not is only read, and constant.
// CHECK:      /* Entry point "keep".
// CHECK-NEXT:  *   arg0: f32[4], read
// CHECK-NEXT:  *   arg1: f32[4], updated in place
// CHECK-NEXT:  *   arg2: f32[4], read
// CHECK-NEXT:  *   arg3: f32[4], updated in place
// CHECK:      ddphook_status_t model_keep(const float *arg0,
// CHECK-NEXT:     float *arg1,
// CHECK-NEXT:     const float *arg2,
// CHECK-NEXT:     float *arg3,
func.func @keep(%kept: tensor<4xf32> {bufferization.writable = true},
                %updated: tensor<4xf32> {bufferization.writable = true},
                %read: memref<4xf32>, %written: memref<4xf32>)
    -> (tensor<4xf32>, tensor<4xf32>) {
  %e = tensor.empty() : tensor<4xf32>
  %0 = linalg.exp ins(%kept : tensor<4xf32>) outs(%e : tensor<4xf32>)
      -> tensor<4xf32>
  %1 = linalg.add ins(%updated, %0 : tensor<4xf32>, tensor<4xf32>)
      outs(%updated : tensor<4xf32>) -> tensor<4xf32>
  func.call @write(%read, %written) : (memref<4xf32>, memref<4xf32>) -> ()
  return %0, %1 : tensor<4xf32>, tensor<4xf32>
}
func.func private @write(%from: memref<4xf32>, %to: memref<4xf32>) {
  %v = memref.subview %to[2] [2] [1]
      : memref<4xf32> to memref<2xf32, strided<[1], offset: 2>>
  %w = memref.subview %from[0] [2] [1]
      : memref<4xf32> to memref<2xf32, strided<[1]>>
  memref.copy %w, %v : memref<2xf32, strided<[1]>>
      to memref<2xf32, strided<[1], offset: 2>>
  return
}
