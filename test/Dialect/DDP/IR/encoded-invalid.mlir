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
