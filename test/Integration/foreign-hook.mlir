// A hook from another dialect (test/lib), executed on two ranks: lowered by the
// tool that has the dialect, compiled by one that has not.

// RUN: rm -rf %t && mkdir %t
// RUN: ddphook-test-opt %s --ddp-pipeline -o %t/lowered.mlir
// RUN: ddphook-cc %t/lowered.mlir -o %t/step.so --shared
// RUN: ddphook-exec %t/step.so --entry=halved --ranks=2 --inputs=random:11 --outputs='%t/halved.{rank}'
// RUN: ddphook-exec %t/step.so --entry=plain --ranks=2 --inputs=random:11 --outputs='%t/plain.{rank}'
// RUN: ddphook-exec %t/step.so --entry=thirds --ranks=2 --inputs=random:11 --outputs='%t/thirds.{rank}'

// To halve and to double is exact; to divide by three is not: the hook did run.
// RUN: cmp %t/halved.0 %t/plain.0
// RUN: not cmp %t/thirds.0 %t/plain.0
// RUN: cmp %t/halved.0 %t/halved.1
// RUN: cmp %t/thirds.0 %t/thirds.1

ddp.process_group @dp
func.func @plain(%g: tensor<1000xf32>) -> tensor<1000xf32> {
  %r = ddp.all_reduce sum %g on @dp : tensor<1000xf32>
  return %r : tensor<1000xf32>
}
func.func @halved(%g: tensor<1000xf32>) -> tensor<1000xf32>
    attributes {ddp.hook = #testhook.scaled<0.5>} {
  %r = ddp.all_reduce sum %g on @dp : tensor<1000xf32>
  return %r : tensor<1000xf32>
}
func.func @thirds(%g: tensor<1000xf32>) -> tensor<1000xf32>
    attributes {ddp.hook = #testhook.scaled<0.3333>} {
  %r = ddp.all_reduce sum %g on @dp : tensor<1000xf32>
  return %r : tensor<1000xf32>
}
