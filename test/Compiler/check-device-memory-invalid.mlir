// RUN: ddphook-opt %s --ddp-check-device-memory --split-input-file --verify-diagnostics
// RUN: not ddphook-opt %s --ddp-check-device-memory=has-kernels --split-input-file 2>&1 | FileCheck %s

module attributes {ddp.plan = #ddp.plan<abi = 10, memory = device>} {

// One error for each kind of operation.
func.func @step(%a: memref<4xf32>, %b: memref<4xf32>, %i: index) {
  // CHECK: 'linalg.exp' works on device memory, which the host cannot access: expected a linalg operation, which becomes a kernel
  // expected-error @below {{'linalg.exp' works on device memory, which the host cannot access: expected operations of ddp and contiguous copies only, or kernels for the device (--device=cuda, if ddphook was built with DDPHOOK_CODEGEN)}}
  linalg.exp ins(%a : memref<4xf32>) outs(%b : memref<4xf32>)
  linalg.exp ins(%b : memref<4xf32>) outs(%a : memref<4xf32>)
  // expected-error @below {{'memref.load' works on device memory}}
  %0 = memref.load %a[%i] : memref<4xf32>
  // expected-error @below {{'memref.store' works on device memory}}
  memref.store %0, %b[%i] : memref<4xf32>
  // expected-error @below {{'memref.copy' works on device memory}}
  memref.copy %a, %b : memref<4xf32> to memref<4xf32>
  %c4 = arith.constant 4 : index
  scf.for %j = %i to %c4 step %c4 {
    %v = memref.load %a[%j] : memref<4xf32>
  }
  return
}

}

// -----

module attributes {ddp.plan = #ddp.plan<abi = 10, memory = device>} {

func.func @memory() {
  // expected-error @below {{'memref.alloc' needs host memory, which a module for a device does not use}}
  %0 = memref.alloc() : memref<4xf32>
  // expected-error @below {{'memref.alloca' needs host memory, which a module for a device does not use}}
  %1 = memref.alloca() : memref<4xf32>
  return
}

}

// -----

module attributes {ddp.plan = #ddp.plan<abi = 10, memory = device>} {

memref.global "private" constant @table : memref<2xf32> = dense<[1.0, 2.0]>
func.func private @inner(%a: memref<2xf32>)

func.func @constants() {
  %0 = memref.get_global @table : memref<2xf32>
  // expected-error @below {{a constant array is passed on as device memory: expected a linalg operation to copy it first}}
  call @inner(%0) : (memref<2xf32>) -> ()
  // expected-error @below {{a constant array is passed on as device memory}}
  %1 = memref.extract_aligned_pointer_as_index %0 : memref<2xf32> -> index
  return
}

}

// -----

// For the host all of that is right.

module attributes {ddp.plan = #ddp.plan<abi = 10, memory = host>} {

func.func @host(%a: memref<4xf32>, %b: memref<4xf32>) {
  linalg.exp ins(%a : memref<4xf32>) outs(%b : memref<4xf32>)
  return
}

}
