// RUN: ddphook-opt %s --ddp-check-bufferizable --allow-unregistered-dialect -split-input-file -verify-diagnostics
// RUN: ddphook-opt %s --ddp-pipeline --allow-unregistered-dialect -split-input-file -verify-diagnostics

// Each kind of operation once.
ddp.process_group @dp
func.func @unregistered(%a: tensor<4xf32>, %n: index) -> tensor<4xf32> {
  // expected-error @+2 {{expected 'foo.bar' to implement BufferizableOpInterface, since it works on 'tensor<4xf32>' in 'unregistered', which is compiled to memory; see docs/passes.md}}
  // expected-note @+1 {{the dialect 'foo' has no operation of this name, or is not registered}}
  %0 = "foo.bar"(%a) : (tensor<4xf32>) -> tensor<4xf32>
  %1 = "foo.bar"(%0) : (tensor<4xf32>) -> tensor<4xf32>
  // Not on tensors.
  "foo.count"(%n) ({ "foo.inner"() : () -> () }) : (index) -> ()
  %r = ddp.all_reduce mean %1 on @dp : tensor<4xf32>
  return %r : tensor<4xf32>
}

// -----

ddp.process_group @dp
func.func @registered(%a: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error @+1 {{expected 'tosa.exp' to implement BufferizableOpInterface, since it works on 'tensor<4xf32>' in 'registered', which is compiled to memory}}
  %0 = tosa.exp %a : (tensor<4xf32>) -> tensor<4xf32>
  %r = ddp.all_reduce mean %0 on @dp : tensor<4xf32>
  return %r : tensor<4xf32>
}

// -----

// In a function that one with collectives calls.
ddp.process_group @dp
func.func private @loss(%a: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error @+2 {{expected 'foo.bar' to implement BufferizableOpInterface}}
  // expected-note @+1 {{the dialect 'foo' has no operation of this name}}
  %0 = "foo.bar"(%a) : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}
func.func @step(%a: tensor<4xf32>) -> tensor<4xf32> {
  %0 = call @loss(%a) : (tensor<4xf32>) -> tensor<4xf32>
  %r = ddp.all_reduce mean %0 on @dp : tensor<4xf32>
  return %r : tensor<4xf32>
}

// -----

// An import that was forgotten has a name.
shard.grid @grid(shape = 2)
ddp.process_group @dp
func.func @step(%a: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error @+2 {{expected 'shard.all_reduce' to implement BufferizableOpInterface}}
  // expected-note @+1 {{ddp-import-shard, run before ddp-pipeline, imports programs of 'shard'}}
  %0 = shard.all_reduce %a on @grid grid_axes = [0] reduction = sum : tensor<4xf32> -> tensor<4xf32>
  %r = ddp.all_reduce mean %0 on @dp : tensor<4xf32>
  return %r : tensor<4xf32>
}

// -----

ddp.process_group @dp
func.func @elementwise(%a: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error @+2 {{expected 'arith.addf' to implement BufferizableOpInterface}}
  // expected-note @+1 {{convert-elementwise-to-linalg, run before ddp-pipeline, turns it into a linalg operation}}
  %0 = arith.addf %a, %a : tensor<4xf32>
  %r = ddp.all_reduce mean %0 on @dp : tensor<4xf32>
  return %r : tensor<4xf32>
}

// -----

// Recursion, also where it reduces nothing. The error names the function.
ddp.process_group @dp
// expected-error @+1 {{expected no recursion in functions on tensors, but 'power' calls itself}}
func.func private @power(%a: tensor<4xf32>, %more: i1) -> tensor<4xf32> {
  %0 = scf.if %more -> tensor<4xf32> {
    %1 = func.call @power(%a, %more) : (tensor<4xf32>, i1) -> tensor<4xf32>
    scf.yield %1 : tensor<4xf32>
  } else {
    scf.yield %a : tensor<4xf32>
  }
  return %0 : tensor<4xf32>
}
func.func @step(%a: tensor<4xf32>, %more: i1) -> tensor<4xf32> {
  %0 = call @power(%a, %more) : (tensor<4xf32>, i1) -> tensor<4xf32>
  %r = ddp.all_reduce mean %0 on @dp : tensor<4xf32>
  return %r : tensor<4xf32>
}
