// RUN: ddphook-opt %s -split-input-file -verify-diagnostics

// On tensors and memrefs a layout says where matrices lie. Operands that do not
// hold what it says are refused.

func.func @matrix_too_small(%m: tensor<11xf32>, %q: tensor<6xf32>) {
  // expected-error @+1 {{expected operands that hold matrix 0 of the layout and its factors}}
  %0 = ddp.matmul %m, %q layout <0 to 12, [0, 0, 0, 4, 3, 2], []>
      : (tensor<11xf32>, tensor<6xf32>) -> tensor<8xf32>
  return
}

// -----

func.func @second_matrix_outside(%m: tensor<24xf32>, %q: tensor<12xf32>) {
  // expected-error @+1 {{expected operands that hold matrix 1 of the layout and its factors}}
  %0 = ddp.matmul %m, %q
      layout <0 to 24, [0, 0, 0, 4, 3, 2, 13, 8, 6, 4, 3, 2], []>
      : (tensor<24xf32>, tensor<12xf32>) -> tensor<16xf32>
  return
}

// -----

func.func @p_too_small(%m: memref<12xf32>, %q: memref<6xf32>,
                       %p: memref<7xf32>) {
  // expected-error @+1 {{expected operands that hold matrix 0 of the layout and its factors}}
  ddp.matmul %m, %q layout <0 to 12, [0, 0, 0, 4, 3, 2], []> into %p
      : (memref<12xf32>, memref<6xf32>, memref<7xf32>) -> ()
  return
}

// -----

func.func @q_too_small(%p: tensor<8xf32>, %q: tensor<5xf32>) {
  // expected-error @+1 {{expected operands that hold matrix 0 of the layout and its factors}}
  %0 = ddp.matmul transpose_rhs %p, %q layout <0 to 12, [0, 0, 0, 4, 3, 2], []>
      : (tensor<8xf32>, tensor<5xf32>) -> tensor<12xf32>
  return
}

// -----

func.func @result_too_small(%m: tensor<12xf32>, %p: tensor<8xf32>) {
  // expected-error @+1 {{expected operands that hold matrix 0 of the layout and its factors}}
  %0 = ddp.matmul transpose_lhs %m, %p layout <0 to 12, [0, 0, 0, 4, 3, 2], []>
      : (tensor<12xf32>, tensor<8xf32>) -> tensor<5xf32>
  return
}

// -----

// Numbers that overflow when they are multiplied or added.
func.func @offset_far_away(%m: tensor<12xf32>, %q: tensor<6xf32>) {
  // expected-error @+1 {{expected operands that hold matrix 0 of the layout and its factors}}
  %0 = ddp.matmul %m, %q
      layout <0 to 12, [9223372036854775807, 0, 0, 4, 3, 2], []>
      : (tensor<12xf32>, tensor<6xf32>) -> tensor<8xf32>
  return
}

// -----

func.func @rows_without_end(%m: tensor<12xf32>, %q: tensor<6xf32>) {
  // expected-error @+1 {{expected operands that hold matrix 0 of the layout and its factors}}
  %0 = ddp.matmul %m, %q
      layout <0 to 12, [0, 0, 0, 4611686018427387904, 4, 2], []>
      : (tensor<12xf32>, tensor<6xf32>) -> tensor<8xf32>
  return
}

// -----

func.func @elements(%m: tensor<12xf32>, %q: tensor<6xf16>) {
  // expected-error @+1 {{expected one element type, but got 'f32' and 'f16'}}
  %0 = ddp.matmul %m, %q layout <0 to 12, [0, 0, 0, 4, 3, 2], []>
      : (tensor<12xf32>, tensor<6xf16>) -> tensor<8xf32>
  return
}

// -----

func.func @bucket_beside(%m: tensor<12xf32>, %q: !ddp.bucket<f32, [3x2]>) {
  // expected-error @+1 {{expected only tensors or only memrefs, but got 'tensor<12xf32>' and '!ddp.bucket<f32, [3x2]>'}}
  %0 = ddp.matmul %m, %q layout <0 to 12, [0, 0, 0, 4, 3, 2], []>
      : (tensor<12xf32>, !ddp.bucket<f32, [3x2]>) -> tensor<8xf32>
  return
}

// -----

func.func @memory_beside(%m: memref<12xf32>, %q: tensor<6xf32>,
                         %p: memref<8xf32>) {
  // expected-error @+1 {{expected only tensors or only memrefs, but got 'memref<12xf32>' and 'tensor<6xf32>'}}
  ddp.matmul %m, %q layout <0 to 12, [0, 0, 0, 4, 3, 2], []> into %p
      : (memref<12xf32>, tensor<6xf32>, memref<8xf32>) -> ()
  return
}

// -----

func.func @factor_too_small(%q: tensor<5xf32>) {
  // expected-error @+1 {{expected operands that hold matrix 0 of the layout and its factors}}
  %0 = ddp.orthogonalize %q epsilon 0.0 layout <0 to 0, [0, 0, 0, 0, 3, 2], []>
      : tensor<5xf32>
  return
}

// -----

func.func @project_piece(%m: tensor<17xf32>, %q: tensor<6xf32>) {
  // expected-error @+1 {{expected operands that hold piece 0 of the layout}}
  %0:2 = ddp.project %m members [0] by %q
      layout <0 to 17, [0, 0, 0, 4, 3, 2], [13, 0, 5]>
      : (tensor<17xf32>, tensor<6xf32>) -> (tensor<8xf32>, tensor<5xf32>)
  return
}

// -----

func.func @project_rest(%m: tensor<17xf32>, %q: tensor<6xf32>) {
  // expected-error @+1 {{expected operands that hold piece 1 of the layout}}
  %0:2 = ddp.project %m members [0] by %q
      layout <0 to 17, [0, 0, 0, 4, 3, 2], [12, 0, 3, 15, 3, 2]>
      : (tensor<17xf32>, tensor<6xf32>) -> (tensor<8xf32>, tensor<4xf32>)
  return
}

// -----

func.func @project_p(%m: memref<12xf32>, %q: memref<6xf32>,
                     %p: memref<7xf32>) {
  // expected-error @+1 {{expected operands that hold matrix 0 of the layout and its factors}}
  ddp.project %m members [0] by %q layout <0 to 12, [0, 0, 0, 4, 3, 2], []>
      into (%p) : (memref<12xf32>, memref<6xf32>, memref<7xf32>) -> ()
  return
}

// -----

func.func @reconstruct_out(%p: tensor<8xf32>, %q: tensor<6xf32>) {
  // expected-error @+1 {{expected operands that hold matrix 0 of the layout and its factors}}
  %0 = ddp.reconstruct %p, %q members [0]
      layout <0 to 12, [0, 0, 0, 4, 3, 2], []>
      : (tensor<8xf32>, tensor<6xf32>) -> tensor<11xf32>
  return
}

// -----

func.func @reconstruct_rest(%p: tensor<8xf32>, %q: tensor<6xf32>,
                            %v: tensor<4xf32>) {
  // expected-error @+1 {{expected operands that hold piece 0 of the layout}}
  %0 = ddp.reconstruct %p, %q members [0] rest %v
      layout <0 to 17, [0, 0, 0, 4, 3, 2], [12, 0, 5]>
      : (tensor<8xf32>, tensor<6xf32>, tensor<4xf32>) -> tensor<17xf32>
  return
}

// -----

func.func @project_sum(%m: tensor<12xf32>, %q: tensor<6xf32>) {
  // expected-error @+1 {{expected buckets of one size, but got 'tensor<12xf32>' and 'tensor<13xf32>'}}
  %0:2 = ddp.project %m plus %m members [0] by %q
      layout <0 to 12, [0, 0, 0, 4, 3, 2], []>
      : (tensor<12xf32>, tensor<12xf32>, tensor<6xf32>)
      -> (tensor<13xf32>, tensor<8xf32>)
  return
}

// -----

func.func @project_packed(%m: tensor<17xf32>, %q: tensor<6xf32>) {
  // expected-error @+1 {{expected room for P and the rest, but got 'tensor<8xf32>'}}
  %0 = ddp.project %m members [0] by %q packed
      layout <0 to 17, [0, 0, 0, 4, 3, 2], [12, 0, 5]>
      : (tensor<17xf32>, tensor<6xf32>) -> tensor<8xf32>
  return
}

// -----

func.func @reconstruct_matrix(%p: tensor<8xf32>, %q: tensor<6xf32>,
                              %m: tensor<13xf32>) {
  // expected-error @+1 {{expected buckets of one size, but got 'tensor<12xf32>' and 'tensor<13xf32>'}}
  %0:2 = ddp.reconstruct %p, %q members [0] from %m
      layout <0 to 12, [0, 0, 0, 4, 3, 2], []>
      : (tensor<8xf32>, tensor<6xf32>, tensor<13xf32>)
      -> (tensor<12xf32>, tensor<12xf32>)
  return
}

// -----

func.func @reconstruct_error(%p: tensor<8xf32>, %q: tensor<6xf32>,
                             %m: tensor<12xf32>) {
  // expected-error @+1 {{expected buckets of one size, but got 'tensor<12xf32>' and 'tensor<5xf32>'}}
  %0:2 = ddp.reconstruct %p, %q members [0] from %m
      layout <0 to 12, [0, 0, 0, 4, 3, 2], []>
      : (tensor<8xf32>, tensor<6xf32>, tensor<12xf32>)
      -> (tensor<12xf32>, tensor<5xf32>)
  return
}
