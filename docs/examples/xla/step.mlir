// A training step of one rank: a layer of 16x8 weights, the squared error of eight rows of
// a batch, and an update. The gradient is reduced over all ranks; the rest is StableHLO.
ddp.process_group @dp

func.func @main(%w: tensor<16x8xf32>, %x: tensor<8x16xf32>, %t: tensor<8x8xf32>)
    -> tensor<16x8xf32> {
  %y = "stablehlo.dot_general"(%x, %w) {
      dot_dimension_numbers = #stablehlo.dot<lhs_contracting_dimensions = [1],
                                             rhs_contracting_dimensions = [0]>}
      : (tensor<8x16xf32>, tensor<16x8xf32>) -> tensor<8x8xf32>
  %d = "stablehlo.subtract"(%y, %t)
      : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  %g = "stablehlo.dot_general"(%x, %d) {
      dot_dimension_numbers = #stablehlo.dot<lhs_contracting_dimensions = [0],
                                             rhs_contracting_dimensions = [0]>}
      : (tensor<8x16xf32>, tensor<8x8xf32>) -> tensor<16x8xf32>
  %mean = ddp.all_reduce mean %g on @dp {ddp.name = "w"} : tensor<16x8xf32>
  %rate = "stablehlo.constant"() {value = dense<0.02> : tensor<16x8xf32>}
      : () -> tensor<16x8xf32>
  %move = "stablehlo.multiply"(%mean, %rate)
      : (tensor<16x8xf32>, tensor<16x8xf32>) -> tensor<16x8xf32>
  %w1 = "stablehlo.subtract"(%w, %move)
      : (tensor<16x8xf32>, tensor<16x8xf32>) -> tensor<16x8xf32>
  return %w1 : tensor<16x8xf32>
}
