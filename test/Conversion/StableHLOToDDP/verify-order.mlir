// RUN: ddphook-opt %s -split-input-file -verify-diagnostics --ddp-verify-stablehlo-order | FileCheck %s
// RUN: not ddphook-opt %s -split-input-file --ddp-verify-order 2>&1 | FileCheck %s --check-prefix=PLAIN

// A loop with a counter, in which a reduction's result decides about another one. The
// module stays as it is.

// PLAIN: 'ddp.all_reduce' op expected all ranks of @dp to execute this operation equally often

// CHECK-LABEL: func.func @counted
// CHECK: stablehlo.while
// CHECK: stablehlo.reduce
// CHECK: stablehlo.if
// CHECK-NOT: scf
ddp.process_group @dp size 2
func.func @counted(%g: tensor<4xf32>) -> tensor<4xf32> {
  %zero = "stablehlo.constant"() {value = dense<0> : tensor<i32>} : () -> tensor<i32>
  %one = "stablehlo.constant"() {value = dense<1> : tensor<i32>} : () -> tensor<i32>
  %end = "stablehlo.constant"() {value = dense<3> : tensor<i32>} : () -> tensor<i32>
  %nothing = "stablehlo.constant"() {value = dense<0.0> : tensor<f32>} : () -> tensor<f32>
  %r:2 = "stablehlo.while"(%zero, %g) ({
  ^bb0(%i: tensor<i32>, %x: tensor<4xf32>):
    %more = "stablehlo.compare"(%i, %end) {comparison_direction = #stablehlo<comparison_direction LT>} : (tensor<i32>, tensor<i32>) -> tensor<i1>
    "stablehlo.return"(%more) : (tensor<i1>) -> ()
  }, {
  ^bb0(%i: tensor<i32>, %x: tensor<4xf32>):
    %next = "stablehlo.add"(%i, %one) : (tensor<i32>, tensor<i32>) -> tensor<i32>
    %m = ddp.all_reduce mean %x on @dp : tensor<4xf32>
    %s = "stablehlo.reduce"(%m, %nothing) ({
    ^bb1(%a: tensor<f32>, %b: tensor<f32>):
      %c = "stablehlo.add"(%a, %b) : (tensor<f32>, tensor<f32>) -> tensor<f32>
      "stablehlo.return"(%c) : (tensor<f32>) -> ()
    }) {dimensions = array<i64: 0>} : (tensor<4xf32>, tensor<f32>) -> tensor<f32>
    %large = "stablehlo.compare"(%s, %nothing) {comparison_direction = #stablehlo<comparison_direction GT>} : (tensor<f32>, tensor<f32>) -> tensor<i1>
    %y = "stablehlo.if"(%large) ({
      %n = ddp.all_reduce mean %x on @dp : tensor<4xf32>
      "stablehlo.return"(%n) : (tensor<4xf32>) -> ()
    }, {
      "stablehlo.return"(%m) : (tensor<4xf32>) -> ()
    }) : (tensor<i1>) -> tensor<4xf32>
    "stablehlo.return"(%next, %y) : (tensor<i32>, tensor<4xf32>) -> ()
  }) : (tensor<i32>, tensor<4xf32>) -> (tensor<i32>, tensor<4xf32>)
  return %r#1 : tensor<4xf32>
}

// An argument that all ranks have alike.

// CHECK-LABEL: func.func @replicated
ddp.process_group @all size 2
func.func @replicated(%g: tensor<4xf32>, %i: tensor<i32> {ddp.replicated}) -> tensor<4xf32> {
  %0 = "stablehlo.case"(%i) ({
    %1 = ddp.all_reduce mean %g on @all : tensor<4xf32>
    "stablehlo.return"(%1) : (tensor<4xf32>) -> ()
  }, {
    "stablehlo.return"(%g) : (tensor<4xf32>) -> ()
  }) : (tensor<i32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// What nobody calls, and what only that calls, is run by no rank.

// CHECK-LABEL: func.func private @inlined
// CHECK-LABEL: func.func private @within
func.func private @inlined(%g: tensor<4xf32>, %i: tensor<i32>) -> tensor<4xf32> {
  %0 = func.call @within(%g, %i) : (tensor<4xf32>, tensor<i32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}
func.func private @within(%g: tensor<4xf32>, %i: tensor<i32>) -> tensor<4xf32> {
  %0 = "stablehlo.case"(%i) ({
    %1 = ddp.all_reduce mean %g on @all : tensor<4xf32>
    "stablehlo.return"(%1) : (tensor<4xf32>) -> ()
  }, {
    "stablehlo.return"(%g) : (tensor<4xf32>) -> ()
  }) : (tensor<i32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// -----

// One that each has of its own, and what a call of others' code gives.

ddp.process_group @dp size 2
func.func @own(%g: tensor<4xf32>, %i: tensor<i32>) -> tensor<4xf32> {
  // expected-note @below {{this determines how often it runs}}
  %0 = "stablehlo.case"(%i) ({
    // expected-error @below {{'ddp.all_reduce' op expected all ranks of @dp to execute this operation equally often}}
    %1 = ddp.all_reduce mean %g on @dp : tensor<4xf32>
    "stablehlo.return"(%1) : (tensor<4xf32>) -> ()
  }, {
    "stablehlo.return"(%g) : (tensor<4xf32>) -> ()
  }) : (tensor<i32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}
func.func @others(%g: tensor<4xf32>) -> tensor<4xf32> {
  %i = "stablehlo.custom_call"() {call_target_name = "rank"} : () -> tensor<i32>
  // expected-note @below {{this determines how often it runs}}
  %0 = "stablehlo.case"(%i) ({
    // expected-error @below {{'ddp.all_reduce' op expected all ranks of @dp to execute this operation equally often}}
    %1 = ddp.all_reduce mean %g on @dp : tensor<4xf32>
    "stablehlo.return"(%1) : (tensor<4xf32>) -> ()
  }, {
    "stablehlo.return"(%g) : (tensor<4xf32>) -> ()
  }) : (tensor<i32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}
func.func @rank(%g: tensor<4xf32>) -> tensor<4xf32> {
  %i = "stablehlo.partition_id"() : () -> tensor<ui32>
  %c = "stablehlo.convert"(%i) : (tensor<ui32>) -> tensor<i1>
  // expected-note @below {{this determines how often it runs}}
  %0 = "stablehlo.if"(%c) ({
    // expected-error @below {{'ddp.all_reduce' op expected all ranks of @dp to execute this operation equally often}}
    %1 = ddp.all_reduce mean %g on @dp : tensor<4xf32>
    "stablehlo.return"(%1) : (tensor<4xf32>) -> ()
  }, {
    "stablehlo.return"(%g) : (tensor<4xf32>) -> ()
  }) : (tensor<i1>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// -----

ddp.process_group @dp size 2
func.func @malformed(%g: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error @below {{'stablehlo.while' op expected a condition and a body of the operands' types}}
  %0 = "stablehlo.while"(%g) ({
  ^bb0(%x: tensor<4xf32>):
    %1 = ddp.all_reduce mean %x on @dp : tensor<4xf32>
    "stablehlo.return"(%1) : (tensor<4xf32>) -> ()
  }) : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}
