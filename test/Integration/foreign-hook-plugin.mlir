// A hook of another dialect (test/lib), which every tool gets from a plugin and
// an option names: no file of the program mentions it.

// RUN: rm -rf %t && mkdir %t
// RUN: ddphook-opt %s --load-dialect-plugin=%testhook-plugin --ddp-pipeline="hook=#testhook.scaled<0.3333>" -o %t/lowered.mlir
// RUN: ddphook-cc %t/lowered.mlir -o %t/lowered.so --shared
// RUN: ddphook-exec %t/lowered.so --entry=step --ranks=2 --inputs=random:11 --outputs='%t/opt.{rank}'
// RUN: ddphook-cc %s -o %t/step.so --shared --load-dialect-plugin=%testhook-plugin --ddp-pipeline="hook='#testhook.scaled<0.3333>'"
// RUN: ddphook-exec %t/step.so --entry=step --ranks=2 --inputs=random:11 --outputs='%t/cc.{rank}'
// RUN: ddphook-run %s --entry=step --ranks=2 --inputs=random:11 --outputs='%t/run.{rank}' --load-dialect-plugin=%testhook-plugin --ddp-pipeline="hook=#testhook.scaled<0.3333>"
// RUN: ddphook-run %s --entry=step --ranks=2 --inputs=random:11 --outputs='%t/name.{rank}' --load-dialect-plugin %testhook-plugin --ddp-pipeline="hook=testhook.weighted weight=0.3333 undo=true"
// RUN: ddphook-run %s --entry=step --ranks=2 --inputs=random:11 --outputs='%t/plain.{rank}'

// The same bits from all tools, and not those without the hook: a third is no
// power of two.
// RUN: cmp %t/opt.0 %t/opt.1
// RUN: cmp %t/opt.0 %t/cc.0
// RUN: cmp %t/opt.0 %t/run.0
// RUN: cmp %t/opt.0 %t/name.0
// RUN: not cmp %t/opt.0 %t/plain.0

// RUN: not ddphook-run %s --entry=step --ddp-pipeline="hook=#testhook.scaled<0.3333>" 2>&1 | FileCheck %s --check-prefix=DIALECT
// DIALECT: error: expected hook=#testhook.scaled<0.3333> to be of a known dialect, but got 'testhook', which no plugin has loaded
// RUN: not ddphook-run %s --entry=step --load-dialect-plugin=%t/missing.so 2>&1 | FileCheck %s --check-prefix=MISSING
// RUN: not ddphook-cc %s -o %t/none.o --load-dialect-plugin=%t/missing.so 2>&1 | FileCheck %s --check-prefix=MISSING
// MISSING: ould not load library{{.*}}missing.so

ddp.process_group @dp
func.func @step(%g: tensor<1000xf32>) -> tensor<1000xf32> {
  %r = ddp.all_reduce sum %g on @dp : tensor<1000xf32>
  return %r : tensor<1000xf32>
}
