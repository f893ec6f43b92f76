// RUN: ddphook-opt %s -split-input-file -verify-diagnostics --ddp-convert-stablehlo-scatter | FileCheck %s

// Rows of a table; each index is a number.
// CHECK-LABEL: func.func @rows(
// CHECK-SAME: %[[TABLE:.+]]: tensor<8x3xf32>, %[[INDICES:.+]]: tensor<2x4xi32>, %[[UPDATES:.+]]: tensor<2x4x3xf32>)
func.func @rows(%table: tensor<8x3xf32>, %indices: tensor<2x4xi32>, %updates: tensor<2x4x3xf32>) -> tensor<8x3xf32> {
  // CHECK: %[[ALL:.+]] = scf.for %[[I:.+]] = %c0{{.*}} to %c2{{.*}} iter_args(%[[T0:.+]] = %[[TABLE]])
  // CHECK: %[[J_LOOP:.+]] = scf.for %[[J:.+]] = %c0{{.*}} to %c4{{.*}} iter_args(%[[T1:.+]] = %[[T0]])
  // CHECK: %[[E:.+]] = tensor.extract %[[INDICES]][%[[I]], %[[J]]]
  // CHECK: %[[ROW:.+]] = arith.index_cast %[[E]] : i32 to index
  // CHECK: %[[LAST:.+]] = arith.constant 7 : index
  // CHECK: %[[INSIDE:.+]] = arith.cmpi ule, %[[ROW]], %[[LAST]]
  // CHECK: %[[IF:.+]] = scf.if %[[INSIDE]]
  // CHECK: scf.for %[[K:.+]] = %c0{{.*}} to %c3{{.*}} iter_args(%[[T2:.+]] = %[[T1]])
  // CHECK: %[[U:.+]] = tensor.extract %[[UPDATES]][%[[I]], %[[J]], %[[K]]]
  // CHECK: %[[O:.+]] = tensor.extract %[[T2]][%[[ROW]], %[[K]]]
  // CHECK: %[[S:.+]] = arith.addf %[[O]], %[[U]]
  // CHECK: %[[N:.+]] = tensor.insert %[[S]] into %[[T2]][%[[ROW]], %[[K]]]
  // CHECK: scf.yield %[[N]]
  // CHECK: } else {
  // CHECK-NEXT: scf.yield %[[T1]]
  // CHECK: return %[[ALL]]
  %0 = "stablehlo.scatter"(%table, %indices, %updates) <{
      scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [2],
          inserted_window_dims = [0], scatter_dims_to_operand_dims = [0],
          index_vector_dim = 2>}> ({
  ^bb0(%old: tensor<f32>, %update: tensor<f32>):
    %sum = "stablehlo.add"(%old, %update) : (tensor<f32>, tensor<f32>) -> tensor<f32>
    "stablehlo.return"(%sum) : (tensor<f32>) -> ()
  }) : (tensor<8x3xf32>, tensor<2x4xi32>, tensor<2x4x3xf32>) -> tensor<8x3xf32>
  return %0 : tensor<8x3xf32>
}

// Operand and indices have the same batches, as in take_along_axis.
// CHECK-LABEL: func.func @along_axis(
// CHECK-SAME: %[[SCORES:.+]]: tensor<4x10xi32>, %[[LABELS:.+]]: tensor<4x1x1xi64>, %[[UPDATES:.+]]: tensor<4x1xi32>)
func.func @along_axis(%scores: tensor<4x10xi32>, %labels: tensor<4x1x1xi64>, %updates: tensor<4x1xi32>) -> tensor<4x10xi32> {
  // CHECK: scf.for %[[I:.+]] = %c0{{.*}} to %c4
  // CHECK: scf.for %[[J:.+]] = %c0{{.*}} to %c1
  // CHECK: %[[ZERO:.+]] = arith.constant 0 : index
  // CHECK: %[[E:.+]] = tensor.extract %[[LABELS]][%[[I]], %[[J]], %[[ZERO]]]
  // CHECK: %[[LABEL:.+]] = arith.index_cast %[[E]] : i64 to index
  // CHECK: arith.cmpi ule, %[[LABEL]], %c9
  // CHECK: %[[U:.+]] = tensor.extract %[[UPDATES]][%[[I]], %[[J]]]
  // CHECK: tensor.insert %[[U]] into %{{.+}}[%[[I]], %[[LABEL]]]
  %0 = "stablehlo.scatter"(%scores, %labels, %updates) <{
      scatter_dimension_numbers = #stablehlo.scatter<inserted_window_dims = [1],
          input_batching_dims = [0], scatter_indices_batching_dims = [0],
          scatter_dims_to_operand_dims = [1], index_vector_dim = 2>}> ({
  ^bb0(%old: tensor<i32>, %update: tensor<i32>):
    "stablehlo.return"(%update) : (tensor<i32>) -> ()
  }) : (tensor<4x10xi32>, tensor<4x1x1xi64>, tensor<4x1xi32>) -> tensor<4x10xi32>
  return %0 : tensor<4x10xi32>
}

// A window that moves: it may begin where it still fits.
// CHECK-LABEL: func.func @window(
func.func @window(%a: tensor<9xf32>, %start: tensor<1xi32>, %updates: tensor<4xf32>) -> tensor<9xf32> {
  // CHECK-NOT: scf.for
  // CHECK: %[[START:.+]] = arith.index_cast
  // CHECK: arith.cmpi ule, %[[START]], %c5
  // CHECK: scf.if
  // CHECK: scf.for %[[I:.+]] = %c0{{.*}} to %c4
  // CHECK: arith.addi %[[START]], %[[I]] : index
  // CHECK: arith.maximumf
  %0 = "stablehlo.scatter"(%a, %start, %updates) <{
      scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [0],
          scatter_dims_to_operand_dims = [0]>}> ({
  ^bb0(%old: tensor<f32>, %update: tensor<f32>):
    %max = "stablehlo.maximum"(%update, %old) : (tensor<f32>, tensor<f32>) -> tensor<f32>
    "stablehlo.return"(%max) : (tensor<f32>) -> ()
  }) : (tensor<9xf32>, tensor<1xi32>, tensor<4xf32>) -> tensor<9xf32>
  return %0 : tensor<9xf32>
}

// Unsigned indices are read as what they are.
// CHECK-LABEL: func.func @unsigned_indices(
// CHECK-SAME: %{{.+}}: tensor<9xf32>, %[[START:.+]]: tensor<1xui8>,
func.func @unsigned_indices(%a: tensor<9xf32>, %start: tensor<1xui8>, %updates: tensor<4xf32>) -> tensor<9xf32> {
  // CHECK: %[[SIGNED:.+]] = "stablehlo.convert"(%[[START]]) : (tensor<1xui8>) -> tensor<1xi64>
  // CHECK: %[[E:.+]] = tensor.extract %[[SIGNED]]
  // CHECK: arith.index_cast %[[E]] : i64 to index
  %0 = "stablehlo.scatter"(%a, %start, %updates) <{
      scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [0],
          scatter_dims_to_operand_dims = [0]>}> ({
  ^bb0(%old: tensor<f32>, %update: tensor<f32>):
    "stablehlo.return"(%update) : (tensor<f32>) -> ()
  }) : (tensor<9xf32>, tensor<1xui8>, tensor<4xf32>) -> tensor<9xf32>
  return %0 : tensor<9xf32>
}

// No row of an empty table is inside of it.
// CHECK-LABEL: func.func @empty_table(
// CHECK-SAME: %[[TABLE:.+]]: tensor<0x3xf32>
func.func @empty_table(%table: tensor<0x3xf32>, %rows: tensor<4xi32>, %updates: tensor<4x3xf32>) -> tensor<0x3xf32> {
  // CHECK-NEXT: return %[[TABLE]]
  %0 = "stablehlo.scatter"(%table, %rows, %updates) <{
      scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [1],
          inserted_window_dims = [0], scatter_dims_to_operand_dims = [0],
          index_vector_dim = 1>}> ({
  ^bb0(%old: tensor<f32>, %update: tensor<f32>):
    "stablehlo.return"(%update) : (tensor<f32>) -> ()
  }) : (tensor<0x3xf32>, tensor<4xi32>, tensor<4x3xf32>) -> tensor<0x3xf32>
  return %0 : tensor<0x3xf32>
}

// -----

func.func @of_a_rank_that_is_none(%a: tensor<9xf32>, %start: tensor<1xi32>, %updates: tensor<4xf32>) -> tensor<9xf32> {
  // expected-error @below {{'stablehlo.scatter' op expected a statically shaped tensor, indices and updates, and dimension numbers that fit them}}
  %0 = "stablehlo.scatter"(%a, %start, %updates) <{
      scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [3],
          scatter_dims_to_operand_dims = [0]>}> ({
  ^bb0(%old: tensor<f32>, %update: tensor<f32>):
    "stablehlo.return"(%update) : (tensor<f32>) -> ()
  }) : (tensor<9xf32>, tensor<1xi32>, tensor<4xf32>) -> tensor<9xf32>
  return %0 : tensor<9xf32>
}

// -----

func.func @several(%a: tensor<9xf32>, %start: tensor<1xi32>, %updates: tensor<4xf32>) -> tensor<9xf32> {
  // expected-error @below {{'stablehlo.scatter' op expected one tensor, indices and updates, but got 5 operands}}
  %0:2 = "stablehlo.scatter"(%a, %a, %start, %updates, %updates) <{
      scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [0],
          scatter_dims_to_operand_dims = [0]>}> ({
  ^bb0(%o: tensor<f32>, %p: tensor<f32>, %u: tensor<f32>, %v: tensor<f32>):
    "stablehlo.return"(%u, %v) : (tensor<f32>, tensor<f32>) -> ()
  }) : (tensor<9xf32>, tensor<9xf32>, tensor<1xi32>, tensor<4xf32>, tensor<4xf32>) -> (tensor<9xf32>, tensor<9xf32>)
  return %0#0 : tensor<9xf32>
}

// -----

func.func @unsigned_elements(%a: tensor<9xui32>, %start: tensor<1xi32>, %updates: tensor<4xui32>) -> tensor<9xui32> {
  // expected-error @below {{'stablehlo.scatter' op expected floating-point numbers or signless integers, and integers as indices, but got 'ui32' and 'i32'}}
  %0 = "stablehlo.scatter"(%a, %start, %updates) <{
      scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [0],
          scatter_dims_to_operand_dims = [0]>}> ({
  ^bb0(%old: tensor<ui32>, %update: tensor<ui32>):
    "stablehlo.return"(%update) : (tensor<ui32>) -> ()
  }) : (tensor<9xui32>, tensor<1xi32>, tensor<4xui32>) -> tensor<9xui32>
  return %0 : tensor<9xui32>
}

// -----

func.func @other_region(%a: tensor<9xf32>, %start: tensor<1xi32>, %updates: tensor<4xf32>) -> tensor<9xf32> {
  // expected-error @below {{'stablehlo.scatter' op expected its region to give the update, or to combine both numbers by 'stablehlo.add', 'maximum', 'minimum' or 'multiply'}}
  %0 = "stablehlo.scatter"(%a, %start, %updates) <{
      scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [0],
          scatter_dims_to_operand_dims = [0]>}> ({
  ^bb0(%old: tensor<f32>, %update: tensor<f32>):
    %0 = "stablehlo.divide"(%old, %update) : (tensor<f32>, tensor<f32>) -> tensor<f32>
    "stablehlo.return"(%0) : (tensor<f32>) -> ()
  }) : (tensor<9xf32>, tensor<1xi32>, tensor<4xf32>) -> tensor<9xf32>
  return %0 : tensor<9xf32>
}
