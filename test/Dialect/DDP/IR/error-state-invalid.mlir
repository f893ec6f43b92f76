// RUN: ddphook-opt %s -split-input-file -verify-diagnostics

// What `ddp.error` may be, and where.

ddp.process_group @dp
func.func @no_state(%x: tensor<8xf32>) {
  // expected-error @+1 {{'ddp.all_reduce' op expected @e, which holds the error to feed back, to be a state}}
  %0 = ddp.all_reduce mean %x on @dp wire !ddp.encoded<i8, 32> {ddp.error = @e} : tensor<8xf32>
  return
}

// -----

ddp.process_group @dp
// expected-note @+1 {{this is what @e keeps}}
ddp.state @e : !ddp.bucket<f32, [7]> per_rank zero
func.func @other_size(%x: tensor<8xf32>) {
  // expected-error @+1 {{'ddp.all_reduce_start' op expected the error of 8 elements of 'f32', but got '!ddp.bucket<f32, [7]>'}}
  %f = ddp.all_reduce_start mean %x on @dp wire !ddp.encoded<i8, 32> {ddp.error = @e}
      : tensor<8xf32> -> !ddp.future<tensor<8xf32>>
  %0 = ddp.wait %f : !ddp.future<tensor<8xf32>>
  return
}

// -----

ddp.process_group @dp
ddp.state @e : !ddp.bucket<f32, [8]> per_rank zero
func.func @no_encoding(%x: tensor<8xf32>) {
  // expected-error @+1 {{'ddp.all_reduce' op expected 'ddp.error' to name a state, on an all-reduce whose wire type is an encoding without a zero point}}
  %0 = ddp.all_reduce mean %x on @dp wire f16 {ddp.error = @e} : tensor<8xf32>
  return
}

// -----

ddp.process_group @dp size 2
ddp.state @e : !ddp.bucket<f32, [8]> per_rank zero
func.func @parts(%x: tensor<8xf32>) {
  // expected-error @+1 {{'ddp.reduce_scatter' op expected 'ddp.error' to name a state, on an all-reduce}}
  %0 = ddp.reduce_scatter mean %x on @dp wire !ddp.encoded<i8, 32> {ddp.error = @e} : tensor<8xf32> -> tensor<4xf32>
  return
}
