// RUN: ddphook-opt %s | FileCheck %s
// RUN: ddphook-opt %s | ddphook-opt | FileCheck %s
// RUN: ddphook-opt %s --mlir-print-op-generic | ddphook-opt | FileCheck %s
// RUN: ddphook-opt %s --emit-bytecode | ddphook-opt | FileCheck %s

// Every element type.
// CHECK-LABEL: func.func private @element_types(
// CHECK-SAME:    !ddp.bucket<f16, [4x8]>
// CHECK-SAME:    !ddp.bucket<bf16, [4x8]>
// CHECK-SAME:    !ddp.bucket<f32, [4x8]>
// CHECK-SAME:    !ddp.bucket<f64, [4x8]>
func.func private @element_types(
    !ddp.bucket<f16, [4x8]>, !ddp.bucket<bf16, [4x8]>,
    !ddp.bucket<f32, [4x8]>, !ddp.bucket<f64, [4x8]>)

// One dimension, many, none; without elements; without members.
// CHECK-LABEL: func.func private @shapes(
// CHECK-SAME:    !ddp.bucket<f32, [5, 2x3x5x7, scalar]>
// CHECK-SAME:    !ddp.bucket<f32, [scalar]>
// CHECK-SAME:    !ddp.bucket<f32, [0, 0x3, 3x0x2, 1]>
// CHECK-SAME:    !ddp.bucket<f32, []>
func.func private @shapes(
    !ddp.bucket<f32, [5, 2x3x5x7, scalar]>, !ddp.bucket<f32, [scalar]>,
    !ddp.bucket<f32, [0, 0x3, 3x0x2, 1]>, !ddp.bucket<f32, []>)

// White space and spelling are free.
// CHECK-LABEL: func.func private @spelling(
// CHECK-SAME:    !ddp.bucket<f32, [4x8, scalar, 3]>)
func.func private @spelling(!ddp.bucket< f32 , [ 4x8,scalar ,3 ] >)
