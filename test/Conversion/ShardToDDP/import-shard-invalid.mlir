// RUN: ddphook-opt %s --split-input-file --ddp-import-shard -verify-diagnostics

shard.grid @g(shape = 2)
func.func @maximum(%a: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
  // expected-error @below {{'shard.all_reduce' op expected the reduction sum or average, but got max}}
  %0 = shard.all_reduce %a on @g grid_axes = [0] reduction = max
      : tensor<4xf32> -> tensor<4xf32>
  // Each error is reported.
  // expected-error @below {{'shard.all_reduce' op expected the reduction sum or average, but got product}}
  %1 = shard.all_reduce %a on @g grid_axes = [0] reduction = product
      : tensor<4xf32> -> tensor<4xf32>
  return %0, %1 : tensor<4xf32>, tensor<4xf32>
}

// -----

shard.grid @g(shape = 2)
func.func @integers(%a: tensor<4xi32>) -> tensor<4xi32> {
  // expected-error @below {{expected a statically shaped tensor of f16, bf16, f32 or f64, but got 'tensor<4xi32>'}}
  %0 = shard.all_reduce %a on @g grid_axes = [0] : tensor<4xi32> -> tensor<4xi32>
  return %0 : tensor<4xi32>
}

// -----

shard.grid @g(shape = 2)
func.func @dynamic_tensor(%a: tensor<?xf32>) -> tensor<?xf32> {
  // expected-error @below {{expected a statically shaped tensor of f16, bf16, f32 or f64, but got 'tensor<?xf32>'}}
  %0 = shard.all_reduce %a on @g grid_axes = [0] : tensor<?xf32> -> tensor<?xf32>
  return %0 : tensor<?xf32>
}

// -----

shard.grid @g(shape = 2)
func.func @memory(%a: memref<4xf32>) -> memref<4xf32> {
  // expected-error @below {{expected a tensor, but got 'memref<4xf32>'; run 'ddp-import-shard' before bufferization}}
  %0 = shard.all_reduce %a on @g grid_axes = [0] : memref<4xf32> -> memref<4xf32>
  return %0 : memref<4xf32>
}

// -----

shard.grid @g(shape = 2)
func.func @other_type(%a: tensor<4xf16>) -> tensor<4xf32> {
  // expected-error @below {{expected a result of the operand's type 'tensor<4xf16>', but got 'tensor<4xf32>'; convert the operand before it is reduced}}
  %0 = shard.all_reduce %a on @g grid_axes = [0] : tensor<4xf16> -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// -----

shard.grid @g(shape = ?x2)
func.func @some_axes_of_any_grid(%a: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error @below {{expected a static shape for a reduction over some of the grid's axes, but @g has the shape ?x2}}
  %0 = shard.all_reduce %a on @g grid_axes = [1] : tensor<4xf32> -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// -----

shard.grid @g(shape = 2x0)
func.func @no_processes(%a: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error @below {{expected a grid with processes, but @g has the shape 2x0}}
  %0 = shard.all_reduce %a on @g grid_axes = [0] : tensor<4xf32> -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// -----

shard.grid @g(shape = 4294967296x4294967296x4294967296)
func.func @too_many_processes(%a: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error @below {{expected a grid of at most 1048576 processes, but @g has the shape 4294967296x4294967296x4294967296}}
  %0 = shard.all_reduce %a on @g grid_axes = [0] : tensor<4xf32> -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// -----

shard.grid @g(shape = 2x2)
func.func @repeated(%a: tensor<4xf32>) -> tensor<4xf32> {
  // expected-note @below {{this 'shard.all_reduce' has reduced it}}
  %0 = shard.all_reduce %a on @g grid_axes = [0, 1] : tensor<4xf32> -> tensor<4xf32>
  // expected-error @below {{'shard.all_reduce' op expected a value that is not reduced over axis 1 of @g yet; allow-repeated=true reduces it again}}
  %1 = shard.all_reduce %0 on @g grid_axes = [1] reduction = average
      : tensor<4xf32> -> tensor<4xf32>
  return %1 : tensor<4xf32>
}

// -----

// Also of what is computed from it, and from numbers, alone; through another
// reduction; and of a reduce-scatter with its all-gather.

shard.grid @g(shape = 2x2)
func.func @repeated_later(%a: tensor<4x4xf32>) -> tensor<16xf32> {
  // expected-note @below {{this 'shard.reduce_scatter' has reduced it}}
  %0 = shard.reduce_scatter %a on @g grid_axes = [0] scatter_axis = 0
      : tensor<4x4xf32> -> tensor<2x4xf32>
  %1 = shard.all_gather %0 on @g grid_axes = [0] gather_axis = 0
      : tensor<2x4xf32> -> tensor<4x4xf32>
  %half = arith.constant dense<0.5> : tensor<4x4xf32>
  %2 = arith.mulf %1, %half : tensor<4x4xf32>
  %e = tensor.empty() : tensor<4x4xf32>
  %3 = linalg.map ins(%2 : tensor<4x4xf32>) outs(%e : tensor<4x4xf32>)
    (%in: f32, %out: f32) {
      %negative = arith.negf %in : f32
      linalg.yield %negative : f32
    }
  %4 = shard.all_reduce %3 on @g grid_axes = [1] : tensor<4x4xf32> -> tensor<4x4xf32>
  %5 = tensor.collapse_shape %4 [[0, 1]] : tensor<4x4xf32> into tensor<16xf32>
  // expected-error @below {{expected a value that is not reduced over axis 0 of @g yet}}
  %6 = shard.all_reduce %5 on @g grid_axes = [0] : tensor<16xf32> -> tensor<16xf32>
  return %6 : tensor<16xf32>
}

// -----

shard.grid @g(shape = 2)
func.func @other_collectives(%a: tensor<4xf32>, %b: tensor<3xf32>, %i: index)
    -> (tensor<2xf32>, tensor<4xf32>, tensor<3xf32>) {
  // expected-error @below {{'shard.all_slice' op expected all-reduces, reduce-scatters, all-gathers, all-to-alls and broadcasts only}}
  %0 = shard.all_slice %a on @g grid_axes = [0] slice_axis = 0
      : tensor<4xf32> -> tensor<2xf32>
  // expected-error @below {{'shard.broadcast' op expected a root of constant indices along the axes}}
  %1 = shard.broadcast %a on @g grid_axes = [0] root = [%i]
      : (tensor<4xf32>, index) -> tensor<4xf32>
  // expected-error @below {{'shard.all_to_all' op expected 2 equal parts along dimension 0, but got 'tensor<3xf32>' and 'tensor<3xf32>'}}
  %2 = shard.all_to_all %b on @g grid_axes = [0] split_axis = 0 concat_axis = 0
      : tensor<3xf32> -> tensor<3xf32>
  return %0, %1, %2 : tensor<2xf32>, tensor<4xf32>, tensor<3xf32>
}

// -----

// Parts of tensors.

shard.grid @g(shape = 2x2)
func.func @other_order(%a: tensor<4x4xf32>, %b: tensor<1x4xf32>)
    -> (tensor<1x4xf32>, tensor<4x4xf32>) {
  // expected-error @below {{'shard.reduce_scatter' op expected the grid's axes in ascending order, which is the order of a process group's parts}}
  %0 = shard.reduce_scatter %a on @g grid_axes = [1, 0] scatter_axis = 0
      : tensor<4x4xf32> -> tensor<1x4xf32>
  // expected-error @below {{'shard.all_gather' op expected the grid's axes in ascending order}}
  %1 = shard.all_gather %b on @g grid_axes = [1, 0] gather_axis = 0
      : tensor<1x4xf32> -> tensor<4x4xf32>
  return %0, %1 : tensor<1x4xf32>, tensor<4x4xf32>
}

// -----

shard.grid @g(shape = 2)
func.func @other_parts(%a: tensor<4xf32>, %i: tensor<4xi32>, %d: tensor<?xf32>)
    -> (tensor<2xf32>, tensor<8xi32>, tensor<?xf32>) {
  // expected-error @below {{'shard.reduce_scatter' op expected the reduction sum or average, but got max}}
  %0 = shard.reduce_scatter %a on @g grid_axes = [0] reduction = max scatter_axis = 0
      : tensor<4xf32> -> tensor<2xf32>
  // expected-error @below {{'shard.all_gather' op expected statically shaped tensors of f16, bf16, f32 or f64, but got 'tensor<4xi32>'}}
  %1 = shard.all_gather %i on @g grid_axes = [0] gather_axis = 0
      : tensor<4xi32> -> tensor<8xi32>
  // expected-error @below {{'shard.all_gather' op expected statically shaped tensors of f16, bf16, f32 or f64, but got 'tensor<?xf32>'}}
  %2 = shard.all_gather %d on @g grid_axes = [0] gather_axis = 0
      : tensor<?xf32> -> tensor<?xf32>
  return %0, %1, %2 : tensor<2xf32>, tensor<8xi32>, tensor<?xf32>
}

// -----

shard.grid @g(shape = 2x4294967296)
func.func @parts_on_a_large_grid(%a: tensor<4xf32>) -> tensor<2xf32> {
  // expected-error @below {{'shard.reduce_scatter' op expected a grid of static shape with at most 1048576 processes}}
  %0 = shard.reduce_scatter %a on @g grid_axes = [0] scatter_axis = 0
      : tensor<4xf32> -> tensor<2xf32>
  return %0 : tensor<2xf32>
}

// -----

shard.grid @g(shape = 2)
func.func @repeated_in_parts(%a: tensor<4xf32>) -> tensor<2xf32> {
  // expected-note @below {{this 'shard.all_reduce' has reduced it}}
  %0 = shard.all_reduce %a on @g grid_axes = [0] : tensor<4xf32> -> tensor<4xf32>
  // expected-error @below {{'shard.reduce_scatter' op expected a value that is not reduced over axis 0 of @g yet}}
  %1 = shard.reduce_scatter %0 on @g grid_axes = [0] scatter_axis = 0
      : tensor<4xf32> -> tensor<2xf32>
  return %1 : tensor<2xf32>
}

// -----

// A sum that begins with the program's values, in one process alone.

shard.grid @g(shape = 2)
func.func @process_index(%a: tensor<4xf32>, %b: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error @below {{'shard.process_multi_index' op expected a program that does not need the process's index, which compiled code does not know; split sums have to start from zeros}}
  %i = shard.process_multi_index on @g axes = [0] : index
  %c0 = arith.constant 0 : index
  %first = arith.cmpi eq, %i, %c0 : index
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<4xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<4xf32>) -> tensor<4xf32>
  %begin = scf.if %first -> (tensor<4xf32>) {
    scf.yield %a : tensor<4xf32>
  } else {
    scf.yield %z : tensor<4xf32>
  }
  %0 = shard.all_reduce %begin on @g grid_axes = [0] : tensor<4xf32> -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// -----

// Branches that differ in a number, in an operation or in a region.

shard.grid @g(shape = 2)
func.func @other_branches(%a: tensor<4xf32>)
    -> (tensor<4xf32>, f32, tensor<4xf32>) {
  // expected-error @below {{expected a program that does not need the process's index}}
  %i = shard.process_linear_index on @g : index
  %c0 = arith.constant 0 : index
  %first = arith.cmpi eq, %i, %c0 : index
  %zero = arith.constant 0.0 : f32
  %one = arith.constant 1.0 : f32
  %e = tensor.empty() : tensor<4xf32>
  %0 = scf.if %first -> (tensor<4xf32>) {
    %z = linalg.fill ins(%zero : f32) outs(%e : tensor<4xf32>) -> tensor<4xf32>
    scf.yield %z : tensor<4xf32>
  } else {
    %z = linalg.fill ins(%one : f32) outs(%e : tensor<4xf32>) -> tensor<4xf32>
    scf.yield %z : tensor<4xf32>
  }
  %1 = scf.if %first -> (f32) {
    %sum = arith.addf %one, %one : f32
    scf.yield %sum : f32
  } else {
    %product = arith.mulf %one, %one : f32
    scf.yield %product : f32
  }
  %2 = scf.if %first -> (tensor<4xf32>) {
    %m = linalg.map ins(%a : tensor<4xf32>) outs(%e : tensor<4xf32>)
      (%in: f32, %out: f32) {
        %x = arith.addf %in, %one : f32
        linalg.yield %x : f32
      }
    scf.yield %m : tensor<4xf32>
  } else {
    %m = linalg.map ins(%a : tensor<4xf32>) outs(%e : tensor<4xf32>)
      (%in: f32, %out: f32) {
        %x = arith.subf %in, %one : f32
        linalg.yield %x : f32
      }
    scf.yield %m : tensor<4xf32>
  }
  return %0, %1, %2 : tensor<4xf32>, f32, tensor<4xf32>
}

// -----

shard.grid @g(shape = ?)
func.func @shape() -> index {
  // expected-error @below {{'shard.grid_shape' op expected a grid of static shape}}
  %0 = shard.grid_shape @g axes = [0] : index
  return %0 : index
}

// -----

shard.grid @g(shape = 2)
func.func @not_partitioned(%a: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error @below {{'shard.sharding' op expected a partitioned program; run 'shard-partition' first}}
  %s = shard.sharding @g split_axes = [[0]] : !shard.sharding
  // expected-error @below {{'shard.shard' op expected a partitioned program; run 'shard-partition' first}}
  %0 = shard.shard %a to %s : tensor<4xf32>
  return %0 : tensor<4xf32>
}

// -----

// What the dialect itself refuses.

shard.grid @g(shape = 2)
func.func @no_such_axis(%a: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error @below {{grid axis index 1 is out of bounds}}
  %0 = shard.all_reduce %a on @g grid_axes = [1] : tensor<4xf32> -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// -----

// Without axes each process is alone, which may not be what was meant.

shard.grid @g(shape = 2)
func.func @no_axes(%a: tensor<4xf32>) -> tensor<4xf32> {
  // expected-warning @below {{'shard.all_reduce' without grid axes reduces nothing; it is removed}}
  %0 = shard.all_reduce %a on @g : tensor<4xf32> -> tensor<4xf32>
  return %0 : tensor<4xf32>
}
