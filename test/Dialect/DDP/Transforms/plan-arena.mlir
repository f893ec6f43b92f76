// RUN: ddphook-opt %s --ddp-plan-arena -split-input-file | FileCheck %s

// Two buffers that are never alive together share memory; the one that is alive
// throughout does not. Offsets are multiples of 64 bytes.

// CHECK-LABEL: func @reuse(
// CHECK-NEXT:    %[[ARENA:.+]] = ddp.arena : memref<192xi8>
// CHECK:         arith.constant 0 : index
// CHECK:         %[[C0:.+]] = arith.constant 0 : index
// CHECK-NEXT:    %[[A:.+]] = memref.view %[[ARENA]][%[[C0]]][] : memref<192xi8> to memref<17xf32>
// CHECK-NEXT:    linalg.exp {{.+}} outs(%[[A]] :
// CHECK:         %[[C128:.+]] = arith.constant 128 : index
// CHECK-NEXT:    %[[ALL:.+]] = memref.view %[[ARENA]][%[[C128]]][] : memref<192xi8> to memref<f32>
// CHECK:         memref.copy %[[A]]
// CHECK:         %[[C0B:.+]] = arith.constant 0 : index
// CHECK-NEXT:    %[[B:.+]] = memref.view %[[ARENA]][%[[C0B]]][] : memref<192xi8> to memref<32xf16>
// CHECK:         memref.store %{{.+}}, %[[B]]
// CHECK-NOT:     memref.alloc
// CHECK-NOT:     memref.dealloc
func.func @reuse(%x: memref<17xf32>, %y: memref<17xf32>) {
  %one = arith.constant 1.0 : f32
  %half = arith.constant 1.0 : f16
  %i = arith.constant 0 : index
  %a = memref.alloc() : memref<17xf32>
  linalg.exp ins(%x : memref<17xf32>) outs(%a : memref<17xf32>)
  %all = memref.alloc() : memref<f32>
  memref.store %one, %all[] : memref<f32>
  memref.copy %a, %y : memref<17xf32> to memref<17xf32>
  memref.dealloc %a : memref<17xf32>
  %b = memref.alloc() : memref<32xf16>
  memref.store %half, %b[%i] : memref<32xf16>
  memref.copy %all, %all : memref<f32> to memref<f32>
  memref.dealloc %all : memref<f32>
  return
}

// -----

// The last use of one and the first of the other are the same operation: both
// are alive in it.

// CHECK-LABEL: func @touching(
// CHECK:         ddp.arena : memref<128xi8>
// CHECK:         arith.constant 0 : index
// CHECK:         arith.constant 64 : index
func.func @touching(%x: memref<4xf32>) {
  %a = memref.alloc() : memref<4xf32>
  linalg.exp ins(%x : memref<4xf32>) outs(%a : memref<4xf32>)
  %b = memref.alloc() : memref<4xf32>
  linalg.exp ins(%a : memref<4xf32>) outs(%b : memref<4xf32>)
  linalg.exp ins(%b : memref<4xf32>) outs(%x : memref<4xf32>)
  return
}

// -----

// Alive from the first use on, not from the allocation; through views.

// CHECK-LABEL: func @through_views(
// CHECK:         ddp.arena : memref<64xi8>
// CHECK-NOT:     arith.constant 64 : index
func.func @through_views(%x: memref<4xf32>, %y: memref<4xf32>) {
  %a = memref.alloc() : memref<8xf32>
  %b = memref.alloc() : memref<8xf32>
  %va = ddp.view %a[4] : memref<8xf32> to memref<4xf32>
  %vb = memref.subview %b[0] [4] [1] : memref<8xf32> to memref<4xf32, strided<[1]>>
  %wb = memref.cast %vb : memref<4xf32, strided<[1]>> to memref<4xf32>
  linalg.exp ins(%x : memref<4xf32>) outs(%va : memref<4xf32>)
  linalg.exp ins(%va : memref<4xf32>) outs(%y : memref<4xf32>)
  linalg.exp ins(%x : memref<4xf32>) outs(%wb : memref<4xf32>)
  linalg.exp ins(%wb : memref<4xf32>) outs(%y : memref<4xf32>)
  return
}

// -----

// A view is still used when the buffer itself is not.

// CHECK-LABEL: func @view_lives_on(
// CHECK:         ddp.arena : memref<128xi8>
func.func @view_lives_on(%x: memref<4xf32>, %y: memref<4xf32>) {
  %a = memref.alloc() : memref<8xf32>
  %va = ddp.view %a[4] : memref<8xf32> to memref<4xf32>
  linalg.exp ins(%x : memref<4xf32>) outs(%va : memref<4xf32>)
  %b = memref.alloc() : memref<4xf32>
  linalg.exp ins(%x : memref<4xf32>) outs(%b : memref<4xf32>)
  linalg.exp ins(%b : memref<4xf32>) outs(%y : memref<4xf32>)
  linalg.exp ins(%va : memref<4xf32>) outs(%y : memref<4xf32>)
  return
}

// -----

// What a loop uses is alive through all iterations, both that which is
// allocated in it and that which comes from outside.

// CHECK-LABEL: func @loop(
// CHECK:         %[[ARENA:.+]] = ddp.arena : memref<192xi8>
// CHECK:         arith.constant 0 : index
// CHECK:         scf.for
// CHECK:           arith.constant 64 : index
// CHECK-NEXT:      memref.view %[[ARENA]]
// CHECK:           arith.constant 128 : index
// CHECK-NEXT:      memref.view %[[ARENA]]
// CHECK:         arith.constant 0 : index
func.func @loop(%x: memref<4xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c3 = arith.constant 3 : index
  %outer = memref.alloc() : memref<4xf32>
  linalg.exp ins(%x : memref<4xf32>) outs(%outer : memref<4xf32>)
  scf.for %i = %c0 to %c3 step %c1 {
    %a = memref.alloc() : memref<4xf32>
    linalg.exp ins(%outer : memref<4xf32>) outs(%a : memref<4xf32>)
    linalg.exp ins(%a : memref<4xf32>) outs(%x : memref<4xf32>)
    %b = memref.alloc() : memref<4xf32>
    linalg.exp ins(%x : memref<4xf32>) outs(%b : memref<4xf32>)
    linalg.exp ins(%b : memref<4xf32>) outs(%x : memref<4xf32>)
  }
  %after = memref.alloc() : memref<4xf32>
  linalg.exp ins(%x : memref<4xf32>) outs(%after : memref<4xf32>)
  linalg.exp ins(%after : memref<4xf32>) outs(%x : memref<4xf32>)
  return
}

// -----

// A buffer that a loop or a branch hands on lives as long as the result.

// CHECK-LABEL: func @handed_on(
// CHECK:         ddp.arena : memref<256xi8>
// CHECK-DAG:     arith.constant 0 : index
// CHECK-DAG:     arith.constant 64 : index
// CHECK-DAG:     arith.constant 128 : index
// CHECK-DAG:     arith.constant 192 : index
func.func @handed_on(%x: memref<4xf32>, %c: i1) {
  %i0 = arith.constant 5 : index
  %i1 = arith.constant 6 : index
  %a = memref.alloc() : memref<4xf32>
  %b = memref.alloc() : memref<4xf32>
  linalg.exp ins(%x : memref<4xf32>) outs(%a : memref<4xf32>)
  linalg.exp ins(%x : memref<4xf32>) outs(%b : memref<4xf32>)
  %i = scf.if %c -> memref<4xf32> {
    scf.yield %a : memref<4xf32>
  } else {
    scf.yield %b : memref<4xf32>
  }
  %init = memref.alloc() : memref<4xf32>
  %l = scf.for %k = %i0 to %i1 step %i1 iter_args(%acc = %init) -> memref<4xf32> {
    scf.yield %acc : memref<4xf32>
  }
  %other = memref.alloc() : memref<4xf32>
  linalg.exp ins(%x : memref<4xf32>) outs(%other : memref<4xf32>)
  linalg.exp ins(%other : memref<4xf32>) outs(%x : memref<4xf32>)
  linalg.exp ins(%i : memref<4xf32>) outs(%l : memref<4xf32>)
  linalg.exp ins(%l : memref<4xf32>) outs(%x : memref<4xf32>)
  return
}

// -----

// The smallest free piece that is large enough; free neighbours are one piece.

// CHECK-LABEL: func @best_fit(
// CHECK:         ddp.arena : memref<320xi8>
// The small one takes the piece of 64 bytes at 256 rather than the one of 128
// at 0; a large one then fits into that.
// CHECK:         memref.view {{.+}} to memref<32xf32>
// CHECK:         memref.view {{.+}} to memref<16xf64>
// CHECK:         memref.view {{.+}} to memref<16xf32>
// CHECK:         arith.constant 256 : index
// CHECK-NEXT:    memref.view {{.+}} to memref<8xf32>
// CHECK:         arith.constant 0 : index
// CHECK-NEXT:    memref.view {{.+}} to memref<4x8xf32>
func.func @best_fit(%x: memref<8xf32>, %y: memref<16xf64>) {
  %f = arith.constant 1.0 : f32
  %d = arith.constant 1.0 : f64
  %i = arith.constant 3 : index
  %a = memref.alloc() : memref<32xf32>
  memref.store %f, %a[%i] : memref<32xf32>
  %b = memref.alloc() : memref<16xf64>
  memref.store %d, %b[%i] : memref<16xf64>
  %c = memref.alloc() : memref<16xf32>
  memref.store %f, %c[%i] : memref<16xf32>
  memref.store %f, %a[%i] : memref<32xf32>
  %small = memref.alloc() : memref<8xf32>
  memref.store %f, %small[%i] : memref<8xf32>
  %large = memref.alloc() : memref<4x8xf32>
  memref.store %f, %large[%i, %i] : memref<4x8xf32>
  memref.store %f, %small[%i] : memref<8xf32>
  memref.store %d, %b[%i] : memref<16xf64>
  return
}

// -----

// Unstructured control flow: positions say nothing, all are apart.

// CHECK-LABEL: func @blocks(
// CHECK:         ddp.arena : memref<128xi8>
// CHECK:         arith.constant 0 : index
// CHECK:         arith.constant 64 : index
func.func @blocks(%x: memref<4xf32>, %c: i1) {
  cf.br ^loop
^loop:
  %a = memref.alloc() : memref<4xf32>
  linalg.exp ins(%x : memref<4xf32>) outs(%a : memref<4xf32>)
  linalg.exp ins(%a : memref<4xf32>) outs(%x : memref<4xf32>)
  %b = memref.alloc() : memref<4xf32>
  linalg.exp ins(%x : memref<4xf32>) outs(%b : memref<4xf32>)
  linalg.exp ins(%b : memref<4xf32>) outs(%x : memref<4xf32>)
  cf.cond_br %c, ^loop, ^end
^end:
  return
}

// -----

// Functions that call each other have disjoint parts, wherever they stand;
// functions that do not, share.

// CHECK-LABEL: func private @inner(
// CHECK:         ddp.arena : memref<192xi8>
// CHECK:         arith.constant 128 : index
func.func private @inner(%x: memref<4xf32>) {
  %a = memref.alloc() : memref<4xf32>
  linalg.exp ins(%x : memref<4xf32>) outs(%a : memref<4xf32>)
  linalg.exp ins(%a : memref<4xf32>) outs(%x : memref<4xf32>)
  return
}
// CHECK-LABEL: func @short(
// CHECK:         ddp.arena : memref<64xi8>
// CHECK:         arith.constant 0 : index
func.func @short(%x: memref<4xf32>) {
  %a = memref.alloc() : memref<4xf32>
  func.call @inner(%a) : (memref<4xf32>) -> ()
  linalg.exp ins(%a : memref<4xf32>) outs(%x : memref<4xf32>)
  return
}
// CHECK-LABEL: func @long(
// CHECK:         ddp.arena : memref<64xi8>
// CHECK:         arith.constant 0 : index
func.func @long(%x: memref<4xf32>) {
  %a = memref.alloc() : memref<4xf32>
  func.call @middle(%a) : (memref<4xf32>) -> ()
  return
}
// CHECK-LABEL: func private @middle(
// CHECK:         ddp.arena : memref<128xi8>
// CHECK:         arith.constant 64 : index
func.func private @middle(%x: memref<4xf32>) {
  %a = memref.alloc() : memref<4xf32>
  func.call @inner(%a) : (memref<4xf32>) -> ()
  linalg.exp ins(%a : memref<4xf32>) outs(%x : memref<4xf32>)
  return
}

// -----

// Recursion is no matter where there is no buffer.

// CHECK-LABEL: func @recursive(
// CHECK-NOT:     ddp.arena
func.func @recursive(%x: memref<4xf32>) {
  func.call @recursive(%x) : (memref<4xf32>) -> ()
  return
}

// -----

// Elements of less than a byte take one, `index` eight; complex numbers and
// vectors. A buffer without elements takes nothing, one without uses what is
// free.

// CHECK-LABEL: func @element_types(
// CHECK:         %[[ARENA:.+]] = ddp.arena : memref<512xi8>
// CHECK:         arith.constant 0 : index
// CHECK:         memref.view {{.+}} to memref<65xi1>
// CHECK:         arith.constant 128 : index
// CHECK:         memref.view {{.+}} to memref<9xindex>
// CHECK:         arith.constant 256 : index
// CHECK:         memref.view {{.+}} to memref<9xcomplex<f32>>
// CHECK:         arith.constant 384 : index
// CHECK:         memref.view {{.+}} to memref<5xvector<4xf32>>
// CHECK:         memref.view {{.+}} to memref<0x3xf32>
// CHECK:         memref.view {{.+}} to memref<16xf32>
func.func @element_types(%t: i1, %i: index, %z: complex<f32>,
                         %v: vector<4xf32>, %m: memref<0x3xf32>) {
  %a = memref.alloc() : memref<65xi1>
  %b = memref.alloc() : memref<9xindex>
  %c = memref.alloc() : memref<9xcomplex<f32>>
  %d = memref.alloc() : memref<5xvector<4xf32>>
  %e = memref.alloc() : memref<0x3xf32>
  %f = memref.alloc() : memref<16xf32>
  scf.execute_region {
    memref.store %t, %a[%i] : memref<65xi1>
    memref.store %i, %b[%i] : memref<9xindex>
    memref.store %z, %c[%i] : memref<9xcomplex<f32>>
    memref.store %v, %d[%i] : memref<5xvector<4xf32>>
    scf.yield
  }
  memref.copy %m, %e : memref<0x3xf32> to memref<0x3xf32>
  return
}

// -----

// A buffer without elements has nothing that the next iteration could overwrite.

// CHECK-LABEL: func @handed_on_empty(
// CHECK:         scf.for
// CHECK:           %[[EMPTY:.+]] = memref.view {{.+}} to memref<0x3xf32>
// CHECK:           scf.yield %[[EMPTY]]
func.func @handed_on_empty(%x: memref<0x3xf32>, %n: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %r = scf.for %i = %c0 to %n step %c1 iter_args(%last = %x) -> memref<0x3xf32> {
    %a = memref.alloc() : memref<0x3xf32>
    memref.copy %last, %a : memref<0x3xf32> to memref<0x3xf32>
    scf.yield %a : memref<0x3xf32>
  }
  memref.copy %r, %x : memref<0x3xf32> to memref<0x3xf32>
  return
}

// -----

// Branches exclude each other, and have an order within: what one needs after the
// other, or later, may share. What both need, or what lives on behind them, is apart.

// CHECK-LABEL: func @branches(
// CHECK:         %[[ARENA:.+]] = ddp.arena : memref<192xi8>
// CHECK:         scf.if
// CHECK:           linalg.exp {{.+}} outs(%[[A:.+]] :
// CHECK:           linalg.exp ins(%[[A]] :
// CHECK:           linalg.exp {{.+}} outs(%[[B:.+]] :
// CHECK:         } else {
// CHECK:           linalg.exp {{.+}} outs(%[[C:.+]] :
func.func @branches(%x: memref<4xf32>, %y: memref<4xf32>, %c: i1) {
  %both = memref.alloc() : memref<4xf32>
  %behind = memref.alloc() : memref<4xf32>
  linalg.exp ins(%x : memref<4xf32>) outs(%both : memref<4xf32>)
  scf.if %c {
    %a = memref.alloc() : memref<4xf32>
    linalg.exp ins(%x : memref<4xf32>) outs(%a : memref<4xf32>)
    linalg.exp ins(%a : memref<4xf32>) outs(%behind : memref<4xf32>)
    %b = memref.alloc() : memref<4xf32>
    linalg.exp ins(%x : memref<4xf32>) outs(%b : memref<4xf32>)
    linalg.exp ins(%b : memref<4xf32>) outs(%y : memref<4xf32>)
  } else {
    %d = memref.alloc() : memref<4xf32>
    linalg.exp ins(%both : memref<4xf32>) outs(%d : memref<4xf32>)
    linalg.exp ins(%d : memref<4xf32>) outs(%behind : memref<4xf32>)
  }
  linalg.exp ins(%behind : memref<4xf32>) outs(%y : memref<4xf32>)
  return
}

// -----

// A loop in a branch: all of it has one place.

// CHECK-LABEL: func @loop_in_branch(
// CHECK:         ddp.arena : memref<128xi8>
func.func @loop_in_branch(%x: memref<4xf32>, %y: memref<4xf32>, %c: i1) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c3 = arith.constant 3 : index
  scf.if %c {
    scf.for %i = %c0 to %c3 step %c1 {
      %a = memref.alloc() : memref<4xf32>
      linalg.exp ins(%x : memref<4xf32>) outs(%a : memref<4xf32>)
      linalg.exp ins(%a : memref<4xf32>) outs(%y : memref<4xf32>)
      %b = memref.alloc() : memref<4xf32>
      linalg.exp ins(%x : memref<4xf32>) outs(%b : memref<4xf32>)
      linalg.exp ins(%b : memref<4xf32>) outs(%y : memref<4xf32>)
    }
  }
  return
}

// -----

// A branch that yields the function's own buffer beside one of the caller's: only
// the latter leaves the function.
// CHECK-LABEL: func private @one_of_two(
// CHECK:         memref.view
// CHECK-NOT:     memref.alloc
func.func private @one_of_two(%a: memref<4xf32>, %b: memref<4xf32>, %c: i1)
    -> memref<4xf32> {
  %own = memref.alloc() : memref<4xf32>
  %r:2 = scf.if %c -> (memref<4xf32>, memref<4xf32>) {
    scf.yield %a, %own : memref<4xf32>, memref<4xf32>
  } else {
    scf.yield %b, %own : memref<4xf32>, memref<4xf32>
  }
  memref.copy %r#1, %a : memref<4xf32> to memref<4xf32>
  return %r#0 : memref<4xf32>
}

// -----

// Buffers that do not outlive their iteration: what a loop's condition hands to its
// body, and a block to those that only it leads to.
// CHECK-LABEL: func @within_an_iteration(
// CHECK-COUNT-2: memref.view
// CHECK-NOT:     memref.alloc
func.func @within_an_iteration(%x: memref<4xf32>, %y: memref<4xf32>, %c: i1) {
  scf.while : () -> () {
    %a = memref.alloc() : memref<4xf32>
    linalg.exp ins(%x : memref<4xf32>) outs(%a : memref<4xf32>)
    %r = scf.while (%b = %a) : (memref<4xf32>) -> memref<4xf32> {
      scf.condition(%c) %b : memref<4xf32>
    } do {
    ^bb0(%b: memref<4xf32>):
      linalg.exp ins(%b : memref<4xf32>) outs(%b : memref<4xf32>)
      scf.yield %b : memref<4xf32>
    }
    linalg.exp ins(%r : memref<4xf32>) outs(%y : memref<4xf32>)
    scf.condition(%c)
  } do {
    scf.yield
  }
  %n = scf.while (%i = %c) : (i1) -> memref<4xf32> {
    %a = memref.alloc() : memref<4xf32>
    linalg.exp ins(%x : memref<4xf32>) outs(%a : memref<4xf32>)
    scf.condition(%i) %a : memref<4xf32>
  } do {
  ^bb0(%b: memref<4xf32>):
    linalg.exp ins(%b : memref<4xf32>) outs(%y : memref<4xf32>)
    scf.yield %c : i1
  }
  linalg.exp ins(%n : memref<4xf32>) outs(%y : memref<4xf32>)
  return
}

// -----

// CHECK-LABEL: func @within_an_iteration_of_blocks(
// CHECK:         memref.view
// CHECK-NOT:     memref.alloc
func.func @within_an_iteration_of_blocks(%x: memref<4xf32>, %y: memref<4xf32>, %c: i1) {
  cf.br ^head
^head:
  %a = memref.alloc() : memref<4xf32>
  cf.cond_br %c, ^body(%a : memref<4xf32>), ^body(%x : memref<4xf32>)
^body(%b: memref<4xf32>):
  linalg.exp ins(%b : memref<4xf32>) outs(%y : memref<4xf32>)
  cf.cond_br %c, ^head, ^end
^end:
  return
}

// -----

// A buffer whose address is a number is alive to the end: nothing can say which
// operation needs it.
// CHECK-LABEL: func @address(
// CHECK:         ddp.arena : memref<128xi8>
// CHECK:         %[[A:.+]] = arith.constant 0 : index
// CHECK:         memref.view %{{.+}}[%[[A]]]
// CHECK:         %[[B:.+]] = arith.constant 64 : index
// CHECK:         memref.view %{{.+}}[%[[B]]]
func.func private @others(index)
func.func @address(%x: memref<4xf32>, %y: memref<4xf32>) {
  %a = memref.alloc() : memref<4xf32>
  linalg.exp ins(%x : memref<4xf32>) outs(%a : memref<4xf32>)
  %p = memref.extract_aligned_pointer_as_index %a : memref<4xf32> -> index
  %b = memref.alloc() : memref<4xf32>
  linalg.exp ins(%x : memref<4xf32>) outs(%b : memref<4xf32>)
  linalg.exp ins(%b : memref<4xf32>) outs(%y : memref<4xf32>)
  call @others(%p) : (index) -> ()
  return
}

// -----

// So is one that an operation uses later on, of which it gives a token.
// CHECK-LABEL: func @token(
// CHECK:         ddp.arena : memref<192xi8>
func.func @token(%x: memref<4xf32>, %y: memref<4xf32>) {
  %a = memref.alloc() : memref<4xf32>
  linalg.exp ins(%x : memref<4xf32>) outs(%a : memref<4xf32>)
  %t = gpu.memcpy async %y, %a : memref<4xf32>, memref<4xf32>
  %b = memref.alloc() : memref<4xf32>
  linalg.exp ins(%x : memref<4xf32>) outs(%b : memref<4xf32>)
  %u = async.execute {
    linalg.exp ins(%b : memref<4xf32>) outs(%x : memref<4xf32>)
    async.yield
  }
  %c = memref.alloc() : memref<4xf32>
  linalg.exp ins(%x : memref<4xf32>) outs(%c : memref<4xf32>)
  linalg.exp ins(%c : memref<4xf32>) outs(%x : memref<4xf32>)
  gpu.wait [%t]
  async.await %u : !async.token
  return
}

// -----

// Iterations that could run at the same time would share a buffer, also one of a
// function that they call. They run one after the other.
// CHECK-LABEL: func @parallel(
// CHECK-NOT:     scf.forall
// CHECK-NOT:     scf.parallel
// CHECK:         scf.for %[[I:.+]] =
// CHECK:           scf.for %[[J:.+]] =
// CHECK:             memref.subview %{{.+}}[%[[I]], %[[J]]]
// CHECK:             memref.view
// CHECK:         scf.for
// CHECK:           call @with_buffer
// CHECK:         scf.forall
func.func private @with_buffer(%x: memref<f32>, %y: memref<f32>) {
  %a = memref.alloc() : memref<f32>
  linalg.exp ins(%x : memref<f32>) outs(%a : memref<f32>)
  linalg.exp ins(%a : memref<f32>) outs(%y : memref<f32>)
  return
}
func.func @parallel(%x: memref<4x2xf32>, %y: memref<4x2xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  scf.forall (%i) in (4) {
    scf.parallel (%j) = (%c0) to (%c2) step (%c1) {
      %from = memref.subview %x[%i, %j] [1, 1] [1, 1] : memref<4x2xf32> to memref<f32, strided<[], offset: ?>>
      %a = memref.alloc() : memref<f32>
      linalg.exp ins(%from : memref<f32, strided<[], offset: ?>>) outs(%a : memref<f32>)
      %to = memref.subview %y[%i, %j] [1, 1] [1, 1] : memref<4x2xf32> to memref<f32, strided<[], offset: ?>>
      linalg.exp ins(%a : memref<f32>) outs(%to : memref<f32, strided<[], offset: ?>>)
    }
  }
  scf.parallel (%i) = (%c0) to (%c2) step (%c1) {
    %from = memref.get_global @number : memref<f32>
    %to = memref.get_global @other : memref<f32>
    func.call @with_buffer(%from, %to) : (memref<f32>, memref<f32>) -> ()
  }
  scf.forall (%i) in (4) {
    %v = memref.load %x[%i, %c0] : memref<4x2xf32>
    memref.store %v, %y[%i, %c1] : memref<4x2xf32>
  }
  return
}
memref.global "private" @number : memref<f32> = dense<1.0>
memref.global "private" @other : memref<f32> = dense<1.0>
