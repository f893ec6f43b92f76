// RUN: ddphook-opt %s --ddp-emit-entry-points="name=model" -split-input-file \
// RUN:   -verify-diagnostics
// RUN: not ddphook-opt %s --ddp-emit-entry-points="name=a-b" 2>&1 \
// RUN:   -split-input-file | FileCheck %s --check-prefix=NAME
// NAME: error: expected a C identifier as the module's name, but got 'a-b'

// expected-error @below {{expected the attribute 'ddp.plan' and the global '__ddphook_handle' of 'convert-ddp-to-runtime'}}
module {
}

// -----

// expected-error @below {{expected the attribute 'ddp.plan' and the global '__ddphook_handle' of 'convert-ddp-to-runtime'}}
module attributes {ddp.plan = #ddp.plan<abi = 10, memory = host, entries = [<name = "step">]>} {
  func.func @step() {
    return
  }
}

// -----

// Made by another version of the compiler.
// expected-error-re @below {{expected a plan for ABI version {{[0-9]+}}, but got one for 3}}
module attributes {ddp.plan = #ddp.plan<abi = 3, memory = host, entries = [<name = "step">]>} {
  llvm.mlir.global internal @__ddphook_handle() : !llvm.ptr
  func.func @step() {
    return
  }
}

// -----

// expected-error @below {{expected a public function on tensors of static shape: the module has no entry point}}
module attributes {ddp.plan = #ddp.plan<abi = 10, memory = host>} {
  llvm.mlir.global internal @__ddphook_handle() : !llvm.ptr
}

// -----

// expected-error @below {{expected a function "step", an entry of the plan}}
module attributes {ddp.plan = #ddp.plan<abi = 10, memory = host, entries = [<name = "step">]>} {
  llvm.mlir.global internal @__ddphook_handle() : !llvm.ptr
}

// -----

module attributes {ddp.plan = #ddp.plan<abi = 10, memory = host, entries = [<name = "step", arguments = [<type = memref<4xf32>>]>]>} {
  llvm.mlir.global internal @__ddphook_handle() : !llvm.ptr
  // expected-error @below {{expected entry point 'step' to have 1 arguments, as the plan says, but got 0}}
  func.func @step() {
    return
  }
}

// -----

module attributes {ddp.plan = #ddp.plan<abi = 10, memory = host, entries = [<name = "step", arguments = [<type = memref<4xf32>>]>]>} {
  llvm.mlir.global internal @__ddphook_handle() : !llvm.ptr
  // expected-error @below {{expected argument 0 of entry point 'step' to be 'memref<4xf32>', as the plan says, but got 'memref<?xf32>'}}
  func.func @step(%a: memref<?xf32>) {
    return
  }
}

// -----

module attributes {ddp.plan = #ddp.plan<abi = 10, memory = host, entries = [<name = "step", arguments = [<type = memref<4xf32, 1>>]>]>} {
  llvm.mlir.global internal @__ddphook_handle() : !llvm.ptr
  // expected-error @below {{expected arg0 of entry point 'step' to be in no memory space, but got 'memref<4xf32, 1>'}}
  func.func @step(%a: memref<4xf32, 1>) {
    return
  }
}

// -----

module attributes {ddp.plan = #ddp.plan<abi = 10, memory = host, entries = [<name = "step", results = [<type = memref<4xf32>>]>]>} {
  llvm.mlir.global internal @__ddphook_handle() : !llvm.ptr
  // expected-error @below {{expected entry point 'step' to have 1 arguments, as the plan says, but got 0}}
  func.func @step() {
    return
  }
}

// -----

module attributes {ddp.plan = #ddp.plan<abi = 10, memory = host, entries = [<name = "step">]>} {
  llvm.mlir.global internal @__ddphook_handle() : !llvm.ptr
  // expected-error @below {{expected entry point 'step' to have 0 arguments, as the plan says, but got 1}}
  func.func @step(%a: memref<4xf32>) {
    return
  }
}

// -----

module attributes {ddp.plan = #ddp.plan<abi = 10, memory = host, entries = [<name = "step">]>} {
  llvm.mlir.global internal @__ddphook_handle() : !llvm.ptr
  // expected-error @below {{expected entry point 'step' to have 0 results, as the plan says, but got 1}}
  func.func @step() -> i1 {
    %0 = arith.constant true
    return %0 : i1
  }
}

// -----

module attributes {ddp.plan = #ddp.plan<abi = 10, memory = host, entries = [<name = "step", results = [<type = memref<f32>>, <type = f32>]>]>} {
  llvm.mlir.global internal @__ddphook_handle() : !llvm.ptr
  // expected-error @below {{expected result 0 of entry point 'step' to be 'f32', as the plan says, but got 'f64'}}
  func.func @step(%a: memref<f32>) -> f64 {
    %0 = arith.constant 0.0 : f64
    return %0 : f64
  }
}

// -----

module attributes {ddp.plan = #ddp.plan<abi = 10, memory = host, entries = [<name = "a.b">, <name = "a_b">]>} {
  llvm.mlir.global internal @__ddphook_handle() : !llvm.ptr
  func.func @a.b() {
    return
  }
  // expected-error @below {{entry point 'a_b' has the same C name 'model_a_b' as 'a.b'}}
  func.func @a_b() {
    return
  }
}

// -----

module attributes {ddp.plan = #ddp.plan<abi = 10, memory = host, entries = [<name = "step">]>} {
  llvm.mlir.global internal @__ddphook_handle() : !llvm.ptr
  // expected-error @below {{'model_step' is the C name of an entry point}}
  func.func private @model_step()
  func.func @step() {
    return
  }
}

// -----

module attributes {ddp.plan = #ddp.plan<abi = 10, memory = host, entries = [<name = "step">]>} {
  llvm.mlir.global internal @__ddphook_handle() : !llvm.ptr
  func.func @step() {
    return
  }
  // expected-warning @below {{'other' is public but not an entry of the plan: it cannot be called from C}}
  func.func @other(%a: memref<?xf32>) {
    return
  }
}
