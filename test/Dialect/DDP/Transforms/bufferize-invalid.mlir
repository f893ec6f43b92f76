// RUN: ddphook-opt %s --ddp-bufferize -split-input-file -verify-diagnostics

// Operations on buckets, and on tensors that are no arrays yet.

ddp.process_group @dp
func.func @all_reduce(%t: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error @+1 {{expected 'ddp-flatten', 'ddp-assign-destinations' and 'ddp-materialize-buckets' before bufferization}}
  %r = ddp.all_reduce mean %t on @dp : tensor<4xf32>
  return %r : tensor<4xf32>
}

// -----

func.func @pack(%t: tensor<4xf32>) {
  // expected-error @+1 {{'ddp.pack' op expected 'ddp-flatten', 'ddp-assign-destinations' and 'ddp-materialize-buckets' before bufferization}}
  %b = ddp.pack %t : tensor<4xf32> -> tensor<4xf32>
  return
}

// -----

// Without a promise that nothing else is in this memory.
func.func @not_restrict(%m: memref<4xf32>) {
  // expected-error @+1 {{to_tensor ops without `restrict` are not supported}}
  %x = bufferization.to_tensor %m : memref<4xf32> to tensor<4xf32>
  %e = tensor.empty() : tensor<4xf32>
  %y = linalg.exp ins(%x : tensor<4xf32>) outs(%e : tensor<4xf32>) -> tensor<4xf32>
  bufferization.materialize_in_destination %y in restrict writable %m
      : (tensor<4xf32>, memref<4xf32>) -> ()
  return
}
