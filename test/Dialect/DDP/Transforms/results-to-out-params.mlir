// RUN: ddphook-opt %s --ddp-results-to-out-params -split-input-file -verify-diagnostics | FileCheck %s

// CHECK-LABEL: func.func private @made(
// CHECK-SAME:      %[[A:[a-z0-9]+]]: memref<4xf32>, %[[OUT:[a-z0-9]+]]: memref<4xf32>) -> f32 {
// CHECK-NOT:     memref.alloc
// CHECK:         linalg.exp ins(%[[A]] : memref<4xf32>) outs(%[[OUT]] : memref<4xf32>)
// CHECK:         return %{{.+}} : f32
func.func private @made(%a: memref<4xf32>) -> (memref<4xf32>, f32) {
  %c0 = arith.constant 0 : index
  %m = memref.alloc() : memref<4xf32>
  linalg.exp ins(%a : memref<4xf32>) outs(%m : memref<4xf32>)
  %x = memref.load %m[%c0] : memref<4xf32>
  return %m, %x : memref<4xf32>, f32
}
// CHECK-LABEL: func.func @calls_made(
// CHECK-SAME:      %[[A:[a-z0-9]+]]: memref<4xf32>
// CHECK:         %[[M:.+]] = memref.alloc() : memref<4xf32>
// CHECK-NEXT:    %[[X:.+]] = call @made(%[[A]], %[[M]]) : (memref<4xf32>, memref<4xf32>) -> f32
// CHECK-NEXT:    memref.store %[[X]], %[[M]]
func.func @calls_made(%a: memref<4xf32> {ddp.inout}, %i: index) {
  %m, %x = call @made(%a) : (memref<4xf32>) -> (memref<4xf32>, f32)
  memref.store %x, %m[%i] : memref<4xf32>
  return
}

// One buffer twice: two buffers for the caller, who may write to both. A part
// of it is a copy as well.
// CHECK-LABEL: func.func private @twice(
// CHECK-SAME:      %[[O0:[a-z0-9]+]]: memref<4xf32>, %[[O1:[a-z0-9]+]]: memref<4xf32>, %[[O2:[a-z0-9]+]]: memref<2x2xf32>) {
// CHECK:         linalg.fill {{.+}} outs(%[[O0]] : memref<4xf32>)
// CHECK:         %[[E:.+]] = memref.expand_shape %[[O0]]
// CHECK-DAG:     memref.copy %[[O0]], %[[O1]]
// CHECK-DAG:     memref.copy %[[E]], %[[O2]]
// CHECK:         return{{$}}
func.func private @twice() -> (memref<4xf32>, memref<4xf32>, memref<2x2xf32>) {
  %x = arith.constant 1.0 : f32
  %m = memref.alloc() : memref<4xf32>
  linalg.fill ins(%x : f32) outs(%m : memref<4xf32>)
  %e = memref.expand_shape %m [[0, 1]] output_shape [2, 2]
      : memref<4xf32> into memref<2x2xf32>
  return %m, %m, %e : memref<4xf32>, memref<4xf32>, memref<2x2xf32>
}

// The caller's own memory comes back as it is, whatever its layout.
// CHECK-LABEL: func.func private @passed(
// CHECK-SAME:      -> (memref<4xf32>, memref<2xf32, strided<[1], offset: 2>>, memref<4xf32>) {
// CHECK-NOT:     memref.copy
// CHECK:         return
func.func private @passed(%a: memref<4xf32>, %b: memref<4xf32>, %c: i1)
    -> (memref<4xf32>, memref<2xf32, strided<[1], offset: 2>>, memref<4xf32>) {
  %v = memref.subview %a[2] [2] [1]
      : memref<4xf32> to memref<2xf32, strided<[1], offset: 2>>
  %e = scf.if %c -> memref<4xf32> {
    scf.yield %a : memref<4xf32>
  } else {
    scf.yield %b : memref<4xf32>
  }
  return %a, %v, %e
      : memref<4xf32>, memref<2xf32, strided<[1], offset: 2>>, memref<4xf32>
}

// A constant is nobody's to write to, and of two buffers only the run knows.
memref.global "private" constant @one : memref<4xf32> = dense<1.0>
// CHECK-LABEL: func.func private @chosen(
// CHECK-SAME:      %[[O0:[a-z0-9]+]]: memref<4xf32>, %[[O1:[a-z0-9]+]]: memref<4xf32>) {
// CHECK-DAG:     memref.copy %{{.+}}, %[[O0]]
// CHECK-DAG:     memref.copy %{{.+}}, %[[O1]]
func.func private @chosen(%a: memref<4xf32>, %c: i1)
    -> (memref<4xf32>, memref<4xf32>) {
  %g = memref.get_global @one : memref<4xf32>
  %m = memref.alloc() : memref<4xf32>
  %e = scf.if %c -> memref<4xf32> {
    scf.yield %a : memref<4xf32>
  } else {
    scf.yield %m : memref<4xf32>
  }
  return %g, %e : memref<4xf32>, memref<4xf32>
}

// Every return fills the same memory.
// CHECK-LABEL: func.func private @returns(
// CHECK-SAME:      %[[OUT:[a-z0-9]+]]: memref<4xf32>) {
// CHECK-COUNT-2: memref.copy %{{.+}}, %[[OUT]]
// CHECK-NOT:     memref.copy
func.func private @returns(%c: i1) -> memref<4xf32> {
  %m = memref.alloc() : memref<4xf32>
  cf.cond_br %c, ^bb1, ^bb2
^bb1:
  %n = memref.alloc() : memref<4xf32>
  return %n : memref<4xf32>
^bb2:
  return %m : memref<4xf32>
}

// CHECK-LABEL: func.func @public() -> memref<4xf32>
func.func @public() -> memref<4xf32> {
  %m = memref.alloc() : memref<4xf32>
  return %m : memref<4xf32>
}

// -----

// expected-error @+1 {{expected result 0 to be a buffer of static shape and identity layout, but got 'memref<?xf32>'}}
func.func private @dynamic(%n: index) -> memref<?xf32> {
  %m = memref.alloc(%n) : memref<?xf32>
  return %m : memref<?xf32>
}
