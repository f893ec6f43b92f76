// RUN: ddphook-opt %s -split-input-file -verify-diagnostics

// expected-error @+1 {{expected codes of type f16, bf16, i8, i4, f8E4M3FN, f8E5M2, ui8 or ui1, but got 'f32'}}
func.func private @code(!ddp.encoded<f32>)

// -----

// expected-error @+1 {{expected blocks of a multiple of 32 up to 4096 elements, but got 0}}
func.func private @none(!ddp.encoded<i8>)

// -----

// expected-error @+1 {{expected blocks of a multiple of 32 up to 4096 elements, but got 48}}
func.func private @multiple(!ddp.encoded<i4, 48>)

// -----

// expected-error @+1 {{expected blocks of a multiple of 32 up to 4096 elements, but got 8192}}
func.func private @large(!ddp.encoded<f8E4M3FN, 8192>)

// -----

// expected-error @+1 {{expected no blocks of 'f16', but got blocks of 32 elements}}
func.func private @cast(!ddp.encoded<f16, 32>)

// -----

// expected-error @+1 {{expected blocks of 1 to 72057594037927936 elements, but got -1}}
func.func private @affine(!ddp.encoded<ui8, -1>)

// -----

// expected-error @+1 {{expected blocks of 1 to 72057594037927936 elements, but got 72057594037927937}}
func.func private @affine(!ddp.encoded<ui8, 72057594037927937>)

// -----

// expected-error @+1 {{expected blocks of a multiple of 8 elements, but got 12}}
func.func private @bits(!ddp.encoded<ui1, 12>)

// -----

func.func @no_encoding_of_a_bucket(%b: !ddp.bucket<f32, [40x8]>) {
  // expected-error @+1 {{'ddp.encoding_error' op expected an encoding, but got 'bf16'}}
  %0 = ddp.encoding_error %b as bf16 : !ddp.bucket<f32, [40x8]>
  return
}

// -----

func.func @no_encoding(%x: tensor<8xf32>, %y: tensor<8xf32>) {
  // expected-error @+1 {{expected an encoding, but got 'f16'}}
  %0 = ddp.flat.encoding_error %x as f16 into %y : tensor<8xf32>, tensor<8xf32>
  return
}

// -----

// expected-error @+1 {{expected block_size to be a multiple of 32 up to 4096, but got 100}}
module attributes {ddp.hook = #ddp.int8<block_size = 100>} {}

// -----

// expected-error @+1 {{expected bucket_size to be from 1 to 72057594037927936, but got 0}}
module attributes {ddp.hook = #ddp.quantization_perchannel<bucket_size = 0>} {}

// -----

// expected-error @+1 {{expected bucket_size to be from 1 to 72057594037927936, but got 72057594037927937}}
module attributes {ddp.hook = #ddp.quantization_perchannel<bucket_size = 72057594037927937>} {}

// -----

// expected-error @+1 {{expected accumulate to be f32, but got 'f64'}}
module attributes {ddp.hook = #ddp.fp16<accumulate = f64>} {}

// -----

// expected-error @+1 {{expected format to be f8E4M3FN or f8E5M2, but got 'f8E4M3'}}
module attributes {ddp.hook = #ddp.fp8<format = f8E4M3>} {}

// -----

// expected-error @+1 {{expected a stream that is not negative, but got -2}}
func.func private @stream(!ddp.encoded<i8, 32 stochastic -2>)

// -----

// expected-error @+1 {{expected codes with a scale, since only these are rounded stochastically, but got 'ui8'}}
func.func private @affine_by_chance(!ddp.encoded<ui8, 32 stochastic 1>)

// -----

ddp.process_group @dp
func.func @step_is_missing(%x: tensor<8xf32>) {
  // expected-error @+1 {{'ddp.all_reduce' op expected a step, since the wire type rounds stochastically}}
  %0 = ddp.all_reduce mean %x on @dp wire !ddp.encoded<i8, 32 stochastic 1> : tensor<8xf32>
  return
}

// -----

ddp.process_group @dp
func.func @step_without_use(%x: tensor<8xf32>, %i: i64) {
  // expected-error @+1 {{'ddp.all_reduce' op expected no step, since no wire type rounds stochastically}}
  %0 = ddp.all_reduce mean %x on @dp wire !ddp.encoded<i8, 32> step %i : tensor<8xf32>
  return
}

// -----

ddp.process_group @dp
func.func @step_of_start(%x: tensor<8xf32>) {
  // expected-error @+1 {{'ddp.all_reduce_start' op expected a step}}
  %f = ddp.all_reduce_start mean %x on @dp wire !ddp.encoded<i8, 32 stochastic 1>
      : tensor<8xf32> -> !ddp.future<tensor<8xf32>>
  %0 = ddp.wait %f : !ddp.future<tensor<8xf32>>
  return
}

// -----

ddp.process_group @dp size 2
func.func @step_of_parts(%x: tensor<8xf32>) {
  // expected-error @+1 {{'ddp.reduce_scatter' op expected a step}}
  %0 = ddp.reduce_scatter mean %x on @dp wire !ddp.encoded<i8, 32 stochastic 1> : tensor<8xf32> -> tensor<4xf32>
  return
}

// -----

ddp.process_group @dp size 2
func.func @step_of_flat_parts(%x: tensor<8xf32>, %y: tensor<4xf32>) {
  // expected-error @+1 {{'ddp.flat.reduce_scatter' op expected a step}}
  %0 = ddp.flat.reduce_scatter mean %x on @dp wire !ddp.encoded<i8, 32 stochastic 1> into %y
      : tensor<8xf32>, tensor<4xf32>
  return
}

// -----

ddp.process_group @dp
func.func @step_of_flat(%x: tensor<8xf32>, %y: tensor<8xf32>) {
  // expected-error @+1 {{'ddp.flat.all_reduce' op expected a step}}
  %0 = ddp.flat.all_reduce mean %x on @dp wire !ddp.encoded<i8, 32 stochastic 1> into %y
      : tensor<8xf32>, tensor<8xf32>
  return
}

// -----

func.func @group_is_missing(%x: tensor<8xf32>, %i: i64) {
  // expected-error @+1 {{'ddp.encoding_error' op expected a step and a process group, since the encoding rounds stochastically}}
  %0 = ddp.encoding_error %x as !ddp.encoded<i8, 32 stochastic 1> step %i : tensor<8xf32>
  return
}

// -----

ddp.process_group @dp
func.func @group_without_use(%x: tensor<8xf32>) {
  // expected-error @+1 {{'ddp.encoding_error' op expected neither a step nor a process group, since the encoding rounds to nearest}}
  %0 = ddp.encoding_error %x as !ddp.encoded<i8, 32> on @dp : tensor<8xf32>
  return
}

// -----

func.func @no_group(%x: tensor<8xf32>, %y: tensor<8xf32>, %i: i64) {
  // expected-error @+1 {{expected process group @dp to be declared}}
  %0 = ddp.flat.encoding_error %x as !ddp.encoded<i8, 32 stochastic 1> step %i on @dp into %y
      : tensor<8xf32>, tensor<8xf32>
  return
}

// -----

// expected-error @+1 {{expected a random_seed from 0 to 4294967295, but got -1}}
module attributes {ddp.hook = #ddp.int8<rounding = stochastic, random_seed = -1>} {}

// -----

// expected-error @+2 {{expected nearest or stochastic, but got 'up'}}
// expected-error @+1 {{failed to parse DDP_Int8Hook parameter 'rounding'}}
module attributes {ddp.hook = #ddp.int8<rounding = up>} {}
