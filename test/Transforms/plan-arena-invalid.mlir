// RUN: ddphook-opt %s --ddp-plan-arena -split-input-file -verify-diagnostics

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

func.func @returned() -> memref<4xf32> {
  // expected-error @+1 {{expected a buffer that does not leave the function}}
  %a = memref.alloc() : memref<4xf32>
  return %a : memref<4xf32>
}

// -----

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
