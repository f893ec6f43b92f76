// RUN: ddphook-opt %s --pass-pipeline="builtin.module(func.func(ddp-yield-in-place))" | FileCheck %s

// What an iteration yields goes to where it found the last values; where it is
// there already the copy folds away later. Numbers are no memory.
// CHECK-LABEL: func.func @one_place(
// CHECK:         scf.for {{.+}} iter_args(%[[A:.+]] = %{{.+}}, %[[B:.+]] = %{{.+}}, %[[M:.+]] = %{{.+}}) ->
// CHECK:           %[[S:.+]] = linalg.exp ins(%[[A]]
// CHECK:           %[[T:.+]] = linalg.exp ins(%[[B]]
// CHECK-NOT:       alloc_tensor
// CHECK:           %[[V:.+]] = bufferization.materialize_in_destination %[[S]] in %[[A]]
// CHECK:           %[[W:.+]] = bufferization.materialize_in_destination %[[T]] in %[[B]]
// CHECK:           scf.yield %[[V]], %[[W]], %[[M]]
func.func @one_place(%x: tensor<4xf32>, %y: tensor<4xf32>, %n: i32)
    -> (tensor<4xf32>, tensor<4xf32>, i32) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c3 = arith.constant 3 : index
  %r:3 = scf.for %i = %c0 to %c3 step %c1 iter_args(%a = %x, %b = %y, %m = %n)
      -> (tensor<4xf32>, tensor<4xf32>, i32) {
    %e = tensor.empty() : tensor<4xf32>
    %s = linalg.exp ins(%a : tensor<4xf32>) outs(%a : tensor<4xf32>) -> tensor<4xf32>
    %t = linalg.exp ins(%b : tensor<4xf32>) outs(%e : tensor<4xf32>) -> tensor<4xf32>
    scf.yield %s, %t, %m : tensor<4xf32>, tensor<4xf32>, i32
  }
  return %r#0, %r#1, %r#2 : tensor<4xf32>, tensor<4xf32>, i32
}

// Two that change places wait in copies, made before any is overwritten.
// CHECK-LABEL: func.func @swapped(
// CHECK:         scf.for {{.+}} iter_args(%[[A:.+]] = %{{.+}}, %[[B:.+]] = %{{.+}}) ->
// CHECK-DAG:       %[[X:.+]] = bufferization.alloc_tensor() copy(%[[A]])
// CHECK-DAG:       %[[Y:.+]] = bufferization.alloc_tensor() copy(%[[B]])
// CHECK:           %[[V:.+]] = bufferization.materialize_in_destination %[[Y]] in %[[A]]
// CHECK:           %[[W:.+]] = bufferization.materialize_in_destination %[[X]] in %[[B]]
// CHECK:           scf.yield %[[V]], %[[W]]
func.func @swapped(%x: tensor<4xf32>, %y: tensor<4xf32>)
    -> (tensor<4xf32>, tensor<4xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c3 = arith.constant 3 : index
  %r:2 = scf.for %i = %c0 to %c3 step %c1 iter_args(%a = %x, %b = %y)
      -> (tensor<4xf32>, tensor<4xf32>) {
    scf.yield %b, %a : tensor<4xf32>, tensor<4xf32>
  }
  return %r#0, %r#1 : tensor<4xf32>, tensor<4xf32>
}

// The last value goes on as another one, by way of two shapes.
// CHECK-LABEL: func.func @history(
// CHECK:         scf.for {{.+}} iter_args(%[[A:.+]] = %{{.+}}, %[[B:.+]] = %{{.+}}) ->
// CHECK:           %[[G:.+]] = tensor.collapse_shape
// CHECK:           %[[S:.+]] = linalg.exp
// CHECK:           %[[X:.+]] = bufferization.alloc_tensor() copy(%[[G]])
// CHECK:           bufferization.materialize_in_destination %[[S]] in %[[A]]
// CHECK:           bufferization.materialize_in_destination %[[X]] in %[[B]]
func.func @history(%x: tensor<4xf32>, %y: tensor<4xf32>)
    -> (tensor<4xf32>, tensor<4xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c3 = arith.constant 3 : index
  %r:2 = scf.for %i = %c0 to %c3 step %c1 iter_args(%a = %x, %b = %y)
      -> (tensor<4xf32>, tensor<4xf32>) {
    %f = tensor.expand_shape %a [[0, 1]] output_shape [2, 2] : tensor<4xf32> into tensor<2x2xf32>
    %g = tensor.collapse_shape %f [[0, 1]] : tensor<2x2xf32> into tensor<4xf32>
    %s = linalg.exp ins(%b : tensor<4xf32>) outs(%a : tensor<4xf32>) -> tensor<4xf32>
    scf.yield %s, %g : tensor<4xf32>, tensor<4xf32>
  }
  return %r#0, %r#1 : tensor<4xf32>, tensor<4xf32>
}

// CHECK-LABEL: func.func @tested_first(
// CHECK:         scf.while (%[[A:.+]] = %{{.+}}) :
// CHECK:           %[[V:.+]] = bufferization.materialize_in_destination %[[A]] in %[[A]]
// CHECK:           scf.condition({{.+}}) %[[V]]
// CHECK:         ^bb0(%[[B:.+]]: tensor<4xf32>):
// CHECK:           %[[S:.+]] = linalg.exp
// CHECK:           %[[W:.+]] = bufferization.materialize_in_destination %[[S]] in %[[B]]
// CHECK:           scf.yield %[[W]]
func.func @tested_first(%x: tensor<4xf32>, %c: i1) -> tensor<4xf32> {
  %r = scf.while (%a = %x) : (tensor<4xf32>) -> tensor<4xf32> {
    scf.condition(%c) %a : tensor<4xf32>
  } do {
  ^bb0(%a: tensor<4xf32>):
    %s = linalg.exp ins(%a : tensor<4xf32>) outs(%a : tensor<4xf32>) -> tensor<4xf32>
    scf.yield %s : tensor<4xf32>
  }
  return %r : tensor<4xf32>
}

// Regions that hand each other different tensors: both get a place for each.
// CHECK-LABEL: func.func @other_tensors(
// CHECK:         %[[E:.+]] = tensor.empty() : tensor<2x2xf32>
// CHECK:         %[[R:.+]]:4 = scf.while (%[[A:.+]] = %{{.+}}, %[[M:.+]] = %{{.+}}, %[[F:.+]] = %[[E]]) :
// CHECK:           %[[X:.+]] = tensor.expand_shape %[[A]]
// CHECK:           %[[C:.+]] = bufferization.alloc_tensor() copy(%[[X]])
// CHECK:           %[[V:.+]] = bufferization.materialize_in_destination %[[A]] in %[[A]]
// CHECK:           %[[W:.+]] = bufferization.materialize_in_destination %[[C]] in %[[F]]
// CHECK:           scf.condition({{.+}}) %[[V]], %[[M]], %[[W]], %[[M]]
// CHECK:         ^bb0(%[[P:.+]]: tensor<4xf32>, %{{.+}}: i32, %[[Q:.+]]: tensor<2x2xf32>, %[[N:.+]]: i32):
// CHECK:           %[[G:.+]] = tensor.collapse_shape %[[Q]]
// CHECK:           %[[D:.+]] = bufferization.alloc_tensor() copy(%[[G]])
// CHECK:           %[[Y:.+]] = bufferization.materialize_in_destination %[[D]] in %[[P]]
// CHECK:           %[[Z:.+]] = bufferization.materialize_in_destination %[[Q]] in %[[Q]]
// CHECK:           scf.yield %[[Y]], %[[N]], %[[Z]]
// CHECK:         return %[[R]]#3, %[[R]]#2
func.func @other_tensors(%x: tensor<4xf32>, %n: i32, %c: i1) -> (i32, tensor<2x2xf32>) {
  %r:2 = scf.while (%a = %x, %m = %n) : (tensor<4xf32>, i32) -> (i32, tensor<2x2xf32>) {
    %f = tensor.expand_shape %a [[0, 1]] output_shape [2, 2] : tensor<4xf32> into tensor<2x2xf32>
    scf.condition(%c) %m, %f : i32, tensor<2x2xf32>
  } do {
  ^bb0(%m: i32, %f: tensor<2x2xf32>):
    %g = tensor.collapse_shape %f [[0, 1]] : tensor<2x2xf32> into tensor<4xf32>
    scf.yield %g, %m : tensor<4xf32>, i32
  }
  return %r#0, %r#1 : i32, tensor<2x2xf32>
}
