// RUN: ddphook-opt %s -split-input-file -verify-diagnostics --ddp-inline-collectives | FileCheck %s

// Through two calls, into a region, and twice. A public function stays, and so do calls
// and functions without collectives, also those that an attribute refers to.

// CHECK-NOT: @inner
// CHECK-LABEL: func.func @outer
// CHECK: ddp.all_reduce sum
// CHECK-LABEL: func.func @step
// CHECK: "stablehlo.case"
// CHECK: ddp.all_reduce sum
// CHECK: "stablehlo.return"
// CHECK: ddp.all_reduce sum
// CHECK: "stablehlo.composite"
// CHECK: call @plain
// CHECK-NOT: call
// CHECK: func.func private @plain
// CHECK: func.func private @erf
ddp.process_group @dp size 2
func.func private @inner(%g: tensor<4xf32>) -> tensor<4xf32> {
  %0 = ddp.all_reduce sum %g on @dp : tensor<4xf32>
  %1 = "stablehlo.composite"(%0) {decomposition = @erf, name = "erf"} : (tensor<4xf32>) -> tensor<4xf32>
  return %1 : tensor<4xf32>
}
func.func @outer(%g: tensor<4xf32>) -> tensor<4xf32> {
  %0 = call @inner(%g) : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}
func.func @step(%g: tensor<4xf32>, %i: tensor<i32>) -> (tensor<4xf32>, tensor<4xf32>) {
  %0 = "stablehlo.case"(%i) ({
    %1 = func.call @outer(%g) : (tensor<4xf32>) -> tensor<4xf32>
    "stablehlo.return"(%1) : (tensor<4xf32>) -> ()
  }) : (tensor<i32>) -> tensor<4xf32>
  %2 = call @inner(%0) : (tensor<4xf32>) -> tensor<4xf32>
  %3 = call @plain(%2) : (tensor<4xf32>) -> tensor<4xf32>
  return %0, %3 : tensor<4xf32>, tensor<4xf32>
}
func.func private @plain(%x: tensor<4xf32>) -> tensor<4xf32> {
  return %x : tensor<4xf32>
}
func.func private @erf(%x: tensor<4xf32>) -> tensor<4xf32> {
  return %x : tensor<4xf32>
}

// -----

ddp.process_group @dp size 2
func.func @itself(%g: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error @below {{'func.call' op expected no recursion in a function with collectives, @itself}}
  %0 = call @itself(%g) : (tensor<4xf32>) -> tensor<4xf32>
  %1 = ddp.all_reduce sum %0 on @dp : tensor<4xf32>
  return %1 : tensor<4xf32>
}

// -----

// A function of several blocks does not fit into a region of one.

ddp.process_group @dp size 2
func.func private @blocks(%g: tensor<4xf32>) -> tensor<4xf32> {
  %0 = ddp.all_reduce sum %g on @dp : tensor<4xf32>
  cf.br ^next
^next:
  return %0 : tensor<4xf32>
}
func.func @step(%c: i1, %g: tensor<4xf32>) -> tensor<4xf32> {
  %0 = scf.if %c -> tensor<4xf32> {
    // expected-error @below {{'func.call' op expected a function of one block, since it has collectives}}
    %1 = func.call @blocks(%g) : (tensor<4xf32>) -> tensor<4xf32>
    scf.yield %1 : tensor<4xf32>
  } else {
    scf.yield %g : tensor<4xf32>
  }
  return %0 : tensor<4xf32>
}

// -----

// Two copies are two gradients, and neither is one that the program has already.

// CHECK-LABEL: func.func @copies
// CHECK: ddp.all_reduce sum %{{.*}} on @dp {ddp.name = "w"}
// CHECK: ddp.all_reduce sum %{{.*}} on @dp {ddp.name = "w#1"}
// CHECK: ddp.all_reduce sum %{{.*}} on @dp {ddp.name = "w#2"}
ddp.process_group @dp size 2
func.func private @inner(%g: tensor<4xf32>) -> tensor<4xf32> {
  %0 = ddp.all_reduce sum %g on @dp {ddp.name = "w"} : tensor<4xf32>
  return %0 : tensor<4xf32>
}
func.func @copies(%g: tensor<4xf32>) -> tensor<4xf32> {
  %0 = call @inner(%g) : (tensor<4xf32>) -> tensor<4xf32>
  %1 = ddp.all_reduce sum %0 on @dp {ddp.name = "w#1"} : tensor<4xf32>
  %2 = call @inner(%1) : (tensor<4xf32>) -> tensor<4xf32>
  return %2 : tensor<4xf32>
}
