// RUN: ddphook-opt %s --ddp-expand-averages -split-input-file -verify-diagnostics

// The counter's name is taken.
ddp.process_group @dp
// expected-note @+1 {{the name is used here}}
func.func private @average0.iter()
func.func @name(%w: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error @+1 {{expected the name @average0.iter to be free for a state}}
  %0 = ddp.average %w on @dp every 4 : tensor<4xf32>
  return %0 : tensor<4xf32>
}
