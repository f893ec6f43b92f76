// A step for test_interleaving.py: gradients, and a tensor inserted into one, that are used
// after their averages; an argument that is updated in place; a loop.

ddp.process_group @dp size 1
func.func @step(%w: tensor<16x12xf32> {bufferization.writable = true}, %x: tensor<16x12xf32>)
    -> (tensor<16x12xf32>, tensor<16x12xf32>, tensor<24xf32>, tensor<6xf32>) {
  %e = tensor.empty() : tensor<16x12xf32>
  %g = linalg.map { arith.mulf } ins(%w, %x : tensor<16x12xf32>, tensor<16x12xf32>) outs(%e : tensor<16x12xf32>)
  %r = ddp.all_reduce mean %g on @dp {ddp.name = "w"} : tensor<16x12xf32>
  // The gradient is used after its average.
  %e2 = tensor.empty() : tensor<16x12xf32>
  %d = linalg.map { arith.subf } ins(%g, %r : tensor<16x12xf32>, tensor<16x12xf32>) outs(%e2 : tensor<16x12xf32>)
  %n = linalg.map { arith.subf } ins(%w, %r : tensor<16x12xf32>, tensor<16x12xf32>) outs(%w : tensor<16x12xf32>)
  // So is a tensor that is inserted into a gradient.
  %zero = arith.constant 0.0 : f32
  %e3 = tensor.empty() : tensor<12xf32>
  %i3 = linalg.fill ins(%zero : f32) outs(%e3 : tensor<12xf32>) -> tensor<12xf32>
  %b = linalg.reduce { arith.addf } ins(%x : tensor<16x12xf32>) outs(%i3 : tensor<12xf32>) dimensions = [0]
  %e4 = tensor.empty() : tensor<24xf32>
  %i4 = linalg.fill ins(%zero : f32) outs(%e4 : tensor<24xf32>) -> tensor<24xf32>
  %v = tensor.insert_slice %b into %i4[12] [12] [1] : tensor<12xf32> into tensor<24xf32>
  %rv = ddp.all_reduce mean %v on @dp {ddp.name = "v"} : tensor<24xf32>
  %back = tensor.extract_slice %rv[12] [12] [1] : tensor<24xf32> to tensor<12xf32>
  %e5 = tensor.empty() : tensor<12xf32>
  %c = linalg.map { arith.subf } ins(%b, %back : tensor<12xf32>, tensor<12xf32>) outs(%e5 : tensor<12xf32>)
  %rest = tensor.insert_slice %c into %rv[0] [12] [1] : tensor<12xf32> into tensor<24xf32>
  // A gradient in a loop.
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c3 = arith.constant 3 : index
  %s = tensor.extract_slice %x[0, 0] [1, 6] [1, 1] : tensor<16x12xf32> to tensor<6xf32>
  %l = scf.for %k = %c0 to %c3 step %c1 iter_args(%a = %s) -> (tensor<6xf32>) {
    %e6 = tensor.empty() : tensor<6xf32>
    %h = linalg.map { arith.addf } ins(%a, %s : tensor<6xf32>, tensor<6xf32>) outs(%e6 : tensor<6xf32>)
    %rh = ddp.all_reduce mean %h on @dp {ddp.name = "l", ddp.hook = #ddp.fp16} : tensor<6xf32>
    %e7 = tensor.empty() : tensor<6xf32>
    %q = linalg.map { arith.mulf } ins(%h, %rh : tensor<6xf32>, tensor<6xf32>) outs(%e7 : tensor<6xf32>)
    scf.yield %q : tensor<6xf32>
  }
  return %n, %d, %rest, %l : tensor<16x12xf32>, tensor<16x12xf32>, tensor<24xf32>, tensor<6xf32>
}
