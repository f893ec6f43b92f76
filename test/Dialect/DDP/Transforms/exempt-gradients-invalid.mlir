// RUN: not ddphook-opt %s --ddp-exempt-gradients 2>&1 | FileCheck %s --check-prefix=EMPTY
// RUN: not ddphook-opt %s --ddp-exempt-gradients="exempt=(" 2>&1 | FileCheck %s --check-prefix=SYNTAX
// RUN: not ddphook-opt %s --ddp-exempt-gradients="exempt=[z-a]" 2>&1 | FileCheck %s --check-prefix=RANGE
// RUN: not ddphook-opt %s --ddp-exempt-gradients="exempt=bais" 2>&1 | FileCheck %s --check-prefix=NONE
// RUN: not ddphook-opt %s --ddp-exempt-gradients="exempt=norm.1" 2>&1 | FileCheck %s --check-prefix=SOME
// RUN: not ddphook-opt %s --ddp-exempt-gradients="exempt=bias exempt-hook=bf17" 2>&1 | FileCheck %s --check-prefix=HOOK
// RUN: not ddphook-opt %s --ddp-pipeline="hook=int8 exempt-hook=bf16" 2>&1 | FileCheck %s --check-prefix=EMPTY
// RUN: not ddphook-opt %s --ddp-pipeline="hook=int8 exempt=bais" 2>&1 | FileCheck %s --check-prefix=NONE
// RUN: not ddphook-opt %s --ddp-pipeline="hook=int8 exempt=bias exempt=norm" 2>&1 | FileCheck %s --check-prefix=TWICE

// EMPTY: error: expected exempt to be a regular expression, but got ''{{$}}
// SYNTAX: error: expected exempt to be a regular expression, but got '(': parentheses not balanced
// RANGE: error: expected exempt to be a regular expression, but got '[z-a]': invalid character range
// NONE: error: expected exempt to match the name of a gradient, but 'bais' matches none of 'norm.0', 'norm.1', 'bias'{{$}}
// SOME: error: 'ddp.all_reduce' op expected exempt to match all gradients of a bucket or none, but 'norm.1' does not match 'norm.0'
// HOOK: error: in exempt-hook: expected hook=
// TWICE: error: in the options of ddp-pipeline: {{.*}}exempt

ddp.process_group @dp
func.func @step(%a: tensor<8xf32>, %b: tensor<8xf32>)
    -> (tensor<8xf32>, tensor<8xf32>, tensor<8xf32>) {
  %0 = ddp.pack %a, %b : tensor<8xf32>, tensor<8xf32> -> !ddp.bucket<f32, [8, 8]>
  %1 = ddp.all_reduce mean %0 on @dp as "b0" : !ddp.bucket<f32, [8, 8]>
      of ["norm.0", "norm.1"]
  %2:2 = ddp.unpack %1 : !ddp.bucket<f32, [8, 8]> -> tensor<8xf32>, tensor<8xf32>
  %3 = ddp.all_reduce mean %b on @dp {ddp.name = "bias"} : tensor<8xf32>
  return %2#0, %2#1, %3 : tensor<8xf32>, tensor<8xf32>, tensor<8xf32>
}
