// RUN: ddphook-opt %s --ddp-prepare-entries -split-input-file -verify-diagnostics

// expected-error @+1 {{expected result 1 to be a tensor or a scalar, but got 'memref<4xf32>'}}
func.func @returns_memory(%x: tensor<4xf32>, %m: memref<4xf32>)
    -> (tensor<4xf32>, memref<4xf32>) {
  return %x, %m : tensor<4xf32>, memref<4xf32>
}

// -----

ddp.process_group @dp
// expected-error @+1 {{expected argument 1 to be a tensor of static shape, but got 'tensor<?xf32>'}}
func.func @dynamic_argument(%g: tensor<4xf32>, %x: tensor<?xf32>)
    -> tensor<4xf32> {
  %r = ddp.all_reduce mean %g on @dp : tensor<4xf32>
  return %r : tensor<4xf32>
}

// -----

ddp.process_group @dp
// expected-error @+1 {{expected result 0 to be a tensor of static shape, but got 'tensor<*xf32>'}}
func.func @unranked_result(%g: tensor<4xf32>) -> tensor<*xf32> {
  %r = ddp.all_reduce mean %g on @dp : tensor<4xf32>
  %u = tensor.cast %r : tensor<4xf32> to tensor<*xf32>
  return %u : tensor<*xf32>
}
