// A tensor in memory is read before that memory is written, whatever else moves.

// RUN: ddphook-opt %s --ddp-overlap | FileCheck %s --check-prefix=OVERLAP
// RUN: ddphook-opt %s --ddp-bucketize | FileCheck %s --check-prefix=BUCKETIZE
// RUN: ddphook-opt %s --ddp-bucketize --ddp-expand-hooks | FileCheck %s --check-prefix=EXPAND

!b = !ddp.bucket<f32, [16]>
!m = memref<16xf32>
!t = tensor<16xf32>

ddp.process_group @dp

// Directly, as a part, from a branch, and through a private function.

// OVERLAP-LABEL: func @overlap(
// OVERLAP:         ddp.all_reduce_start
// OVERLAP:         linalg.abs
// OVERLAP:         ddp.wait
// OVERLAP:         %[[U:.+]] = ddp.unpack
// OVERLAP:         linalg.add ins(%[[U]], %{{.+}} : tensor
// OVERLAP:         linalg.sub
// OVERLAP:         return
func.func @overlap(%x: !m, %y: !m, %c: i1 {ddp.replicated}, %t: !t) -> !t {
  %p = ddp.pack %t : !t -> !b
  %r = ddp.all_reduce mean %p on @dp as "b0" {ddp.hook = #ddp.allreduce} : !b
  linalg.abs ins(%y : !m) outs(%y : !m)
  %q = ddp.unpack %r : !b -> !t
  %g = bufferization.to_tensor %x restrict : !m to !t
  %i = call @through(%g) : (!t) -> !t
  %h = scf.if %c -> (!t) {
    scf.yield %i : !t
  } else {
    scf.yield %t : !t
  }
  %v = tensor.expand_shape %h [[0, 1]] output_shape [4, 4] : !t into tensor<4x4xf32>
  %w = tensor.collapse_shape %v [[0, 1]] : tensor<4x4xf32> into !t
  %e = tensor.empty() : !t
  %s = linalg.add ins(%q, %w : !t, !t) outs(%e : !t) -> !t
  linalg.sub ins(%y, %x : !m, !m) outs(%x : !m)
  return %s : !t
}
func.func private @through(%a: !t) -> !t {
  return %a : !t
}

// BUCKETIZE-LABEL: func @bucketize(
// BUCKETIZE:         %[[G:.+]] = bufferization.to_tensor
// BUCKETIZE-NEXT:    ddp.pack %{{.+}}, %[[G]] :
// BUCKETIZE:         linalg.sub
// BUCKETIZE:         return
func.func @bucketize(%x: !m, %u: !t) -> (!t, !t) {
  %g = bufferization.to_tensor %x restrict : !m to !t
  %q = ddp.all_reduce mean %g on @dp : !t
  linalg.sub ins(%x, %x : !m, !m) outs(%x : !m)
  %r = ddp.all_reduce mean %u on @dp : !t
  return %q, %r : !t, !t
}

// What keeps a gradient in memory as it is, is its copy in the bucket.

// EXPAND-LABEL: func @keep(
// EXPAND:         %[[P:.+]] = ddp.pack
// EXPAND:         %[[U:.+]] = ddp.unpack %[[P]]
// EXPAND:         return %[[U]]
func.func @keep(%x: !m) -> !t {
  %g = bufferization.to_tensor %x restrict : !m to !t
  %p = ddp.pack %g : !t -> !b
  %r = ddp.all_reduce mean %p on @dp as "k" {ddp.hook = #ddp.noop} : !b
  %q = ddp.unpack %r : !b -> !t
  linalg.sub ins(%x, %x : !m, !m) outs(%x : !m)
  return %q : !t
}
