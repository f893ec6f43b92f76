// Gradients of one layer, reduced by the hook that the pipeline's options name.
// @lost sums up what the results lack of the exact mean, in f64.

ddp.process_group @dp
ddp.state @lost : !ddp.bucket<f64, [64x48, 64]> per_rank zero

func.func @step(%g0: tensor<64x48xf32>, %g1: tensor<64xf32>)
    -> (tensor<64x48xf32>, tensor<64xf32>) {
  %r0 = ddp.all_reduce mean %g0 on @dp : tensor<64x48xf32>
  %r1 = ddp.all_reduce mean %g1 on @dp : tensor<64xf32>

  %g = ddp.pack %g0, %g1 : tensor<64x48xf32>, tensor<64xf32>
      -> !ddp.bucket<f32, [64x48, 64]>
  %wide_g = ddp.cast %g
      : !ddp.bucket<f32, [64x48, 64]> -> !ddp.bucket<f64, [64x48, 64]>
  %mean = ddp.all_reduce mean %wide_g on @dp as "exact"
      {ddp.hook = #ddp.allreduce} : !ddp.bucket<f64, [64x48, 64]>
  %r = ddp.pack %r0, %r1 : tensor<64x48xf32>, tensor<64xf32>
      -> !ddp.bucket<f32, [64x48, 64]>
  %wide_r = ddp.cast %r
      : !ddp.bucket<f32, [64x48, 64]> -> !ddp.bucket<f64, [64x48, 64]>
  %missing = ddp.sub %mean, %wide_r
      : !ddp.bucket<f64, [64x48, 64]>, !ddp.bucket<f64, [64x48, 64]>
  %before = ddp.load @lost : !ddp.bucket<f64, [64x48, 64]>
  %after = ddp.add %before, %missing
      : !ddp.bucket<f64, [64x48, 64]>, !ddp.bucket<f64, [64x48, 64]>
  ddp.store %after, @lost : !ddp.bucket<f64, [64x48, 64]>
  return %r0, %r1 : tensor<64x48xf32>, tensor<64xf32>
}
