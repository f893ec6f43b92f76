// RUN: ddphook-opt %s -split-input-file -verify-diagnostics

ddp.process_group @dp size 4
func.func @all_reduce(%x: tensor<8xf32>) {
  // expected-error@+1 {{expected a collective other than an all-reduce, which 'ddp.all_reduce_start' starts}}
  %f = ddp.exchange_start all_reduce mean %x on @dp : tensor<8xf32> -> !ddp.future<tensor<8xf32>>
  %s = ddp.wait %f : !ddp.future<tensor<8xf32>>
  return
}

// -----

ddp.process_group @dp size 4
func.func @without_reduction(%x: tensor<8xf32>) {
  // expected-error@+1 {{expected 'mean' or 'sum', since 'ddp.reduce_scatter' has one}}
  %f = ddp.exchange_start reduce_scatter %x on @dp : tensor<8xf32> -> !ddp.future<tensor<2xf32>>
  %s = ddp.wait %f : !ddp.future<tensor<2xf32>>
  return
}

// -----

ddp.process_group @dp size 4
func.func @with_reduction(%x: tensor<8xf32>) {
  // expected-error@+1 {{expected no 'mean' or 'sum', since 'ddp.all_gather' has none}}
  %f = ddp.exchange_start all_gather mean %x on @dp : tensor<8xf32> -> !ddp.future<tensor<32xf32>>
  %s = ddp.wait %f : !ddp.future<tensor<32xf32>>
  return
}

// -----

ddp.process_group @dp size 4
func.func @without_root(%x: tensor<8xf32>) {
  // expected-error@+1 {{expected 'from', since 'ddp.broadcast' has one}}
  %f = ddp.exchange_start broadcast %x on @dp : tensor<8xf32> -> !ddp.future<tensor<8xf32>>
  %s = ddp.wait %f : !ddp.future<tensor<8xf32>>
  return
}

// -----

ddp.process_group @dp size 4
func.func @with_root(%x: tensor<8xf32>) {
  // expected-error@+1 {{expected no 'from', since 'ddp.all_to_all' has none}}
  %f = ddp.exchange_start all_to_all %x from 1 on @dp : tensor<8xf32> -> !ddp.future<tensor<8xf32>>
  %s = ddp.wait %f : !ddp.future<tensor<8xf32>>
  return
}

// -----

ddp.process_group @dp size 4
func.func @with_wire(%x: tensor<8xf32>) {
  // expected-error@+1 {{expected no 'wire', since 'ddp.all_to_all' has none}}
  %f = ddp.exchange_start all_to_all %x on @dp wire f16 : tensor<8xf32> -> !ddp.future<tensor<8xf32>>
  %s = ddp.wait %f : !ddp.future<tensor<8xf32>>
  return
}

// -----

ddp.process_group @dp size 4
func.func @with_bucket(%x: tensor<8xf32>) {
  // expected-error@+1 {{expected no 'as', since 'ddp.reduce_scatter' has none}}
  %f = ddp.exchange_start reduce_scatter sum %x on @dp as "b" : tensor<8xf32> -> !ddp.future<tensor<2xf32>>
  %s = ddp.wait %f : !ddp.future<tensor<2xf32>>
  return
}

// -----

ddp.process_group @dp size 4
func.func @wire(%x: tensor<8xf32>) {
  // expected-error@+1 {{expected wire type f16 or bf16 or an encoding without zero points and random numbers, but got '!ddp.encoded<i8, 32 stochastic 1>'}}
  %f = ddp.exchange_start all_gather %x on @dp wire !ddp.encoded<i8, 32 stochastic 1> : tensor<8xf32> -> !ddp.future<tensor<32xf32>>
  %s = ddp.wait %f : !ddp.future<tensor<32xf32>>
  return
}

// -----

ddp.process_group @dp size 4
func.func @step(%x: tensor<8xf32>) {
  // expected-error@+1 {{expected a step, since the wire type rounds stochastically}}
  %f = ddp.exchange_start reduce_scatter mean %x on @dp wire !ddp.encoded<i8, 32 stochastic 1> : tensor<8xf32> -> !ddp.future<tensor<2xf32>>
  %s = ddp.wait %f : !ddp.future<tensor<2xf32>>
  return
}

// -----

ddp.process_group @dp size 4
func.func @element_type(%x: tensor<8xf32>) {
  // expected-error@+1 {{expected elements of one type, but got 'f32' and 'f64'}}
  %f = ddp.exchange_start reduce_scatter mean %x on @dp : tensor<8xf32> -> !ddp.future<tensor<2xf64>>
  %s = ddp.wait %f : !ddp.future<tensor<2xf64>>
  return
}

// -----

ddp.process_group @dp size 4
func.func @part_size(%x: tensor<8xf32>) {
  // expected-error@+1 {{expected a part of 2 elements, since 4 ranks share 8, but got 3}}
  %f = ddp.exchange_start reduce_scatter mean %x on @dp : tensor<8xf32> -> !ddp.future<tensor<3xf32>>
  %s = ddp.wait %f : !ddp.future<tensor<3xf32>>
  return
}

// -----

ddp.process_group @dp size 4
func.func @part_shape(%x: tensor<8xf32>) {
  // expected-error@+1 {{expected a part that is a tensor of one dimension, but got 'tensor<2x1xf32>'}}
  %f = ddp.exchange_start reduce_scatter mean %x on @dp : tensor<8xf32> -> !ddp.future<tensor<2x1xf32>>
  %s = ddp.wait %f : !ddp.future<tensor<2x1xf32>>
  return
}

// -----

ddp.process_group @dp size 4
func.func @same_type(%x: tensor<8xf32>) {
  // expected-error@+1 {{expected the result to be '!ddp.future<tensor<8xf32>>'}}
  %f = ddp.exchange_start broadcast %x from 1 on @dp : tensor<8xf32> -> !ddp.future<tensor<4x2xf32>>
  %s = ddp.wait %f : !ddp.future<tensor<4x2xf32>>
  return
}

// -----

ddp.process_group @dp size 4
func.func @root(%x: tensor<8xf32>) {
  // expected-error@+1 {{expected the root to be one of 4 ranks, but got 4}}
  %f = ddp.exchange_start broadcast %x from 4 on @dp : tensor<8xf32> -> !ddp.future<tensor<8xf32>>
  %s = ddp.wait %f : !ddp.future<tensor<8xf32>>
  return
}

// -----

ddp.process_group @dp size 4
func.func @negative_root(%x: tensor<8xf32>) {
  // expected-error@+1 {{expected a root of at least 0, but got -1}}
  %f = ddp.exchange_start broadcast %x from -1 on @dp : tensor<8xf32> -> !ddp.future<tensor<8xf32>>
  %s = ddp.wait %f : !ddp.future<tensor<8xf32>>
  return
}

// -----

ddp.process_group @dp size 4
// expected-note@+1 {{the group is declared here}}
ddp.process_group @all
func.func @no_size(%x: tensor<8xf32>) {
  // expected-error@+1 {{expected process group @all to declare its size, on which the parts depend}}
  %f = ddp.exchange_start all_to_all %x on @all : tensor<8xf32> -> !ddp.future<tensor<8xf32>>
  %s = ddp.wait %f : !ddp.future<tensor<8xf32>>
  return
}

// -----

ddp.process_group @dp size 4
func.func @no_group(%x: tensor<8xf32>) {
  // expected-error@+1 {{expected process group @none to be declared}}
  %f = ddp.exchange_start all_to_all %x on @none : tensor<8xf32> -> !ddp.future<tensor<8xf32>>
  %s = ddp.wait %f : !ddp.future<tensor<8xf32>>
  return
}

// -----

ddp.process_group @dp size 4
func.func @kind(%x: tensor<8xf32>) {
  // expected-error@+1 {{expected 'all_reduce', 'reduce_scatter', 'all_gather', 'all_to_all' or 'broadcast', but got 'scatter'}}
  %f = ddp.exchange_start scatter %x on @dp : tensor<8xf32> -> !ddp.future<tensor<8xf32>>
  return
}

// -----

ddp.process_group @dp size 4
func.func @reduction(%x: tensor<8xf32>) {
  // expected-error@+1 {{expected 'mean' or 'sum', but got 'max'}}
  %f = ddp.exchange_start reduce_scatter max %x on @dp : tensor<8xf32> -> !ddp.future<tensor<2xf32>>
  return
}

// -----

ddp.process_group @dp size 4
func.func @never(%x: tensor<8xf32>) {
  // expected-error@+1 {{'ddp.exchange_start' op expected to be awaited exactly once, but its result has 0 uses}}
  %f = ddp.exchange_start all_to_all %x on @dp : tensor<8xf32> -> !ddp.future<tensor<8xf32>>
  return
}

// -----

ddp.process_group @dp size 4
func.func @flat_kind(%x: tensor<8xf32>) {
  // expected-error@+1 {{expected a collective other than an all-reduce, which 'ddp.all_reduce_start' starts}}
  %f, %t = ddp.flat.exchange_start all_reduce sum %x on @dp into %x : tensor<8xf32>, tensor<8xf32>
  %s = ddp.flat.wait %f, %t reading %x : tensor<8xf32>, tensor<8xf32>
  return
}

// -----

ddp.process_group @dp size 4
func.func @flat_arrays(%x: tensor<8xf32>, %y: memref<8xf32>) {
  // expected-error@+1 {{expected only tensors or only memrefs, but got 'tensor<8xf32>' and 'memref<8xf32>'}}
  %t = ddp.flat.exchange_start all_to_all %x on @dp into %y : tensor<8xf32>, memref<8xf32>
  ddp.flat.wait %y, %t : memref<8xf32>
  return
}

// -----

ddp.process_group @dp size 4
func.func @flat_size(%x: tensor<8xf32>, %y: tensor<9xf32>) {
  // expected-error@+1 {{expected arrays of one size, but got 'tensor<8xf32>' and 'tensor<9xf32>'}}
  %f, %t = ddp.flat.exchange_start all_to_all %x on @dp into %y : tensor<8xf32>, tensor<9xf32>
  %s = ddp.flat.wait %f, %t reading %x : tensor<9xf32>, tensor<8xf32>
  return
}

// -----

ddp.process_group @dp size 4
func.func @flat_part(%x: memref<8xf32>, %y: memref<3xf32>) {
  // expected-error@+1 {{expected a part of 2 elements, since 4 ranks share 8, but got 3}}
  %t = ddp.flat.exchange_start reduce_scatter sum %x on @dp into %y : memref<8xf32>, memref<3xf32>
  ddp.flat.wait %y, %t : memref<3xf32>
  return
}

// -----

ddp.process_group @dp size 4
func.func @flat_twice(%x: memref<8xf32>, %y: memref<8xf32>) {
  // expected-error@+1 {{'ddp.flat.exchange_start' op expected to be awaited exactly once, but its result has 2 uses}}
  %t = ddp.flat.exchange_start all_to_all %x on @dp into %y : memref<8xf32>, memref<8xf32>
  ddp.flat.wait %y, %t : memref<8xf32>
  ddp.flat.wait %y, %t : memref<8xf32>
  return
}

// -----

ddp.process_group @dp size 4
func.func @reading(%x: tensor<8xf32>, %y: tensor<8xf32>) {
  // expected-note@+1 {{the ticket's operation}}
  %f, %t = ddp.flat.exchange_start all_to_all %x on @dp into %y : tensor<8xf32>, tensor<8xf32>
  // expected-error@+1 {{expected 'reading' to name the operand of the ticket's operation}}
  %s = ddp.flat.wait %f, %t reading %y : tensor<8xf32>, tensor<8xf32>
  return
}
