// RUN: ddphook-opt %s --split-input-file --verify-diagnostics --ddp-expand-hooks

// Hooks that reduce whole gradients only.

ddp.process_group @dp size 4
func.func @powersgd(%g: tensor<4x8xf32>) {
  // expected-error @+1 {{'ddp.reduce_scatter' op expected a hook that can reduce parts of a gradient, but got #ddp.powersgd, which reduces whole gradients only}}
  %s = ddp.reduce_scatter mean %g on @dp {ddp.hook = #ddp.powersgd} : tensor<4x8xf32> -> tensor<8xf32>
  return
}

// -----

ddp.process_group @dp size 4
func.func @noop(%g: tensor<4x8xf32>) attributes {ddp.hook = #ddp.noop} {
  // expected-error @+1 {{got #ddp.noop, which reduces whole gradients only}}
  %s = ddp.reduce_scatter mean %g on @dp : tensor<4x8xf32> -> tensor<8xf32>
  return
}

// -----

ddp.process_group @dp size 4
func.func @affine(%g: tensor<4x8xf32>) {
  // expected-error @+1 {{got #ddp.quantization_pertensor, which reduces whole gradients only}}
  %s = ddp.reduce_scatter mean %g on @dp {ddp.hook = #ddp.quantization_pertensor} : tensor<4x8xf32> -> tensor<8xf32>
  return
}

// -----

ddp.process_group @dp size 4
func.func @wrapped(%g: tensor<4x8xf32>) {
  // expected-error @+1 {{got #ddp.wrap<f16, #ddp.allreduce>, which reduces whole gradients only}}
  %s = ddp.reduce_scatter mean %g on @dp {ddp.hook = #ddp.wrap<f16, #ddp.allreduce>} : tensor<4x8xf32> -> tensor<8xf32>
  return
}

// -----

ddp.process_group @dp size 4
func.func @wire_and_hook(%g: tensor<4x8xf32>) {
  // expected-error @+1 {{expected no wire type, since hook #ddp.bf16 chooses it}}
  %s = ddp.reduce_scatter mean %g on @dp wire f16 {ddp.hook = #ddp.bf16} : tensor<4x8xf32> -> tensor<8xf32>
  return
}
