// RUN: ddphook-opt %s --ddp-bucketize --ddp-expand-hooks="hook=powersgd matrix-approximation-rank=2" --remarks-filter=ddp-expand-hooks -o /dev/null 2>&1 | FileCheck %s
// RUN: ddphook-opt %s --ddp-bucketize --ddp-expand-hooks="hook=powersgd matrix-approximation-rank=2 matrix-view=fitted" --remarks-filter=ddp-expand-hooks -o /dev/null 2>&1 | FileCheck %s --check-prefix=FITTED
// RUN: ddphook-opt %s --ddp-bucketize --ddp-expand-hooks="hook=allreduce" --remarks-filter=ddp-expand-hooks -o /dev/null 2>&1 | FileCheck %s --check-prefix=FITTED
// RUN: ddphook-opt %s --ddp-exempt-gradients="exempt=." --ddp-bucketize --ddp-expand-hooks="hook=fp16" --remarks-filter=ddp-expand-hooks -o /dev/null 2>&1 | FileCheck %s --check-prefix=NONE

// A remark reports a compressing hook that saves hardly any bytes. An all-reduce gets none.
// CHECK: [Missed] Rate {{.+}}"the hook compresses its gradients less than 2x overall", gradient-bytes=589824, hook="#ddp.powersgd<{{.+}}>", wire-bytes=589824
// FITTED-NOT: Rate
// NONE: [Missed] Rate {{.+}}"no reduction uses the hook, since all are exact or have their own hooks", gradient-bytes=0, hook=#ddp.fp16, wire-bytes=0

ddp.process_group @dp
func.func @step(%g: tensor<3x3x128x128xf32>) -> tensor<3x3x128x128xf32> {
  %r = ddp.all_reduce mean %g on @dp : tensor<3x3x128x128xf32>
  return %r : tensor<3x3x128x128xf32>
}
