// A hook from another dialect (test/lib), executed on two ranks: lowered by the
// tool that has the dialect, compiled by one that has not.

// RUN: rm -rf %t && mkdir %t
// RUN: ddphook-test-opt %s --ddp-pipeline -o %t/lowered.mlir
// RUN: ddphook-cc %t/lowered.mlir -o %t/step.so --shared
// RUN: ddphook-exec %t/step.so --entry=halved --ranks=2 --inputs=random:11 --outputs='%t/halved.{rank}'
// RUN: ddphook-exec %t/step.so --entry=plain --ranks=2 --inputs=random:11 --outputs='%t/plain.{rank}'
// RUN: ddphook-exec %t/step.so --entry=thirds --ranks=2 --inputs=random:11 --outputs='%t/thirds.{rank}'

// RUN: ddphook-exec %t/step.so --entry=feedback --ranks=2 --steps=3 --inputs=random:11 --outputs='%t/feedback.{rank}.{step}'
// RUN: ddphook-exec %t/step.so --entry=feedback_written_out --ranks=2 --steps=3 --inputs=random:11 --outputs='%t/written.{rank}.{step}'
// RUN: ddphook-exec %t/step.so --entry=half --ranks=2 --steps=3 --inputs=random:11 --outputs='%t/half.{rank}.{step}'

// To halve and to double is exact; to divide by three is not: the hook did run.
// RUN: cmp %t/halved.0 %t/plain.0
// RUN: not cmp %t/thirds.0 %t/plain.0
// RUN: cmp %t/halved.0 %t/halved.1
// RUN: cmp %t/thirds.0 %t/thirds.1

// A hook with a state does what the same operations do that somebody writes out:
// at first what a cast does, and then not.
// RUN: cmp %t/feedback.0.0 %t/half.0.0
// RUN: cmp %t/feedback.0.0 %t/written.0.0
// RUN: cmp %t/feedback.0.1 %t/written.0.1
// RUN: cmp %t/feedback.1.2 %t/written.1.2
// RUN: not cmp %t/feedback.0.1 %t/half.0.1
// RUN: not cmp %t/feedback.0.2 %t/half.0.2

ddp.process_group @dp
ddp.state @error : !ddp.bucket<f32, [1000]> per_rank zero
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
func.func @half(%g: tensor<1000xf32>) -> tensor<1000xf32>
    attributes {ddp.hook = #ddp.fp16} {
  %r = ddp.all_reduce sum %g on @dp : tensor<1000xf32>
  return %r : tensor<1000xf32>
}
func.func @feedback(%g: tensor<1000xf32>) -> tensor<1000xf32>
    attributes {ddp.hook = #testhook.feedback} {
  %r = ddp.all_reduce sum %g on @dp : tensor<1000xf32>
  return %r : tensor<1000xf32>
}
func.func @feedback_written_out(%g: tensor<1000xf32>) -> tensor<1000xf32> {
  %e = ddp.load @error : tensor<1000xf32>
  %m = ddp.add %g, %e : tensor<1000xf32>, tensor<1000xf32>
  %h = ddp.cast %m : tensor<1000xf32> -> tensor<1000xf16>
  %k = ddp.cast %h : tensor<1000xf16> -> tensor<1000xf32>
  %l = ddp.sub %m, %k : tensor<1000xf32>, tensor<1000xf32>
  ddp.store %l, @error : tensor<1000xf32>
  %s = ddp.all_reduce sum %h on @dp {ddp.hook = #ddp.allreduce}
      : tensor<1000xf16>
  %r = ddp.cast %s : tensor<1000xf16> -> tensor<1000xf32>
  return %r : tensor<1000xf32>
}
