// RUN: ddphook-opt %s --ddp-emit-entry-points="name=model" -split-input-file \
// RUN:   -verify-diagnostics
// RUN: not ddphook-opt %s --ddp-emit-entry-points="name=a-b" 2>&1 \
// RUN:   -split-input-file | FileCheck %s --check-prefix=NAME
// NAME: error: expected a C identifier as the module's name, but got 'a-b'

// expected-error @below {{expected the globals '__ddphook_handle' and '__ddphook_plan' of 'convert-ddp-to-runtime'}}
module {
}

// -----

module {
  llvm.mlir.global internal @__ddphook_handle() : !llvm.ptr
  // expected-error @below {{expected a plan in JSON, but got: }}
  llvm.mlir.global internal constant @__ddphook_plan("{")
}

// -----

module {
  llvm.mlir.global internal @__ddphook_handle() : !llvm.ptr
  // expected-error @below {{expected "entries" in the plan}}
  llvm.mlir.global internal constant @__ddphook_plan("{}")
}

// -----

// expected-error @below {{expected a public function on tensors of static shape: the module has no entry point}}
module {
  llvm.mlir.global internal @__ddphook_handle() : !llvm.ptr
  llvm.mlir.global internal constant @__ddphook_plan("{\22entries\22:[]}")
}

// -----

module {
  llvm.mlir.global internal @__ddphook_handle() : !llvm.ptr
  // expected-error @below {{expected a "name" of every entry}}
  llvm.mlir.global internal constant @__ddphook_plan("{\22entries\22:[{}]}")
}

// -----

module {
  llvm.mlir.global internal @__ddphook_handle() : !llvm.ptr
  // expected-error @below {{expected a function 'step', an entry of the plan}}
  llvm.mlir.global internal constant @__ddphook_plan("{\22entries\22:[{\22name\22:\22step\22}]}")
}

// -----

module {
  llvm.mlir.global internal @__ddphook_handle() : !llvm.ptr
  llvm.mlir.global internal constant @__ddphook_plan("{\22entries\22:[{\22name\22:\22step\22}]}")
  // expected-error @below {{entry point 'step' has no "arguments" or no "results" in the plan}}
  func.func @step() {
    return
  }
}

// -----

module {
  llvm.mlir.global internal @__ddphook_handle() : !llvm.ptr
  llvm.mlir.global internal constant @__ddphook_plan("{\22entries\22:[{\22name\22:\22step\22,\22arguments\22:[{\22dtype\22:\22f32\22,\22shape\22:[],\22inout\22:false}],\22results\22:[]}]}")
  // expected-error @below {{entry point 'step' has 1 arguments in the plan, but the function takes 0}}
  func.func @step() {
    return
  }
}

// -----

module {
  llvm.mlir.global internal @__ddphook_handle() : !llvm.ptr
  llvm.mlir.global internal constant @__ddphook_plan("{\22entries\22:[{\22name\22:\22step\22,\22arguments\22:[{\22dtype\22:\22f32\22,\22shape\22:[4],\22inout\22:false}],\22results\22:[]}]}")
  // expected-error @below {{entry point 'step' expected a static shape of arg0, but got 'memref<?xf32>'}}
  func.func @step(%a: memref<?xf32>) {
    return
  }
}

// -----

module {
  llvm.mlir.global internal @__ddphook_handle() : !llvm.ptr
  llvm.mlir.global internal constant @__ddphook_plan("{\22entries\22:[{\22name\22:\22step\22,\22arguments\22:[{\22dtype\22:\22f32\22,\22shape\22:[4],\22inout\22:false}],\22results\22:[]}]}")
  // expected-error @below {{entry point 'step' expected arg0 to be contiguous memory of the host, but got 'memref<4xf32, strided<[2]>>'}}
  func.func @step(%a: memref<4xf32, strided<[2]>>) {
    return
  }
}

// -----

module {
  llvm.mlir.global internal @__ddphook_handle() : !llvm.ptr
  llvm.mlir.global internal constant @__ddphook_plan("{\22entries\22:[{\22name\22:\22step\22,\22arguments\22:[{\22dtype\22:\22f32\22,\22shape\22:[4],\22inout\22:false}],\22results\22:[]}]}")
  // expected-error @below {{entry point 'step' expected arg0 to have elements of type f16, bf16, f32, f64, i1, i8, i16, i32, i64 or index, but got 'memref<4xi5>'}}
  func.func @step(%a: memref<4xi5>) {
    return
  }
}

// -----

module {
  llvm.mlir.global internal @__ddphook_handle() : !llvm.ptr
  llvm.mlir.global internal constant @__ddphook_plan("{\22entries\22:[{\22name\22:\22step\22,\22arguments\22:[{\22dtype\22:\22f32\22,\22shape\22:[5],\22inout\22:false}],\22results\22:[]}]}")
  // expected-error @below {{entry point 'step' expected arg0 to be as the plan says, but got 'memref<4xf32>'}}
  func.func @step(%a: memref<4xf32>) {
    return
  }
}

// -----

module {
  llvm.mlir.global internal @__ddphook_handle() : !llvm.ptr
  llvm.mlir.global internal constant @__ddphook_plan("{\22entries\22:[{\22name\22:\22step\22,\22arguments\22:[],\22results\22:[{\22dtype\22:\22f32\22,\22shape\22:[4]}]}]}")
  // expected-error @below {{entry point 'step' has no "argument" for result 0 in the plan}}
  func.func @step(%a: memref<4xf32>) {
    return
  }
}

// -----

module {
  llvm.mlir.global internal @__ddphook_handle() : !llvm.ptr
  llvm.mlir.global internal constant @__ddphook_plan("{\22entries\22:[{\22name\22:\22step\22,\22arguments\22:[],\22results\22:[{\22dtype\22:\22f32\22,\22shape\22:[4],\22argument\22:-1}]}]}")
  // expected-error @below {{entry point 'step' has no buffer for result 0}}
  func.func @step() {
    return
  }
}

// -----

module {
  llvm.mlir.global internal @__ddphook_handle() : !llvm.ptr
  llvm.mlir.global internal constant @__ddphook_plan("{\22entries\22:[{\22name\22:\22step\22,\22arguments\22:[],\22results\22:[]}]}")
  // expected-error @below {{entry point 'step' has 0 results in the plan, but the function takes 1 more buffers and returns 0 values}}
  func.func @step(%a: memref<4xf32>) {
    return
  }
}

// -----

module {
  llvm.mlir.global internal @__ddphook_handle() : !llvm.ptr
  llvm.mlir.global internal constant @__ddphook_plan("{\22entries\22:[{\22name\22:\22step\22,\22arguments\22:[],\22results\22:[{\22dtype\22:\22f32\22,\22shape\22:[],\22argument\22:-1},{\22dtype\22:\22f32\22,\22shape\22:[],\22argument\22:-1}]}]}")
  // expected-error @below {{entry point 'step' returns scalars and 0-D buffers of one type; return result 0 as a tensor}}
  func.func @step(%a: memref<f32>) -> f32 {
    %0 = memref.load %a[] : memref<f32>
    return %0 : f32
  }
}

// -----

module {
  llvm.mlir.global internal @__ddphook_handle() : !llvm.ptr
  llvm.mlir.global internal constant @__ddphook_plan("{\22entries\22:[{\22name\22:\22a.b\22,\22arguments\22:[],\22results\22:[]},{\22name\22:\22a_b\22,\22arguments\22:[],\22results\22:[]}]}")
  func.func @a.b() {
    return
  }
  // expected-error @below {{entry point 'a_b' has the C name 'model_a_b' of 'a.b'}}
  func.func @a_b() {
    return
  }
}

// -----

module {
  llvm.mlir.global internal @__ddphook_handle() : !llvm.ptr
  llvm.mlir.global internal constant @__ddphook_plan("{\22entries\22:[{\22name\22:\22step\22,\22arguments\22:[],\22results\22:[]}]}")
  // expected-error @below {{'model_step' is the C name of an entry point}}
  func.func private @model_step()
  func.func @step() {
    return
  }
}

// -----

module {
  llvm.mlir.global internal @__ddphook_handle() : !llvm.ptr
  llvm.mlir.global internal constant @__ddphook_plan("{\22entries\22:[{\22name\22:\22step\22,\22arguments\22:[],\22results\22:[]}]}")
  func.func @step() {
    return
  }
  // expected-warning @below {{'other' is public but no entry of the plan: it cannot be called from C}}
  func.func @other(%a: memref<?xf32>) {
    return
  }
}
