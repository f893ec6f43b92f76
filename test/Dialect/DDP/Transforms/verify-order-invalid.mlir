// RUN: ddphook-opt %s --ddp-verify-order -split-input-file -verify-diagnostics

// One module for each message. The passes that made what is broken here are in
// docs/passes.md.

ddp.process_group @dp
func.func @divergent(%g: tensor<4xf32>, %mine: i1) {
  // expected-note @+1 {{this determines how often it runs}}
  scf.if %mine {
    // expected-error @+1 {{expected all ranks of @dp to execute this operation equally often, but they may not}}
    %r = ddp.all_reduce mean %g on @dp : tensor<4xf32>
  }
  return
}

// -----

// In memory: what is read was not reduced yet.
ddp.process_group @dp
func.func @divergent_memory(%g: memref<4xf32>, %n: memref<f32>) {
  %limit = arith.constant 1.0 : f32
  %v = memref.load %n[] : memref<f32>
  ddp.flat.all_reduce sum %n on @dp into %n : memref<f32>, memref<f32>
  %c = arith.cmpf ogt, %v, %limit : f32
  // expected-note @+1 {{this determines how often it runs}}
  scf.if %c {
    // expected-error @+1 {{expected all ranks of @dp to execute this operation equally often}}
    ddp.flat.all_reduce mean %g on @dp into %g : memref<4xf32>, memref<4xf32>
  }
  return
}

// -----

ddp.process_group @dp
func.func private @helper(%g: tensor<4xf32>, %c: i1) {
  // expected-note @+1 {{this determines how often it runs}}
  scf.if %c {
    // expected-error @+1 {{expected all ranks of @dp to execute this operation equally often}}
    %a = ddp.average %g on @dp every 4 : tensor<4xf32>
  }
  return
}
func.func @divergent_argument(%g: tensor<4xf32>, %mine: i1) {
  func.call @helper(%g, %mine) : (tensor<4xf32>, i1) -> ()
  return
}

// -----

// An average over other ranks: the values of ranks 0 and 1 come from ranks 2 and
// 4, which differ.
ddp.process_group @pairs ranks [[0, 1], [2, 3], [4, 5], [6, 7]]
ddp.process_group @across ranks [[0, 2], [1, 4], [3, 6], [5, 7]]
func.func @divergent_average(%g: tensor<4xf32>, %n: tensor<f32>) {
  %limit = arith.constant 1.0 : f32
  %s = ddp.all_reduce sum %n on @pairs : tensor<f32>
  %a = ddp.average %s on @across every 4 : tensor<f32>
  %v = tensor.extract %a[] : tensor<f32>
  %c = arith.cmpf ogt, %v, %limit : f32
  // expected-note @+1 {{this determines how often it runs}}
  scf.if %c {
    // expected-error @+1 {{expected all ranks of @pairs to execute this operation equally often}}
    %r = ddp.all_reduce mean %g on @pairs : tensor<4xf32>
  }
  return
}

// -----

// In an order that nobody knows.
ddp.process_group @dp
func.func @in_parallel(%g: tensor<4xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  // expected-note @+1 {{this determines how often it runs}}
  scf.parallel (%i) = (%c0) to (%c2) step (%c1) {
    // expected-error @+1 {{expected all ranks of @dp to execute this operation equally often}}
    %r = ddp.all_reduce mean %g on @dp : tensor<4xf32>
  }
  return
}

// -----

ddp.process_group @dp
func.func @again(%g: tensor<4xf32>) {
  %r = ddp.all_reduce mean %g on @dp : tensor<4xf32>
  // expected-error @+1 {{expected no collectives in recursive functions, because it is not known how often they run}}
  func.call @again(%r) : (tensor<4xf32>) -> ()
  return
}

// -----

ddp.process_group @dp
ddp.process_group @pairs ranks [[0, 1], [2, 3]]
func.func @other_group(%g: tensor<4xf32>) -> tensor<4xf32> {
  %b = ddp.pack %g : tensor<4xf32> -> !ddp.bucket<f32, [4]>
  // expected-error @+1 {{expected bucket "b0" to be reduced over @dp, but got @pairs}}
  %r = ddp.all_reduce mean %b on @pairs as "b0" : !ddp.bucket<f32, [4]>
  %u = ddp.unpack %r : !ddp.bucket<f32, [4]> -> tensor<4xf32>
  return %u : tensor<4xf32>
}
// expected-note @+1 {{the bucket's record}}
ddp.bucket_info "b0" mean on @dp hook #ddp.allreduce wire f32 bytes 16 state_bytes 0 : !ddp.bucket<f32, [4]>

// -----

ddp.process_group @dp
func.func @not_recorded(%g: tensor<4xf32>) -> tensor<4xf32> {
  %b = ddp.pack %g : tensor<4xf32> -> !ddp.bucket<f32, [4]>
  %p = ddp.all_reduce mean %b on @dp as "b0" : !ddp.bucket<f32, [4]>
  // expected-error @+1 {{expected bucket "b1" to be recorded by a 'ddp.bucket_info'}}
  %r = ddp.all_reduce mean %b on @dp as "b1" : !ddp.bucket<f32, [4]>
  %u = ddp.unpack %r : !ddp.bucket<f32, [4]> -> tensor<4xf32>
  return %u : tensor<4xf32>
}
ddp.bucket_info "b0" mean on @dp hook #ddp.allreduce wire f32 bytes 16 state_bytes 0 : !ddp.bucket<f32, [4]>

// -----

ddp.process_group @dp
func.func @not_reduced(%g: tensor<4xf32>) -> tensor<4xf32> {
  %b = ddp.pack %g : tensor<4xf32> -> !ddp.bucket<f32, [4]>
  // expected-error @+1 {{expected a reduced bucket, but part of it was not reduced}}
  %u = ddp.unpack %b : !ddp.bucket<f32, [4]> -> tensor<4xf32>
  return %u : tensor<4xf32>
}
// expected-error @+1 {{expected a collective that reduces bucket "b0"}}
ddp.bucket_info "b0" mean on @dp hook #ddp.allreduce wire f32 bytes 16 state_bytes 0 : !ddp.bucket<f32, [4]>

// -----

ddp.process_group @dp
func.func @reduced_twice(%g: tensor<4xf32>) -> tensor<4xf32> {
  %b = ddp.pack %g : tensor<4xf32> -> !ddp.bucket<f32, [4]>
  %r = ddp.all_reduce mean %b on @dp as "b0" : !ddp.bucket<f32, [4]>
  // expected-error @+1 {{expected the bucket to be reduced once, but the operand is already reduced}}
  %s = ddp.all_reduce sum %r on @dp as "b0" : !ddp.bucket<f32, [4]>
  %u = ddp.unpack %s : !ddp.bucket<f32, [4]> -> tensor<4xf32>
  return %u : tensor<4xf32>
}
ddp.bucket_info "b0" mean on @dp hook #ddp.allreduce wire f32 bytes 16 state_bytes 0 : !ddp.bucket<f32, [4]>

// -----

// expected-note @+1 {{the state is declared here}}
ddp.state @error : !ddp.bucket<f32, [4]> per_rank zero
func.func @not_stored(%g: tensor<4xf32>) -> tensor<4xf32> {
  %b = ddp.pack %g : tensor<4xf32> -> !ddp.bucket<f32, [4]>
  // expected-error @+1 {{expected state @error to be stored again after this}}
  %e = ddp.load @error : !ddp.bucket<f32, [4]>
  %m = ddp.add %b, %e : !ddp.bucket<f32, [4]>, !ddp.bucket<f32, [4]>
  %u = ddp.unpack %m : !ddp.bucket<f32, [4]> -> tensor<4xf32>
  return %u : tensor<4xf32>
}

// -----

// Stored where it was not loaded.
// expected-note @+1 {{the state is declared here}}
ddp.state @error : !ddp.bucket<f32, [4]> per_rank zero
func.func @stored_elsewhere(%b: tensor<4xf32>, %c: i1) -> tensor<4xf32> {
  %r = scf.if %c -> tensor<4xf32> {
    // expected-error @+1 {{expected state @error to be stored again after this}}
    %e = ddp.load @error : tensor<4xf32>
    scf.yield %e : tensor<4xf32>
  } else {
    ddp.store %b, @error : tensor<4xf32>
    scf.yield %b : tensor<4xf32>
  }
  return %r : tensor<4xf32>
}

// -----

ddp.state @iter : i64 replicated zero
func.func @replicated_value(%mine: i64) {
  // expected-error @+1 {{expected state @iter, which is replicated, to get the same value on all ranks, but it may differ}}
  ddp.store %mine, @iter : i64
  return
}

// -----

ddp.state @iter : i64 replicated zero
func.func @replicated_condition(%mine: i1) {
  %n = ddp.load @iter : i64
  // expected-note @+1 {{this decides whether the state is stored}}
  scf.if %mine {
    // expected-error @+1 {{expected state @iter, which is replicated, to get the same value on all ranks, but it may differ}}
    ddp.store %n, @iter : i64
  }
  return
}

// -----

ddp.state @iter : i64 replicated zero
// expected-error @+1 {{expected state @iter, which is replicated, to have the same value on all ranks afterwards, but it may differ}}
func.func @replicated_memory(%mine: i64) {
  %b = ddp.state_buffer @iter : memref<i64>
  memref.store %mine, %b[] : memref<i64>
  return
}

// -----

// expected-note @+1 {{if it is only stored unchanged, run the pass before bufferization, which hides that}}
ddp.state @iter : i64 replicated zero
func.func @never_written() -> i64 {
  // expected-error @+1 {{expected state @iter to be written by some function}}
  %b = ddp.state_buffer @iter : memref<i64>
  %n = memref.load %b[] : memref<i64>
  return %n : i64
}

// -----

// What travels is read before it is there, by way of a view.
ddp.process_group @dp
func.func @read_in_flight(%out: memref<2xf32>) {
  %arena = ddp.arena : memref<64xi8>
  %c0 = arith.constant 0 : index
  %b = memref.view %arena[%c0][] : memref<64xi8> to memref<4xf32>
  %v = ddp.view %b[2] : memref<4xf32> to memref<2xf32>
  // expected-note @+1 {{the collective is started here}}
  %t = ddp.flat.all_reduce_start mean %b on @dp into %b : memref<4xf32>, memref<4xf32>
  // expected-error @+1 {{expected no access to memory that a collective in flight uses}}
  memref.copy %v, %out : memref<2xf32> to memref<2xf32>
  ddp.flat.wait %b, %t : memref<4xf32>
  return
}

// -----

// The operand is still read.
ddp.process_group @dp
func.func @written_in_flight(%g: memref<4xf32>, %r: memref<4xf32>) {
  %zero = arith.constant 0.0 : f32
  // expected-note @+1 {{the collective is started here}}
  %t = ddp.flat.all_reduce_start mean %g on @dp into %r : memref<4xf32>, memref<4xf32>
  // expected-error @+1 {{expected no access to memory that a collective in flight uses}}
  linalg.fill ins(%zero : f32) outs(%g : memref<4xf32>)
  ddp.flat.wait %r, %t reading %g : memref<4xf32>, memref<4xf32>
  return
}

// -----

llvm.func @ddphook_rt_collective_start(!llvm.ptr, i32, !llvm.ptr, !llvm.ptr, i64) -> i64
func.func @ticket_lost(%h: !llvm.ptr, %n: i32, %p: !llvm.ptr, %s: i64) {
  // expected-error @+1 {{expected the collective to be awaited exactly once in its block, but got 0 waits}}
  %t = llvm.call @ddphook_rt_collective_start(%h, %n, %p, %p, %s) : (!llvm.ptr, i32, !llvm.ptr, !llvm.ptr, i64) -> i64
  return
}

// -----

// Which of several yields it is differs.
ddp.process_group @dp
func.func @two_yields(%g: tensor<4xf32>, %mine: i1) {
  %true = arith.constant true
  %false = arith.constant false
  %x = scf.execute_region -> i1 {
    cf.cond_br %mine, ^a, ^b
  ^a:
    scf.yield %true : i1
  ^b:
    scf.yield %false : i1
  }
  // expected-note @+1 {{this determines how often it runs}}
  scf.if %x {
    // expected-error @+1 {{expected all ranks of @dp to execute this operation equally often}}
    %r = ddp.all_reduce mean %g on @dp : tensor<4xf32>
  }
  return
}

// -----

// Which of several returns it is differs, though not at the branch before it.
ddp.process_group @dp
func.func private @four_returns(%mine: i1, %all: i1) -> i1 {
  %true = arith.constant true
  %false = arith.constant false
  cf.cond_br %mine, ^a, ^b
^a:
  cf.cond_br %all, ^a1, ^a2
^b:
  cf.cond_br %all, ^b1, ^b2
^a1:
  return %true : i1
^a2:
  return %true : i1
^b1:
  return %false : i1
^b2:
  return %false : i1
}
func.func @several_returns(%g: tensor<4xf32>, %mine: i1, %all: i1 {ddp.replicated}) {
  %x = func.call @four_returns(%mine, %all) : (i1, i1) -> i1
  // expected-note @+1 {{this determines how often it runs}}
  scf.if %x {
    // expected-error @+1 {{expected all ranks of @dp to execute this operation equally often}}
    %r = ddp.all_reduce mean %g on @dp : tensor<4xf32>
  }
  return
}

// -----

// Some ranks write, and what they write is the same for all that do.
ddp.process_group @dp
func.func @divergent_write(%g: tensor<4xf32>, %mine: i1) {
  %true = arith.constant true
  %false = arith.constant false
  %m = memref.alloca() : memref<i1>
  memref.store %true, %m[] : memref<i1>
  scf.if %mine {
    memref.store %false, %m[] : memref<i1>
  }
  %x = memref.load %m[] : memref<i1>
  // expected-note @+1 {{this determines how often it runs}}
  scf.if %x {
    // expected-error @+1 {{expected all ranks of @dp to execute this operation equally often}}
    %r = ddp.all_reduce mean %g on @dp : tensor<4xf32>
  }
  return
}

// -----

// A loop that overwrites what some ranks may find in memory, unless it has no iterations.
ddp.process_group @dp
func.func @moved_in_loop(%g: tensor<4xf32>, %mine: f32, %n: index {ddp.replicated}) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %one = arith.constant 1.0 : f32
  %x = memref.alloca() : memref<1xf32>
  %y = memref.alloca() : memref<1xf32>
  linalg.fill ins(%one : f32) outs(%x : memref<1xf32>)
  linalg.fill ins(%mine : f32) outs(%y : memref<1xf32>)
  %last = scf.while (%i = %c0) : (index) -> index {
    %more = arith.cmpi slt, %i, %n : index
    scf.condition(%more) %i : index
  } do {
  ^bb0(%i: index):
    memref.copy %y, %x : memref<1xf32> to memref<1xf32>
    linalg.fill ins(%one : f32) outs(%y : memref<1xf32>)
    %j = arith.addi %i, %c1 : index
    scf.yield %j : index
  }
  %v = memref.load %y[%c0] : memref<1xf32>
  %c = arith.cmpf oeq, %v, %one : f32
  // expected-note @+1 {{this determines how often it runs}}
  scf.if %c {
    // expected-error @+1 {{expected all ranks of @dp to execute this operation equally often}}
    %r = ddp.all_reduce mean %g on @dp : tensor<4xf32>
  }
  return
}

// -----

// A counter in memory, and a loop that some ranks leave earlier.
ddp.process_group @dp
func.func @divergent_count(%g: tensor<4xf32>, %n: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %m = memref.alloca() : memref<index>
  memref.store %c0, %m[] : memref<index>
  cf.br ^head
^head:
  %i = memref.load %m[] : memref<index>
  %next = arith.addi %i, %c1 : index
  memref.store %next, %m[] : memref<index>
  %more = arith.cmpi slt, %next, %n : index
  cf.cond_br %more, ^head, ^exit
^exit:
  %count = memref.load %m[] : memref<index>
  %x = arith.cmpi eq, %count, %c1 : index
  // expected-note @+1 {{this determines how often it runs}}
  scf.if %x {
    // expected-error @+1 {{expected all ranks of @dp to execute this operation equally often}}
    %r = ddp.all_reduce mean %g on @dp : tensor<4xf32>
  }
  return
}

// -----

// A rank's own value goes to one of two places.
ddp.process_group @dp
func.func @one_of_two_places(%g: tensor<4xf32>, %mine: i1, %all: i1 {ddp.replicated}) {
  %true = arith.constant true
  %m = memref.alloca() : memref<i1>
  %other = memref.alloca() : memref<i1>
  memref.store %true, %m[] : memref<i1>
  %place = scf.if %all -> memref<i1> {
    scf.yield %m : memref<i1>
  } else {
    scf.yield %other : memref<i1>
  }
  memref.store %mine, %place[] : memref<i1>
  %x = memref.load %m[] : memref<i1>
  // expected-note @+1 {{this determines how often it runs}}
  scf.if %x {
    // expected-error @+1 {{expected all ranks of @dp to execute this operation equally often}}
    %r = ddp.all_reduce mean %g on @dp : tensor<4xf32>
  }
  return
}

// -----

// The same value, in another place on every rank.
ddp.process_group @dp
func.func @another_place(%g: tensor<4xf32>, %mine: i1) {
  %true = arith.constant true
  %false = arith.constant false
  %m = memref.alloca() : memref<i1>
  %other = memref.alloca() : memref<i1>
  memref.store %true, %m[] : memref<i1>
  %place = arith.select %mine, %m, %other : memref<i1>
  memref.store %false, %place[] : memref<i1>
  %x = memref.load %m[] : memref<i1>
  // expected-note @+1 {{this determines how often it runs}}
  scf.if %x {
    // expected-error @+1 {{expected all ranks of @dp to execute this operation equally often}}
    %r = ddp.all_reduce mean %g on @dp : tensor<4xf32>
  }
  return
}

// -----

// Addresses are a process's own, and so is what a pointer leads to.
ddp.process_group @dp
llvm.mlir.global internal @flag(true) : i1
func.func @address(%g: tensor<4xf32>) {
  %c3 = arith.constant 3 : index
  %m = memref.alloca() : memref<i1>
  %p = memref.extract_aligned_pointer_as_index %m : memref<i1> -> index
  %x = arith.cmpi ugt, %p, %c3 : index
  // expected-note @+1 {{this determines how often it runs}}
  scf.if %x {
    // expected-error @+1 {{expected all ranks of @dp to execute this operation equally often}}
    %r = ddp.all_reduce mean %g on @dp : tensor<4xf32>
  }
  %q = llvm.mlir.addressof @flag : !llvm.ptr
  %y = llvm.load %q : !llvm.ptr -> i1
  // expected-note @+1 {{this determines how often it runs}}
  scf.if %y {
    // expected-error @+1 {{expected all ranks of @dp to execute this operation equally often}}
    %r = ddp.all_reduce mean %g on @dp : tensor<4xf32>
  }
  return
}

// -----

// As long as a rank likes.
ddp.process_group @dp
func.func @own_size(%g: tensor<4xf32>, %n: index) {
  %c0 = arith.constant 0 : index
  %m = memref.alloc(%n) : memref<?xi1>
  %size = memref.dim %m, %c0 : memref<?xi1>
  %x = arith.cmpi eq, %size, %c0 : index
  // expected-note @+1 {{this determines how often it runs}}
  scf.if %x {
    // expected-error @+1 {{expected all ranks of @dp to execute this operation equally often}}
    %r = ddp.all_reduce mean %g on @dp : tensor<4xf32>
  }
  return
}

// -----

// Both branches begin to write at one place, and one of them writes more.
ddp.process_group @dp
func.func @longer_write(%g: tensor<4xf32>, %same: i1 {ddp.replicated},
                        %mine: f32) {
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0.0 : f32
  %m = memref.alloca() : memref<2xf32>
  %first = ddp.view %m[0] : memref<2xf32> to memref<1xf32>
  %second = ddp.view %m[1] : memref<2xf32> to memref<1xf32>
  scf.if %same {
    linalg.fill ins(%zero : f32) outs(%first : memref<1xf32>)
  } else {
    linalg.fill ins(%mine : f32) outs(%m : memref<2xf32>)
  }
  %x = memref.load %second[%c0] : memref<1xf32>
  %c = arith.cmpf ogt, %x, %zero : f32
  // expected-note @+1 {{this determines how often it runs}}
  scf.if %c {
    // expected-error @+1 {{expected all ranks of @dp to execute this operation equally often}}
    %r = ddp.all_reduce mean %g on @dp : tensor<4xf32>
  }
  return
}

// -----

// Started on a condition that is this rank's own.
ddp.process_group @dp
func.func @divergent_start(%b: !ddp.bucket<f32, [4]>, %mine: i1) {
  // expected-error @+2 {{expected all ranks of @dp to execute this operation equally often}}
  // expected-note @+1 {{this determines how often it runs}}
  %f = ddp.all_reduce_start mean %b on @dp if %mine
      : !ddp.bucket<f32, [4]> -> !ddp.future<!ddp.bucket<f32, [4]>>
  scf.if %mine {
    %r = ddp.wait %f : !ddp.future<!ddp.bucket<f32, [4]>>
  } else {
    %r = ddp.wait %f : !ddp.future<!ddp.bucket<f32, [4]>>
  }
  return
}

// -----

// Whether it was started or not: until the branch its memory may be in flight.
ddp.process_group @dp
func.func @conditional_conflict(%g: memref<4xf32>, %c: i1 {ddp.replicated}) {
  %zero = arith.constant 0.0 : f32
  // expected-note @+1 {{the collective is started here}}
  %t = ddp.flat.all_reduce_start mean %g on @dp into %g if %c : memref<4xf32>, memref<4xf32>
  // expected-error @+1 {{expected no access to memory that a collective in flight uses}}
  linalg.fill ins(%zero : f32) outs(%g : memref<4xf32>)
  scf.if %c {
    ddp.flat.wait %g, %t : memref<4xf32>
  } else {
    ddp.flat.wait %g, %t : memref<4xf32>
    // Nothing is in flight here.
    linalg.fill ins(%zero : f32) outs(%g : memref<4xf32>)
  }
  return
}

// -----

// Where nothing was started the memory holds what it did: this rank's own.
ddp.process_group @dp
ddp.state @s : !ddp.bucket<f32, [4]> replicated zero
func.func @not_reduced(%b: !ddp.bucket<f32, [4]>, %c: i1 {ddp.replicated}) {
  %old = ddp.load @s : !ddp.bucket<f32, [4]>
  %f = ddp.all_reduce_start mean %b on @dp if %c
      : !ddp.bucket<f32, [4]> -> !ddp.future<!ddp.bucket<f32, [4]>>
  scf.if %c {
    %r = ddp.wait %f : !ddp.future<!ddp.bucket<f32, [4]>>
    ddp.store %r, @s : !ddp.bucket<f32, [4]>
  } else {
    %r = ddp.wait %f : !ddp.future<!ddp.bucket<f32, [4]>>
    // expected-error @+1 {{expected state @s, which is replicated, to get the same value on all ranks, but it may differ}}
    ddp.store %r, @s : !ddp.bucket<f32, [4]>
  }
  return
}

// -----

// The second column stays what it was on each rank.
ddp.process_group @dp
func.func @overwritten_in_part(%g: memref<3x2xf32>, %h: memref<8xf32>) {
  %c2 = arith.constant 2 : index
  %c1 = arith.constant 1 : index
  %one = arith.constant 1.0 : f32
  %limit = arith.constant 0.5 : f32
  %m = memref.alloc() : memref<3x2xf32>
  memref.copy %g, %m : memref<3x2xf32> to memref<3x2xf32>
  %column = memref.subview %m[0, 0] [3, 1] [1, 1] : memref<3x2xf32> to memref<3x1xf32, strided<[2, 1]>>
  linalg.fill ins(%one : f32) outs(%column : memref<3x1xf32, strided<[2, 1]>>)
  %row = memref.subview %m[1, 0] [1, 2] [1, 1] : memref<3x2xf32> to memref<2xf32, strided<[1], offset: 2>>
  linalg.fill ins(%one : f32) outs(%row : memref<2xf32, strided<[1], offset: 2>>)
  %a = memref.load %m[%c2, %c1] : memref<3x2xf32>
  %is = arith.cmpf ogt, %a, %limit : f32
  // expected-note @+1 {{this determines how often it runs}}
  scf.if %is {
    // expected-error @+1 {{expected all ranks of @dp to execute this operation equally often}}
    ddp.all_reduce mean %h on @dp into %h : memref<8xf32>, : memref<8xf32>
  }
  return
}
