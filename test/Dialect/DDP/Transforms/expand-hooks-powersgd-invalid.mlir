// RUN: ddphook-opt %s --ddp-expand-hooks -split-input-file -verify-diagnostics

// What PowerSGD refuses when it is expanded; wrong parameters are in
// Dialect/DDP/IR/powersgd-invalid.mlir.

ddp.process_group @dp
// expected-note @+1 {{the name is used here}}
func.func private @b0.error()
func.func @name_of_error(%b: !ddp.bucket<f32, [64x32]>)
    -> !ddp.bucket<f32, [64x32]> {
  // expected-error @+2 {{expected the name @b0.error to be free for a state}}
  // expected-error @+1 {{hook #ddp.powersgd could not be expanded}}
  %r = ddp.all_reduce mean %b on @dp as "b0" {ddp.hook = #ddp.powersgd} : !ddp.bucket<f32, [64x32]>
  return %r : !ddp.bucket<f32, [64x32]>
}

// -----

ddp.process_group @dp
// expected-note @+1 {{the name is used here}}
ddp.state @b0.q : i64 replicated zero
func.func @name_of_q(%b: !ddp.bucket<f32, [64x32]>)
    -> !ddp.bucket<f32, [64x32]> {
  // expected-error @+2 {{expected the name @b0.q to be free for a state}}
  // expected-error @+1 {{hook #ddp.powersgd could not be expanded}}
  %r = ddp.all_reduce mean %b on @dp as "b0" {ddp.hook = #ddp.powersgd} : !ddp.bucket<f32, [64x32]>
  return %r : !ddp.bucket<f32, [64x32]>
}

// -----

// expected-note @+1 {{the name is used here}}
ddp.process_group @powersgd.iter
func.func @name_of_counter(%b: !ddp.bucket<f32, [64x32]>)
    -> !ddp.bucket<f32, [64x32]> {
  // expected-error @+2 {{expected the name @powersgd.iter to be free for a state}}
  // expected-error @+1 {{hook #ddp.batched_powersgd could not be expanded}}
  %r = ddp.all_reduce mean %b on @powersgd.iter as "b0" {ddp.hook = #ddp.batched_powersgd} : !ddp.bucket<f32, [64x32]>
  return %r : !ddp.bucket<f32, [64x32]>
}

// -----

ddp.process_group @dp
// expected-note @+1 {{the name is used here}}
ddp.process_group @powersgd.generator.0
ddp.process_group @powersgd.generator
func.func @name_of_generator(%b: !ddp.bucket<f32, [64x32]>)
    -> !ddp.bucket<f32, [64x32]> {
  // expected-error @+2 {{expected the name @powersgd.generator.0 to be free for a state}}
  // expected-error @+1 {{hook #ddp.powersgd could not be expanded}}
  %r = ddp.all_reduce mean %b on @dp as "b0" {ddp.hook = #ddp.powersgd} : !ddp.bucket<f32, [64x32]>
  return %r : !ddp.bucket<f32, [64x32]>
}

// -----

ddp.process_group @dp
func.func @rank_above_side(%b: !ddp.bucket<f32, [3, 2x3]>)
    -> !ddp.bucket<f32, [3, 2x3]> {
  // expected-error @+1 {{expected a matrix_approximation_rank of at most 3, the side of a square of 9 elements, but got 4}}
  %r = ddp.all_reduce mean %b on @dp as "b0" {ddp.hook = #ddp.batched_powersgd<matrix_approximation_rank = 4>} : !ddp.bucket<f32, [3, 2x3]>
  return %r : !ddp.bucket<f32, [3, 2x3]>
}

// -----

ddp.process_group @dp
func.func @rank_above_wrapped_side(%b: !ddp.bucket<f32, [10]>)
    -> !ddp.bucket<f32, [10]> {
  // expected-error @+1 {{expected a matrix_approximation_rank of at most 4, the side of a square of 10 elements, but got 5}}
  %r = ddp.all_reduce mean %b on @dp as "b0" {ddp.hook = #ddp.wrap<f16, #ddp.batched_powersgd<matrix_approximation_rank = 5>>} : !ddp.bucket<f32, [10]>
  return %r : !ddp.bucket<f32, [10]>
}
