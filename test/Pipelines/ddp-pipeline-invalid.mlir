// Options that do not exist, and values that make no sense: one line each, and
// no output.

// RUN: not ddphook-opt %s --ddp-pipeline="bucket-cap=1" 2>&1 | FileCheck %s --check-prefix=UNKNOWN
// UNKNOWN: error: in the options of ddp-pipeline: no such option bucket-cap, did you mean bucket-cap-mb?
// UNKNOWN-NOT: module

// RUN: not ddphook-opt %s --pass-pipeline="builtin.module(func.func(ddp-pipeline))" 2>&1 | FileCheck %s --check-prefix=FUNCTION
// FUNCTION: error: expected ddp-pipeline to run on 'builtin.module', but got 'func.func'

// RUN: not ddphook-opt %s --pass-pipeline="builtin.module(func.func(ddp-lower-to-llvm))" 2>&1 | FileCheck %s --check-prefix=LOWER
// LOWER: error: expected ddp-lower-to-llvm to run on 'builtin.module', but got 'func.func'

// RUN: not ddphook-opt %s --ddp-pipeline="matrix_approximation_rank=2" 2>&1 | FileCheck %s --check-prefix=RANK
// RANK: error: expected matrix-approximation-rank only with hook=powersgd or batched_powersgd, but got hook=allreduce

// RUN: not ddphook-opt %s --ddp-pipeline="hook=gzip" 2>&1 | FileCheck %s --check-prefix=HOOK
// HOOK: error: expected hook=allreduce, fp16, bf16, noop, {{.+}} or an attribute, but got 'gzip'{{$}}
// HOOK-NOT: func.func

// RUN: not ddphook-opt %s --ddp-pipeline="hok=fp16" 2>&1 | FileCheck %s --check-prefix=HOK
// HOK: error: in the options of ddp-pipeline: no such option hok, did you mean hook?
// RUN: not ddphook-opt %s --ddp-pipeline="hook=powersgd matrix_aproximation_rank=2" 2>&1 | FileCheck %s --check-prefix=APROXIMATION
// APROXIMATION: no such option matrix-aproximation-rank, did you mean matrix-approximation-rank?
// RUN: not ddphook-opt %s --ddp-pipeline="verbosity=3" 2>&1 | FileCheck %s --check-prefix=NOTHING
// NOTHING: no such option verbosity{{$}}

// RUN: not ddphook-opt %s --ddp-pipeline="hook=pwersgd" 2>&1 | FileCheck %s --check-prefix=PWERSGD
// PWERSGD: or an attribute, but got 'pwersgd', did you mean powersgd?
// RUN: not ddphook-opt %s --ddp-pipeline="hook=FP16" 2>&1 | FileCheck %s --check-prefix=CASE
// CASE: or an attribute, but got 'FP16', did you mean fp16?

// RUN: not ddphook-opt %s --ddp-pipeline="wrapper=fp32" 2>&1 | FileCheck %s --check-prefix=WRAPPER
// WRAPPER: error: expected wrapper=fp16, bf16, int8, int4 or fp8, but got 'fp32'

// RUN: not ddphook-opt %s --ddp-pipeline="bucket-cap-mb=large" 2>&1 | FileCheck %s --check-prefix=NUMBER
// NUMBER: error: in the options of ddp-pipeline: expected bucket-cap-mb to be a number, but got 'large'

// RUN: not ddphook-opt %s --ddp-pipeline="First_Bucket_MB=" 2>&1 | FileCheck %s --check-prefix=EMPTY
// EMPTY: error: in the options of ddp-pipeline: expected first-bucket-mb to be a number, but got ''

// RUN: not ddphook-opt %s --ddp-pipeline="bucket-cap-mb=-1" 2>&1 | FileCheck %s --check-prefix=NEGATIVE
// NEGATIVE: error: expected a bucket limit that is not negative, but got -1

// RUN: not ddphook-opt %s --ddp-pipeline="group-mb=-0.5" 2>&1 | FileCheck %s --check-prefix=GROUP
// GROUP: error: in the options of ddp-pipeline: expected group-mb to be at least 0, but got '-0.5'

// RUN: not ddphook-opt %s --ddp-pipeline="bucket-cap-mb hook=fp16" 2>&1 | FileCheck %s --check-prefix=VALUE
// VALUE: error: in the options of ddp-pipeline: expected bucket-cap-mb to be a number, but got ''

// RUN: not ddphook-opt %s --ddp-pipeline="order=backward" 2>&1 | FileCheck %s --check-prefix=ORDER
// ORDER: error: in the options of ddp-pipeline: expected order to be ready, forward or reverse, but got 'backward'

// RUN: not ddphook-opt %s --ddp-pipeline="fuse=maybe" 2>&1 | FileCheck %s --check-prefix=FLAG
// FLAG: error: in the options of ddp-pipeline: expected fuse to be true or false, but got 'maybe'

ddp.process_group @dp
func.func @step(%g: tensor<4xf32>) -> tensor<4xf32> {
  %r = ddp.all_reduce mean %g on @dp : tensor<4xf32>
  return %r : tensor<4xf32>
}
