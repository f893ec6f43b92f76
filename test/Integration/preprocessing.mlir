// Passes of another project before ddp-pipeline: a plugin that puts reductions
// into a program that has none, and upstream's own.

// RUN: rm -rf %t && mkdir %t
// RUN: ddphook-run %s --entry=step --ranks=2 --inputs=random:11 --outputs='%t/alone.{rank}'
// RUN: ddphook-run %s --entry=step --ranks=2 --inputs=random:11 --outputs='%t/run.{rank}' --load-pass-plugin=%testhook-plugin --preprocessing-pass-pipeline="builtin.module(func.func(canonicalize),test-reduce-results)"
// RUN: ddphook-cc %s -o %t/step.so --shared --load-pass-plugin=%testhook-plugin --preprocessing-pass-pipeline="builtin.module(test-reduce-results)"
// RUN: ddphook-exec %t/step.so --entry=step --ranks=2 --inputs=random:11 --outputs='%t/cc.{rank}'

// Alone, each rank keeps what it has; afterwards all have the mean.
// RUN: not cmp %t/alone.0 %t/alone.1
// RUN: cmp %t/run.0 %t/run.1
// RUN: cmp %t/run.0 %t/cc.0
// RUN: not cmp %t/run.0 %t/alone.0

// The whole pipeline may be run like this: what has a plan does not go through it
// again.
// RUN: ddphook-run %s --entry=step --ranks=2 --inputs=random:11 --outputs='%t/whole.{rank}' --load-pass-plugin %testhook-plugin --preprocessing-pass-pipeline "builtin.module(test-reduce-results,ddp-pipeline)"
// RUN: cmp %t/run.0 %t/whole.0

// RUN: not ddphook-cc %s -o %t/none.o --preprocessing-pass-pipeline="builtin.module(test-reduce-results)" 2>&1 | FileCheck %s --check-prefix=UNKNOWN
// UNKNOWN: ddphook-cc: error: in the preprocessing pass pipeline: {{.*}}test-reduce-results
// RUN: not ddphook-run %s --entry=step --preprocessing-pass-pipeline="func.func(canonicalize)" 2>&1 | FileCheck %s --check-prefix=ANCHOR
// ANCHOR: error: in the preprocessing pass pipeline: expected builtin.module(…), but got 'func.func(canonicalize)'
// RUN: not ddphook-run %s --entry=step --preprocessing-pass-pipeline= 2>&1 | FileCheck %s --check-prefix=EMPTY
// EMPTY: error: in the preprocessing pass pipeline: expected
// RUN: not ddphook-run %s --entry=step --load-pass-plugin=%t/missing.so 2>&1 | FileCheck %s --check-prefix=MISSING
// MISSING: ould not load library{{.*}}missing.so
// An error of such a pass is reported once.
// RUN: not ddphook-cc %s -o %t/none.o --load-pass-plugin=%testhook-plugin --preprocessing-pass-pipeline="builtin.module(test-reduce-results,ddp-expand-hooks)" 2>&1 | FileCheck %s --check-prefix=FAILS --implicit-check-not=error:
// FAILS: preprocessing.mlir:{{[0-9]+}}:3: error: 'ddp.all_reduce' op expected a named bucket; run 'ddp-bucketize' first

func.func @step(%g: tensor<1000xf32>) -> tensor<1000xf32> {
  %zero = tensor.empty() : tensor<1000xf32>
  %twice = linalg.add ins(%g, %g : tensor<1000xf32>, tensor<1000xf32>) outs(%zero : tensor<1000xf32>) -> tensor<1000xf32>
  return %twice : tensor<1000xf32>
}
