// RUN: ddphook-opt %s --ddp-verify-order -split-input-file -verify-diagnostics

// One module for each message. The passes that made what is broken here are in
// docs/passes.md.

ddp.process_group @dp
func.func @divergent(%g: tensor<4xf32>, %mine: i1) {
  // expected-note @+1 {{this decides about it}}
  scf.if %mine {
    // expected-error @+1 {{expected all ranks of @dp to come here equally often, but that may differ between them}}
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
  ddp.all_reduce sum %n on @dp into %n : memref<f32>, : memref<f32>
  %c = arith.cmpf ogt, %v, %limit : f32
  // expected-note @+1 {{this decides about it}}
  scf.if %c {
    // expected-error @+1 {{expected all ranks of @dp to come here equally often}}
    ddp.all_reduce mean %g on @dp into %g : memref<4xf32>, : memref<4xf32>
  }
  return
}

// -----

ddp.process_group @dp
func.func private @helper(%g: tensor<4xf32>, %c: i1) {
  // expected-note @+1 {{this decides about it}}
  scf.if %c {
    // expected-error @+1 {{expected all ranks of @dp to come here equally often}}
    %a = ddp.average %g on @dp every 4 : tensor<4xf32>
  }
  return
}
func.func @divergent_argument(%g: tensor<4xf32>, %mine: i1) {
  func.call @helper(%g, %mine) : (tensor<4xf32>, i1) -> ()
  return
}

// -----

// In an order that nobody knows.
ddp.process_group @dp
func.func @in_parallel(%g: tensor<4xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  // expected-note @+1 {{this decides about it}}
  scf.parallel (%i) = (%c0) to (%c2) step (%c1) {
    // expected-error @+1 {{expected all ranks of @dp to come here equally often}}
    %r = ddp.all_reduce mean %g on @dp : tensor<4xf32>
  }
  return
}

// -----

ddp.process_group @dp
func.func @again(%g: tensor<4xf32>) {
  %r = ddp.all_reduce mean %g on @dp : tensor<4xf32>
  // expected-error @+1 {{expected collectives outside of recursion, where nobody knows how often they run}}
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
  // expected-error @+1 {{expected a bucket that was reduced, but part of it is what only this rank has}}
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
  // expected-error @+1 {{expected to reduce a bucket once, but its operand was reduced before}}
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
  // expected-error @+1 {{expected state @error to be stored again behind this}}
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
    // expected-error @+1 {{expected state @error to be stored again behind this}}
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
  // expected-note @+1 {{this decides whether it is stored}}
  scf.if %mine {
    // expected-error @+1 {{expected state @iter, which is replicated, to get the same value on all ranks, but it may differ}}
    ddp.store %n, @iter : i64
  }
  return
}

// -----

ddp.state @iter : i64 replicated zero
// expected-error @+1 {{expected to leave the same value in state @iter, which is replicated, on all ranks, but it may differ}}
func.func @replicated_memory(%mine: i64) {
  %b = ddp.state_buffer @iter : memref<i64>
  memref.store %mine, %b[] : memref<i64>
  return
}

// -----

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
  // expected-note @+1 {{it was started here}}
  %t = ddp.all_reduce_start mean %b on @dp into %b : memref<4xf32>, : memref<4xf32> -> i64
  // expected-error @+1 {{expected not to touch memory that a collective in flight works on}}
  memref.copy %v, %out : memref<2xf32> to memref<2xf32>
  ddp.wait %b, %t : memref<4xf32>
  return
}

// -----

// The operand is still read.
ddp.process_group @dp
func.func @written_in_flight(%g: memref<4xf32>, %r: memref<4xf32>) {
  %zero = arith.constant 0.0 : f32
  // expected-note @+1 {{it was started here}}
  %t = ddp.all_reduce_start mean %g on @dp into %r : memref<4xf32>, : memref<4xf32> -> i64
  // expected-error @+1 {{expected not to touch memory that a collective in flight works on}}
  linalg.fill ins(%zero : f32) outs(%g : memref<4xf32>)
  ddp.wait %r, %t reading %g : memref<4xf32>, : memref<4xf32>
  return
}

// -----

llvm.func @ddphook_rt_all_reduce_start(!llvm.ptr, i32, !llvm.ptr, !llvm.ptr) -> i64
func.func @ticket_lost(%h: !llvm.ptr, %n: i32, %p: !llvm.ptr) {
  // expected-error @+1 {{expected the collective to be awaited exactly once in its block, but got 0 waits}}
  %t = llvm.call @ddphook_rt_all_reduce_start(%h, %n, %p, %p) : (!llvm.ptr, i32, !llvm.ptr, !llvm.ptr) -> i64
  return
}
