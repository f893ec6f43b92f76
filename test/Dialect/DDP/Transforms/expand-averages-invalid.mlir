// RUN: ddphook-opt %s --ddp-expand-averages -split-input-file -verify-diagnostics

// An average of an average of the same kind: one collective cannot do both.
ddp.process_group @dp
func.func @chain(%w: tensor<4xf32>) -> tensor<4xf32> {
  %0 = ddp.average %w on @dp every 4 : tensor<4xf32>
  // expected-error @+1 {{expected averages with the same group, period and warmup not to depend on each other}}
  %1 = ddp.average %0 on @dp every 4 : tensor<4xf32>
  return %1 : tensor<4xf32>
}

// -----

// Through other operations.
ddp.process_group @dp
func.func @far_chain(%w: tensor<4xf32>) -> tensor<4xf32> {
  %0 = ddp.average %w on @dp every 4 : tensor<4xf32>
  %e = tensor.empty() : tensor<4xf32>
  %x = linalg.exp ins(%0 : tensor<4xf32>) outs(%e : tensor<4xf32>)
      -> tensor<4xf32>
  // expected-error @+1 {{expected averages with the same group, period and warmup not to depend on each other}}
  %1 = ddp.average %x on @dp every 4 : tensor<4xf32>
  return %1 : tensor<4xf32>
}

// -----

// In the middle of three.
ddp.process_group @dp
func.func @middle(%w: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
  %0 = ddp.average %w on @dp every 4 : tensor<4xf32>
  // expected-error @+1 {{expected averages with the same group, period and warmup not to depend on each other}}
  %1 = ddp.average %0 on @dp every 4 : tensor<4xf32>
  %2 = ddp.average %w on @dp every 4 : tensor<4xf32>
  return %1, %2 : tensor<4xf32>, tensor<4xf32>
}

// -----

// A collective between two averages would have to wait for both.
ddp.process_group @dp
func.func @between(%v: tensor<4xf32>, %w: tensor<4xf32>)
    -> (tensor<4xf32>, tensor<4xf32>) {
  %0 = ddp.average %v on @dp every 4 : tensor<4xf32>
  // expected-error @+1 {{expected no side effects, because this depends on an average and precedes one with the same group, period and warmup}}
  %1 = ddp.all_reduce sum %0 on @dp : tensor<4xf32>
  %2 = ddp.average %w on @dp every 4 : tensor<4xf32>
  return %1, %2 : tensor<4xf32>, tensor<4xf32>
}

// -----

// The counter's name is taken.
ddp.process_group @dp
func.func private @average0.iter()
func.func @name(%w: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error @+1 {{expected the name @average0.iter to be free for a state}}
  %0 = ddp.average %w on @dp every 4 : tensor<4xf32>
  return %0 : tensor<4xf32>
}
