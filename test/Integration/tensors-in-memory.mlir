// Tensors that lie in memory which the program writes later, between operations
// that passes move, against the same with copies of those tensors. Each result
// was one of what had been written already.

// RUN: rm -rf %t && mkdir %t
// RUN: ddphook-run %s --entry=overtaken --ranks=2 --inputs=random:3 --outputs='%t/overtaken.{rank}'
// RUN: ddphook-run %s --entry=overtaken_meant --ranks=2 --inputs=random:3 --outputs='%t/overtaken_meant.{rank}'
// RUN: cmp %t/overtaken.0 %t/overtaken_meant.0
// RUN: cmp %t/overtaken.1 %t/overtaken_meant.1
// RUN: ddphook-run %s --entry=together --ranks=2 --inputs=random:5 --outputs='%t/together.{rank}'
// RUN: ddphook-run %s --entry=together_meant --ranks=2 --inputs=random:5 --outputs='%t/together_meant.{rank}'
// RUN: cmp %t/together.0 %t/together_meant.0
// RUN: cmp %t/together.1 %t/together_meant.1
// RUN: ddphook-run %s --entry=together --ranks=2 --inputs=random:5 --outputs='%t/noop.{rank}' --ddp-pipeline=hook=noop
// RUN: ddphook-run %s --entry=together_meant --ranks=2 --inputs=random:5 --outputs='%t/noop_meant.{rank}' --ddp-pipeline=hook=noop
// RUN: cmp %t/noop.0 %t/noop_meant.0
// RUN: cmp %t/noop.1 %t/noop_meant.1

!m = memref<16xf32>
!t = tensor<16xf32>

ddp.process_group @dp

// What reads %x as a tensor waits for an average, while memory is computed.
func.func @overtaken(%x: !m, %y: !m, %t: !t) -> !t {
  %q = ddp.all_reduce mean %t on @dp : !t
  linalg.add ins(%y, %y : !m, !m) outs(%y : !m)
  %g = bufferization.to_tensor %x restrict : !m to !t
  %e = tensor.empty() : !t
  %s = linalg.add ins(%q, %g : !t, !t) outs(%e : !t) -> !t
  linalg.sub ins(%y, %x : !m, !m) outs(%x : !m)
  return %s : !t
}
func.func @overtaken_meant(%x: !m, %y: !m, %t: !t) -> !t {
  %q = ddp.all_reduce mean %t on @dp : !t
  linalg.add ins(%y, %y : !m, !m) outs(%y : !m)
  %h = memref.alloc() : !m
  memref.copy %x, %h : !m to !m
  %g = bufferization.to_tensor %h restrict : !m to !t
  %e = tensor.empty() : !t
  %s = linalg.add ins(%q, %g : !t, !t) outs(%e : !t) -> !t
  linalg.sub ins(%y, %x : !m, !m) outs(%x : !m)
  return %s : !t
}

// One gradient is in memory that is written before the other one is reduced.
func.func @together(%x: !m, %u: !t) -> (!t, !t) {
  %g = bufferization.to_tensor %x restrict : !m to !t
  %q = ddp.all_reduce mean %g on @dp : !t
  linalg.add ins(%x, %x : !m, !m) outs(%x : !m)
  %r = ddp.all_reduce mean %u on @dp : !t
  return %q, %r : !t, !t
}
func.func @together_meant(%x: !m, %u: !t) -> (!t, !t) {
  %h = memref.alloc() : !m
  memref.copy %x, %h : !m to !m
  %g = bufferization.to_tensor %h restrict : !m to !t
  %q = ddp.all_reduce mean %g on @dp : !t
  linalg.add ins(%x, %x : !m, !m) outs(%x : !m)
  %r = ddp.all_reduce mean %u on @dp : !t
  return %q, %r : !t, !t
}
