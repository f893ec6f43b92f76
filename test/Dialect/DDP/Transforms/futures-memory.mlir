// What is in flight, from futures to places in the arena: neither the operand nor
// the destination of an all-reduce is touched before the wait.

// RUN: ddphook-opt %s --ddp-flatten | FileCheck %s --check-prefix=FLAT
// RUN: ddphook-opt %s --pass-pipeline='builtin.module(ddp-flatten,ddp-thread-states,func.func(ddp-assign-destinations))' | FileCheck %s --check-prefix=ASSIGN
// RUN: ddphook-opt %s --pass-pipeline='builtin.module(func.func(ddp-legalize-for-bufferization),ddp-flatten,ddp-thread-states,ddp-prepare-entries,func.func(ddp-assign-destinations,ddp-materialize-buckets),one-shot-bufferize{bufferize-function-boundaries=true function-boundary-type-conversion=identity-layout-map},cse,ddp-fold-copies,ddp-plan-arena)' | FileCheck %s --check-prefix=MEMORY

!b = !ddp.bucket<f32, [16]>
!t = tensor<16xf32>
!f = !ddp.future<!ddp.bucket<f32, [16]>>

ddp.process_group @dp
ddp.state @s : !ddp.bucket<f32, [16]> per_rank zero
ddp.state @u : !ddp.bucket<f32, [16]> per_rank zero

// In place, since nobody reads %b any more: the wait names one memory.

// FLAT-LABEL: func @in_place(
// FLAT:         %[[B:.+]] = ddp.pack
// FLAT-NEXT:    %[[D:.+]] = tensor.empty() : tensor<16xf32>
// FLAT-NEXT:    %[[S:.+]], %[[T:.+]] = ddp.flat.all_reduce_start mean %[[B]] on @dp wire bf16 as "b0" into %[[D]] : tensor<16xf32>, tensor<16xf32>
// FLAT-NEXT:    linalg.abs
// FLAT-NEXT:    %[[R:.+]] = ddp.flat.wait %[[S]], %[[T]] reading %[[B]] : tensor<16xf32>, tensor<16xf32>
// FLAT-NEXT:    ddp.unpack %[[R]]

// ASSIGN-LABEL: func @in_place(
// ASSIGN:         %[[B:.+]] = ddp.pack
// ASSIGN:         ddp.flat.all_reduce_start mean %[[B]] {{.+}} into %[[B]] :

// MEMORY-LABEL: func @in_place(
// MEMORY:         %[[B:.+]] = memref.view
// MEMORY:         %[[T:.+]] = ddp.flat.all_reduce_start mean %[[B]] on @dp wire bf16 as "b0" into %[[B]] : memref<16xf32>, memref<16xf32>
// MEMORY:         linalg.abs
// MEMORY:         ddp.flat.wait %[[B]], %[[T]] : memref<16xf32>
// MEMORY:         return
func.func @in_place(%x: !t) -> (!t, !t) {
  %e = tensor.empty() : !t
  %g = linalg.exp ins(%x : !t) outs(%e : !t) -> !t
  %b = ddp.pack %g : !t -> !b
  %f = ddp.all_reduce_start mean %b on @dp wire bf16 as "b0" : !b -> !f
  %h = linalg.abs ins(%x : !t) outs(%e : !t) -> !t
  %r = ddp.wait %f : !f
  %u = ddp.unpack %r : !b -> !t
  return %u, %h : !t, !t
}

// %b is read again, so that the sum goes elsewhere. The scratch that is needed in
// between takes neither the place of %b, which is read until the wait, nor that of
// the destination, which is written until then; afterwards it may.

// ASSIGN-LABEL: func @apart(
// ASSIGN:         %[[B:.+]] = ddp.pack
// ASSIGN:         %[[D:.+]] = tensor.empty() : tensor<16xf32>
// ASSIGN-NEXT:    %[[S:.+]], %[[T:.+]] = ddp.flat.all_reduce_start mean %[[B]] on @dp into %[[D]] :
// ASSIGN-NEXT:    ddp.is_finite %[[B]]
// ASSIGN-NEXT:    %[[C:.+]] = ddp.load @s
// ASSIGN-NEXT:    %[[X:.+]] = tensor.empty() : tensor<16xf32>
// ASSIGN-NEXT:    ddp.flat.scale %[[C]] by 2.000000e+00 into %[[X]] :
// ASSIGN:         ddp.flat.wait %[[S]], %[[T]] reading %[[B]] :
// ASSIGN-NEXT:    ddp.flat.scale %[[C]] by 3.000000e+00 into %[[B]] :

// Three buffers that are alive at the same time: 192 bytes, at three places.

// MEMORY-LABEL: func @apart(
// MEMORY:         ddp.arena : memref<192xi8>
// MEMORY:         %[[B:.+]] = memref.view
// MEMORY:         %[[T:.+]] = ddp.flat.all_reduce_start mean %[[B]] on @dp into %[[D:.+]] : memref<16xf32>, memref<16xf32>
// MEMORY:         ddp.flat.scale {{.+}} into %[[X:[^ ]+]]
// MEMORY:         ddp.flat.wait %[[D]], %[[T]] reading %[[B]] : memref<16xf32>, memref<16xf32>
// MEMORY:         ddp.flat.scale {{.+}} into %[[B]]
func.func @apart(%x: !t) -> (!t, !t, !t, i1) {
  %e = tensor.empty() : !t
  %g = linalg.exp ins(%x : !t) outs(%e : !t) -> !t
  %b = ddp.pack %g : !t -> !b
  %f = ddp.all_reduce_start mean %b on @dp : !b -> !f
  %ok = ddp.is_finite %b : !b
  %c = ddp.load @s : !b
  %y = ddp.scale %c by 2.0 : !b
  %r = ddp.wait %f : !f
  %z = ddp.scale %c by 3.0 : !b
  %u = ddp.unpack %r : !b -> !t
  %v = ddp.unpack %y : !b -> !t
  %w = ddp.unpack %z : !b -> !t
  return %u, %v, %w, %ok : !t, !t, !t, i1
}

// The only user of the operand is the start, but for the wait; a buffer of another
// size must not take its place in the arena either.

// MEMORY-LABEL: func @arena(
// MEMORY:         %[[ARENA:.+]] = ddp.arena : memref<192xi8>
// MEMORY-DAG:     arith.constant 0 : index
// MEMORY-DAG:     arith.constant 64 : index
// MEMORY:         ddp.flat.all_reduce_start mean %[[A:.+]] on @dp into %[[D:.+]] : memref<16xf32>, memref<16xf32>
// MEMORY:         arith.constant 128 : index
// MEMORY-NEXT:    %[[SMALL:.+]] = memref.view %[[ARENA]]
// MEMORY:         linalg.abs {{.+}} outs(%[[SMALL]] : memref<4xf32>)
// MEMORY:         linalg.exp ins(%[[SMALL]] :
// MEMORY:         ddp.flat.wait %[[D]], %{{.+}} reading %[[A]] :
func.func @arena(%x: memref<16xf32>, %small: memref<4xf32>, %out: memref<4xf32>) {
  %a = memref.alloc() : memref<16xf32>
  %d = memref.alloc() : memref<16xf32>
  linalg.exp ins(%x : memref<16xf32>) outs(%a : memref<16xf32>)
  %t = ddp.flat.all_reduce_start mean %a on @dp into %d : memref<16xf32>, memref<16xf32>
  %b = memref.alloc() : memref<4xf32>
  linalg.abs ins(%small : memref<4xf32>) outs(%b : memref<4xf32>)
  linalg.exp ins(%b : memref<4xf32>) outs(%out : memref<4xf32>)
  ddp.flat.wait %d, %t reading %a : memref<16xf32>, memref<16xf32>
  linalg.exp ins(%d : memref<16xf32>) outs(%x : memref<16xf32>)
  return
}

// A state travels, and gets a new value before the wait: what travels is a copy,
// made at the load. Awaited before the store, no copy is needed.

// FLAT-LABEL: func @state(
// ASSIGN-LABEL: func @state(
// ASSIGN:         %[[S:.+]] = ddp.load @s
// ASSIGN-NEXT:    %[[COPY:.+]] = bufferization.alloc_tensor() copy(%[[S]])
// ASSIGN:         %[[F:.+]], %[[T:.+]] = ddp.flat.all_reduce_start mean %[[COPY]]
// ASSIGN:         ddp.store %{{.+}}, @s
// ASSIGN:         ddp.flat.wait %[[F]], %[[T]] reading %[[COPY]]
// ASSIGN:         %[[U:.+]] = ddp.load @u
// ASSIGN-NOT:     alloc_tensor
// ASSIGN:         ddp.flat.all_reduce_start mean %[[U]]
// ASSIGN:         ddp.flat.wait {{.+}} reading %[[U]]
// ASSIGN:         ddp.store %{{.+}}, @u
func.func @state(%x: !t) -> (!t, !t) {
  %p = ddp.pack %x : !t -> !b
  %s = ddp.load @s : !b
  %f = ddp.all_reduce_start mean %s on @dp : !b -> !f
  ddp.store %p, @s : !b
  %r = ddp.wait %f : !f
  %v = ddp.unpack %r : !b -> !t
  %u = ddp.load @u : !b
  %g = ddp.all_reduce_start mean %u on @dp : !b -> !f
  %y = ddp.scale %p by 2.0 : !b
  %q = ddp.wait %g : !f
  ddp.store %y, @u : !b
  %w = ddp.unpack %q : !b -> !t
  return %v, %w : !t, !t
}
// MEMORY-LABEL: func @state(

// A state that is reduced where it lies, and read afterwards.

// ASSIGN-LABEL: func @state_in_place(
// ASSIGN:         %[[S:.+]] = ddp.load @s
// ASSIGN:         ddp.flat.all_reduce_start mean %[[S]] on @dp into %[[S]] :

// MEMORY-LABEL: func @state_in_place(
// MEMORY-NOT:     memref.copy
// MEMORY:         %[[S:.+]] = ddp.state_buffer @s
// MEMORY:         %[[T:.+]] = ddp.flat.all_reduce_start mean %[[S]] on @dp into %[[S]]
// MEMORY:         linalg.abs
// MEMORY:         ddp.flat.wait %[[S]], %[[T]] : memref<16xf32>
// MEMORY-NOT:     memref.copy
// MEMORY:         ddp.is_finite %[[S]]
func.func @state_in_place(%x: !t) -> (!t, i1) {
  %e = tensor.empty() : !t
  %s = ddp.load @s : !b
  %f = ddp.all_reduce_start mean %s on @dp : !b -> !f
  %h = linalg.abs ins(%x : !t) outs(%e : !t) -> !t
  %r = ddp.wait %f : !f
  ddp.store %r, @s : !b
  %ok = ddp.is_finite %r : !b
  return %h, %ok : !t, i1
}

// What is in flight is not copied before it has arrived, where one of two buckets
// is chosen and the other is needed as well.

// MEMORY-LABEL: func @chosen(
// MEMORY:         %[[T:.+]] = ddp.flat.all_reduce_start mean %[[B:.+]] on @dp into %[[B]] :
// MEMORY-NOT:     memref.copy
// MEMORY:         ddp.flat.wait %[[B]], %[[T]] : memref<16xf32>
// MEMORY-NOT:     memref.copy
// MEMORY:         scf.if
// MEMORY:         } else {
// MEMORY-NEXT:      memref.copy %{{.+}}, %[[B]]
func.func @chosen(%x: !t, %y: !t, %c: i1) -> (!t, !t) {
  %p = ddp.pack %y : !t -> !b
  %q = ddp.pack %x : !t -> !b
  %f = ddp.all_reduce_start mean %q on @dp : !b -> !f
  %w = ddp.wait %f : !f
  %r = arith.select %c, %w, %p : !b
  %u = ddp.unpack %r : !b -> !t
  %v = ddp.unpack %p : !b -> !t
  return %u, %v : !t, !t
}

// If an all-reduce that was to be in place is not, nothing else writes over its
// operand before the wait.

// MEMORY-LABEL: func @operand_overwritten(
// MEMORY:         linalg.exp {{.+}} outs(%[[X:.+]] :
// MEMORY:         %[[T:.+]] = ddp.flat.all_reduce_start mean %[[X]] on @dp into %[[F:.+]] :
// MEMORY:         linalg.add ins(%[[X]], %[[X]] : {{.+}}) outs(%[[SUM:.+]] :
// MEMORY-NEXT:    ddp.flat.wait %[[F]], %[[T]] reading %[[X]]
// MEMORY-NEXT:    memref.copy %[[SUM]], %arg1
// MEMORY-NEXT:    memref.copy %[[F]], %arg2
func.func @operand_overwritten(%a: !t) -> (!t, !t) {
  %e = tensor.empty() : !t
  %x = linalg.exp ins(%a : !t) outs(%e : !t) -> !t
  %f, %t = ddp.flat.all_reduce_start mean %x on @dp into %x : !t, !t
  %s = linalg.add ins(%x, %x : !t, !t) outs(%x : !t) -> !t
  %w = ddp.flat.wait %f, %t reading %x : !t, !t
  return %s, %w : !t, !t
}

// Nor is it overwritten by the all-reduce itself where it is needed behind the wait.

// MEMORY-LABEL: func @operand_needed(
// MEMORY:         linalg.exp {{.+}} outs(%[[X:.+]] :
// MEMORY:         %[[T:.+]] = ddp.flat.all_reduce_start mean %[[X]] on @dp into %[[F:.+]] :
// MEMORY-NEXT:    ddp.flat.wait %[[F]], %[[T]] reading %[[X]]
// MEMORY-NEXT:    memref.copy %[[X]], %arg1
// MEMORY-NEXT:    memref.copy %[[F]], %arg2
func.func @operand_needed(%a: !t) -> (!t, !t) {
  %e = tensor.empty() : !t
  %x = linalg.exp ins(%a : !t) outs(%e : !t) -> !t
  %f, %t = ddp.flat.all_reduce_start mean %x on @dp into %x : !t, !t
  %w = ddp.flat.wait %f, %t reading %x : !t, !t
  return %x, %w : !t, !t
}
