// RUN: ddphook-opt %s --ddp-bucketize="bucket-cap-mb=1e300" -verify-diagnostics
// RUN: ddphook-opt %s --ddp-bucketize -o /dev/null

// Each gradient fits into 64 bits, what the limit would pack together does not.
ddp.process_group @dp
func.func @step(%a: tensor<72057594037927936xf16>, %b: tensor<1xf16>) {
  // expected-error @+1 {{expected a bucket of at most 72057594037927936 elements, but its gradients have more; lower 'bucket-cap-mb'}}
  %0 = ddp.all_reduce mean %a on @dp : tensor<72057594037927936xf16>
  %1 = ddp.all_reduce mean %b on @dp : tensor<1xf16>
  return
}
