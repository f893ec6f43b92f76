// RUN: ddphook-opt %s --ddp-check-no-alloc -split-input-file -verify-diagnostics

// Fine: views, the arena, computations and calls.
ddp.process_group @dp
func.func private @callee(memref<4xf32>)
func.func @clean(%m: memref<8xf32>) {
  %a = ddp.view %m[4] : memref<8xf32> to memref<4xf32>
  %arena = ddp.arena : memref<64xi8>
  %c0 = arith.constant 0 : index
  %b = memref.view %arena[%c0][] : memref<64xi8> to memref<4xf32>
  linalg.exp ins(%a : memref<4xf32>) outs(%b : memref<4xf32>)
  ddp.flat.all_reduce mean %b on @dp into %b : memref<4xf32>, memref<4xf32>
  func.call @callee(%b) : (memref<4xf32>) -> ()
  return
}

// -----

func.func @every_kind(%m: memref<4xf32>, %d: memref<?xf32>, %n: index,
                      %c: i1) {
  // expected-error @+1 {{'memref.alloc' op expected a step without allocations and copies}}
  %a = memref.alloc() : memref<4xf32>
  // expected-error @+1 {{'memref.alloca' op expected a step without allocations and copies}}
  %b = memref.alloca() : memref<4xf32>
  // expected-error @+1 {{'memref.copy' op expected a step without allocations and copies}}
  memref.copy %m, %b : memref<4xf32> to memref<4xf32>
  // expected-error @+1 {{'bufferization.clone' op expected a step without allocations and copies}}
  %e = bufferization.clone %m : memref<4xf32> to memref<4xf32>
  // expected-error @+1 {{'memref.realloc' op expected a step without allocations and copies}}
  %r = memref.realloc %d(%n) : memref<?xf32> to memref<?xf32>
  scf.if %c {
    // expected-error @+1 {{'memref.dealloc' op expected a step without allocations and copies}}
    memref.dealloc %a : memref<4xf32>
  }
  return
}

// -----

// Of many only eight are reported, and their number.
// expected-error @+1 {{found 10 allocations and copies in total}}
module {
  func.func @many(%m: memref<4xf32>, %n: memref<4xf32>) {
    // expected-error @+1 {{expected a step without allocations and copies}}
    memref.copy %m, %n : memref<4xf32> to memref<4xf32>
    // expected-error @+1 {{expected a step without allocations and copies}}
    memref.copy %m, %n : memref<4xf32> to memref<4xf32>
    // expected-error @+1 {{expected a step without allocations and copies}}
    memref.copy %m, %n : memref<4xf32> to memref<4xf32>
    // expected-error @+1 {{expected a step without allocations and copies}}
    memref.copy %m, %n : memref<4xf32> to memref<4xf32>
    // expected-error @+1 {{expected a step without allocations and copies}}
    memref.copy %m, %n : memref<4xf32> to memref<4xf32>
    // expected-error @+1 {{expected a step without allocations and copies}}
    memref.copy %m, %n : memref<4xf32> to memref<4xf32>
    // expected-error @+1 {{expected a step without allocations and copies}}
    memref.copy %m, %n : memref<4xf32> to memref<4xf32>
    // expected-error @+1 {{expected a step without allocations and copies}}
    memref.copy %m, %n : memref<4xf32> to memref<4xf32>
    memref.copy %m, %n : memref<4xf32> to memref<4xf32>
    memref.copy %m, %n : memref<4xf32> to memref<4xf32>
    return
  }
}
