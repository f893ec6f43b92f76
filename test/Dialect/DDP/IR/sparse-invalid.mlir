// RUN: ddphook-opt %s -split-input-file -verify-diagnostics

// Each constraint on operations on the largest elements, violated once.

func.func @halves(%x: tensor<8xf16>) {
  // expected-error @+1 {{'ddp.sparsify' op expected elements of f32, but got 'tensor<8xf16>'}}
  %0, %1 = ddp.sparsify %x keep 2 : tensor<8xf16>
  return
}

// -----

func.func @too_many(%x: tensor<2147483648xf32>) {
  // expected-error @+1 {{'ddp.sparsify' op expected less than 2^31 elements, but got 'tensor<2147483648xf32>'}}
  %0, %1 = ddp.sparsify %x keep 2 : tensor<2147483648xf32>
  return
}

// -----

func.func @keeps_too_much(%x: !ddp.bucket<f32, [4x2]>) {
  // expected-error @+1 {{'ddp.sparsify' op expected to keep 0 to 8 elements, but got 9}}
  %0, %1 = ddp.sparsify %x keep 9 : !ddp.bucket<f32, [4x2]>
  return
}

// -----

func.func @keeps_less_than_nothing(%x: tensor<8xf32>) {
  // expected-error @+1 {{expected to keep at least 0 elements, but got -1}}
  %0, %1 = ddp.sparsify %x keep -1 : tensor<8xf32>
  return
}

// -----

func.func @adds_halves(%e: tensor<4xf32>) {
  // expected-error @+1 {{'ddp.densify' op expected elements of f32, but got 'tensor<8xf16>'}}
  %0 = ddp.densify %e keep 2 : tensor<4xf32> -> tensor<8xf16>
  return
}

// -----

func.func @kept_nothing(%e: tensor<0xf32>) {
  // expected-error @+1 {{'ddp.densify' op expected at least 1 kept element, but got 0}}
  %0 = ddp.densify %e keep 0 : tensor<0xf32> -> tensor<8xf32>
  return
}

// -----

func.func @parts(%e: tensor<6xf32>) {
  // expected-error @+1 {{'ddp.densify' op expected a multiple of 4 entries, but got 'tensor<6xf32>'}}
  %0 = ddp.densify %e keep 2 : tensor<6xf32> -> tensor<8xf32>
  return
}

// -----

func.func @one_array(%x: memref<8xf32>, %e: memref<4xf32>) {
  // expected-error @+1 {{'ddp.flat.sparsify' op expected 2 'into' operands, but got 1}}
  ddp.flat.sparsify %x keep 2 into (%e) : memref<8xf32>, memref<4xf32>
  return
}

// -----

func.func @entries(%x: memref<8xf32>, %e: memref<6xf32>) {
  // expected-error @+1 {{'ddp.flat.sparsify' op expected 2 elements and as many indices, but got 'memref<6xf32>'}}
  ddp.flat.sparsify %x keep 2 into (%e, %x) : memref<8xf32>, memref<6xf32>, memref<8xf32>
  return
}

// -----

func.func @rest(%x: memref<8xf32>, %e: memref<4xf32>, %r: memref<7xf32>) {
  // expected-error @+1 {{'ddp.flat.sparsify' op expected the rest to have the operand's size, but got 'memref<7xf32>' of 'memref<8xf32>'}}
  ddp.flat.sparsify %x keep 2 into (%e, %r) : memref<8xf32>, memref<4xf32>, memref<7xf32>
  return
}

// -----

func.func @mixed(%x: tensor<8xf32>, %e: memref<4xf32>) {
  // expected-error @+1 {{'ddp.flat.densify' op expected only tensors or only memrefs, but got 'memref<4xf32>' and 'tensor<8xf32>'}}
  %0 = "ddp.flat.densify"(%e, %x) <{keep = 2 : i64}> : (memref<4xf32>, tensor<8xf32>) -> tensor<8xf32>
  return
}
