// RUN: ddphook-opt %s --canonicalize | FileCheck %s
// RUN: ddphook-opt %s --cse | FileCheck %s --check-prefix=CSE

ddp.state @s : !ddp.bucket<f32, [4]> per_rank zero
ddp.state @n : i64 replicated zero
ddp.state @g : tensor<625xi32> replicated mt19937 seed 0

//===----------------------------------------------------------------------===//
// extract and concat in any order
//===----------------------------------------------------------------------===//

// An extract of an extract reads the outer bucket.
// CHECK-LABEL: func @extract_of_extract(
// CHECK-SAME:    %[[B:.+]]: !ddp.bucket<f32, [1, 2, 3, 4]>
// CHECK-NEXT:  %[[X:.+]] = ddp.extract %[[B]] [3, 1] : !ddp.bucket<f32, [1, 2, 3, 4]>
// CHECK-NEXT:  return %[[X]]
func.func @extract_of_extract(%b: !ddp.bucket<f32, [1, 2, 3, 4]>)
    -> !ddp.bucket<f32, [4, 2]> {
  %0 = ddp.extract %b [1, 0, 3] : !ddp.bucket<f32, [1, 2, 3, 4]>
  %1 = ddp.extract %0 [2, 0] : !ddp.bucket<f32, [2, 1, 4]>
  return %1 : !ddp.bucket<f32, [4, 2]>
}

// All members in another order are another bucket, also where the type is the
// same.
// CHECK-LABEL: func @extract_swapped(
// CHECK-SAME:    %[[B:.+]]: !ddp.bucket<f32, [4, 4]>
// CHECK-NEXT:  %[[X:.+]] = ddp.extract %[[B]] [1, 0]
// CHECK-NEXT:  return %[[X]]
func.func @extract_swapped(%b: !ddp.bucket<f32, [4, 4]>)
    -> !ddp.bucket<f32, [4, 4]> {
  %0 = ddp.extract %b [1, 0] : !ddp.bucket<f32, [4, 4]>
  return %0 : !ddp.bucket<f32, [4, 4]>
}

// Twice swapped is what it was.
// CHECK-LABEL: func @extract_swapped_twice(
// CHECK-SAME:    %[[B:.+]]: !ddp.bucket<f32, [4, 4]>
// CHECK-NEXT:  return %[[B]]
func.func @extract_swapped_twice(%b: !ddp.bucket<f32, [4, 4]>)
    -> !ddp.bucket<f32, [4, 4]> {
  %0 = ddp.extract %b [1, 0] : !ddp.bucket<f32, [4, 4]>
  %1 = ddp.extract %0 [1, 0] : !ddp.bucket<f32, [4, 4]>
  return %1 : !ddp.bucket<f32, [4, 4]>
}

// A part of a concat, but not of one with an order, nor its members in another.
// CHECK-LABEL: func @extract_of_concat(
// CHECK-SAME:    %[[A:[a-z0-9]+]]: !ddp.bucket<f32, [4, 4]>, %[[B:[a-z0-9]+]]: !ddp.bucket<f32, [4]>
// CHECK:       %[[SWAPPED:.+]] = ddp.extract %{{.+}} [1, 0]
// CHECK:       %[[ORDERED:.+]] = ddp.extract %{{.+}} [0, 1]
// CHECK-NEXT:  return %[[A]], %[[SWAPPED]], %[[ORDERED]]
func.func @extract_of_concat(%a: !ddp.bucket<f32, [4, 4]>,
                             %b: !ddp.bucket<f32, [4]>)
    -> (!ddp.bucket<f32, [4, 4]>, !ddp.bucket<f32, [4, 4]>,
        !ddp.bucket<f32, [4, 4]>) {
  %0 = ddp.concat %a, %b : !ddp.bucket<f32, [4, 4]>, !ddp.bucket<f32, [4]>
      -> !ddp.bucket<f32, [4, 4, 4]>
  %1 = ddp.extract %0 [0, 1] : !ddp.bucket<f32, [4, 4, 4]>
  %2 = ddp.extract %0 [1, 0] : !ddp.bucket<f32, [4, 4, 4]>
  %3 = ddp.concat %a, %b order [1, 2, 0]
      : !ddp.bucket<f32, [4, 4]>, !ddp.bucket<f32, [4]>
      -> !ddp.bucket<f32, [4, 4, 4]>
  %4 = ddp.extract %3 [0, 1] : !ddp.bucket<f32, [4, 4, 4]>
  return %1, %2, %4 : !ddp.bucket<f32, [4, 4]>, !ddp.bucket<f32, [4, 4]>,
      !ddp.bucket<f32, [4, 4]>
}

// Extracts that are put together again; in another order they are not.
// CHECK-LABEL: func @concat_of_extracts(
// CHECK-SAME:    %[[B:.+]]: !ddp.bucket<f32, [4, 4, 4]>
// CHECK:       %[[C:.+]] = ddp.concat
// CHECK:       return %[[B]], %[[C]]
func.func @concat_of_extracts(%b: !ddp.bucket<f32, [4, 4, 4]>)
    -> (!ddp.bucket<f32, [4, 4, 4]>, !ddp.bucket<f32, [4, 4, 4]>) {
  %0 = ddp.extract %b [0, 1] : !ddp.bucket<f32, [4, 4, 4]>
  %1 = ddp.extract %b [2] : !ddp.bucket<f32, [4, 4, 4]>
  %2 = ddp.concat %0, %1 : !ddp.bucket<f32, [4, 4]>, !ddp.bucket<f32, [4]>
      -> !ddp.bucket<f32, [4, 4, 4]>
  %3 = ddp.extract %b [1, 0] : !ddp.bucket<f32, [4, 4, 4]>
  %4 = ddp.concat %3, %1 : !ddp.bucket<f32, [4, 4]>, !ddp.bucket<f32, [4]>
      -> !ddp.bucket<f32, [4, 4, 4]>
  return %2, %4 : !ddp.bucket<f32, [4, 4, 4]>, !ddp.bucket<f32, [4, 4, 4]>
}

//===----------------------------------------------------------------------===//
// resize
//===----------------------------------------------------------------------===//

// CHECK-LABEL: func @resize(
// CHECK-SAME:    %[[B:.+]]: !ddp.bucket<f32, [2x2]>
// CHECK-NEXT:  %[[R:.+]] = ddp.resize %[[B]] : !ddp.bucket<f32, [2x2]> -> !ddp.bucket<f32, [4]>
// CHECK-NEXT:  return %[[B]], %[[R]]
func.func @resize(%b: !ddp.bucket<f32, [2x2]>)
    -> (!ddp.bucket<f32, [2x2]>, !ddp.bucket<f32, [4]>) {
  %0 = ddp.resize %b : !ddp.bucket<f32, [2x2]> -> !ddp.bucket<f32, [2x2]>
  %1 = ddp.resize %b : !ddp.bucket<f32, [2x2]> -> !ddp.bucket<f32, [4]>
  return %0, %1 : !ddp.bucket<f32, [2x2]>, !ddp.bucket<f32, [4]>
}

//===----------------------------------------------------------------------===//
// Effects
//===----------------------------------------------------------------------===//

// What is computed or loaded for nobody goes; what is stored, drawn or reduced
// stays.
// CHECK-LABEL: func @effects(
// CHECK-SAME:    %[[T:.+]]: tensor<4xf32>
// CHECK-NEXT:  ddp.store %[[T]], @s
// CHECK-NEXT:  ddp.random_normal from @g draws [4]
// CHECK-NEXT:  return
func.func @effects(%t: tensor<4xf32>) {
  %0 = ddp.load @s : tensor<4xf32>
  %1 = ddp.add %0, %t : tensor<4xf32>, tensor<4xf32>
  %2 = ddp.flat.orthogonalize %1 epsilon 0.0
      layout <0 to 0, [0, 0, 0, 0, 4, 1], []> into %t : tensor<4xf32>, tensor<4xf32>
  ddp.store %t, @s : tensor<4xf32>
  %3 = ddp.random_normal from @g draws [4] : () -> tensor<4xf32>
  return
}

// Loads on two sides of a store are not the same, draws never are; sums are, and
// loads without a store in between.
// CSE-LABEL: func @equal(
// CSE:         %[[A:.+]] = ddp.load @n
// CSE-NEXT:    ddp.store
// CSE-NEXT:    %[[B:.+]] = ddp.load @n
// CSE-NEXT:    %[[Q:.+]] = ddp.random_normal
// CSE-NEXT:    %[[R:.+]] = ddp.random_normal
// CSE-NEXT:    %[[S:.+]] = ddp.add %[[Q]], %[[R]]
// CSE-NEXT:    return %[[A]], %[[A]], %[[B]], %[[S]], %[[S]]
func.func @equal(%k: i64)
    -> (i64, i64, i64, tensor<4xf32>, tensor<4xf32>) {
  %0 = ddp.load @n : i64
  %1 = ddp.load @n : i64
  ddp.store %k, @n : i64
  %2 = ddp.load @n : i64
  %3 = ddp.random_normal from @g draws [4] : () -> tensor<4xf32>
  %4 = ddp.random_normal from @g draws [4] : () -> tensor<4xf32>
  %5 = ddp.add %3, %4 : tensor<4xf32>, tensor<4xf32>
  %6 = ddp.add %3, %4 : tensor<4xf32>, tensor<4xf32>
  return %0, %1, %2, %5, %6 : i64, i64, i64, tensor<4xf32>, tensor<4xf32>
}
