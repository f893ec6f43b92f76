// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The step of docs/getting-started.md: least squares with four weights. Every
// rank has eight samples a step; the loss is mean((x · w - y)²) / 2 over the
// samples of all ranks.

module {
  ddp.process_group @dp

  func.func @step(%x: tensor<8x4xf32>, %y: tensor<8xf32>,
                  %w: tensor<4xf32> {bufferization.writable = true})
      -> tensor<4xf32> {
    %zero = arith.constant 0.0 : f32
    %samples = arith.constant 8.0 : f32
    %rate = arith.constant 0.5 : f32

    // error = (x · w - y) / samples
    %error_memory = tensor.empty() : tensor<8xf32>
    %minus_y = linalg.negf ins(%y : tensor<8xf32>)
        outs(%error_memory : tensor<8xf32>) -> tensor<8xf32>
    %sum = linalg.matvec ins(%x, %w : tensor<8x4xf32>, tensor<4xf32>)
        outs(%minus_y : tensor<8xf32>) -> tensor<8xf32>
    %mean_memory = tensor.empty() : tensor<8xf32>
    %error = linalg.map ins(%sum : tensor<8xf32>)
        outs(%mean_memory : tensor<8xf32>) (%s: f32, %out: f32) {
          %mean = arith.divf %s, %samples : f32
          linalg.yield %mean : f32
        }

    // gradient = xᵀ · error, averaged over all ranks
    %gradient_memory = tensor.empty() : tensor<4xf32>
    %gradient_init = linalg.fill ins(%zero : f32)
        outs(%gradient_memory : tensor<4xf32>) -> tensor<4xf32>
    %gradient = linalg.vecmat ins(%error, %x : tensor<8xf32>, tensor<8x4xf32>)
        outs(%gradient_init : tensor<4xf32>) -> tensor<4xf32>
    %average = ddp.all_reduce mean %gradient on @dp : tensor<4xf32>

    // w = w - rate · average, in place
    %w_new = linalg.map ins(%average : tensor<4xf32>)
        outs(%w : tensor<4xf32>) (%g: f32, %old: f32) {
          %move = arith.mulf %rate, %g : f32
          %new = arith.subf %old, %move : f32
          linalg.yield %new : f32
        }
    return %w_new : tensor<4xf32>
  }
}
