// RUN: ddphook-opt %s -split-input-file -verify-diagnostics

// On tensors and memrefs a layout says where matrices lie. Operands that do not
// hold what it says are refused.

func.func @matrix_too_small(%m: tensor<11xf32>, %q: tensor<6xf32>) {
  %into = tensor.empty() : tensor<8xf32>
  // expected-error @+1 {{expected operands that hold matrix 0 of the layout and its factors}}
  %0 = ddp.flat.matmul %m, %q layout <0 to 12, [0, 0, 0, 4, 3, 2], []> into %into
      : tensor<11xf32>, tensor<6xf32>, tensor<8xf32>
  return
}

// -----

func.func @second_matrix_outside(%m: tensor<24xf32>, %q: tensor<12xf32>) {
  %into = tensor.empty() : tensor<16xf32>
  // expected-error @+1 {{expected operands that hold matrix 1 of the layout and its factors}}
  %0 = ddp.flat.matmul %m, %q
      layout <0 to 24, [0, 0, 0, 4, 3, 2, 13, 8, 6, 4, 3, 2], []> into %into
      : tensor<24xf32>, tensor<12xf32>, tensor<16xf32>
  return
}

// -----

func.func @p_too_small(%m: memref<12xf32>, %q: memref<6xf32>,
                       %p: memref<7xf32>) {
  // expected-error @+1 {{expected operands that hold matrix 0 of the layout and its factors}}
  ddp.flat.matmul %m, %q layout <0 to 12, [0, 0, 0, 4, 3, 2], []> into %p
      : memref<12xf32>, memref<6xf32>, memref<7xf32>
  return
}

// -----

func.func @q_too_small(%p: tensor<8xf32>, %q: tensor<5xf32>) {
  %into = tensor.empty() : tensor<12xf32>
  // expected-error @+1 {{expected operands that hold matrix 0 of the layout and its factors}}
  %0 = ddp.flat.matmul transpose_rhs %p, %q layout <0 to 12, [0, 0, 0, 4, 3, 2], []> into %into
      : tensor<8xf32>, tensor<5xf32>, tensor<12xf32>
  return
}

// -----

func.func @result_too_small(%m: tensor<12xf32>, %p: tensor<8xf32>) {
  %into = tensor.empty() : tensor<5xf32>
  // expected-error @+1 {{expected operands that hold matrix 0 of the layout and its factors}}
  %0 = ddp.flat.matmul transpose_lhs %m, %p layout <0 to 12, [0, 0, 0, 4, 3, 2], []> into %into
      : tensor<12xf32>, tensor<8xf32>, tensor<5xf32>
  return
}

// -----

// Numbers that overflow when they are multiplied or added.
func.func @offset_far_away(%m: tensor<12xf32>, %q: tensor<6xf32>) {
  %into = tensor.empty() : tensor<8xf32>
  // expected-error @+1 {{expected operands that hold matrix 0 of the layout and its factors}}
  %0 = ddp.flat.matmul %m, %q
      layout <0 to 12, [9223372036854775807, 0, 0, 4, 3, 2], []> into %into
      : tensor<12xf32>, tensor<6xf32>, tensor<8xf32>
  return
}

// -----

func.func @rows_without_end(%m: tensor<12xf32>, %q: tensor<6xf32>) {
  %into = tensor.empty() : tensor<8xf32>
  // expected-error @+1 {{expected operands that hold matrix 0 of the layout and its factors}}
  %0 = ddp.flat.matmul %m, %q
      layout <0 to 12, [0, 0, 0, 4611686018427387904, 4, 2], []> into %into
      : tensor<12xf32>, tensor<6xf32>, tensor<8xf32>
  return
}

// -----

func.func @elements(%m: tensor<12xf32>, %q: tensor<6xf16>) {
  %into = tensor.empty() : tensor<8xf32>
  // expected-error @+1 {{expected one element type, but got 'f32' and 'f16'}}
  %0 = ddp.flat.matmul %m, %q layout <0 to 12, [0, 0, 0, 4, 3, 2], []> into %into
      : tensor<12xf32>, tensor<6xf16>, tensor<8xf32>
  return
}

// -----

func.func @memory_beside(%m: memref<12xf32>, %q: tensor<6xf32>,
                         %p: memref<8xf32>) {
  // expected-error @+1 {{expected only tensors or only memrefs, but got 'memref<12xf32>' and 'tensor<6xf32>'}}
  ddp.flat.matmul %m, %q layout <0 to 12, [0, 0, 0, 4, 3, 2], []> into %p
      : memref<12xf32>, tensor<6xf32>, memref<8xf32>
  return
}

// -----

func.func @factor_too_small(%q: tensor<5xf32>) {
  %into = tensor.empty() : tensor<5xf32>
  // expected-error @+1 {{expected operands that hold matrix 0 of the layout and its factors}}
  %0 = ddp.flat.orthogonalize %q epsilon 0.0 layout <0 to 0, [0, 0, 0, 0, 3, 2], []> into %into
      : tensor<5xf32>, tensor<5xf32>
  return
}

// -----

func.func @project_piece(%m: tensor<17xf32>, %q: tensor<6xf32>) {
  %into0 = tensor.empty() : tensor<8xf32>
  %into1 = tensor.empty() : tensor<5xf32>
  // expected-error @+1 {{expected operands that hold piece 0 of the layout}}
  %0:2 = ddp.flat.project %m by %q
      layout <0 to 17, [0, 0, 0, 4, 3, 2], [13, 0, 5]> into (%into0, %into1)
      : tensor<17xf32>, tensor<6xf32>, tensor<8xf32>, tensor<5xf32>
  return
}

// -----

func.func @project_rest(%m: tensor<17xf32>, %q: tensor<6xf32>) {
  %into0 = tensor.empty() : tensor<8xf32>
  %into1 = tensor.empty() : tensor<4xf32>
  // expected-error @+1 {{expected operands that hold piece 1 of the layout}}
  %0:2 = ddp.flat.project %m by %q
      layout <0 to 17, [0, 0, 0, 4, 3, 2], [12, 0, 3, 15, 3, 2]> into (%into0, %into1)
      : tensor<17xf32>, tensor<6xf32>, tensor<8xf32>, tensor<4xf32>
  return
}

// -----

func.func @project_p(%m: memref<12xf32>, %q: memref<6xf32>,
                     %p: memref<7xf32>) {
  // expected-error @+1 {{expected operands that hold matrix 0 of the layout and its factors}}
  ddp.flat.project %m by %q layout <0 to 12, [0, 0, 0, 4, 3, 2], []>
      into (%p) : memref<12xf32>, memref<6xf32>, memref<7xf32>
  return
}

// -----

func.func @reconstruct_out(%p: tensor<8xf32>, %q: tensor<6xf32>) {
  %into = tensor.empty() : tensor<11xf32>
  // expected-error @+1 {{expected operands that hold matrix 0 of the layout and its factors}}
  %0 = ddp.flat.reconstruct %p, %q layout <0 to 12, [0, 0, 0, 4, 3, 2], []> into (%into)
      : tensor<8xf32>, tensor<6xf32>, tensor<11xf32>
  return
}

// -----

func.func @reconstruct_rest(%p: tensor<8xf32>, %q: tensor<6xf32>,
                            %v: tensor<4xf32>) {
  %into = tensor.empty() : tensor<17xf32>
  // expected-error @+1 {{expected operands that hold piece 0 of the layout}}
  %0 = ddp.flat.reconstruct %p, %q rest %v
      layout <0 to 17, [0, 0, 0, 4, 3, 2], [12, 0, 5]> into (%into)
      : tensor<8xf32>, tensor<6xf32>, tensor<4xf32>, tensor<17xf32>
  return
}

// -----

func.func @project_sum(%m: tensor<12xf32>, %q: tensor<6xf32>) {
  %into0 = tensor.empty() : tensor<13xf32>
  %into1 = tensor.empty() : tensor<8xf32>
  // expected-error @+1 {{expected buckets of one size, but got 'tensor<12xf32>' and 'tensor<13xf32>'}}
  %0:2 = ddp.flat.project %m plus %m by %q
      layout <0 to 12, [0, 0, 0, 4, 3, 2], []> into (%into0, %into1)
      : tensor<12xf32>, tensor<12xf32>, tensor<6xf32>, tensor<13xf32>, tensor<8xf32>
  return
}

// -----

func.func @project_packed(%m: tensor<17xf32>, %q: tensor<6xf32>) {
  %into = tensor.empty() : tensor<8xf32>
  // expected-error @+1 {{expected space for P and the rest, but got 'tensor<8xf32>'}}
  %0 = ddp.flat.project %m by %q packed
      layout <0 to 17, [0, 0, 0, 4, 3, 2], [12, 0, 5]> into (%into)
      : tensor<17xf32>, tensor<6xf32>, tensor<8xf32>
  return
}

// -----

func.func @reconstruct_matrix(%p: tensor<8xf32>, %q: tensor<6xf32>,
                              %m: tensor<13xf32>) {
  %into0 = tensor.empty() : tensor<12xf32>
  %into1 = tensor.empty() : tensor<12xf32>
  // expected-error @+1 {{expected buckets of one size, but got 'tensor<12xf32>' and 'tensor<13xf32>'}}
  %0:2 = ddp.flat.reconstruct %p, %q from %m
      layout <0 to 12, [0, 0, 0, 4, 3, 2], []> into (%into0, %into1)
      : tensor<8xf32>, tensor<6xf32>, tensor<13xf32>, tensor<12xf32>, tensor<12xf32>
  return
}

// -----

func.func @reconstruct_error(%p: tensor<8xf32>, %q: tensor<6xf32>,
                             %m: tensor<12xf32>) {
  %into0 = tensor.empty() : tensor<12xf32>
  %into1 = tensor.empty() : tensor<5xf32>
  // expected-error @+1 {{expected buckets of one size, but got 'tensor<12xf32>' and 'tensor<5xf32>'}}
  %0:2 = ddp.flat.reconstruct %p, %q from %m
      layout <0 to 12, [0, 0, 0, 4, 3, 2], []> into (%into0, %into1)
      : tensor<8xf32>, tensor<6xf32>, tensor<12xf32>, tensor<12xf32>, tensor<5xf32>
  return
}

// -----

//===----------------------------------------------------------------------===//
// Element by element
//===----------------------------------------------------------------------===//

func.func @add_result(%t: tensor<4xf32>, %d: tensor<4xf32>) {
  // expected-error @+1 {{expected the number of tensor results (0) to be equal to the number of output tensors (1)}}
  "ddp.flat.add"(%t, %t, %d) : (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) -> ()
  return
}

// -----

// C1
func.func @add_kinds(%t: tensor<4xf32>, %m: memref<4xf32>, %d: tensor<4xf32>) {
  // expected-error @+1 {{expected only tensors or only memrefs, but got 'tensor<4xf32>' and 'memref<4xf32>'}}
  %0 = ddp.flat.add %t, %m into %d : tensor<4xf32>, memref<4xf32>, tensor<4xf32>
  return
}

// -----

// C2
func.func @sub_shapes(%m: memref<4xf32>, %n: memref<5xf32>) {
  // expected-error @+1 {{expected arrays of one type, but got 'memref<4xf32>' and 'memref<5xf32>'}}
  ddp.flat.sub %m, %m into %n : memref<4xf32>, memref<4xf32>, memref<5xf32>
  return
}

// -----

// C2
func.func @scale_elements(%t: tensor<4xf32>, %d: tensor<4xf16>) {
  // expected-error @+1 {{expected arrays of one type, but got 'tensor<4xf32>' and 'tensor<4xf16>'}}
  %0 = ddp.flat.scale %t by 2.0 into %d : tensor<4xf32>, tensor<4xf16>
  return
}

// -----

// C3
func.func @scale_by_nothing(%m: memref<4xf32>) {
  // expected-error @+1 {{expected either a factor or a process group}}
  ddp.flat.scale %m into %m : memref<4xf32>, memref<4xf32>
  return
}

// -----

// C2
func.func @cast_shape(%m: memref<4xf32>, %n: memref<5xf16>) {
  // expected-error @+1 {{expected a target of the same shape as 'memref<4xf32>', but got 'memref<5xf16>'}}
  ddp.flat.cast %m into %n : memref<4xf32>, memref<5xf16>
  return
}

// -----

// C1
func.func @cast_kinds(%t: tensor<4xf32>, %n: memref<4xf16>) {
  // expected-error @+1 {{expected a target of the same shape as 'tensor<4xf32>', but got 'memref<4xf16>'}}
  ddp.flat.cast %t into %n : tensor<4xf32>, memref<4xf16>
  return
}

// -----

// C4
ddp.process_group @dp
func.func @all_reduce_wire(%m: memref<4xf32>) {
  // expected-error @+1 {{expected wire type f16 or bf16 or an encoding, but got 'f64'}}
  ddp.flat.all_reduce mean %m on @dp wire f64 into %m : memref<4xf32>, memref<4xf32>
  return
}

// -----

// C3
func.func @all_reduce_group(%m: memref<4xf32>) {
  // expected-error @+1 {{expected process group @dp to be declared}}
  ddp.flat.all_reduce mean %m on @dp into %m : memref<4xf32>, memref<4xf32>
  return
}

// -----

func.func @of_buckets(%b: !ddp.bucket<f32, [4]>) {
  // expected-error @+1 {{operand #0 must be statically shaped tensor of f16, bf16, f32 or f64 or statically shaped memref of f16, bf16, f32 or f64, but got '!ddp.bucket<f32, [4]>'}}
  "ddp.flat.cast"(%b, %b) : (!ddp.bucket<f32, [4]>, !ddp.bucket<f32, [4]>) -> ()
  return
}

// -----

//===----------------------------------------------------------------------===//
// Collectives in flight
//===----------------------------------------------------------------------===//

// C1 of wait
func.func @passed_on(%x: tensor<4xf32>, %ticket: i64) {
  // expected-error @+1 {{expected the ticket of the operation that starts the collective, not one that was passed on}}
  %0 = ddp.flat.wait %x, %ticket : tensor<4xf32>
  return
}

// -----

// C2 of wait
ddp.process_group @dp
func.func @mixed_up(%x: tensor<4xf32>, %y: tensor<4xf32>) {
  // expected-note @+1 {{the ticket's operation}}
  %a, %s = ddp.flat.all_reduce_start mean %x on @dp into %x
      : tensor<4xf32>, tensor<4xf32>
  // expected-error @+1 {{expected the value that the ticket's operation has in flight}}
  %0 = ddp.flat.wait %y, %s reading %a : tensor<4xf32>, tensor<4xf32>
  return
}

// -----

// C3 of wait
ddp.process_group @dp
func.func @reads_another(%x: tensor<4xf32>, %y: tensor<4xf32>, %d: tensor<4xf32>) {
  // expected-note @+1 {{the ticket's operation}}
  %a, %s = ddp.flat.all_reduce_start mean %x on @dp into %d
      : tensor<4xf32>, tensor<4xf32>
  // expected-error @+1 {{expected 'reading' to name the operand of the ticket's operation}}
  %0 = ddp.flat.wait %a, %s reading %y : tensor<4xf32>, tensor<4xf32>
  return
}

// -----

// C3 of wait
ddp.process_group @dp
func.func @reads_none(%x: tensor<4xf32>, %d: tensor<4xf32>) {
  // expected-note @+1 {{the ticket's operation}}
  %a, %s = ddp.flat.all_reduce_start mean %x on @dp into %d
      : tensor<4xf32>, tensor<4xf32>
  // expected-error @+1 {{expected 'reading' to name the operand of the ticket's operation}}
  %0 = ddp.flat.wait %a, %s : tensor<4xf32>
  return
}

// -----

// C6 of all_reduce_start
ddp.process_group @dp
func.func @condition_into_another(%x: tensor<4xf32>, %d: tensor<4xf32>, %c: i1) {
  // expected-error @+1 {{expected 'into' to be the operand, since there is a condition}}
  %a, %s = ddp.flat.all_reduce_start mean %x on @dp into %d if %c : tensor<4xf32>, tensor<4xf32>
  scf.if %c {
    %0 = ddp.flat.wait %a, %s : tensor<4xf32>
  } else {
    %0 = ddp.flat.wait %a, %s : tensor<4xf32>
  }
  return
}

// -----

// C6 of all_reduce_start
ddp.process_group @dp
func.func @condition_elsewhere(%m: memref<4xf32>, %d: memref<4xf32>, %c: i1) {
  // expected-error @+1 {{expected 'into' to be the operand, since there is a condition}}
  %s = ddp.flat.all_reduce_start mean %m on @dp into %d if %c : memref<4xf32>, memref<4xf32>
  scf.if %c {
    ddp.flat.wait %d, %s : memref<4xf32>
  } else {
    ddp.flat.wait %d, %s : memref<4xf32>
  }
  return
}

// -----

// C5 of start
ddp.process_group @dp
func.func @never_awaited(%m: memref<4xf32>) {
  // expected-error @+1 {{expected to be awaited exactly once, but its result has 0 uses}}
  %s = ddp.flat.all_reduce_start mean %m on @dp into %m : memref<4xf32>, memref<4xf32>
  return
}

// -----

// C5 of start
ddp.process_group @dp
func.func @elsewhere(%m: memref<4xf32>, %c: i1) {
  // expected-error @+1 {{expected to be awaited by one 'ddp.flat.wait' in the same block, but its result is used by 'ddp.flat.wait' elsewhere}}
  %s = ddp.flat.all_reduce_start mean %m on @dp into %m : memref<4xf32>, memref<4xf32>
  scf.if %c {
    // expected-note @+1 {{this is the use}}
    ddp.flat.wait %m, %s : memref<4xf32>
  }
  return
}
