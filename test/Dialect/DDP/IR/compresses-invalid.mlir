// RUN: ddphook-opt %s -split-input-file -verify-diagnostics

// What `ddp.compresses` may be, and where.

func.func @on_another_op(%x: tensor<8xf32>) {
  // expected-error @+1 {{'ddp.scale' op expected 'ddp.compresses' to name a bucket, on a product with 'transpose_lhs' or a 'sparsify'}}
  %0 = ddp.scale %x by 2.0 {ddp.compresses = "b0"} : tensor<8xf32>
  return
}

// -----

func.func @another_product(%m: !ddp.bucket<f32, [4x6]>, %q: !ddp.bucket<f32, [6x1]>) {
  // expected-error @+1 {{expected 'ddp.compresses' to name a bucket}}
  %0 = ddp.matmul %m, %q {ddp.compresses = "b0"}
      : (!ddp.bucket<f32, [4x6]>, !ddp.bucket<f32, [6x1]>) -> !ddp.bucket<f32, [4x1]>
  return
}

// -----

func.func @another_attribute(%x: tensor<8xf32>) {
  // expected-error @+1 {{expected 'ddp.compresses' to name a bucket}}
  %0, %1 = ddp.sparsify %x keep 2 {ddp.compresses = 0} : tensor<8xf32>
  return
}
