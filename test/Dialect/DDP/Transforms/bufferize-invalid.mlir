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
