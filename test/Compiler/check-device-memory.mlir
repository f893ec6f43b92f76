// Nothing to complain about: arrays are passed on, in every way there is.

// RUN: ddphook-opt %s --ddp-check-device-memory | FileCheck %s

// CHECK: memory = device
module attributes {ddp.plan = #ddp.plan<abi = 10, memory = device>} {

llvm.func @ddphook_rt_copy(!llvm.ptr, i64)
memref.global "private" constant @table : memref<2xf32> = dense<[1.0, 2.0]>
func.func private @inner(%a: memref<4xf32>) -> memref<4xf32> {
  return %a : memref<4xf32>
}

func.func @step(%a: memref<4x4xf32>, %b: memref<4x4xf32>, %c: i1, %i: index) {
  %row = memref.subview %a[%i, 0] [1, 4] [1, 1]
      : memref<4x4xf32> to memref<4xf32, strided<[1], offset: ?>>
  %d = memref.dim %a, %i : memref<4x4xf32>
  %flat = memref.collapse_shape %a [[0, 1]]
      : memref<4x4xf32> into memref<16xf32>
  %bytes = memref.extract_aligned_pointer_as_index %flat : memref<16xf32> -> index
  %chosen = arith.select %c, %a, %b : memref<4x4xf32>
  %either = scf.if %c -> (memref<4x4xf32>) {
    scf.yield %a : memref<4x4xf32>
  } else {
    scf.yield %b : memref<4x4xf32>
  }
  // Of a table of the host's own.
  %table = memref.get_global @table : memref<2xf32>
  %x = memref.load %table[%i] : memref<2xf32>
  return
}

}
