// Buckets of which nothing, or of which only tensors without elements, is to be
// compressed, through the whole pipeline.

// RUN: ddphook-opt %s --ddp-pipeline="hook=powersgd" -o /dev/null
// RUN: ddphook-opt %s --ddp-pipeline="hook=powersgd warm-start=false" -o /dev/null
// RUN: ddphook-opt %s --ddp-pipeline="hook=powersgd use-error-feedback=false wrapper=bf16" -o /dev/null
// RUN: ddphook-opt %s --ddp-pipeline="hook=powersgd matrix-approximation-rank=4 min-compression-rate=0.5 fuse=false" -o /dev/null
// RUN: ddphook-opt %s --ddp-pipeline="hook=powersgd pack-collectives=false fuse=false bucket-cap-mb=0" -o /dev/null
// RUN: ddphook-opt %s --ddp-pipeline="hook=batched_powersgd bucket-cap-mb=0" -o /dev/null

ddp.process_group @dp
func.func @vector(%a: tensor<8xf32>) -> tensor<8xf32> {
  %0 = ddp.all_reduce mean %a on @dp : tensor<8xf32>
  return %0 : tensor<8xf32>
}
func.func @empty(%a: tensor<0x3xf64>) -> tensor<0x3xf64> {
  %0 = ddp.all_reduce mean %a on @dp : tensor<0x3xf64>
  return %0 : tensor<0x3xf64>
}
func.func @beside(%a: tensor<8x3x3x3xf16>, %b: tensor<0x5xf16>,
                  %c: tensor<16xf16>, %d: tensor<0x1xf16>)
    -> (tensor<8x3x3x3xf16>, tensor<0x5xf16>, tensor<16xf16>,
        tensor<0x1xf16>) {
  %0 = ddp.all_reduce sum %a on @dp : tensor<8x3x3x3xf16>
  %1 = ddp.all_reduce sum %b on @dp : tensor<0x5xf16>
  %2 = ddp.all_reduce sum %c on @dp : tensor<16xf16>
  %3 = ddp.all_reduce sum %d on @dp : tensor<0x1xf16>
  return %0, %1, %2, %3 : tensor<8x3x3x3xf16>, tensor<0x5xf16>, tensor<16xf16>,
      tensor<0x1xf16>
}
