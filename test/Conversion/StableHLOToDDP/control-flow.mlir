// RUN: ddphook-opt %s -split-input-file -verify-diagnostics --ddp-convert-stablehlo-control-flow | FileCheck %s

// CHECK-LABEL: func.func @nested(
// CHECK-SAME: %[[N:.+]]: tensor<i32>, %[[A:.+]]: tensor<4xf32>)
func.func @nested(%n: tensor<i32>, %a: tensor<4xf32>) -> (tensor<i32>, tensor<4xf32>) {
  // CHECK: %[[L:.+]]:2 = scf.while (%[[I:.+]] = %[[N]], %[[B:.+]] = %[[A]]) : (tensor<i32>, tensor<4xf32>) -> (tensor<i32>, tensor<4xf32>) {
  // CHECK-NEXT: %[[C:.+]] = "stablehlo.compare"(%[[I]], %[[N]])
  // CHECK-NEXT: %[[P:.+]] = tensor.extract %[[C]][] : tensor<i1>
  // CHECK-NEXT: scf.condition(%[[P]]) %[[I]], %[[B]]
  // CHECK-NEXT: } do {
  // CHECK-NEXT: ^bb0(%[[I:.+]]: tensor<i32>, %[[B:.+]]: tensor<4xf32>):
  %0:2 = "stablehlo.while"(%n, %a) ({
  ^bb0(%i: tensor<i32>, %b: tensor<4xf32>):
    %1 = "stablehlo.compare"(%i, %n) : (tensor<i32>, tensor<i32>) -> tensor<i1>
    "stablehlo.return"(%1) : (tensor<i1>) -> ()
  }, {
  ^bb0(%i: tensor<i32>, %b: tensor<4xf32>):
    // Of two branches each number but 0 means the second one.
    // CHECK: %[[E:.+]] = tensor.extract %[[I]][] : tensor<i32>
    // CHECK: %[[Z:.+]] = arith.cmpi eq, %[[E]], %c0_i32
    // CHECK-NEXT: %[[R:.+]] = scf.if %[[Z]] -> (tensor<4xf32>) {
    // CHECK-NEXT: scf.yield %[[B]]
    // CHECK-NEXT: } else {
    // CHECK-NEXT: %[[NEG:.+]] = "stablehlo.negate"(%[[B]])
    // CHECK-NEXT: scf.yield %[[NEG]]
    %1 = "stablehlo.case"(%i) ({
      "stablehlo.return"(%b) : (tensor<4xf32>) -> ()
    }, {
      %2 = "stablehlo.negate"(%b) : (tensor<4xf32>) -> tensor<4xf32>
      "stablehlo.return"(%2) : (tensor<4xf32>) -> ()
    }) : (tensor<i32>) -> tensor<4xf32>
    // CHECK: scf.yield %[[I]], %[[R]]
    "stablehlo.return"(%i, %1) : (tensor<i32>, tensor<4xf32>) -> ()
  }) : (tensor<i32>, tensor<4xf32>) -> (tensor<i32>, tensor<4xf32>)
  // CHECK: return %[[L]]#0, %[[L]]#1
  return %0#0, %0#1 : tensor<i32>, tensor<4xf32>
}

// CHECK-LABEL: func.func @cases(
// CHECK-SAME: %[[N:.+]]: tensor<i32>, %[[P:.+]]: tensor<i1>, %[[A:.+]]: tensor<4xf32>)
func.func @cases(%n: tensor<i32>, %p: tensor<i1>, %a: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
  // A number of no branch means the last one.
  // CHECK-NEXT: %[[E:.+]] = tensor.extract %[[N]][] : tensor<i32>
  // CHECK-NEXT: %[[I:.+]] = arith.index_cast %[[E]] : i32 to index
  // CHECK-NEXT: scf.index_switch %[[I]] -> tensor<4xf32>
  // CHECK-NEXT: case 0 {
  // CHECK-NEXT: scf.yield %[[A]]
  // CHECK-NEXT: }
  // CHECK-NEXT: case 1 {
  // CHECK-NEXT: "stablehlo.negate"
  // CHECK-NEXT: scf.yield
  // CHECK-NEXT: }
  // CHECK-NEXT: default {
  // CHECK-NEXT: "stablehlo.abs"
  // CHECK-NEXT: scf.yield
  %0 = "stablehlo.case"(%n) ({
    "stablehlo.return"(%a) : (tensor<4xf32>) -> ()
  }, {
    %2 = "stablehlo.negate"(%a) : (tensor<4xf32>) -> tensor<4xf32>
    "stablehlo.return"(%2) : (tensor<4xf32>) -> ()
  }, {
    %2 = "stablehlo.abs"(%a) : (tensor<4xf32>) -> tensor<4xf32>
    "stablehlo.return"(%2) : (tensor<4xf32>) -> ()
  }) : (tensor<i32>) -> tensor<4xf32>
  // CHECK: %[[C:.+]] = tensor.extract %[[P]][] : tensor<i1>
  // CHECK-NEXT: scf.if %[[C]] -> (tensor<4xf32>) {
  // CHECK-NEXT: scf.yield %[[A]]
  // CHECK-NEXT: } else {
  // CHECK-NEXT: "stablehlo.negate"
  %1 = "stablehlo.if"(%p) ({
    "stablehlo.return"(%a) : (tensor<4xf32>) -> ()
  }, {
    %2 = "stablehlo.negate"(%a) : (tensor<4xf32>) -> tensor<4xf32>
    "stablehlo.return"(%2) : (tensor<4xf32>) -> ()
  }) : (tensor<i1>) -> tensor<4xf32>
  return %0, %1 : tensor<4xf32>, tensor<4xf32>
}

// One branch is taken always.
// CHECK-LABEL: func.func @one_case(
// CHECK: scf.index_switch
// CHECK-NEXT: default {
// CHECK-NEXT: scf.yield
func.func @one_case(%n: tensor<i32>) -> tensor<i32> {
  %0 = "stablehlo.case"(%n) ({
    "stablehlo.return"(%n) : (tensor<i32>) -> ()
  }) : (tensor<i32>) -> tensor<i32>
  return %0 : tensor<i32>
}

// CHECK-LABEL: func.func @barrier(
// CHECK-SAME: %[[A:.+]]: tensor<i32>, %[[B:.+]]: tensor<4xf32>)
// CHECK-NEXT: return %[[A]], %[[B]]
func.func @barrier(%a: tensor<i32>, %b: tensor<4xf32>) -> (tensor<i32>, tensor<4xf32>) {
  %0:2 = "stablehlo.optimization_barrier"(%a, %b) : (tensor<i32>, tensor<4xf32>) -> (tensor<i32>, tensor<4xf32>)
  return %0#0, %0#1 : tensor<i32>, tensor<4xf32>
}

// -----

func.func @condition(%a: tensor<4xi1>) -> tensor<4xi1> {
  // expected-error @+1 {{'stablehlo.while' op expected a condition and a body of the operands' types}}
  %0 = "stablehlo.while"(%a) ({
  ^bb0(%b: tensor<4xi1>):
    "stablehlo.return"(%b) : (tensor<4xi1>) -> ()
  }, {
  ^bb0(%b: tensor<4xi1>):
    "stablehlo.return"(%b) : (tensor<4xi1>) -> ()
  }) : (tensor<4xi1>) -> tensor<4xi1>
  return %0 : tensor<4xi1>
}

// -----

func.func @body(%a: tensor<i1>) {
  // expected-error @+1 {{'stablehlo.while' op expected a condition and a body of the operands' types}}
  "stablehlo.while"(%a) ({
  ^bb0(%b: tensor<i1>):
  }) : (tensor<i1>) -> ()
  return
}

// -----

func.func @no_branches(%n: tensor<i32>) {
  // expected-error @+1 {{'stablehlo.case' op expected an i32 and branches of the results' types}}
  "stablehlo.case"(%n) : (tensor<i32>) -> ()
  return
}

// -----

func.func @branch(%n: tensor<i1>) -> tensor<i1> {
  // expected-error @+1 {{'stablehlo.if' op expected an i1 and branches of the results' types}}
  %0 = "stablehlo.if"(%n) ({
    "stablehlo.return"() : () -> ()
  }, {
    "stablehlo.return"(%n) : (tensor<i1>) -> ()
  }) : (tensor<i1>) -> tensor<i1>
  return %0 : tensor<i1>
}

// -----

func.func @three_branches(%n: tensor<i1>) {
  // expected-error @+1 {{'stablehlo.if' op expected two branches}}
  "stablehlo.if"(%n) ({
    "stablehlo.return"() : () -> ()
  }) : (tensor<i1>) -> ()
  return
}

// -----

func.func @barrier_types(%a: tensor<i32>) -> tensor<i1> {
  // expected-error @+1 {{'stablehlo.optimization_barrier' op expected results of the operands' types}}
  %0 = "stablehlo.optimization_barrier"(%a) : (tensor<i32>) -> tensor<i1>
  return %0 : tensor<i1>
}

// -----

func.func @barrier_loop() {
  "stablehlo.map"() ({
    // expected-error @+1 {{'stablehlo.optimization_barrier' op expected results that do not depend on themselves}}
    %0 = "stablehlo.optimization_barrier"(%0) : (tensor<i32>) -> tensor<i32>
  }) : () -> ()
  return
}
