// RUN: ddphook-opt %s -split-input-file -verify-diagnostics

// Sizes that 64 bits cannot be computed with.

ddp.process_group @dp
func.func @tensor(%a: tensor<4294967296x4294967296xf32>) {
  // expected-error @+1 {{expected at most 72057594037927936 elements, but got 'tensor<4294967296x4294967296xf32>'}}
  %r = ddp.all_reduce mean %a on @dp : tensor<4294967296x4294967296xf32>
  return
}

// -----

ddp.process_group @dp
func.func @largest_dimension(%a: tensor<9223372036854775807xf16>) {
  // expected-error @+1 {{expected at most 72057594037927936 elements}}
  %r = ddp.all_reduce mean %a on @dp : tensor<9223372036854775807xf16>
  return
}

// -----

// A dimension of size 0 does not help: strides are products, too.
ddp.process_group @dp
func.func @empty(%a: tensor<0x4294967296x4294967296xf32>) {
  // expected-error @+1 {{expected at most 72057594037927936 elements}}
  %r = ddp.all_reduce mean %a on @dp : tensor<0x4294967296x4294967296xf32>
  return
}

// -----

ddp.process_group @dp
func.func @memref(%a: memref<4294967296x4294967296xf32>) {
  // expected-error @+1 {{expected at most 72057594037927936 elements}}
  ddp.flat.all_reduce mean %a on @dp into %a : memref<4294967296x4294967296xf32>, memref<4294967296x4294967296xf32>
  return
}

// -----

ddp.process_group @dp
func.func @largest(%a: tensor<72057594037927936xf32>) {
  %r = ddp.all_reduce mean %a on @dp : tensor<72057594037927936xf32>
  return
}

// -----

// expected-error @+1 {{expected a bucket of at most 72057594037927936 elements}}
ddp.state @member : !ddp.bucket<f32, [4294967296x4294967296]> per_rank zero

// -----

// expected-error @+1 {{expected a bucket of at most 72057594037927936 elements}}
ddp.state @sum : !ddp.bucket<f32, [72057594037927936, 1]> per_rank zero

// -----

func.func @pack(%a: tensor<36028797018963968xf32>) {
  // expected-error @+1 {{expected tensors of 0 elements in total, but got 72057594037927937}}
  %0 = ddp.pack %a, %a, %a, %a : tensor<36028797018963968xf32>, tensor<36028797018963968xf32>, tensor<36028797018963968xf32>, tensor<36028797018963968xf32> -> tensor<0xf32>
  return
}
