// RUN: not ddphook-opt %s --ddp-bucketize="bucket-cap-mb=-2" 2>&1 | FileCheck %s --check-prefix=NEGATIVE
// RUN: not ddphook-opt %s --ddp-bucketize="first-bucket-mb=-0.5" 2>&1 | FileCheck %s --check-prefix=FIRST
// RUN: not ddphook-opt %s --ddp-bucketize="bucket-cap-mb=-1" 2>&1 | FileCheck %s --check-prefix=ONE
// RUN: not ddphook-opt %s --ddp-bucketize="bucket-cap-mb=nan" 2>&1 | FileCheck %s --check-prefix=NAN
// RUN: not ddphook-opt %s --ddp-bucketize="bucket-cap-mb=large" 2>&1 | FileCheck %s --check-prefix=WORD
// RUN: not ddphook-opt %s --ddp-bucketize="order=backward" 2>&1 | FileCheck %s --check-prefix=ORDER
// RUN: not ddphook-opt %s --ddp-bucketize="bucket-cap=1" 2>&1 | FileCheck %s --check-prefix=UNKNOWN
// RUN: not ddphook-opt %s --ddp-bucketize 2>&1 | FileCheck %s --check-prefix=WIRE

// One line each, without the module.
// NEGATIVE: error: expected a bucket limit that is not negative, but got -2.000000e+00 MiB
// NEGATIVE-NOT: {{.}}
// FIRST: error: expected a bucket limit that is not negative, but got -5.000000e-01
// ONE: error: expected a bucket limit that is not negative, but got -1
// NAN: error: expected a bucket limit that is not negative, but got nan
// WORD: 'large' value invalid for floating point argument
// ORDER: Cannot find option named 'backward'
// UNKNOWN: error: in the options of ddp-bucketize: no such option bucket-cap, did you mean bucket-cap-mb?
// RUN: not ddphook-opt %s --pass-pipeline="builtin.module(ddp-bucketize{hok=fp16})" 2>&1 | FileCheck %s --check-prefix=FAR
// FAR: error: in the options of ddp-bucketize: no such option hok{{$}}

// WIRE: error: 'ddp.all_reduce' op expected no wire type before 'ddp-bucketize'

ddp.process_group @dp
func.func @wire(%g: tensor<4xf32>) -> tensor<4xf32> {
  %r = ddp.all_reduce mean %g on @dp wire f16 : tensor<4xf32>
  return %r : tensor<4xf32>
}
