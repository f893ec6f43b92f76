// RUN: ddphook-opt %s --split-input-file --verify-diagnostics --ddp-verify-sync
// RUN: ddphook-opt %s --split-input-file --verify-diagnostics --ddp-flatten --ddp-verify-sync
// RUN: sed -E 's/%%([a-z0-9]+) = ddp\.(reduce_scatter|all_gather) (.*) -> (.*)$/%%f_\1 = ddp.exchange_start \2 \3 -> !ddp.future<\4> %%\1 = ddp.wait %%f_\1 : !ddp.future<\4>/; s/%%([a-z0-9]+) = ddp\.(all_to_all|broadcast) (.*) : (.*)$/%%f_\1 = ddp.exchange_start \2 \3 : \4 -> !ddp.future<\4> %%\1 = ddp.wait %%f_\1 : !ddp.future<\4>/' %s > %t
// RUN: ddphook-opt %t --split-input-file --verify-diagnostics --ddp-verify-sync
// RUN: ddphook-opt %t --split-input-file --verify-diagnostics --ddp-flatten --ddp-verify-sync

// How often a gradient is reduced that is scattered, gathered, exchanged and
// broadcast, at once or in flight.

ddp.process_group @dp size 4
func.func @once(%g: tensor<8xf32>) -> (tensor<2xf32> {ddp.gradient}, tensor<8xf32> {ddp.gradient}, tensor<8xf32> {ddp.gradient}) {
  %s = ddp.reduce_scatter mean %g on @dp : tensor<8xf32> -> tensor<2xf32>
  %w = ddp.all_gather %s on @dp : tensor<2xf32> -> tensor<8xf32>
  %b = ddp.broadcast %w from 0 on @dp : tensor<8xf32>
  return %s, %w, %b : tensor<2xf32>, tensor<8xf32>, tensor<8xf32>
}

// -----

ddp.process_group @dp size 4
func.func @twice(%g: tensor<8xf32>) -> (tensor<2xf32> {ddp.gradient}) {
  %s = ddp.reduce_scatter mean %g on @dp : tensor<8xf32> -> tensor<2xf32>
  // expected-note @+1 {{the reduction is here}}
  %r = ddp.all_reduce mean %s on @dp : tensor<2xf32>
  // expected-error @+1 {{expected result 0 marked 'ddp.gradient' to be reduced exactly once, but it is reduced more than once}}
  return %r : tensor<2xf32>
}

// -----

ddp.process_group @dp size 4
func.func @again(%g: tensor<8xf32>) -> (tensor<2xf32> {ddp.gradient}) {
  %r = ddp.all_reduce mean %g on @dp : tensor<8xf32>
  // expected-note @+1 {{the reduction is here}}
  %s = ddp.reduce_scatter mean %r on @dp : tensor<8xf32> -> tensor<2xf32>
  // expected-error @+1 {{but it is reduced more than once}}
  return %s : tensor<2xf32>
}

// -----

ddp.process_group @dp size 4
func.func @never(%s: tensor<2xf32>, %g: tensor<8xf32>) -> (tensor<8xf32> {ddp.gradient}, tensor<8xf32> {ddp.gradient}) {
  %w = ddp.all_gather %s on @dp : tensor<2xf32> -> tensor<8xf32>
  %x = ddp.all_to_all %g on @dp : tensor<8xf32>
  // expected-error @+2 {{expected result 0 marked 'ddp.gradient' to be reduced exactly once, but it is not reduced}}
  // expected-error @+1 {{expected result 1 marked 'ddp.gradient' to be reduced exactly once, but it is not reduced}}
  return %w, %x : tensor<8xf32>, tensor<8xf32>
}

// -----

// Within machines, then between them, in either form.
ddp.process_group @row ranks [[0, 1], [2, 3]]
ddp.process_group @column ranks [[0, 2], [1, 3]]
func.func @in_two_steps(%g: tensor<8xf32>) -> (tensor<8xf32> {ddp.gradient}) {
  %s = ddp.reduce_scatter mean %g on @row : tensor<8xf32> -> tensor<4xf32>
  %r = ddp.all_reduce mean %s on @column : tensor<4xf32>
  %w = ddp.all_gather %r on @row : tensor<4xf32> -> tensor<8xf32>
  return %w : tensor<8xf32>
}
