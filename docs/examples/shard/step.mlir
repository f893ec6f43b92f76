// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The example of docs/frontends.md: a training step for one processor, in which
// nothing but two annotations speaks of several. Two layers, the squared error,
// its gradients, and an update of the parameters. All sums over the batch are means
// over the whole batch: their factor, 1/16, is a number of the program.

// Four processes would need another number here, and nothing else.
shard.grid @dp(shape = 2)

#row = affine_map<(i, j) -> (i, j)>
#bias = affine_map<(i, j) -> (j)>
#scalar = affine_map<(i, j) -> ()>
// c[i, j] += a[k, i] * b[k, j], and c[i, j] += a[i, k] * b[j, k]
#k_i = affine_map<(i, j, k) -> (k, i)>
#k_j = affine_map<(i, j, k) -> (k, j)>
#i_k = affine_map<(i, j, k) -> (i, k)>
#j_k = affine_map<(i, j, k) -> (j, k)>
#i_j = affine_map<(i, j, k) -> (i, j)>
#matmul = ["parallel", "parallel", "reduction"]

func.func @step(%images: tensor<16x8xf32>, %labels: tensor<16x4xf32>,
                %w1: tensor<8x12xf32>, %b1: tensor<12xf32>,
                %w2: tensor<12x4xf32>)
    -> (tensor<8x12xf32>, tensor<12xf32>, tensor<12x4xf32>, tensor<f32>) {
  // The rows of both are split over the processes.
  %rows = shard.sharding @dp split_axes = [[0]] : !shard.sharding
  %x = shard.shard %images to %rows : tensor<16x8xf32>
  %t = shard.shard %labels to %rows : tensor<16x4xf32>

  %zero = arith.constant 0.0 : f32

  // h = relu(x * w1 + b1)
  %e0 = tensor.empty() : tensor<16x12xf32>
  %z0 = linalg.fill ins(%zero : f32) outs(%e0 : tensor<16x12xf32>) -> tensor<16x12xf32>
  %a = linalg.matmul ins(%x, %w1 : tensor<16x8xf32>, tensor<8x12xf32>)
      outs(%z0 : tensor<16x12xf32>) -> tensor<16x12xf32>
  %e1 = tensor.empty() : tensor<16x12xf32>
  %h = linalg.generic {indexing_maps = [#row, #bias, #row],
                       iterator_types = ["parallel", "parallel"]}
      ins(%a, %b1 : tensor<16x12xf32>, tensor<12xf32>) outs(%e1 : tensor<16x12xf32>) {
    ^bb0(%in: f32, %b: f32, %out: f32):
      %c0 = arith.constant 0.0 : f32
      %sum = arith.addf %in, %b : f32
      %relu = arith.maximumf %sum, %c0 : f32
      linalg.yield %relu : f32
  } -> tensor<16x12xf32>

  // d = (h * w2 - t) / 16, loss = 8 * sum(d²), the mean of half the squares
  %e2 = tensor.empty() : tensor<16x4xf32>
  %z2 = linalg.fill ins(%zero : f32) outs(%e2 : tensor<16x4xf32>) -> tensor<16x4xf32>
  %y = linalg.matmul ins(%h, %w2 : tensor<16x12xf32>, tensor<12x4xf32>)
      outs(%z2 : tensor<16x4xf32>) -> tensor<16x4xf32>
  %e3 = tensor.empty() : tensor<16x4xf32>
  %d = linalg.generic {indexing_maps = [#row, #row, #row],
                       iterator_types = ["parallel", "parallel"]}
      ins(%y, %t : tensor<16x4xf32>, tensor<16x4xf32>) outs(%e3 : tensor<16x4xf32>) {
    ^bb0(%in: f32, %label: f32, %out: f32):
      %factor = arith.constant 0.0625 : f32
      %difference = arith.subf %in, %label : f32
      %scaled = arith.mulf %difference, %factor : f32
      linalg.yield %scaled : f32
  } -> tensor<16x4xf32>
  %e4 = tensor.empty() : tensor<f32>
  %z4 = linalg.fill ins(%zero : f32) outs(%e4 : tensor<f32>) -> tensor<f32>
  %loss = linalg.generic {indexing_maps = [#row, #scalar],
                          iterator_types = ["reduction", "reduction"]}
      ins(%d : tensor<16x4xf32>) outs(%z4 : tensor<f32>) {
    ^bb0(%in: f32, %out: f32):
      %eight = arith.constant 8.0 : f32
      %square = arith.mulf %in, %in : f32
      %term = arith.mulf %square, %eight : f32
      %sum = arith.addf %out, %term : f32
      linalg.yield %sum : f32
  } -> tensor<f32>

  // dw2 = hᵀ * d, dh = d * w2ᵀ where h is positive
  %e5 = tensor.empty() : tensor<12x4xf32>
  %z5 = linalg.fill ins(%zero : f32) outs(%e5 : tensor<12x4xf32>) -> tensor<12x4xf32>
  %dw2 = linalg.generic {indexing_maps = [#k_i, #k_j, #i_j], iterator_types = #matmul}
      ins(%h, %d : tensor<16x12xf32>, tensor<16x4xf32>) outs(%z5 : tensor<12x4xf32>) {
    ^bb0(%l: f32, %r: f32, %out: f32):
      %product = arith.mulf %l, %r : f32
      %sum = arith.addf %out, %product : f32
      linalg.yield %sum : f32
  } -> tensor<12x4xf32>
  %e6 = tensor.empty() : tensor<16x12xf32>
  %z6 = linalg.fill ins(%zero : f32) outs(%e6 : tensor<16x12xf32>) -> tensor<16x12xf32>
  %dr = linalg.generic {indexing_maps = [#i_k, #j_k, #i_j], iterator_types = #matmul}
      ins(%d, %w2 : tensor<16x4xf32>, tensor<12x4xf32>) outs(%z6 : tensor<16x12xf32>) {
    ^bb0(%l: f32, %r: f32, %out: f32):
      %product = arith.mulf %l, %r : f32
      %sum = arith.addf %out, %product : f32
      linalg.yield %sum : f32
  } -> tensor<16x12xf32>
  %e7 = tensor.empty() : tensor<16x12xf32>
  %dh = linalg.generic {indexing_maps = [#row, #row, #row],
                        iterator_types = ["parallel", "parallel"]}
      ins(%dr, %h : tensor<16x12xf32>, tensor<16x12xf32>) outs(%e7 : tensor<16x12xf32>) {
    ^bb0(%in: f32, %hidden: f32, %out: f32):
      %c0 = arith.constant 0.0 : f32
      %active = arith.cmpf ogt, %hidden, %c0 : f32
      %kept = arith.select %active, %in, %c0 : f32
      linalg.yield %kept : f32
  } -> tensor<16x12xf32>

  // dw1 = xᵀ * dh, db1 = the sum of dh's rows
  %e8 = tensor.empty() : tensor<8x12xf32>
  %z8 = linalg.fill ins(%zero : f32) outs(%e8 : tensor<8x12xf32>) -> tensor<8x12xf32>
  %dw1 = linalg.generic {indexing_maps = [#k_i, #k_j, #i_j], iterator_types = #matmul}
      ins(%x, %dh : tensor<16x8xf32>, tensor<16x12xf32>) outs(%z8 : tensor<8x12xf32>) {
    ^bb0(%l: f32, %r: f32, %out: f32):
      %product = arith.mulf %l, %r : f32
      %sum = arith.addf %out, %product : f32
      linalg.yield %sum : f32
  } -> tensor<8x12xf32>
  %e9 = tensor.empty() : tensor<12xf32>
  %z9 = linalg.fill ins(%zero : f32) outs(%e9 : tensor<12xf32>) -> tensor<12xf32>
  %db1 = linalg.reduce {arith.addf} ins(%dh : tensor<16x12xf32>)
      outs(%z9 : tensor<12xf32>) dimensions = [0]

  // w -= d / 2
  %ew1 = tensor.empty() : tensor<8x12xf32>
  %nw1 = linalg.generic {indexing_maps = [#row, #row, #row],
                         iterator_types = ["parallel", "parallel"]}
      ins(%w1, %dw1 : tensor<8x12xf32>, tensor<8x12xf32>) outs(%ew1 : tensor<8x12xf32>) {
    ^bb0(%w: f32, %g: f32, %out: f32):
      %rate = arith.constant 0.5 : f32
      %move = arith.mulf %g, %rate : f32
      %new = arith.subf %w, %move : f32
      linalg.yield %new : f32
  } -> tensor<8x12xf32>
  %eb1 = tensor.empty() : tensor<12xf32>
  %nb1 = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>,
                                          affine_map<(i) -> (i)>],
                         iterator_types = ["parallel"]}
      ins(%b1, %db1 : tensor<12xf32>, tensor<12xf32>) outs(%eb1 : tensor<12xf32>) {
    ^bb0(%w: f32, %g: f32, %out: f32):
      %rate = arith.constant 0.5 : f32
      %move = arith.mulf %g, %rate : f32
      %new = arith.subf %w, %move : f32
      linalg.yield %new : f32
  } -> tensor<12xf32>
  %ew2 = tensor.empty() : tensor<12x4xf32>
  %nw2 = linalg.generic {indexing_maps = [#row, #row, #row],
                         iterator_types = ["parallel", "parallel"]}
      ins(%w2, %dw2 : tensor<12x4xf32>, tensor<12x4xf32>) outs(%ew2 : tensor<12x4xf32>) {
    ^bb0(%w: f32, %g: f32, %out: f32):
      %rate = arith.constant 0.5 : f32
      %move = arith.mulf %g, %rate : f32
      %new = arith.subf %w, %move : f32
      linalg.yield %new : f32
  } -> tensor<12x4xf32>
  return %nw1, %nb1, %nw2, %loss
      : tensor<8x12xf32>, tensor<12xf32>, tensor<12x4xf32>, tensor<f32>
}
