// RUN: ddphook-opt %s --ddp-pipeline -split-input-file -verify-diagnostics

// Programs that no pass can lower: an error, and no half-lowered module.

ddp.process_group @dp
func.func @reduced_twice(%g: tensor<4xf32>) -> (tensor<4xf32> {ddp.gradient}) {
  %a = ddp.all_reduce mean %g on @dp : tensor<4xf32>
  // expected-note @+1 {{the reduction is here}}
  %b = ddp.all_reduce mean %a on @dp : tensor<4xf32>
  // expected-error @+1 {{expected result 0 marked 'ddp.gradient' to be reduced exactly once, but it is reduced more than once}}
  return %b : tensor<4xf32>
}

// -----

ddp.process_group @dp
func.func @wire(%g: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error @+1 {{expected no wire type before 'ddp-bucketize'}}
  %r = ddp.all_reduce mean %g on @dp wire f16 : tensor<4xf32>
  return %r : tensor<4xf32>
}

// -----

ddp.process_group @dp
// expected-error @+1 {{expected argument 1 to be a tensor of static shape, but got 'tensor<?xf32>'}}
func.func @dynamic(%g: tensor<4xf32>, %x: tensor<?xf32>) -> tensor<4xf32> {
  %r = ddp.all_reduce mean %g on @dp : tensor<4xf32>
  return %r : tensor<4xf32>
}

// -----

ddp.process_group @dp
// expected-error @+1 {{expected argument 1 to be a memref or scalar of integers or floats, but got 'memref<4xcomplex<f32>>'}}
func.func @complex(%g: tensor<4xf32>, %x: tensor<4xcomplex<f32>>)
    -> tensor<4xf32> {
  %r = ddp.all_reduce mean %g on @dp : tensor<4xf32>
  return %r : tensor<4xf32>
}

// -----

// A buffer whose size is known at run time only.
ddp.process_group @dp
func.func @temporary(%g: tensor<4xf32>, %n: index) -> tensor<4xf32> {
  %c0 = arith.constant 0 : index
  // expected-error @+1 {{expected a buffer of static shape and identity layout, but got 'memref<?xf32>'}}
  %e = tensor.empty(%n) : tensor<?xf32>
  %s = tensor.insert_slice %g into %e[%c0] [4] [1]
      : tensor<4xf32> into tensor<?xf32>
  %x = tensor.extract_slice %s[%n] [4] [1] : tensor<?xf32> to tensor<4xf32>
  %r = ddp.all_reduce mean %x on @dp : tensor<4xf32>
  return %r : tensor<4xf32>
}

// -----

// Process groups and plans are the outermost module's.
// expected-error @+1 {{expected collectives only in the outermost module, but got some in a nested module}}
module {
  ddp.process_group @dp
  func.func @inner(%g: tensor<4xf32>) -> tensor<4xf32> {
    %r = ddp.all_reduce mean %g on @dp : tensor<4xf32>
    return %r : tensor<4xf32>
  }
}
func.func @outer(%x: tensor<4xf32>) -> tensor<4xf32> {
  return %x : tensor<4xf32>
}
