// RUN: ddphook-opt %s -split-input-file -verify-diagnostics --ddp-convert-chlo-top-k | FileCheck %s

// CHECK-LABEL: func.func @choose(
// CHECK-SAME: %[[GATES:.+]]: tensor<16x4xf32>)
func.func @choose(%gates: tensor<16x4xf32>) -> (tensor<16x2xf32>, tensor<16x2xi32>) {
  // CHECK: %[[ALL:.+]]:3 = scf.for %[[ROW:.+]] = %c0{{.*}} to %c16
  // CHECK: scf.for %[[NUMBER:.+]] = %c0{{.*}} to %c2{{.*}} iter_args(%[[VALUES:.+]] = %{{.+}}, %[[PLACES:.+]] = %{{.+}}, %[[LAST:.+]] = %{{.+}})
  // CHECK: tensor.extract %[[GATES]][%[[ROW]], %[[LAST]]]
  // CHECK: arith.bitcast %{{.+}} : f32 to i32
  // CHECK: %[[BEST:.+]] = scf.for %[[COLUMN:.+]] = %c0{{.*}} to %c4
  // CHECK: tensor.extract %[[GATES]][%[[ROW]], %[[COLUMN]]]
  // CHECK: %[[VALUE:.+]] = tensor.extract %[[GATES]][%[[ROW]], %[[BEST]]]
  // CHECK: %[[PLACE:.+]] = arith.index_cast %[[BEST]] : index to i32
  // CHECK: tensor.insert %[[VALUE]] into %[[VALUES]][%[[ROW]], %[[NUMBER]]]
  // CHECK: tensor.insert %[[PLACE]] into %[[PLACES]][%[[ROW]], %[[NUMBER]]]
  // CHECK: return %[[ALL]]#0, %[[ALL]]#1
  %0:2 = "chlo.top_k"(%gates) <{k = 2 : i64}> : (tensor<16x4xf32>) -> (tensor<16x2xf32>, tensor<16x2xi32>)
  return %0#0, %0#1 : tensor<16x2xf32>, tensor<16x2xi32>
}

// -----

func.func @too_many(%gates: tensor<16x4xf32>) -> (tensor<16x5xf32>, tensor<16x5xi32>) {
  // expected-error @below {{'chlo.top_k' op expected a statically shaped tensor of floating-point numbers or signless integers, and a 'k' no larger than its rows}}
  %0:2 = "chlo.top_k"(%gates) <{k = 5 : i64}> : (tensor<16x4xf32>) -> (tensor<16x5xf32>, tensor<16x5xi32>)
  return %0#0, %0#1 : tensor<16x5xf32>, tensor<16x5xi32>
}

// -----

func.func @other_results(%gates: tensor<16x4xf32>) -> (tensor<16x3xf32>, tensor<16x3xi32>) {
  // expected-error @below {{'chlo.top_k' op expected results of the types 'tensor<16x2xf32>' and 'tensor<16x2xi32>'}}
  %0:2 = "chlo.top_k"(%gates) <{k = 2 : i64}> : (tensor<16x4xf32>) -> (tensor<16x3xf32>, tensor<16x3xi32>)
  return %0#0, %0#1 : tensor<16x3xf32>, tensor<16x3xi32>
}
