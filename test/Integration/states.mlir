// Programs with states, executed over several steps on one and two ranks, and
// compared bit by bit with what they mean. A load and a store are the same
// memory: each program would go wrong if a pass took that for granted where it
// may not.

// RUN: rm -rf %t && mkdir %t
// RUN: ddphook-cc %s -o %t/states.so --shared
// RUN: %python %S/Inputs/states.py ddphook-exec %t/states.so %t
// RUN: ddphook-cc %s -o %t/apart.so --shared --ddp-pipeline="bucket-cap-mb=0 fuse=false"
// RUN: %python %S/Inputs/states.py ddphook-exec %t/apart.so %t

!t = tensor<3x5xf32>
!f = tensor<15xf32>
!b = !ddp.bucket<f32, [3x5]>

ddp.process_group @dp
ddp.state @n : i64 replicated zero
ddp.state @s : !ddp.bucket<f32, [3x5]> per_rank zero
ddp.state @t : !ddp.bucket<f32, [3x5]> per_rank zero
ddp.state @two : !ddp.bucket<f32, [7, 8]> per_rank zero

func.func private @flat(%a: !t) -> !f {
  %0 = tensor.collapse_shape %a [[0, 1]] : !t into !f
  return %0 : !f
}

func.func @counter() -> f32 {
  %one = arith.constant 1 : i64
  %0 = ddp.load @n : i64
  %1 = arith.addi %0, %one : i64
  ddp.store %1, @n : i64
  %2 = arith.sitofp %0 : i64 to f32
  return %2 : f32
}

// Loaded after it was stored, stored twice.
func.func @counter_twice() -> (f32, f32) {
  %one = arith.constant 1 : i64
  %0 = ddp.load @n : i64
  %1 = arith.addi %0, %one : i64
  ddp.store %1, @n : i64
  %2 = ddp.load @n : i64
  %3 = arith.addi %2, %2 : i64
  ddp.store %3, @n : i64
  %4 = ddp.load @n : i64
  %5 = arith.sitofp %2 : i64 to f32
  %6 = arith.sitofp %4 : i64 to f32
  return %5, %6 : f32, f32
}

func.func @counter_in_loop(%k: index) -> f32 {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %one = arith.constant 1 : i64
  %0 = ddp.load @n : i64
  scf.for %i = %c0 to %k step %c1 {
    %1 = ddp.load @n : i64
    %2 = arith.addi %1, %one : i64
    ddp.store %2, @n : i64
  }
  %3 = ddp.load @n : i64
  %4 = arith.addi %0, %3 : i64
  %5 = arith.sitofp %4 : i64 to f32
  return %5 : f32
}

func.func private @tick() {
  %one = arith.constant 1 : i64
  %0 = ddp.load @n : i64
  %1 = arith.addi %0, %one : i64
  ddp.store %1, @n : i64
  return
}
func.func @counter_in_call() -> (f32, f32) {
  %0 = ddp.load @n : i64
  call @tick() : () -> ()
  call @tick() : () -> ()
  %1 = ddp.load @n : i64
  %2 = arith.sitofp %0 : i64 to f32
  %3 = arith.sitofp %1 : i64 to f32
  return %2, %3 : f32, f32
}

func.func @accumulate(%a: !t) -> !f {
  %g = call @flat(%a) : (!t) -> !f
  %0 = ddp.load @s : !f
  %1 = ddp.add %0, %g : !f, !f
  ddp.store %1, @s : !f
  return %1 : !f
}

func.func @old_value(%a: !t) -> !f {
  %g = call @flat(%a) : (!t) -> !f
  %0 = ddp.load @s : !f
  ddp.store %g, @s : !f
  return %0 : !f
}

// The old value goes into a result, the new one depends on it.
func.func @old_and_new(%a: !t) -> (!f, !f) {
  %g = call @flat(%a) : (!t) -> !f
  %0 = ddp.load @s : !f
  %1 = ddp.sub %g, %0 : !f, !f
  ddp.store %1, @s : !f
  %2 = ddp.add %0, %1 : !f, !f
  return %0, %2 : !f, !f
}

func.func @swap(%a: !t) -> (!f, !f) {
  %g = call @flat(%a) : (!t) -> !f
  %0 = ddp.load @s : !f
  %1 = ddp.load @t : !f
  %2 = ddp.add %0, %g : !f, !f
  ddp.store %1, @s : !f
  ddp.store %2, @t : !f
  return %0, %1 : !f, !f
}

func.func @dead_store(%a: !t, %b: !t) -> !f {
  %g = call @flat(%a) : (!t) -> !f
  %h = call @flat(%b) : (!t) -> !f
  %0 = ddp.load @s : !f
  ddp.store %g, @s : !f
  %1 = ddp.load @s : !f
  %2 = ddp.add %1, %h : !f, !f
  ddp.store %2, @s : !f
  %3 = ddp.add %0, %1 : !f, !f
  return %3 : !f
}

// The old value, through everything that may share its memory.
func.func @old_members(%a: !t) -> (tensor<8xf32>, tensor<7xf32>) {
  %g = call @flat(%a) : (!t) -> !f
  %0 = ddp.load @two : !ddp.bucket<f32, [7, 8]>
  %1:2 = ddp.unpack %0 : !ddp.bucket<f32, [7, 8]>
      -> tensor<7xf32>, tensor<8xf32>
  ddp.store %g, @two : !f
  return %1#1, %1#0 : tensor<8xf32>, tensor<7xf32>
}
func.func @old_reshaped(%a: !t) -> !t {
  %g = call @flat(%a) : (!t) -> !f
  %0 = ddp.load @s : !f
  %1 = tensor.expand_shape %0 [[0, 1]] output_shape [3, 5] : !f into !t
  ddp.store %g, @s : !f
  return %1 : !t
}
func.func @old_overwritten(%a: !t, %b: !t) -> !f {
  %g = call @flat(%a) : (!t) -> !f
  %h = call @flat(%b) : (!t) -> !f
  %0 = ddp.load @s : !f
  %1 = linalg.add ins(%g, %0 : !f, !f) outs(%0 : !f) -> !f
  ddp.store %h, @s : !f
  return %1 : !f
}
func.func @old_in_loop(%a: !t, %k: index) -> !f {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %g = call @flat(%a) : (!t) -> !f
  %0 = ddp.load @s : !f
  %1 = scf.for %i = %c0 to %k step %c1 iter_args(%x = %0) -> !f {
    %2 = linalg.add ins(%x, %g : !f, !f) outs(%x : !f) -> !f
    scf.yield %2 : !f
  }
  ddp.store %g, @s : !f
  return %1 : !f
}
func.func @old_selected(%a: !t, %c: i1) -> !f {
  %g = call @flat(%a) : (!t) -> !f
  %0 = ddp.load @s : !f
  %1 = arith.select %c, %0, %g : !f
  ddp.store %g, @s : !f
  return %1 : !f
}
func.func @old_slice(%a: !t) -> tensor<4xf32> {
  %g = call @flat(%a) : (!t) -> !f
  %0 = ddp.load @s : !f
  %1 = tensor.extract_slice %0[3] [4] [1] : !f to tensor<4xf32>
  ddp.store %g, @s : !f
  return %1 : tensor<4xf32>
}

// The new value, overwritten behind the store: the state keeps what was stored.
func.func @new_overwritten(%a: !t) -> !f {
  %g = call @flat(%a) : (!t) -> !f
  %0 = ddp.load @s : !f
  %1 = ddp.add %0, %g : !f, !f
  ddp.store %1, @s : !f
  %2 = linalg.add ins(%1, %g : !f, !f) outs(%1 : !f) -> !f
  return %2 : !f
}
func.func @new_members_overwritten(%a: !t) -> (tensor<7xf32>, tensor<8xf32>) {
  %g = call @flat(%a) : (!t) -> !f
  %0 = ddp.load @two : !f
  %1 = ddp.add %0, %g : !f, !f
  ddp.store %1, @two : !f
  %2 = ddp.load @two : !ddp.bucket<f32, [7, 8]>
  %3:2 = ddp.unpack %2 : !ddp.bucket<f32, [7, 8]>
      -> tensor<7xf32>, tensor<8xf32>
  %4 = linalg.add ins(%3#0, %3#0 : tensor<7xf32>, tensor<7xf32>)
      outs(%3#0 : tensor<7xf32>) -> tensor<7xf32>
  return %4, %3#1 : tensor<7xf32>, tensor<8xf32>
}

// Stored under a condition, needed behind it.
func.func @stored_in_branch(%a: !t, %c: i1) -> (!f, !f) {
  %g = call @flat(%a) : (!t) -> !f
  %0 = ddp.load @s : !f
  %1 = ddp.add %0, %g : !f, !f
  scf.if %c {
    ddp.store %1, @s : !f
  }
  %2 = ddp.sub %1, %0 : !f, !f
  return %0, %2 : !f, !f
}

// Not stored: what is made of the loaded value leaves the state alone.
func.func @kept(%a: !t) -> (!f, !f) {
  %g = call @flat(%a) : (!t) -> !f
  %0 = ddp.load @s : !f
  %1 = linalg.add ins(%g, %0 : !f, !f) outs(%0 : !f) -> !f
  %2 = ddp.load @t : !f
  %3 = ddp.add %2, %1 : !f, !f
  ddp.store %3, @t : !f
  return %1, %3 : !f, !f
}

// Each branch has its way with the state.
func.func @branches(%a: !t, %c: i1) -> !f {
  %g = call @flat(%a) : (!t) -> !f
  %0 = scf.if %c -> !f {
    %1 = ddp.load @s : !f
    %2 = ddp.add %1, %g : !f, !f
    ddp.store %2, @s : !f
    scf.yield %1 : !f
  } else {
    %1 = ddp.scale %g by 2.0 : !f
    ddp.store %1, @s : !f
    scf.yield %1 : !f
  }
  return %0 : !f
}

// A phase that ends, and error feedback behind it.
func.func @phases(%a: !t) -> !f {
  %one = arith.constant 1 : i64
  %two = arith.constant 2 : i64
  %g = call @flat(%a) : (!t) -> !f
  %n = ddp.load @n : i64
  %c = arith.cmpi slt, %n, %two : i64
  %0 = scf.if %c -> !f {
    %1 = ddp.all_reduce sum %g on @dp {ddp.hook = #ddp.allreduce} : !f
    scf.yield %1 : !f
  } else {
    %1 = ddp.load @s : !f
    %2 = ddp.add %g, %1 : !f, !f
    %3 = ddp.all_reduce mean %2 on @dp {ddp.hook = #ddp.allreduce} : !f
    %4 = ddp.sub %2, %3 : !f, !f
    ddp.store %4, @s : !f
    scf.yield %3 : !f
  }
  %m = arith.addi %n, %one : i64
  ddp.store %m, @n : i64
  return %0 : !f
}

// The gradient is born in the bucket, the sum in the state.
func.func @feedback(%a: !t, %b: !t) -> (!t, !t) {
  %e = tensor.empty() : !t
  %g = linalg.mul ins(%a, %b : !t, !t) outs(%e : !t) -> !t
  %0 = ddp.pack %g : !t -> !b
  %1 = ddp.load @s : !b
  %2 = ddp.add %0, %1 : !b, !b
  %3 = ddp.all_reduce mean %2 on @dp as "b7" {ddp.hook = #ddp.allreduce} : !b
  %4 = ddp.sub %2, %3 : !b, !b
  ddp.store %4, @s : !b
  %r = ddp.unpack %3 : !b -> !t
  %f = tensor.empty() : !t
  %q = linalg.add ins(%g, %a : !t, !t) outs(%f : !t) -> !t
  return %r, %q : !t, !t
}

// A state of an optimizer: v ← v / 2 + g, w ← w - v.
func.func @momentum(%w: !t {bufferization.writable = true}, %a: !t)
    -> (!t, !t) {
  %0 = ddp.load @s : !b
  %v = ddp.unpack %0 : !b -> !t
  %half = arith.constant 0.5 : f32
  %e = tensor.empty() : !t
  %d = linalg.map ins(%v, %a : !t, !t) outs(%e : !t)
      (%x: f32, %y: f32, %o: f32) {
    %p = arith.mulf %x, %half : f32
    %q = arith.addf %p, %y : f32
    linalg.yield %q : f32
  }
  %1 = ddp.pack %d : !t -> !b
  ddp.store %1, @s : !b
  %u = linalg.sub ins(%w, %d : !t, !t) outs(%w : !t) -> !t
  return %u, %v : !t, !t
}

// States of functions that are called.
func.func private @push(%g: !f) {
  ddp.store %g, @s : !f
  return
}
func.func private @peek() -> !f {
  %0 = ddp.load @s : !f
  return %0 : !f
}
func.func @called(%a: !t) -> (!f, !f) {
  %g = call @flat(%a) : (!t) -> !f
  %0 = call @peek() : () -> !f
  %e = tensor.empty() : !f
  %1 = linalg.add ins(%0, %g : !f, !f) outs(%e : !f) -> !f
  call @push(%1) : (!f) -> ()
  %2 = call @peek() : () -> !f
  return %1, %2 : !f, !f
}
