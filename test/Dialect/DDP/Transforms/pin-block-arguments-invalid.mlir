// RUN: ddphook-opt %s --pass-pipeline="builtin.module(func.func(ddp-pin-block-arguments))" -allow-unregistered-dialect -split-input-file -verify-diagnostics

func.func @dynamic(%a: tensor<?xf32>) -> tensor<?xf32> {
  cf.br ^next(%a : tensor<?xf32>)
^next(%y: tensor<?xf32>): // expected-error {{expected block argument 0 to be a tensor of static shape, but got 'tensor<?xf32>'}}
  return %y : tensor<?xf32>
}

// -----

func.func @foreign_branch(%a: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error @+1 {{expected a cf branch to a block with tensor arguments}}
  "test.branch"(%a)[^next] : (tensor<4xf32>) -> ()
^next(%y: tensor<4xf32>):
  return %y : tensor<4xf32>
}
