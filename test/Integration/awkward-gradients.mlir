// Programs in which a gradient's memory is not simply its bucket: executed on one
// and two ranks, and compared bit by bit with what they mean. Each would go
// wrong if a pass let two values share memory that they may not share.

// RUN: rm -rf %t && mkdir %t
// RUN: ddphook-cc %s -o %t/plain.so --shared
// RUN: %python %S/Inputs/awkward_gradients.py ddphook-exec %t/plain.so %t/plain allreduce
// RUN: ddphook-cc %s -o %t/fp16.so --shared --ddp-pipeline="hook=fp16"
// RUN: %python %S/Inputs/awkward_gradients.py ddphook-exec %t/fp16.so %t/fp16 fp16
// RUN: ddphook-cc %s -o %t/casts.so --shared --ddp-pipeline="hook=fp16 fuse=false order=reverse"
// RUN: %python %S/Inputs/awkward_gradients.py ddphook-exec %t/casts.so %t/casts fp16
// RUN: ddphook-cc %s -o %t/apart.so --shared --ddp-pipeline="wrapper=fp16 bucket-cap-mb=0"
// RUN: %python %S/Inputs/awkward_gradients.py ddphook-exec %t/apart.so %t/apart fp16
// RUN: ddphook-cc %s -o %t/noop.so --shared --ddp-pipeline="hook=noop"
// RUN: %python %S/Inputs/awkward_gradients.py ddphook-exec %t/noop.so %t/noop noop
// RUN: ddphook-cc %s -o %t/wrapped.so --shared --ddp-pipeline="hook=noop wrapper=fp16"
// RUN: %python %S/Inputs/awkward_gradients.py ddphook-exec %t/wrapped.so %t/wrapped fp16-noop

#id = affine_map<(i, j) -> (i, j)>
!t = tensor<3x5xf32>

ddp.process_group @dp

func.func private @times(%a: !t, %b: !t) -> !t {
  %e = tensor.empty() : !t
  %g = linalg.mul ins(%a, %b : !t, !t) outs(%e : !t) -> !t
  return %g : !t
}

// The local gradient is read after its bucket was reduced.
func.func @read_after(%a: !t, %b: !t) -> (!t, !t) {
  %e = tensor.empty() : !t
  %g = linalg.mul ins(%a, %b : !t, !t) outs(%e : !t) -> !t
  %r = ddp.all_reduce mean %g on @dp : !t
  %f = tensor.empty() : !t
  %s = linalg.add ins(%g, %b : !t, !t) outs(%f : !t) -> !t
  return %r, %s : !t, !t
}

func.func @read_before(%a: !t, %b: !t) -> (!t, !t) {
  %e = tensor.empty() : !t
  %g = linalg.mul ins(%a, %b : !t, !t) outs(%e : !t) -> !t
  %f = tensor.empty() : !t
  %s = linalg.mul ins(%g, %g : !t, !t) outs(%f : !t) -> !t
  %r = ddp.all_reduce mean %g on @dp : !t
  return %r, %s : !t, !t
}

// Twice in one bucket, and in another one.
func.func @packed_twice(%a: !t, %b: !t) -> (!t, !t, !t) {
  %e = tensor.empty() : !t
  %g = linalg.mul ins(%a, %b : !t, !t) outs(%e : !t) -> !t
  %r0 = ddp.all_reduce mean %g on @dp : !t
  %r1 = ddp.all_reduce mean %g on @dp : !t
  %r2 = ddp.all_reduce sum %g on @dp : !t
  return %r0, %r1, %r2 : !t, !t, !t
}

// One fill starts both.
func.func @shared_fill(%a: !t, %b: !t) -> (!t, !t) {
  %one = arith.constant 1.0 : f32
  %e = tensor.empty() : !t
  %f = linalg.fill ins(%one : f32) outs(%e : !t) -> !t
  %g0 = linalg.add ins(%a, %f : !t, !t) outs(%f : !t) -> !t
  %g1 = linalg.add ins(%b, %f : !t, !t) outs(%f : !t) -> !t
  %r0 = ddp.all_reduce mean %g0 on @dp : !t
  %r1 = ddp.all_reduce mean %g1 on @dp : !t
  return %r0, %r1 : !t, !t
}

// The fill is read again when the gradient has overwritten it.
func.func @fill_read_later(%a: !t, %b: !t) -> (!t, !t) {
  %one = arith.constant 1.0 : f32
  %e = tensor.empty() : !t
  %f = linalg.fill ins(%one : f32) outs(%e : !t) -> !t
  %g = linalg.add ins(%a, %f : !t, !t) outs(%f : !t) -> !t
  %r = ddp.all_reduce sum %g on @dp : !t
  %h = tensor.empty() : !t
  %s = linalg.add ins(%f, %b : !t, !t) outs(%h : !t) -> !t
  return %r, %s : !t, !t
}

// Made by a loop, which may not run at all.
func.func @loop(%a: !t, %b: !t, %n: index) -> !t {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %one = arith.constant 1.0 : f32
  %e = tensor.empty() : !t
  %f = linalg.fill ins(%one : f32) outs(%e : !t) -> !t
  %g = scf.for %i = %c0 to %n step %c1 iter_args(%acc = %f) -> !t {
    %s = linalg.add ins(%acc, %a : !t, !t) outs(%acc : !t) -> !t
    scf.yield %s : !t
  }
  %r = ddp.all_reduce mean %g on @dp : !t
  return %r : !t
}

func.func @transposed(%a: !t, %b: !t) -> (tensor<5x3xf32>, !t) {
  %e = tensor.empty() : !t
  %h = linalg.mul ins(%a, %b : !t, !t) outs(%e : !t) -> !t
  %f = tensor.empty() : tensor<5x3xf32>
  %g = linalg.transpose ins(%h : !t) outs(%f : tensor<5x3xf32>)
      permutation = [1, 0]
  %r = ddp.all_reduce mean %g on @dp : tensor<5x3xf32>
  return %r, %h : tensor<5x3xf32>, !t
}

// The gradient is an argument, which stays what it was.
func.func @argument(%a: !t, %b: !t) -> (!t, !t, !t) {
  %r = ddp.all_reduce mean %a on @dp : !t
  %e = tensor.empty() : !t
  %s = linalg.add ins(%a, %r : !t, !t) outs(%e : !t) -> !t
  return %r, %s, %a : !t, !t, !t
}

// Not a destination-passing operation.
func.func @not_in_place(%a: !t, %b: !t) -> !t {
  %g = tensor.generate {
  ^bb0(%i: index, %j: index):
    %x = tensor.extract %a[%i, %j] : !t
    %n = arith.negf %x : f32
    tensor.yield %n : f32
  } : !t
  %r = ddp.all_reduce mean %g on @dp : !t
  return %r : !t
}

// What the gradient is written over is read afterwards.
func.func @overwritten(%a: !t, %b: !t) -> (!t, !t) {
  %e = tensor.empty() : !t
  %h = linalg.mul ins(%a, %b : !t, !t) outs(%e : !t) -> !t
  %g = linalg.add ins(%h, %a : !t, !t) outs(%h : !t) -> !t
  %f = tensor.empty() : !t
  %s = linalg.add ins(%h, %b : !t, !t) outs(%f : !t) -> !t
  %r = ddp.all_reduce mean %g on @dp : !t
  return %r, %s : !t, !t
}

// Captured by a branch behind the reduction.
func.func @branch(%a: !t, %b: !t, %c: i1) -> (!t, !t) {
  %e = tensor.empty() : !t
  %g = linalg.mul ins(%a, %b : !t, !t) outs(%e : !t) -> !t
  %r = ddp.all_reduce mean %g on @dp : !t
  %s = scf.if %c -> !t {
    %f = tensor.empty() : !t
    %x = linalg.add ins(%g, %a : !t, !t) outs(%f : !t) -> !t
    scf.yield %x : !t
  } else {
    scf.yield %r : !t
  }
  return %r, %s : !t, !t
}

func.func @branch_produces(%a: !t, %b: !t, %c: i1) -> !t {
  %e = tensor.empty() : !t
  %g = scf.if %c -> !t {
    %x = linalg.add ins(%a, %b : !t, !t) outs(%e : !t) -> !t
    scf.yield %x : !t
  } else {
    scf.yield %a : !t
  }
  %r = ddp.all_reduce mean %g on @dp : !t
  return %r : !t
}

// A slice of the local gradient is returned.
func.func @slice_after(%a: !t, %b: !t) -> (!t, tensor<5xf32>) {
  %e = tensor.empty() : !t
  %g = linalg.mul ins(%a, %b : !t, !t) outs(%e : !t) -> !t
  %s = tensor.extract_slice %g[1, 0] [1, 5] [1, 1] : !t to tensor<5xf32>
  %r = ddp.all_reduce mean %g on @dp : !t
  return %r, %s : !t, tensor<5xf32>
}

func.func @slice_is_gradient(%a: !t, %b: !t) -> (tensor<5xf32>, !t, !t) {
  %e = tensor.empty() : !t
  %g = linalg.mul ins(%a, %b : !t, !t) outs(%e : !t) -> !t
  %s = tensor.extract_slice %g[1, 0] [1, 5] [1, 1] : !t to tensor<5xf32>
  %r0 = ddp.all_reduce mean %s on @dp : tensor<5xf32>
  %r1 = ddp.all_reduce mean %g on @dp : !t
  return %r0, %r1, %g : tensor<5xf32>, !t, !t
}

// Updated in place, and what it was before.
func.func @update(%w: !t {bufferization.writable = true}, %g: !t)
    -> (!t, !t) {
  %e = tensor.empty() : !t
  %h = linalg.mul ins(%g, %g : !t, !t) outs(%e : !t) -> !t
  %r = ddp.all_reduce mean %h on @dp : !t
  %u = linalg.sub ins(%w, %r : !t, !t) outs(%w : !t) -> !t
  return %u, %w : !t, !t
}

// Each is computed from the other.
func.func @update_crosswise(%v: !t {bufferization.writable = true},
                            %w: !t {bufferization.writable = true}, %g: !t)
    -> (!t, !t) {
  %r = ddp.all_reduce mean %g on @dp : !t
  %0 = linalg.sub ins(%w, %r : !t, !t) outs(%v : !t) -> !t
  %1 = linalg.sub ins(%v, %r : !t, !t) outs(%w : !t) -> !t
  return %0, %1 : !t, !t
}

// A gradient that depends on a reduced one, and is read when it was reduced
// itself.
func.func @dependent(%a: !t, %b: !t) -> (!t, !t, !t) {
  %e = tensor.empty() : !t
  %g0 = linalg.mul ins(%a, %b : !t, !t) outs(%e : !t) -> !t
  %r0 = ddp.all_reduce mean %g0 on @dp : !t
  %f = tensor.empty() : !t
  %g1 = linalg.mul ins(%r0, %b : !t, !t) outs(%f : !t) -> !t
  %r1 = ddp.all_reduce mean %g1 on @dp : !t
  return %r0, %r1, %g1 : !t, !t, !t
}

func.func @loop_of_reductions(%a: !t, %b: !t) -> !t {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c3 = arith.constant 3 : index
  %r = scf.for %i = %c0 to %c3 step %c1 iter_args(%x = %b) -> !t {
    %e = tensor.empty() : !t
    %s = linalg.add ins(%x, %a : !t, !t) outs(%e : !t) -> !t
    %y = ddp.all_reduce mean %s on @dp : !t
    scf.yield %y : !t
  }
  return %r : !t
}

// Two carried values that change places, one of them reduced on the way.
func.func @loop_that_swaps(%a: !t, %b: !t) -> (!t, !t) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c3 = arith.constant 3 : index
  %r:2 = scf.for %i = %c0 to %c3 step %c1 iter_args(%x = %a, %y = %b)
      -> (!t, !t) {
    %s = ddp.all_reduce mean %x on @dp : !t
    scf.yield %y, %s : !t, !t
  }
  return %r#0, %r#1 : !t, !t
}

// A loop that needs the last value beside the new one.
func.func @loop_with_history(%a: !t, %b: !t) -> (!t, !t) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c3 = arith.constant 3 : index
  %r:2 = scf.for %i = %c0 to %c3 step %c1 iter_args(%x = %a, %last = %b)
      -> (!t, !t) {
    %e = tensor.empty() : !t
    %s = linalg.add ins(%x, %last : !t, !t) outs(%e : !t) -> !t
    %n = ddp.all_reduce mean %s on @dp : !t
    scf.yield %n, %x : !t, !t
  }
  return %r#0, %r#1 : !t, !t
}

func.func @reduced_is_used(%a: !t, %b: !t) -> (!t, !t, !t) {
  %e = tensor.empty() : !t
  %g = linalg.mul ins(%a, %b : !t, !t) outs(%e : !t) -> !t
  %r = ddp.all_reduce mean %g on @dp : !t
  %s = linalg.add ins(%r, %r : !t, !t) outs(%r : !t) -> !t
  %f = tensor.empty() : !t
  %t = linalg.mul ins(%r, %a : !t, !t) outs(%f : !t) -> !t
  return %r, %s, %t : !t, !t, !t
}

// Nothing, one number, and an odd number of them.
func.func @small(%z: tensor<0x3xf32>, %s: tensor<f32>, %v: tensor<7xf32>)
    -> (tensor<0x3xf32>, tensor<f32>, tensor<7xf32>) {
  %e = tensor.empty() : tensor<f32>
  %g = linalg.mul ins(%s, %s : tensor<f32>, tensor<f32>)
      outs(%e : tensor<f32>) -> tensor<f32>
  %r0 = ddp.all_reduce mean %z on @dp : tensor<0x3xf32>
  %r1 = ddp.all_reduce mean %g on @dp : tensor<f32>
  %r2 = ddp.all_reduce sum %v on @dp : tensor<7xf32>
  return %r0, %r1, %r2 : tensor<0x3xf32>, tensor<f32>, tensor<7xf32>
}

// In a function that is called twice, with buffers of its own.
func.func private @inner(%x: !t, %y: !t) -> !t {
  %e = tensor.empty() : !t
  %g = linalg.mul ins(%x, %y : !t, !t) outs(%e : !t) -> !t
  %r = ddp.all_reduce mean %g on @dp : !t
  return %r : !t
}
func.func @called(%a: !t, %b: !t) -> (!t, !t) {
  %k = func.call @times(%a, %b) : (!t, !t) -> !t
  %0 = func.call @inner(%a, %b) : (!t, !t) -> !t
  %1 = func.call @inner(%0, %a) : (!t, !t) -> !t
  %e = tensor.empty() : !t
  %s = linalg.add ins(%0, %1 : !t, !t) outs(%e : !t) -> !t
  return %s, %k : !t, !t
}

// Arithmetic on buckets, written by hand.
func.func @buckets(%a: !t, %b: !t) -> (!t, !t, !t, !t) {
  %p = ddp.pack %a, %b : !t, !t -> !ddp.bucket<f32, [3x5, 3x5]>
  %x = ddp.extract %p [0] : !ddp.bucket<f32, [3x5, 3x5]>
  %y = ddp.extract %p [1] : !ddp.bucket<f32, [3x5, 3x5]>
  %d = ddp.scale %x by 2.0 : !ddp.bucket<f32, [3x5]>
  %r = ddp.all_reduce sum %y on @dp as "own" : !ddp.bucket<f32, [3x5]>
  %c = ddp.concat %d, %r : !ddp.bucket<f32, [3x5]>, !ddp.bucket<f32, [3x5]>
      -> !ddp.bucket<f32, [3x5, 3x5]>
  %u:2 = ddp.unpack %c : !ddp.bucket<f32, [3x5, 3x5]> -> !t, !t
  %v:2 = ddp.unpack %p : !ddp.bucket<f32, [3x5, 3x5]> -> !t, !t
  return %u#0, %u#1, %v#0, %v#1 : !t, !t, !t, !t
}

// A private function returns one buffer twice, an argument, a part of another
// result, and what only the run decides; its caller overwrites some of them.
func.func private @shared_results(%x: !t, %y: !t, %c: i1)
    -> (!t, !t, !t, tensor<5xf32>, !t) {
  %e = tensor.empty() : !t
  %g = linalg.mul ins(%x, %y : !t, !t) outs(%e : !t) -> !t
  %row = tensor.extract_slice %g[1, 0] [1, 5] [1, 1] : !t to tensor<5xf32>
  %either = scf.if %c -> !t {
    scf.yield %g : !t
  } else {
    scf.yield %y : !t
  }
  return %g, %g, %x, %row, %either : !t, !t, !t, tensor<5xf32>, !t
}
func.func @returned_twice(%a: !t, %b: !t, %c: i1)
    -> (!t, !t, !t, tensor<5xf32>, !t) {
  %0:5 = func.call @shared_results(%a, %b, %c)
      : (!t, !t, i1) -> (!t, !t, !t, tensor<5xf32>, !t)
  %u = linalg.add ins(%0#0, %b : !t, !t) outs(%0#0 : !t) -> !t
  %r = ddp.all_reduce mean %u on @dp : !t
  %s = ddp.all_reduce mean %0#2 on @dp : !t
  return %r, %0#1, %s, %0#3, %0#4 : !t, !t, !t, tensor<5xf32>, !t
}

// Both are one with hook=noop.
func.func private @local_and_reduced(%x: !t, %y: !t) -> (!t, !t) {
  %e = tensor.empty() : !t
  %g = linalg.mul ins(%x, %y : !t, !t) outs(%e : !t) -> !t
  %r = ddp.all_reduce mean %g on @dp : !t
  return %g, %r : !t, !t
}
func.func @returns_both(%a: !t, %b: !t) -> (!t, !t) {
  %0:2 = func.call @local_and_reduced(%a, %b) : (!t, !t) -> (!t, !t)
  %u = linalg.add ins(%0#0, %b : !t, !t) outs(%0#0 : !t) -> !t
  return %u, %0#1 : !t, !t
}

// On memory, one after the other.
func.func @on_memory(%a: !t, %b: !t) -> (!t, !t, !t) {
  %ma = memref.alloc() : memref<3x5xf32>
  %mb = memref.alloc() : memref<3x5xf32>
  %m = memref.alloc() : memref<3x5xf32>
  %n = memref.alloc() : memref<3x5xf32>
  %o = memref.alloc() : memref<3x5xf32>
  bufferization.materialize_in_destination %a in restrict writable %ma
      : (!t, memref<3x5xf32>) -> ()
  bufferization.materialize_in_destination %b in restrict writable %mb
      : (!t, memref<3x5xf32>) -> ()
  linalg.mul ins(%ma, %mb : memref<3x5xf32>, memref<3x5xf32>)
      outs(%m : memref<3x5xf32>)
  ddp.all_reduce mean %m on @dp into %m : memref<3x5xf32>, : memref<3x5xf32>
  linalg.add ins(%m, %mb : memref<3x5xf32>, memref<3x5xf32>)
      outs(%n : memref<3x5xf32>)
  ddp.all_reduce sum %n on @dp into %o : memref<3x5xf32>, : memref<3x5xf32>
  %r = bufferization.to_tensor %m restrict : memref<3x5xf32> to !t
  %s = bufferization.to_tensor %n restrict : memref<3x5xf32> to !t
  %t = bufferization.to_tensor %o restrict : memref<3x5xf32> to !t
  return %r, %s, %t : !t, !t, !t
}
