// RUN: ddphook-opt %s --ddp-plan-arena --allow-unregistered-dialect -split-input-file -verify-diagnostics

func.func @dynamic(%n: index) {
  // expected-error @+1 {{expected a buffer of static shape and identity layout, but got 'memref<?xf32>'}}
  %a = memref.alloc(%n) : memref<?xf32>
  return
}

// -----

func.func @strided() {
  // expected-error @+1 {{expected a buffer of static shape and identity layout, but got 'memref<4xf32, strided<[2]>>'}}
  %a = memref.alloc() : memref<4xf32, strided<[2]>>
  return
}

// -----

// expected-note @+1 {{'returned' returns it: results become out-parameters only in private functions that only calls refer to}}
func.func @returned() -> memref<4xf32> {
  // expected-error @+1 {{expected a buffer that does not leave the function}}
  %a = memref.alloc() : memref<4xf32>
  return %a : memref<4xf32>
}

// -----

// expected-note @+1 {{'view_returned' returns it}}
func.func @view_returned() -> memref<2xf32> {
  // expected-error @+1 {{expected a buffer that does not leave the function}}
  %a = memref.alloc() : memref<4xf32>
  %v = ddp.view %a[1] : memref<4xf32> to memref<2xf32>
  return %v : memref<2xf32>
}

// -----

func.func @aligned() {
  // expected-error @+1 {{expected a buffer aligned to 64 bytes at most, but got 128}}
  %a = memref.alloc() {alignment = 128 : i64} : memref<4xf32>
  return
}

// -----

func.func @of_memory() {
  // expected-error @+1 {{expected a buffer of numbers, but got 'memref<4xmemref<2xf32>>'}}
  %a = memref.alloc() : memref<4xmemref<2xf32>>
  return
}

// -----

// expected-error @+1 {{expected functions with buffers not to call each other in a cycle}}
module {
  func.func @ping(%x: memref<4xf32>) {
    %a = memref.alloc() : memref<4xf32>
    linalg.exp ins(%x : memref<4xf32>) outs(%a : memref<4xf32>)
    func.call @pong(%a) : (memref<4xf32>) -> ()
    return
  }
  func.func @pong(%x: memref<4xf32>) {
    func.call @ping(%x) : (memref<4xf32>) -> ()
    return
  }
}

// -----

func.func @too_large() {
  // expected-error @+1 {{expected a buffer of at most 1152921504606846976 bytes, but got 'memref<4294967296x4294967296xf32>'}}
  %a = memref.alloc() : memref<4294967296x4294967296xf32>
  return
}

// -----

// expected-error @+1 {{expected buffers of at most 1152921504606846976 bytes in total, including those of its callers}}
func.func @too_large_together(%x: f32) {
  %a = memref.alloc() : memref<1152921504606846976xi8>
  %b = memref.alloc() : memref<1152921504606846976xi8>
  "test.use"(%a, %b) : (memref<1152921504606846976xi8>, memref<1152921504606846976xi8>) -> ()
  return
}

// -----

func.func @too_large_with_caller() {
  %a = memref.alloc() : memref<1152921504606846976xi8>
  call @callee() : () -> ()
  "test.use"(%a) : (memref<1152921504606846976xi8>) -> ()
  return
}
// expected-error @+1 {{expected buffers of at most 1152921504606846976 bytes in total, including those of its callers}}
func.func private @callee() {
  %a = memref.alloc() : memref<64xi8>
  "test.use"(%a) : (memref<64xi8>) -> ()
  return
}

// -----

// Where the allocation runs again, the buffer of the iteration before is needed.

func.func @handed_on(%x: memref<4xf32>, %y: memref<4xf32>, %n: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %r = scf.for %i = %c0 to %n step %c1 iter_args(%last = %x) -> memref<4xf32> {
    // expected-error @+1 {{expected a buffer that a loop does not pass to its next iteration, which reuses the buffer's memory}}
    %a = memref.alloc() : memref<4xf32>
    linalg.sub ins(%last, %x : memref<4xf32>, memref<4xf32>) outs(%a : memref<4xf32>)
    linalg.exp ins(%last : memref<4xf32>) outs(%y : memref<4xf32>)
    scf.yield %a : memref<4xf32>
  }
  linalg.exp ins(%r : memref<4xf32>) outs(%y : memref<4xf32>)
  return
}

// -----

func.func @handed_on_by_blocks(%x: memref<4xf32>, %y: memref<4xf32>, %c: i1) {
  cf.br ^head(%x : memref<4xf32>)
^head(%last: memref<4xf32>):
  cf.cond_br %c, ^body, ^end
^body:
  // expected-error @+1 {{expected a buffer that a loop does not pass to its next iteration}}
  %a = memref.alloc() : memref<4xf32>
  linalg.sub ins(%last, %x : memref<4xf32>, memref<4xf32>) outs(%a : memref<4xf32>)
  cf.br ^head(%a : memref<4xf32>)
^end:
  linalg.exp ins(%last : memref<4xf32>) outs(%y : memref<4xf32>)
  return
}

// -----

func.func @at_once(%x: memref<4xf32>) -> f32 {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  %zero = arith.constant 0.0 : f32
  // expected-note @+1 {{this may run concurrently with itself}}
  %sum = scf.parallel (%i) = (%c0) to (%c4) step (%c1) init (%zero) -> f32 {
    // expected-error @+1 {{expected no buffers in a region that may run concurrently with itself, since each run needs its own}}
    %a = memref.alloc() : memref<f32>
    %v = memref.load %x[%i] : memref<4xf32>
    memref.store %v, %a[] : memref<f32>
    %w = memref.load %a[] : memref<f32>
    scf.reduce(%w : f32) {
    ^bb0(%left: f32, %right: f32):
      %next = arith.addf %left, %right : f32
      scf.reduce.return %next : f32
    }
  }
  return %sum : f32
}

// -----

func.func private @in_flight(%x: memref<4xf32>, %y: memref<4xf32>) -> !gpu.async.token {
  // expected-error @+1 {{expected a buffer that is not used after its function returns, but 'in_flight' returns a handle of type '!gpu.async.token'; wait for it there, or pass the caller's buffer}}
  %a = memref.alloc() : memref<4xf32>
  linalg.exp ins(%x : memref<4xf32>) outs(%a : memref<4xf32>)
  %t = gpu.memcpy async %y, %a : memref<4xf32>, memref<4xf32>
  return %t : !gpu.async.token
}
