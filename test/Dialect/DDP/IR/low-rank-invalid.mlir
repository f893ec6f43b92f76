// RUN: ddphook-opt %s -split-input-file -verify-diagnostics

// One case for every way in which the low-rank operations, and the order of a
// ddp.concat, refuse what they are given, under the number of the constraint.

//===----------------------------------------------------------------------===//
// add, sub
//===----------------------------------------------------------------------===//

func.func @add_two_shapes(%a: !ddp.bucket<f32, [2, 3]>,
                          %b: !ddp.bucket<f32, [3, 2]>) {
  // C2
  // expected-error @+1 {{expected operands of one type, but got '!ddp.bucket<f32, [2, 3]>' and '!ddp.bucket<f32, [3, 2]>'}}
  %0 = ddp.add %a, %b : !ddp.bucket<f32, [2, 3]>, !ddp.bucket<f32, [3, 2]>
  return
}

// -----

func.func @sub_two_elements(%a: memref<4xf32>, %b: memref<4xf16>) {
  // C2
  // expected-error @+1 {{expected arrays of one type, but got 'memref<4xf32>' and 'memref<4xf16>'}}
  ddp.flat.sub %a, %b into %a : memref<4xf32>, memref<4xf16>, memref<4xf32>
  return
}

// -----

func.func @add_kinds(%a: memref<4xf32>, %b: tensor<4xf32>) {
  // C2
  // expected-error @+1 {{expected only tensors or only memrefs, but got 'memref<4xf32>' and 'tensor<4xf32>'}}
  ddp.flat.add %a, %b into %a : memref<4xf32>, tensor<4xf32>, memref<4xf32>
  return
}

// -----

func.func @sub_into_other(%a: memref<4xf32>, %b: memref<5xf32>) {
  // C2
  // expected-error @+1 {{expected arrays of one type, but got 'memref<4xf32>' and 'memref<5xf32>'}}
  ddp.flat.sub %a, %a into %b : memref<4xf32>, memref<4xf32>, memref<5xf32>
  return
}

// -----

func.func @matmul_both(%p: !ddp.bucket<f32, [4x2]>,
                       %q: !ddp.bucket<f32, [3x2]>) {
  // C2
  // expected-error @+1 {{expected at most one operand to be transposed}}
  %0 = ddp.matmul transpose_lhs transpose_rhs %p, %q
      : (!ddp.bucket<f32, [4x2]>, !ddp.bucket<f32, [3x2]>)
      -> !ddp.bucket<f32, [4x3]>
  return
}

// -----

func.func @matmul_elements(%m: !ddp.bucket<f32, [4x3]>,
                           %q: !ddp.bucket<f16, [3x2]>) {
  // C3
  // expected-error @+1 {{expected buckets of one element type}}
  %0 = ddp.matmul %m, %q
      : (!ddp.bucket<f32, [4x3]>, !ddp.bucket<f16, [3x2]>)
      -> !ddp.bucket<f32, [4x2]>
  return
}

// -----

func.func @matmul_count(%m: !ddp.bucket<f32, [4x3, 5]>,
                        %q: !ddp.bucket<f32, [3x2]>) {
  // C3
  // expected-error @+1 {{expected one member of each factor per matrix, that is 2, but got 1 and 1}}
  %0 = ddp.matmul %m, %q
      : (!ddp.bucket<f32, [4x3, 5]>, !ddp.bucket<f32, [3x2]>)
      -> !ddp.bucket<f32, [4x2]>
  return
}

// -----

func.func @matmul_inner(%m: !ddp.bucket<f32, [4x3]>,
                        %q: !ddp.bucket<f32, [4x2]>) {
  // C3
  // expected-error @+1 {{expected factors of a 4x3 matrix, but got 4x2 and 4x2}}
  %0 = ddp.matmul %m, %q
      : (!ddp.bucket<f32, [4x3]>, !ddp.bucket<f32, [4x2]>)
      -> !ddp.bucket<f32, [4x2]>
  return
}

// -----

func.func @matmul_rank(%m: !ddp.bucket<f32, [4x3]>,
                       %p: !ddp.bucket<f32, [4x2]>) {
  // C3
  // expected-error @+1 {{expected factors of a 4x3 matrix, but got 4x2 and 3x1}}
  %0 = ddp.matmul transpose_lhs %m, %p
      : (!ddp.bucket<f32, [4x3]>, !ddp.bucket<f32, [4x2]>)
      -> !ddp.bucket<f32, [3x1]>
  return
}

// -----

func.func @matmul_result(%p: !ddp.bucket<f32, [4x2]>,
                         %q: !ddp.bucket<f32, [3x2]>) {
  // C3
  // expected-error @+1 {{expected factors of a 3x4 matrix, but got 4x2 and 3x2}}
  %0 = ddp.matmul transpose_rhs %p, %q
      : (!ddp.bucket<f32, [4x2]>, !ddp.bucket<f32, [3x2]>)
      -> !ddp.bucket<f32, [3x4]>
  return
}

// -----

func.func @matmul_outside(%m: !ddp.bucket<f32, [4x3]>,
                          %q: !ddp.bucket<f32, [3x2]>) {
  // C4
  // expected-error @+1 {{expected distinct members below 1, but got 1}}
  %0 = ddp.matmul %m members [1], %q
      : (!ddp.bucket<f32, [4x3]>, !ddp.bucket<f32, [3x2]>)
      -> !ddp.bucket<f32, [4x2]>
  return
}

// -----

func.func @matmul_negative(%m: !ddp.bucket<f32, [4x3]>,
                           %q: !ddp.bucket<f32, [3x2]>) {
  // C4
  // expected-error @+1 {{expected distinct members below 1, but got -1}}
  %0 = ddp.matmul %m members [-1], %q
      : (!ddp.bucket<f32, [4x3]>, !ddp.bucket<f32, [3x2]>)
      -> !ddp.bucket<f32, [4x2]>
  return
}

// -----

func.func @matmul_twice(%m: !ddp.bucket<f32, [4x3, 1]>,
                        %q: !ddp.bucket<f32, [3x2, 3x2]>) {
  // C4
  // expected-error @+1 {{expected distinct members below 2, but got 0}}
  %0 = ddp.matmul %m members [0, 0], %q
      : (!ddp.bucket<f32, [4x3, 1]>, !ddp.bucket<f32, [3x2, 3x2]>)
      -> !ddp.bucket<f32, [4x2, 4x2]>
  return
}

// -----

func.func @matmul_members_of_result(%p: !ddp.bucket<f32, [4x2]>,
                                    %q: !ddp.bucket<f32, [3x2]>) {
  // C4
  // expected-error @+1 {{expected no members with 'transpose_rhs'}}
  %0 = ddp.matmul transpose_rhs %p members [0], %q
      : (!ddp.bucket<f32, [4x2]>, !ddp.bucket<f32, [3x2]>)
      -> !ddp.bucket<f32, [4x3]>
  return
}

// -----

func.func @orthogonalize_negative(%p: !ddp.bucket<f32, [4x2]>) {
  // C2
  // expected-error @+1 {{expected a finite epsilon of at least 0, but got -1.000000e-08}}
  %0 = ddp.orthogonalize %p epsilon -1.0e-8 : !ddp.bucket<f32, [4x2]>
  return
}

// -----

func.func @orthogonalize_infinite(%p: !ddp.bucket<f32, [4x2]>) {
  // C2
  // expected-error-re @+1 {{expected a finite epsilon of at least 0, but got {{inf|INF}}}}
  %0 = ddp.orthogonalize %p epsilon 0x7FF0000000000000 : !ddp.bucket<f32, [4x2]>
  return
}

// -----

func.func @orthogonalize_nan(%p: !ddp.bucket<f32, [4x2]>) {
  // C2
  // expected-error-re @+1 {{expected a finite epsilon of at least 0, but got {{nan|NaN}}}}
  %0 = ddp.orthogonalize %p epsilon 0x7FF8000000000000 : !ddp.bucket<f32, [4x2]>
  return
}

// -----

func.func @orthogonalize_into_other(%p: memref<8xf32>, %d: memref<8xf64>) {
  // C4
  // expected-error @+1 {{expected arrays of one type, but got 'memref<8xf32>' and 'memref<8xf64>'}}
  ddp.flat.orthogonalize %p epsilon 0.0 layout <0 to 0, [0, 0, 0, 0, 4, 2], []>
      into %d : memref<8xf32>, memref<8xf64>
  return
}

// -----

//===----------------------------------------------------------------------===//
// resize
//===----------------------------------------------------------------------===//

func.func @resize_elements(%b: !ddp.bucket<f32, [4]>) {
  // C1
  // expected-error @+1 {{expected buckets of one element type, but got 'f32' and 'f64'}}
  %0 = ddp.resize %b : !ddp.bucket<f32, [4]> -> !ddp.bucket<f64, [9]>
  return
}

// -----

func.func @resize_tensor(%b: tensor<4xf32>) {
  // expected-error-re @+1 {{operand #0 must be {{.*}}, but got 'tensor<4xf32>'}}
  %0 = ddp.resize %b : tensor<4xf32> -> !ddp.bucket<f32, [9]>
  return
}

// -----

//===----------------------------------------------------------------------===//
// concat with an order
//===----------------------------------------------------------------------===//

func.func @order_of_tensors(%a: tensor<4xf32>, %b: tensor<5xf32>) {
  // C2
  // expected-error @+1 {{expected 'order' only on buckets, but got 'tensor<9xf32>'}}
  %0 = ddp.concat %a, %b order [1, 0] : tensor<4xf32>, tensor<5xf32>
      -> tensor<9xf32>
  return
}

// -----

func.func @order_too_short(%a: !ddp.bucket<f32, [4]>,
                           %b: !ddp.bucket<f32, [5, 6]>) {
  // C2
  // expected-error @+1 {{expected an order of 3 members, but got 2}}
  %0 = ddp.concat %a, %b order [1, 0]
      : !ddp.bucket<f32, [4]>, !ddp.bucket<f32, [5, 6]>
      -> !ddp.bucket<f32, [5, 4, 6]>
  return
}

// -----

func.func @order_outside(%a: !ddp.bucket<f32, [4]>,
                         %b: !ddp.bucket<f32, [5]>) {
  // C2
  // expected-error @+1 {{expected each position from 0 to 1 once, but got 2}}
  %0 = ddp.concat %a, %b order [1, 2]
      : !ddp.bucket<f32, [4]>, !ddp.bucket<f32, [5]> -> !ddp.bucket<f32, [5, 4]>
  return
}

// -----

func.func @order_negative(%a: !ddp.bucket<f32, [4]>) {
  // C2
  // expected-error @+1 {{expected each position from 0 to 0 once, but got -1}}
  %0 = ddp.concat %a order [-1]
      : !ddp.bucket<f32, [4]> -> !ddp.bucket<f32, [4]>
  return
}

// -----

func.func @order_twice(%a: !ddp.bucket<f32, [4]>,
                       %b: !ddp.bucket<f32, [4]>) {
  // C2
  // expected-error @+1 {{expected each position from 0 to 1 once, but got 1}}
  %0 = ddp.concat %a, %b order [1, 1]
      : !ddp.bucket<f32, [4]>, !ddp.bucket<f32, [4]> -> !ddp.bucket<f32, [4, 4]>
  return
}

// -----

func.func @order_of_other_shapes(%a: !ddp.bucket<f32, [4]>,
                                 %b: !ddp.bucket<f32, [5]>) {
  // expected-error @+1 {{expected the operands' members to match the result's, but got '!ddp.bucket<f32, [5, 4]>'}}
  %0 = ddp.concat %a, %b order [1, 0]
      : !ddp.bucket<f32, [4]>, !ddp.bucket<f32, [5]> -> !ddp.bucket<f32, [4, 5]>
  return
}
