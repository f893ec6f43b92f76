// A step with an error for lsp-server.test: nothing declares @nowhere.
ddp.process_group @dp
func.func @step(%g: tensor<6xf32>) -> tensor<6xf32> {
  %r = ddp.all_reduce mean %g on @nowhere : tensor<6xf32>
  return %r : tensor<6xf32>
}

// -----

// A module of its own, in which the names above may be used again.
ddp.process_group @dp
