// RUN: ddphook-opt %s --split-input-file --verify-diagnostics --ddp-expand-hooks

// Hooks that need more than a part of a gradient, or send codes.

ddp.process_group @dp size 4
func.func @powersgd(%g: tensor<4x8xf32>) {
  // expected-error @+1 {{'ddp.reduce_scatter' op expected hook #ddp.allreduce, #ddp.fp16 or #ddp.bf16, but got #ddp.powersgd, which needs the whole gradient on every rank}}
  %s = ddp.reduce_scatter mean %g on @dp {ddp.hook = #ddp.powersgd} : tensor<4x8xf32> -> tensor<8xf32>
  return
}

// -----

ddp.process_group @dp size 4
func.func @noop(%g: tensor<4x8xf32>) attributes {ddp.hook = #ddp.noop} {
  // expected-error @+1 {{got #ddp.noop, which needs the whole gradient on every rank}}
  %s = ddp.reduce_scatter mean %g on @dp : tensor<4x8xf32> -> tensor<8xf32>
  return
}

// -----

ddp.process_group @dp size 4
func.func @int8(%g: tensor<4x8xf32>) {
  // expected-error @+1 {{got #ddp.int8, which sends codes: no reduce-scatter is encoded}}
  %s = ddp.reduce_scatter mean %g on @dp {ddp.hook = #ddp.int8} : tensor<4x8xf32> -> tensor<8xf32>
  return
}

// -----

ddp.process_group @dp size 4
func.func @accumulate(%g: tensor<4x8xf32>) {
  // expected-error @+1 {{which sends codes: no reduce-scatter is encoded}}
  %s = ddp.reduce_scatter mean %g on @dp {ddp.hook = #ddp.fp16<accumulate = f32>} : tensor<4x8xf32> -> tensor<8xf32>
  return
}

// -----

ddp.process_group @dp size 4
func.func @wrapped(%g: tensor<4x8xf32>) {
  // expected-error @+1 {{got #ddp.wrap<f16, #ddp.allreduce>, which needs the whole gradient on every rank}}
  %s = ddp.reduce_scatter mean %g on @dp {ddp.hook = #ddp.wrap<f16, #ddp.allreduce>} : tensor<4x8xf32> -> tensor<8xf32>
  return
}

// -----

ddp.process_group @dp size 4
func.func @wire_and_hook(%g: tensor<4x8xf32>) {
  // expected-error @+1 {{expected no wire type, since hook #ddp.bf16 decides about it}}
  %s = ddp.reduce_scatter mean %g on @dp wire f16 {ddp.hook = #ddp.bf16} : tensor<4x8xf32> -> tensor<8xf32>
  return
}
