// RUN: ddphook-opt %s --ddp-fold-copies | FileCheck %s

// CHECK-LABEL: func @same(
// CHECK-NEXT:    return
func.func @same(%m: memref<8xf32>) {
  memref.copy %m, %m : memref<8xf32> to memref<8xf32>
  return
}

// Two views of the same place, whether or not they are one value; they go too.
// CHECK-LABEL: func @same_view(
// CHECK-NEXT:    return
func.func @same_view(%m: memref<8xf32>) {
  %a = ddp.view %m[4] : memref<8xf32> to memref<2x2xf32>
  %b = ddp.view %m[4] : memref<8xf32> to memref<2x2xf32>
  memref.copy %a, %b : memref<2x2xf32> to memref<2x2xf32>
  return
}

// A view that something else uses stays.
// CHECK-LABEL: func @used_view(
// CHECK-SAME:    %[[M:.+]]: memref<8xf32>
// CHECK-NEXT:    %[[V:.+]] = ddp.view %[[M]][4]
// CHECK-NEXT:    ddp.flat.scale %[[V]] by 2.0{{.+}} into %[[V]]
// CHECK-NEXT:    return
func.func @used_view(%m: memref<8xf32>) {
  %a = ddp.view %m[4] : memref<8xf32> to memref<4xf32>
  %b = ddp.view %m[4] : memref<8xf32> to memref<4xf32>
  memref.copy %a, %b : memref<4xf32> to memref<4xf32>
  ddp.flat.scale %a by 2.0 into %a : memref<4xf32>, memref<4xf32>
  return
}

// Another buffer, another place, another shape.
// CHECK-LABEL: func @different(
// CHECK-COUNT-4: memref.copy
// CHECK-NOT:     memref.copy
func.func @different(%m: memref<8xf32>, %n: memref<8xf32>) {
  memref.copy %m, %n : memref<8xf32> to memref<8xf32>
  %a = ddp.view %m[0] : memref<8xf32> to memref<4xf32>
  %b = ddp.view %m[4] : memref<8xf32> to memref<4xf32>
  %c = ddp.view %n[0] : memref<8xf32> to memref<4xf32>
  memref.copy %a, %b : memref<4xf32> to memref<4xf32>
  memref.copy %a, %c : memref<4xf32> to memref<4xf32>
  %s = memref.subview %m[0] [4] [2] : memref<8xf32> to memref<4xf32, strided<[2]>>
  memref.copy %s, %a : memref<4xf32, strided<[2]>> to memref<4xf32>
  return
}

// Inside of loops and functions of any kind.
// CHECK-LABEL: func @nested(
// CHECK-NOT:     memref.copy
// CHECK:         return
func.func @nested(%m: memref<8xf32>, %c: i1) {
  scf.if %c {
    memref.copy %m, %m : memref<8xf32> to memref<8xf32>
  }
  return
}
