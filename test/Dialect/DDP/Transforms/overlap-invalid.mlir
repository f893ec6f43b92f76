// RUN: ddphook-opt %s --ddp-overlap="depth=0" -verify-diagnostics

// expected-error@below {{expected a depth of at least 1, but got 0}}
module {
  ddp.process_group @dp
  func.func @step(%x: tensor<8xf32>) -> tensor<8xf32> {
    %r = ddp.all_reduce mean %x on @dp : tensor<8xf32>
    return %r : tensor<8xf32>
  }
}
