// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The running example of docs/passes.md: the gradients of one linear layer, an
// average over all ranks, and the update of the layer's parameters in place.

module {
  ddp.process_group @dp
  func.func @step(%xt: tensor<4x16xf32>, %dy: tensor<16x8xf32>,
                  %w: tensor<4x8xf32> {bufferization.writable = true},
                  %b: tensor<8xf32> {bufferization.writable = true})
      -> (tensor<4x8xf32>, tensor<8xf32>) {
    %zero = arith.constant 0.0 : f32
    %rate = arith.constant 0.1 : f32
    // dw = xt * dy; db = the sum of dy's rows
    %e0 = tensor.empty() : tensor<4x8xf32>
    %z0 = linalg.fill ins(%zero : f32) outs(%e0 : tensor<4x8xf32>) -> tensor<4x8xf32>
    %dw = linalg.matmul ins(%xt, %dy : tensor<4x16xf32>, tensor<16x8xf32>)
        outs(%z0 : tensor<4x8xf32>) -> tensor<4x8xf32>
    %e1 = tensor.empty() : tensor<8xf32>
    %z1 = linalg.fill ins(%zero : f32) outs(%e1 : tensor<8xf32>) -> tensor<8xf32>
    %db = linalg.reduce { arith.addf } ins(%dy : tensor<16x8xf32>)
        outs(%z1 : tensor<8xf32>) dimensions = [0]
    // averages over all ranks
    %rw = ddp.all_reduce mean %dw on @dp : tensor<4x8xf32>
    %rb = ddp.all_reduce mean %db on @dp : tensor<8xf32>
    // w -= rate * rw; b -= rate * rb
    %w1 = linalg.map ins(%rw : tensor<4x8xf32>) outs(%w : tensor<4x8xf32>)
      (%g: f32, %old: f32) {
        %d = arith.mulf %rate, %g : f32
        %n = arith.subf %old, %d : f32
        linalg.yield %n : f32
      }
    %b1 = linalg.map ins(%rb : tensor<8xf32>) outs(%b : tensor<8xf32>)
      (%g: f32, %old: f32) {
        %d = arith.mulf %rate, %g : f32
        %n = arith.subf %old, %d : f32
        linalg.yield %n : f32
      }
    return %w1, %b1 : tensor<4x8xf32>, tensor<8xf32>
  }
}
