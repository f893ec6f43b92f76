// RUN: ddphook-opt %s -split-input-file -verify-diagnostics

// Each constraint on collectives on parts and on broadcasts, violated once.

ddp.process_group @dp size 4
func.func @scatter_to_another_type(%g: tensor<8xf32>) {
  // expected-error @+1 {{'ddp.reduce_scatter' op expected elements of one type, but got 'f32' and 'f16'}}
  %0 = ddp.reduce_scatter mean %g on @dp : tensor<8xf32> -> tensor<2xf16>
  return
}

// -----

ddp.process_group @dp size 4
func.func @scatter_to_two_dimensions(%g: tensor<8xf32>) {
  // expected-error @+1 {{'ddp.reduce_scatter' op result #0 must be 1-D statically shaped tensor}}
  %0 = "ddp.reduce_scatter"(%g) <{reduction = #ddp<reduction mean>, group = @dp}> : (tensor<8xf32>) -> tensor<1x2xf32>
  return
}

// -----

// expected-note @+1 {{the group is declared here}}
ddp.process_group @dp
func.func @scatter_without_size(%g: tensor<8xf32>) {
  // expected-error @+1 {{'ddp.reduce_scatter' op expected process group @dp to declare its size, on which the parts depend}}
  %0 = ddp.reduce_scatter mean %g on @dp : tensor<8xf32> -> tensor<2xf32>
  return
}

// -----

func.func @scatter_without_group(%g: tensor<8xf32>) {
  // expected-error @+1 {{'ddp.reduce_scatter' op expected process group @dp to be declared}}
  %0 = ddp.reduce_scatter mean %g on @dp : tensor<8xf32> -> tensor<2xf32>
  return
}

// -----

ddp.process_group @dp size 4
func.func @scatter_to_a_short_part(%g: tensor<9xf32>) {
  // expected-error @+1 {{'ddp.reduce_scatter' op expected a part of 3 elements, since 4 ranks share 9, but got 2}}
  %0 = ddp.reduce_scatter mean %g on @dp : tensor<9xf32> -> tensor<2xf32>
  return
}

// -----

ddp.process_group @dp size 4
func.func @scatter_in_codes(%g: tensor<8xf32>) {
  // expected-error @+1 {{'ddp.reduce_scatter' op expected wire type f16 or bf16 or an encoding without a zero point, but got '!ddp.encoded<ui8>'}}
  %0 = ddp.reduce_scatter mean %g on @dp wire !ddp.encoded<ui8> : tensor<8xf32> -> tensor<2xf32>
  return
}

// -----

ddp.process_group @dp size 4
func.func @gather_in_codes(%s: tensor<2xf32>) {
  // expected-error @+1 {{'ddp.all_gather' op expected wire type f16 or bf16 or an encoding without zero points and random numbers, but got '!ddp.encoded<ui8>'}}
  %0 = ddp.all_gather %s on @dp wire !ddp.encoded<ui8> : tensor<2xf32> -> tensor<8xf32>
  return
}

// -----

ddp.process_group @dp size 4
func.func @gather_from_another_type(%s: tensor<2xf16>) {
  // expected-error @+1 {{'ddp.all_gather' op expected elements of one type, but got 'f16' and 'f32'}}
  %0 = ddp.all_gather %s on @dp : tensor<2xf16> -> tensor<8xf32>
  return
}

// -----

ddp.process_group @dp size 4
func.func @gather_too_much(%s: tensor<2xf32>) {
  // expected-error @+1 {{'ddp.all_gather' op expected a part of 3 elements, since 4 ranks share 9, but got 2}}
  %0 = ddp.all_gather %s on @dp : tensor<2xf32> -> !ddp.bucket<f32, [3x3]>
  return
}

// -----

ddp.process_group @dp size 4
func.func @gather_in_f32(%s: tensor<2xf64>) {
  // expected-error @+1 {{'ddp.all_gather' op expected wire type f16 or bf16 or an encoding without zero points and random numbers, but got 'f32'}}
  %0 = ddp.all_gather %s on @dp wire f32 : tensor<2xf64> -> tensor<8xf64>
  return
}

// -----

// expected-note @+1 {{the group is declared here}}
ddp.process_group @dp placement intra_node
func.func @gather_without_size(%s: tensor<2xf32>) {
  // expected-error @+1 {{'ddp.all_gather' op expected process group @dp to declare its size}}
  %0 = ddp.all_gather %s on @dp : tensor<2xf32> -> tensor<8xf32>
  return
}

// -----

ddp.process_group @dp size 4
func.func @exchange_unevenly(%x: tensor<3x3xf32>) {
  // expected-error @+1 {{'ddp.all_to_all' op expected an equal number of elements for each of 4 ranks, but got 9}}
  %0 = ddp.all_to_all %x on @dp : tensor<3x3xf32>
  return
}

// -----

// expected-note @+1 {{the group is declared here}}
ddp.process_group @dp
func.func @exchange_without_size(%x: tensor<8xf32>) {
  // expected-error @+1 {{'ddp.all_to_all' op expected process group @dp to declare its size}}
  %0 = ddp.all_to_all %x on @dp : tensor<8xf32>
  return
}

// -----

ddp.process_group @dp size 4
func.func @no_such_root(%x: tensor<8xf32>) {
  // expected-error @+1 {{'ddp.broadcast' op expected the root to be one of 4 ranks, but got 4}}
  %0 = ddp.broadcast %x from 4 on @dp : tensor<8xf32>
  return
}

// -----

ddp.process_group @dp
func.func @negative_root(%x: tensor<8xf32>) {
  // expected-error @+1 {{'ddp.broadcast' op expected a root of at least 0, but got -1}}
  %0 = ddp.broadcast %x from -1 on @dp : tensor<8xf32>
  return
}

// -----

func.func @broadcast_without_group(%x: tensor<8xf32>) {
  // expected-error @+1 {{'ddp.broadcast' op expected process group @dp to be declared}}
  %0 = ddp.broadcast %x from 0 on @dp : tensor<8xf32>
  return
}

// -----

ddp.process_group @dp size 4
func.func @hook_on_a_gather(%s: tensor<2xf32>) {
  // expected-error @+1 {{expected 'ddp.hook' on 'ddp.all_reduce', 'ddp.reduce_scatter', a function or a module only}}
  %0 = ddp.all_gather %s on @dp {ddp.hook = #ddp.fp16} : tensor<2xf32> -> tensor<8xf32>
  return
}

// -----

ddp.process_group @dp size 4
func.func @flat_mixed(%x: tensor<8xf32>, %m: memref<2xf32>) {
  // expected-error @+1 {{'ddp.flat.reduce_scatter' op expected only tensors or only memrefs, but got 'tensor<8xf32>' and 'memref<2xf32>'}}
  "ddp.flat.reduce_scatter"(%x, %m) <{reduction = #ddp<reduction sum>, group = @dp}> : (tensor<8xf32>, memref<2xf32>) -> ()
  return
}

// -----

ddp.process_group @dp size 4
func.func @flat_part(%x: memref<8xf32>, %p: memref<3xf32>) {
  // expected-error @+1 {{'ddp.flat.reduce_scatter' op expected a part of 2 elements, since 4 ranks share 8, but got 3}}
  ddp.flat.reduce_scatter sum %x on @dp into %p : memref<8xf32>, memref<3xf32>
  return
}

// -----

ddp.process_group @dp size 4
func.func @flat_wire(%x: memref<8xf32>, %p: memref<2xf32>) {
  // expected-error @+1 {{'ddp.flat.reduce_scatter' op expected wire type f16 or bf16 or an encoding without a zero point, but got 'f64'}}
  ddp.flat.reduce_scatter sum %x on @dp wire f64 into %p : memref<8xf32>, memref<2xf32>
  return
}

// -----

ddp.process_group @dp size 4
func.func @flat_gather(%x: memref<8xf32>, %p: memref<2xf32>) {
  // expected-error @+1 {{'ddp.flat.all_gather' op expected a part of 1 elements, since 4 ranks share 2, but got 8}}
  ddp.flat.all_gather %x on @dp into %p : memref<8xf32>, memref<2xf32>
  return
}

// -----

ddp.process_group @dp size 4
func.func @flat_gather_types(%x: memref<8xf32>, %p: memref<2xf16>) {
  // expected-error @+1 {{'ddp.flat.all_gather' op expected elements of one type, but got 'f16' and 'f32'}}
  ddp.flat.all_gather %p on @dp into %x : memref<2xf16>, memref<8xf32>
  return
}

// -----

ddp.process_group @dp size 4
func.func @flat_exchange_sizes(%x: memref<8xf32>, %p: memref<4xf32>) {
  // expected-error @+1 {{'ddp.flat.all_to_all' op expected arrays of one size, but got 'memref<8xf32>' and 'memref<4xf32>'}}
  ddp.flat.all_to_all %x on @dp into %p : memref<8xf32>, memref<4xf32>
  return
}

// -----

ddp.process_group @dp size 4
func.func @flat_exchange(%x: memref<9xf32>) {
  // expected-error @+1 {{'ddp.flat.all_to_all' op expected an equal number of elements for each of 4 ranks, but got 9}}
  ddp.flat.all_to_all %x on @dp into %x : memref<9xf32>, memref<9xf32>
  return
}

// -----

ddp.process_group @dp size 4
func.func @flat_broadcast_sizes(%x: memref<8xf32>, %p: memref<4xf32>) {
  // expected-error @+1 {{'ddp.flat.broadcast' op expected arrays of one size}}
  ddp.flat.broadcast %x from 0 on @dp into %p : memref<8xf32>, memref<4xf32>
  return
}

// -----

ddp.process_group @dp size 4
func.func @flat_broadcast_root(%x: memref<8xf32>) {
  // expected-error @+1 {{'ddp.flat.broadcast' op expected the root to be one of 4 ranks, but got 7}}
  ddp.flat.broadcast %x from 7 on @dp into %x : memref<8xf32>, memref<8xf32>
  return
}

// -----

ddp.process_group @dp
func.func @flat_broadcast_negative_root(%x: memref<8xf32>) {
  // expected-error @+1 {{'ddp.flat.broadcast' op expected a root of at least 0, but got -3}}
  ddp.flat.broadcast %x from -3 on @dp into %x : memref<8xf32>, memref<8xf32>
  return
}
