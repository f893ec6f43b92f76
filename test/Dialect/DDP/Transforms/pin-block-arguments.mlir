// RUN: ddphook-opt %s --pass-pipeline="builtin.module(func.func(ddp-pin-block-arguments))" | FileCheck %s

// A loop of blocks: the value that is handed on is copied out of the memory in
// which the next iteration computes.
// CHECK-LABEL: func.func @loop(
// CHECK-SAME:    %[[X:[a-z0-9]+]]: tensor<4xf32>
// CHECK:         %[[B:.+]] = memref.alloc() : memref<4xf32>
// CHECK:         bufferization.materialize_in_destination %[[X]] in writable %[[B]]
// CHECK:         cf.br ^[[HEAD:bb[0-9]+]](%{{.+}} : index)
// CHECK:       ^[[HEAD]](%{{.+}}: index):
// CHECK:         %[[T:.+]] = bufferization.to_tensor %[[B]] restrict : memref<4xf32> to tensor<4xf32>
// CHECK:         %[[S:.+]] = linalg.exp ins(%[[T]]
// CHECK-NOT:     alloc_tensor
// CHECK:         bufferization.materialize_in_destination %[[S]] in writable %[[B]]
// CHECK:         cf.br ^[[HEAD]](
// CHECK:         return %[[T]]
func.func @loop(%x: tensor<4xf32>, %n: index) -> tensor<4xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  cf.br ^head(%c0, %x : index, tensor<4xf32>)
^head(%i: index, %t: tensor<4xf32>):
  %more = arith.cmpi slt, %i, %n : index
  cf.cond_br %more, ^body, ^exit
^body:
  %e = tensor.empty() : tensor<4xf32>
  %s = linalg.exp ins(%t : tensor<4xf32>) outs(%e : tensor<4xf32>) -> tensor<4xf32>
  %next = arith.addi %i, %c1 : index
  cf.br ^head(%next, %s : index, tensor<4xf32>)
^exit:
  return %t : tensor<4xf32>
}

// Two that change places are saved first; a branch with two ways gets a block for
// the one that copies.
// CHECK-LABEL: func.func @swap(
// CHECK:         %[[B0:.+]] = memref.alloc() : memref<4xf32>
// CHECK:         %[[B1:.+]] = memref.alloc() : memref<4xf32>
// CHECK:       ^[[HEAD:bb[0-9]+]]:
// CHECK:         %[[Y:.+]] = bufferization.to_tensor %[[B0]]
// CHECK:         %[[Z:.+]] = bufferization.to_tensor %[[B1]]
// CHECK:         cf.cond_br %{{.+}}, ^[[BETWEEN:bb[0-9]+]], ^[[EXIT:bb[0-9]+]]
// CHECK-DAG:     %[[SY:.+]] = bufferization.alloc_tensor() copy(%[[Y]])
// CHECK-DAG:     %[[SZ:.+]] = bufferization.alloc_tensor() copy(%[[Z]])
// CHECK:         bufferization.materialize_in_destination %[[SZ]] in writable %[[B0]]
// CHECK:         bufferization.materialize_in_destination %[[SY]] in writable %[[B1]]
// CHECK:         cf.br ^[[HEAD]]
// CHECK:       ^[[EXIT]]:
// CHECK:         return %[[Y]], %[[Z]]
func.func @swap(%a: tensor<4xf32>, %b: tensor<4xf32>, %c: i1)
    -> (tensor<4xf32>, tensor<4xf32>) {
  cf.br ^head(%a, %b : tensor<4xf32>, tensor<4xf32>)
^head(%y: tensor<4xf32>, %z: tensor<4xf32>):
  cf.cond_br %c, ^head(%z, %y : tensor<4xf32>, tensor<4xf32>), ^exit
^exit:
  return %y, %z : tensor<4xf32>, tensor<4xf32>
}

// Several ways from one branch into one block.
// CHECK-LABEL: func.func @both_ways(
// CHECK-SAME:    %[[A:[a-z0-9]+]]: tensor<4xf32>, %[[B:[a-z0-9]+]]: tensor<4xf32>
// CHECK:         %[[M:.+]] = memref.alloc() : memref<4xf32>
// CHECK:         cf.cond_br %{{.+}}, ^[[FIRST:.+]], ^[[SECOND:.+]]
// CHECK-DAG:     bufferization.materialize_in_destination %[[A]] in writable %[[M]]
// CHECK-DAG:     bufferization.materialize_in_destination %[[B]] in writable %[[M]]
func.func @both_ways(%a: tensor<4xf32>, %b: tensor<4xf32>, %c: i1)
    -> tensor<4xf32> {
  cf.cond_br %c, ^join(%a : tensor<4xf32>), ^join(%b : tensor<4xf32>)
^join(%y: tensor<4xf32>):
  return %y : tensor<4xf32>
}

// What another block than the first may write is a copy where it may be an
// argument of the function: of what is read behind it One-Shot Bufferize would
// know nothing.
// CHECK-LABEL: func.func @arguments(
// CHECK-SAME:    %[[A:[a-z0-9]+]]: tensor<4xf32>, %[[B:[a-z0-9]+]]: tensor<4xf32>
// CHECK:         linalg.exp ins(%[[A]] : tensor<4xf32>) outs(%[[B]]
// CHECK:         %[[X:.+]] = scf.if
// CHECK:         %[[CB:.+]] = bufferization.alloc_tensor() copy(%[[B]])
// CHECK-NEXT:    linalg.exp ins(%[[A]] : tensor<4xf32>) outs(%[[CB]]
// CHECK:         %[[CX:.+]] = bufferization.alloc_tensor() copy(%[[X]])
// CHECK-NEXT:    linalg.exp ins(%[[A]] : tensor<4xf32>) outs(%[[CX]]
// CHECK-NOT:     alloc_tensor
// CHECK:         return
func.func @arguments(%a: tensor<4xf32>, %b: tensor<4xf32>, %c: i1)
    -> (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) {
  %p = linalg.exp ins(%a : tensor<4xf32>) outs(%b : tensor<4xf32>) -> tensor<4xf32>
  %x = scf.if %c -> tensor<4xf32> {
    scf.yield %a : tensor<4xf32>
  } else {
    scf.yield %p : tensor<4xf32>
  }
  %e = tensor.empty() : tensor<4xf32>
  cf.br ^next
^next:
  %q = linalg.exp ins(%a : tensor<4xf32>) outs(%b : tensor<4xf32>) -> tensor<4xf32>
  %r = linalg.exp ins(%a : tensor<4xf32>) outs(%x : tensor<4xf32>) -> tensor<4xf32>
  %s = linalg.exp ins(%a : tensor<4xf32>) outs(%e : tensor<4xf32>) -> tensor<4xf32>
  %t = linalg.exp ins(%q : tensor<4xf32>) outs(%q : tensor<4xf32>) -> tensor<4xf32>
  return %p, %r, %s, %t : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
}
