// RUN: ddphook-opt %s --ddp-verify-order -split-input-file -verify-diagnostics

// A loop that overwrites memory slice by slice: if it covers all of it, and nothing reads
// the old contents, these no longer matter. Otherwise they do.

// One element in each iteration.
ddp.process_group @dp
func.func @elements(%m: memref<8xf32>, %g: memref<4xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %c4 = arith.constant 4 : index
  %c8 = arith.constant 8 : index
  %one = arith.constant 1.0 : f32
  scf.for %k = %c0 to %c8 step %c1 {
    %s = memref.subview %m[%k] [1] [1] : memref<8xf32> to memref<1xf32, strided<[1], offset: ?>>
    linalg.fill ins(%one : f32) outs(%s : memref<1xf32, strided<[1], offset: ?>>)
  }
  %v = memref.load %m[%c0] : memref<8xf32>
  %c = arith.cmpf ogt, %v, %one : f32
  scf.if %c {
    ddp.flat.all_reduce mean %g on @dp into %g : memref<4xf32>, memref<4xf32>
  }
  return
}

// -----

// Two elements in each iteration.
ddp.process_group @dp
func.func @pairs(%m: memref<8xf32>, %g: memref<4xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %c4 = arith.constant 4 : index
  %c8 = arith.constant 8 : index
  %one = arith.constant 1.0 : f32
  scf.for %k = %c0 to %c8 step %c2 {
    %s = memref.subview %m[%k] [2] [1] : memref<8xf32> to memref<2xf32, strided<[1], offset: ?>>
    linalg.fill ins(%one : f32) outs(%s : memref<2xf32, strided<[1], offset: ?>>)
  }
  %v = memref.load %m[%c0] : memref<8xf32>
  %c = arith.cmpf ogt, %v, %one : f32
  scf.if %c {
    ddp.flat.all_reduce mean %g on @dp into %g : memref<4xf32>, memref<4xf32>
  }
  return
}

// -----

// Neither of two nested loops covers the memory by itself.
ddp.process_group @dp
func.func @rows(%m: memref<4x2xf32>, %g: memref<4xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %c4 = arith.constant 4 : index
  %c8 = arith.constant 8 : index
  %one = arith.constant 1.0 : f32
  affine.for %i = 0 to 4 {
    affine.for %j = 0 to 2 {
      %s = memref.subview %m[%i, %j] [1, 1] [1, 1] : memref<4x2xf32> to memref<1x1xf32, strided<[2, 1], offset: ?>>
      linalg.fill ins(%one : f32) outs(%s : memref<1x1xf32, strided<[2, 1], offset: ?>>)
    }
  }
  %v = memref.load %m[%c0, %c0] : memref<4x2xf32>
  %c = arith.cmpf ogt, %v, %one : f32
  // expected-note @+1 {{this determines how often it runs}}
  scf.if %c {
    // expected-error @+1 {{expected all ranks of @dp to execute this operation equally often}}
    ddp.flat.all_reduce mean %g on @dp into %g : memref<4xf32>, memref<4xf32>
  }
  return
}

// -----

// Another memref is copied over it.
ddp.process_group @dp
func.func @copied(%m: memref<8xf32>, %u: memref<8xf32> {ddp.replicated}, %g: memref<4xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %c4 = arith.constant 4 : index
  %c8 = arith.constant 8 : index
  %one = arith.constant 1.0 : f32
  scf.for %k = %c0 to %c8 step %c1 {
    %t = memref.subview %u[%k] [1] [1] : memref<8xf32> to memref<1xf32, strided<[1], offset: ?>>
    %s = memref.subview %m[%k] [1] [1] : memref<8xf32> to memref<1xf32, strided<[1], offset: ?>>
    memref.copy %t, %s : memref<1xf32, strided<[1], offset: ?>> to memref<1xf32, strided<[1], offset: ?>>
  }
  %v = memref.load %m[%c0] : memref<8xf32>
  %c = arith.cmpf ogt, %v, %one : f32
  scf.if %c {
    ddp.flat.all_reduce mean %g on @dp into %g : memref<4xf32>, memref<4xf32>
  }
  return
}

// -----

// The loop does not run.
ddp.process_group @dp
func.func @never(%m: memref<8xf32>, %g: memref<4xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %c4 = arith.constant 4 : index
  %c8 = arith.constant 8 : index
  %one = arith.constant 1.0 : f32
  scf.for %k = %c0 to %c0 step %c1 {
    %s = memref.subview %m[%k] [1] [1] : memref<8xf32> to memref<1xf32, strided<[1], offset: ?>>
    linalg.fill ins(%one : f32) outs(%s : memref<1xf32, strided<[1], offset: ?>>)
  }
  %v = memref.load %m[%c0] : memref<8xf32>
  %c = arith.cmpf ogt, %v, %one : f32
  // expected-note @+1 {{this determines how often it runs}}
  scf.if %c {
    // expected-error @+1 {{expected all ranks of @dp to execute this operation equally often}}
    ddp.flat.all_reduce mean %g on @dp into %g : memref<4xf32>, memref<4xf32>
  }
  return
}

// -----

// The last element stays.
ddp.process_group @dp
func.func @short(%m: memref<8xf32>, %g: memref<4xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %c4 = arith.constant 4 : index
  %c8 = arith.constant 8 : index
  %one = arith.constant 1.0 : f32
  %c7 = arith.constant 7 : index
  scf.for %k = %c0 to %c7 step %c1 {
    %s = memref.subview %m[%k] [1] [1] : memref<8xf32> to memref<1xf32, strided<[1], offset: ?>>
    linalg.fill ins(%one : f32) outs(%s : memref<1xf32, strided<[1], offset: ?>>)
  }
  %v = memref.load %m[%c0] : memref<8xf32>
  %c = arith.cmpf ogt, %v, %one : f32
  // expected-note @+1 {{this determines how often it runs}}
  scf.if %c {
    // expected-error @+1 {{expected all ranks of @dp to execute this operation equally often}}
    ddp.flat.all_reduce mean %g on @dp into %g : memref<4xf32>, memref<4xf32>
  }
  return
}

// -----

// Every other element stays.
ddp.process_group @dp
func.func @gaps(%m: memref<8xf32>, %g: memref<4xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %c4 = arith.constant 4 : index
  %c8 = arith.constant 8 : index
  %one = arith.constant 1.0 : f32
  scf.for %k = %c0 to %c8 step %c2 {
    %s = memref.subview %m[%k] [1] [1] : memref<8xf32> to memref<1xf32, strided<[1], offset: ?>>
    linalg.fill ins(%one : f32) outs(%s : memref<1xf32, strided<[1], offset: ?>>)
  }
  %v = memref.load %m[%c0] : memref<8xf32>
  %c = arith.cmpf ogt, %v, %one : f32
  // expected-note @+1 {{this determines how often it runs}}
  scf.if %c {
    // expected-error @+1 {{expected all ranks of @dp to execute this operation equally often}}
    ddp.flat.all_reduce mean %g on @dp into %g : memref<4xf32>, memref<4xf32>
  }
  return
}

// -----

// The first element stays.
ddp.process_group @dp
func.func @late(%m: memref<8xf32>, %g: memref<4xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %c4 = arith.constant 4 : index
  %c8 = arith.constant 8 : index
  %one = arith.constant 1.0 : f32
  scf.for %k = %c1 to %c8 step %c1 {
    %s = memref.subview %m[%k] [1] [1] : memref<8xf32> to memref<1xf32, strided<[1], offset: ?>>
    linalg.fill ins(%one : f32) outs(%s : memref<1xf32, strided<[1], offset: ?>>)
  }
  %v = memref.load %m[%c0] : memref<8xf32>
  %c = arith.cmpf ogt, %v, %one : f32
  // expected-note @+1 {{this determines how often it runs}}
  scf.if %c {
    // expected-error @+1 {{expected all ranks of @dp to execute this operation equally often}}
    ddp.flat.all_reduce mean %g on @dp into %g : memref<4xf32>, memref<4xf32>
  }
  return
}

// -----

// The number of iterations is unknown.
ddp.process_group @dp
func.func @dynamic(%m: memref<8xf32>, %n: index {ddp.replicated}, %g: memref<4xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %c4 = arith.constant 4 : index
  %c8 = arith.constant 8 : index
  %one = arith.constant 1.0 : f32
  scf.for %k = %c0 to %n step %c1 {
    %s = memref.subview %m[%k] [1] [1] : memref<8xf32> to memref<1xf32, strided<[1], offset: ?>>
    linalg.fill ins(%one : f32) outs(%s : memref<1xf32, strided<[1], offset: ?>>)
  }
  %v = memref.load %m[%c0] : memref<8xf32>
  %c = arith.cmpf ogt, %v, %one : f32
  // expected-note @+1 {{this determines how often it runs}}
  scf.if %c {
    // expected-error @+1 {{expected all ranks of @dp to execute this operation equally often}}
    ddp.flat.all_reduce mean %g on @dp into %g : memref<4xf32>, memref<4xf32>
  }
  return
}

// -----

// Not all ranks run the loop.
ddp.process_group @dp
func.func @some_ranks(%m: memref<8xf32>, %mine: i1, %g: memref<4xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %c4 = arith.constant 4 : index
  %c8 = arith.constant 8 : index
  %one = arith.constant 1.0 : f32
  scf.if %mine {
  scf.for %k = %c0 to %c8 step %c1 {
    %s = memref.subview %m[%k] [1] [1] : memref<8xf32> to memref<1xf32, strided<[1], offset: ?>>
    linalg.fill ins(%one : f32) outs(%s : memref<1xf32, strided<[1], offset: ?>>)
  }
  }
  %v = memref.load %m[%c0] : memref<8xf32>
  %c = arith.cmpf ogt, %v, %one : f32
  // expected-note @+1 {{this determines how often it runs}}
  scf.if %c {
    // expected-error @+1 {{expected all ranks of @dp to execute this operation equally often}}
    ddp.flat.all_reduce mean %g on @dp into %g : memref<4xf32>, memref<4xf32>
  }
  return
}

// -----

// Not all iterations write.
ddp.process_group @dp
func.func @some_iterations(%m: memref<8xf32>, %g: memref<4xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %c4 = arith.constant 4 : index
  %c8 = arith.constant 8 : index
  %one = arith.constant 1.0 : f32
  scf.for %k = %c0 to %c8 step %c1 {
    %s = memref.subview %m[%k] [1] [1] : memref<8xf32> to memref<1xf32, strided<[1], offset: ?>>
    %b = arith.cmpi ult, %k, %c4 : index
    scf.if %b {
      linalg.fill ins(%one : f32) outs(%s : memref<1xf32, strided<[1], offset: ?>>)
    }
  }
  %v = memref.load %m[%c0] : memref<8xf32>
  %c = arith.cmpf ogt, %v, %one : f32
  // expected-note @+1 {{this determines how often it runs}}
  scf.if %c {
    // expected-error @+1 {{expected all ranks of @dp to execute this operation equally often}}
    ddp.flat.all_reduce mean %g on @dp into %g : memref<4xf32>, memref<4xf32>
  }
  return
}

// -----

// An iteration reads an element before a later one overwrites it.
ddp.process_group @dp
func.func @read_before(%m: memref<8xf32>, %u: memref<8xf32>, %g: memref<4xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %c4 = arith.constant 4 : index
  %c8 = arith.constant 8 : index
  %one = arith.constant 1.0 : f32
  scf.for %k = %c0 to %c8 step %c1 {
    %old = memref.load %m[%c4] : memref<8xf32>
    memref.store %old, %u[%c0] : memref<8xf32>
    %s = memref.subview %m[%k] [1] [1] : memref<8xf32> to memref<1xf32, strided<[1], offset: ?>>
    linalg.fill ins(%one : f32) outs(%s : memref<1xf32, strided<[1], offset: ?>>)
  }
  %v = memref.load %u[%c0] : memref<8xf32>
  %c = arith.cmpf ogt, %v, %one : f32
  // expected-note @+1 {{this determines how often it runs}}
  scf.if %c {
    // expected-error @+1 {{expected all ranks of @dp to execute this operation equally often}}
    ddp.flat.all_reduce mean %g on @dp into %g : memref<4xf32>, memref<4xf32>
  }
  return
}

// -----

// Each element is moved to the place before it.
ddp.process_group @dp
func.func @shifted(%m: memref<8xf32>, %g: memref<4xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %c4 = arith.constant 4 : index
  %c8 = arith.constant 8 : index
  %one = arith.constant 1.0 : f32
  scf.for %k = %c0 to %c8 step %c1 {
    %n = arith.subi %c8, %k : index
    %t = memref.subview %m[%n] [1] [1] : memref<8xf32> to memref<1xf32, strided<[1], offset: ?>>
    %s = memref.subview %m[%k] [1] [1] : memref<8xf32> to memref<1xf32, strided<[1], offset: ?>>
    memref.copy %t, %s : memref<1xf32, strided<[1], offset: ?>> to memref<1xf32, strided<[1], offset: ?>>
  }
  %v = memref.load %m[%c0] : memref<8xf32>
  %c = arith.cmpf ogt, %v, %one : f32
  // expected-note @+1 {{this determines how often it runs}}
  scf.if %c {
    // expected-error @+1 {{expected all ranks of @dp to execute this operation equally often}}
    ddp.flat.all_reduce mean %g on @dp into %g : memref<4xf32>, memref<4xf32>
  }
  return
}

// -----

// A function that the loop calls reads the memory.
ddp.process_group @dp
func.func private @read(%from: memref<8xf32>, %to: memref<8xf32>) {
  memref.copy %from, %to : memref<8xf32> to memref<8xf32>
  return
}
func.func @read_by_callee(%m: memref<8xf32>, %u: memref<8xf32>, %g: memref<4xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %c4 = arith.constant 4 : index
  %c8 = arith.constant 8 : index
  %one = arith.constant 1.0 : f32
  scf.for %k = %c0 to %c8 step %c1 {
    func.call @read(%m, %u) : (memref<8xf32>, memref<8xf32>) -> ()
    %s = memref.subview %m[%k] [1] [1] : memref<8xf32> to memref<1xf32, strided<[1], offset: ?>>
    linalg.fill ins(%one : f32) outs(%s : memref<1xf32, strided<[1], offset: ?>>)
  }
  %v = memref.load %u[%c0] : memref<8xf32>
  %c = arith.cmpf ogt, %v, %one : f32
  // expected-note @+1 {{this determines how often it runs}}
  scf.if %c {
    // expected-error @+1 {{expected all ranks of @dp to execute this operation equally often}}
    ddp.flat.all_reduce mean %g on @dp into %g : memref<4xf32>, memref<4xf32>
  }
  return
}

// -----

// The loop reads the memory by another name.
ddp.process_group @dp
func.func @read_by_alias(%m: memref<8xf32>, %u: memref<8xf32>, %g: memref<4xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %c4 = arith.constant 4 : index
  %c8 = arith.constant 8 : index
  %one = arith.constant 1.0 : f32
  %w = memref.cast %m : memref<8xf32> to memref<?xf32>
  scf.for %k = %c0 to %c8 step %c1 {
    %old = memref.load %w[%c4] : memref<?xf32>
    memref.store %old, %u[%c0] : memref<8xf32>
    %s = memref.subview %m[%k] [1] [1] : memref<8xf32> to memref<1xf32, strided<[1], offset: ?>>
    linalg.fill ins(%one : f32) outs(%s : memref<1xf32, strided<[1], offset: ?>>)
  }
  %v = memref.load %u[%c0] : memref<8xf32>
  %c = arith.cmpf ogt, %v, %one : f32
  // expected-note @+1 {{this determines how often it runs}}
  scf.if %c {
    // expected-error @+1 {{expected all ranks of @dp to execute this operation equally often}}
    ddp.flat.all_reduce mean %g on @dp into %g : memref<4xf32>, memref<4xf32>
  }
  return
}

// -----

// A memref from elsewhere may be the same memory.
ddp.process_group @dp
func.func private @find() -> memref<8xf32>
func.func @read_of_unknown(%m: memref<8xf32>, %u: memref<8xf32>, %g: memref<4xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %c4 = arith.constant 4 : index
  %c8 = arith.constant 8 : index
  %one = arith.constant 1.0 : f32
  %w = func.call @find() : () -> memref<8xf32>
  scf.for %k = %c0 to %c8 step %c1 {
    %old = memref.load %w[%c4] : memref<8xf32>
    memref.store %old, %u[%c0] : memref<8xf32>
    %s = memref.subview %m[%k] [1] [1] : memref<8xf32> to memref<1xf32, strided<[1], offset: ?>>
    linalg.fill ins(%one : f32) outs(%s : memref<1xf32, strided<[1], offset: ?>>)
  }
  %v = memref.load %u[%c0] : memref<8xf32>
  %c = arith.cmpf ogt, %v, %one : f32
  // expected-note @+1 {{this determines how often it runs}}
  scf.if %c {
    // expected-error @+1 {{expected all ranks of @dp to execute this operation equally often}}
    ddp.flat.all_reduce mean %g on @dp into %g : memref<4xf32>, memref<4xf32>
  }
  return
}

// -----

// A reduction over no elements writes nothing.
ddp.process_group @dp
func.func @empty_reduction(%m: memref<8xf32>, %e: memref<1x0xf32> {ddp.replicated}, %g: memref<4xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %c4 = arith.constant 4 : index
  %c8 = arith.constant 8 : index
  %one = arith.constant 1.0 : f32
  scf.for %k = %c0 to %c8 step %c1 {
    %s = memref.subview %m[%k] [1] [1] : memref<8xf32> to memref<1xf32, strided<[1], offset: ?>>
    linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i)>], iterator_types = ["parallel", "reduction"]}
        ins(%e : memref<1x0xf32>) outs(%s : memref<1xf32, strided<[1], offset: ?>>) {
    ^bb0(%in: f32, %out: f32):
      linalg.yield %in : f32
    }
  }
  %v = memref.load %m[%c0] : memref<8xf32>
  %c = arith.cmpf ogt, %v, %one : f32
  // expected-note @+1 {{this determines how often it runs}}
  scf.if %c {
    // expected-error @+1 {{expected all ranks of @dp to execute this operation equally often}}
    ddp.flat.all_reduce mean %g on @dp into %g : memref<4xf32>, memref<4xf32>
  }
  return
}
