// What kernels compute, executed without a GPU: the emulated device runs their PTX,
// threads and blocks first forwards and then backwards, and aligned accesses stay in
// its memory. Every result must have the bits of the code for the host.

// RUN: rm -rf %t && mkdir %t
// RUN: ddphook-cc %s -o %t/host.so --shared
// RUN: ddphook-cc %s -o %t/device.so --shared --device=cuda
// RUN: ddphook-exec %t/host.so --entry=step --steps=3 --inputs=random:5 "--outputs=%t/host.{step}"
// RUN: env EMULATED_CUDA_CHECKS=memory ddphook-exec %t/device.so --device=cuda_emulated --entry=step --steps=3 --inputs=random:5 "--outputs=%t/device.{step}"
// RUN: cmp %t/host.0 %t/device.0
// RUN: cmp %t/host.2 %t/device.2
// RUN: not cmp %t/host.0 %t/host.2
// RUN: env EMULATED_CUDA_ORDER=reverse ddphook-exec %t/device.so --device=cuda_emulated --entry=step --steps=3 --inputs=random:5 "--outputs=%t/reverse.{step}"
// RUN: cmp %t/host.2 %t/reverse.2

#ab = affine_map<(a, b) -> (a, b)>
#ba = affine_map<(a, b) -> (b, a)>
#a = affine_map<(a, b) -> (a)>
#scalar = affine_map<(a, b) -> ()>

ddp.process_group @dp

func.func @step(%a: tensor<37x53xf32>, %b: tensor<53x41xf32>,
                %batch: tensor<3x150x20xf32>, %image: tensor<2x9x8x3xf32>,
                %filter: tensor<3x2x3x5xf32>, %half: tensor<37x53xf16>,
                %brain: tensor<37x53xbf16>, %wide: tensor<53x7xf64>,
                %labels: tensor<37xi32>, %bits: tensor<37xi1>, %s: f32,
                %n: i64, %big: tensor<300x40xf32>, %tall: tensor<1030x3xf32>,
                %p: tensor<37x53xf32> {bufferization.writable = true})
    -> (tensor<37x41xf32>, tensor<41x37xf32>, tensor<3x150x150xf32>,
        tensor<2x7x7x5xf32>, tensor<37x53xf16>, tensor<53xbf16>,
        tensor<7x7xf64>, tensor<f32>, tensor<37xi64>, tensor<37xi1>,
        tensor<40x61xf32>, tensor<2x3xf32>, tensor<300x300xf32>,
        tensor<1030x1030xf32>, tensor<37x53xf32>) {
  %zero = arith.constant 0.0 : f32
  %zero_wide = arith.constant 0.0 : f64
  %zero_brain = arith.constant 0.0 : bf16
  %lowest = arith.constant -1.0e30 : f32

  // A product, averaged: the kernel writes the bucket.
  %c_empty = tensor.empty() : tensor<37x41xf32>
  %c_init = linalg.fill ins(%s : f32) outs(%c_empty : tensor<37x41xf32>) -> tensor<37x41xf32>
  %c = linalg.matmul ins(%a, %b : tensor<37x53xf32>, tensor<53x41xf32>)
      outs(%c_init : tensor<37x41xf32>) -> tensor<37x41xf32>
  %c_mean = ddp.all_reduce mean %c on @dp : tensor<37x41xf32>

  // The result is transposed, and its parameter a scalar.
  %t_empty = tensor.empty() : tensor<41x37xf32>
  %t = linalg.generic {indexing_maps = [#ab, #ba], iterator_types = ["parallel", "parallel"]}
      ins(%c : tensor<37x41xf32>) outs(%t_empty : tensor<41x37xf32>) {
  ^bb0(%x: f32, %out: f32):
    %0 = arith.mulf %x, %s : f32
    %1 = arith.maximumf %0, %x : f32
    linalg.yield %1 : f32
  } -> tensor<41x37xf32>

  // Batches, large enough for tiles of 2x2; columns of the right operand are
  // rows here.
  %m_empty = tensor.empty() : tensor<3x150x150xf32>
  %m_init = linalg.fill ins(%zero : f32) outs(%m_empty : tensor<3x150x150xf32>) -> tensor<3x150x150xf32>
  %m = linalg.batch_matmul
      indexing_maps = [affine_map<(b, m, n, k) -> (b, m, k)>,
                       affine_map<(b, m, n, k) -> (b, n, k)>,
                       affine_map<(b, m, n, k) -> (b, m, n)>]
      ins(%batch, %batch : tensor<3x150x20xf32>, tensor<3x150x20xf32>)
      outs(%m_init : tensor<3x150x150xf32>) -> tensor<3x150x150xf32>

  // Two reductions, indices that are sums.
  %v_empty = tensor.empty() : tensor<2x7x7x5xf32>
  %v_init = linalg.fill ins(%zero : f32) outs(%v_empty : tensor<2x7x7x5xf32>) -> tensor<2x7x7x5xf32>
  %v = linalg.conv_2d_nhwc_hwcf
      ins(%image, %filter : tensor<2x9x8x3xf32>, tensor<3x2x3x5xf32>)
      outs(%v_init : tensor<2x7x7x5xf32>) -> tensor<2x7x7x5xf32>

  // 16 bits.
  %h_empty = tensor.empty() : tensor<37x53xf16>
  %h = linalg.generic {indexing_maps = [#ab, #ab, #ab], iterator_types = ["parallel", "parallel"]}
      ins(%half, %a : tensor<37x53xf16>, tensor<37x53xf32>) outs(%h_empty : tensor<37x53xf16>) {
  ^bb0(%x: f16, %y: f32, %out: f16):
    %0 = arith.truncf %y : f32 to f16
    %1 = arith.mulf %x, %0 : f16
    %2 = arith.addf %1, %x : f16
    linalg.yield %2 : f16
  } -> tensor<37x53xf16>
  %r_empty = tensor.empty() : tensor<53xbf16>
  %r_init = linalg.fill ins(%zero_brain : bf16) outs(%r_empty : tensor<53xbf16>) -> tensor<53xbf16>
  %r = linalg.reduce {arith.addf} ins(%brain : tensor<37x53xbf16>)
      outs(%r_init : tensor<53xbf16>) dimensions = [0]

  // f64; both operands are one array.
  %w_empty = tensor.empty() : tensor<7x7xf64>
  %w_init = linalg.fill ins(%zero_wide : f64) outs(%w_empty : tensor<7x7xf64>) -> tensor<7x7xf64>
  %w = linalg.generic
      {indexing_maps = [affine_map<(i, j, k) -> (k, i)>,
                        affine_map<(i, j, k) -> (k, j)>,
                        affine_map<(i, j, k) -> (i, j)>],
       iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%wide, %wide : tensor<53x7xf64>, tensor<53x7xf64>) outs(%w_init : tensor<7x7xf64>) {
  ^bb0(%x: f64, %y: f64, %sum: f64):
    %0 = arith.mulf %x, %y : f64
    %1 = math.absf %0 : f64
    %2 = math.sqrt %1 : f64
    %3 = arith.addf %sum, %2 : f64
    linalg.yield %3 : f64
  } -> tensor<7x7xf64>

  // One number of everything.
  %l_empty = tensor.empty() : tensor<f32>
  %l_init = linalg.fill ins(%lowest : f32) outs(%l_empty : tensor<f32>) -> tensor<f32>
  %l = linalg.generic {indexing_maps = [#ab, #scalar], iterator_types = ["reduction", "reduction"]}
      ins(%a : tensor<37x53xf32>) outs(%l_init : tensor<f32>) {
  ^bb0(%x: f32, %most: f32):
    %0 = arith.maximumf %x, %most : f32
    linalg.yield %0 : f32
  } -> tensor<f32>

  // Two results; integers, truth values, positions, branches.
  %i_empty = tensor.empty() : tensor<37xi64>
  %f_empty = tensor.empty() : tensor<37xi1>
  %i:2 = linalg.generic
      {indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>,
                        affine_map<(i) -> (i)>, affine_map<(i) -> (i)>],
       iterator_types = ["parallel"]}
      ins(%labels, %bits : tensor<37xi32>, tensor<37xi1>)
      outs(%i_empty, %f_empty : tensor<37xi64>, tensor<37xi1>) {
  ^bb0(%label: i32, %bit: i1, %out: i64, %flag: i1):
    %at = linalg.index 0 : index
    %at_i64 = arith.index_cast %at : index to i64
    %0 = arith.extsi %label : i32 to i64
    %1 = scf.if %bit -> i64 {
      %sum = arith.addi %at_i64, %n : i64
      scf.yield %sum : i64
    } else {
      %difference = arith.subi %0, %at_i64 : i64
      scf.yield %difference : i64
    }
    %2 = arith.cmpi sgt, %1, %n : i64
    linalg.yield %1, %2 : i64, i1
  } -> (tensor<37xi64>, tensor<37xi1>)

  // Parts of arrays: copies with gaps; a frame of zeros around another array.
  %pad = tensor.pad %a low[1, 4] high[2, 4] {
  ^bb0(%x: index, %y: index):
    tensor.yield %zero : f32
  } : tensor<37x53xf32> to tensor<40x61xf32>

  // A constant array.
  %table = arith.constant dense<[[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]> : tensor<2x3xf32>
  %k_empty = tensor.empty() : tensor<2x3xf32>
  %k = linalg.generic {indexing_maps = [#ab, #ab], iterator_types = ["parallel", "parallel"]}
      ins(%table : tensor<2x3xf32>) outs(%k_empty : tensor<2x3xf32>) {
  ^bb0(%x: f32, %out: f32):
    %0 = arith.mulf %x, %s : f32
    linalg.yield %0 : f32
  } -> tensor<2x3xf32>

  // Tiles that end in the middle of a block on both sides.
  %q_empty = tensor.empty() : tensor<300x300xf32>
  %q_init = linalg.fill ins(%s : f32) outs(%q_empty : tensor<300x300xf32>) -> tensor<300x300xf32>
  %q = linalg.matmul
      indexing_maps = [affine_map<(m, n, k) -> (m, k)>,
                       affine_map<(m, n, k) -> (n, k)>,
                       affine_map<(m, n, k) -> (m, n)>]
      ins(%big, %big : tensor<300x40xf32>, tensor<300x40xf32>)
      outs(%q_init : tensor<300x300xf32>) -> tensor<300x300xf32>

  // Tiles of 4x4.
  %u_empty = tensor.empty() : tensor<1030x1030xf32>
  %u_init = linalg.fill ins(%s : f32) outs(%u_empty : tensor<1030x1030xf32>) -> tensor<1030x1030xf32>
  %u = linalg.matmul
      indexing_maps = [affine_map<(m, n, k) -> (m, k)>,
                       affine_map<(m, n, k) -> (n, k)>,
                       affine_map<(m, n, k) -> (m, n)>]
      ins(%tall, %tall : tensor<1030x3xf32>, tensor<1030x3xf32>)
      outs(%u_init : tensor<1030x1030xf32>) -> tensor<1030x1030xf32>

  // In place, by a loop of the host.
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c3 = arith.constant 3 : index
  %p_new = scf.for %step = %c0 to %c3 step %c1
      iter_args(%old = %p) -> tensor<37x53xf32> {
    %next = linalg.generic {indexing_maps = [#ab, #ab], iterator_types = ["parallel", "parallel"]}
        ins(%a : tensor<37x53xf32>) outs(%old : tensor<37x53xf32>) {
    ^bb0(%x: f32, %y: f32):
      %0 = arith.mulf %y, %s : f32
      %1 = arith.subf %0, %x : f32
      linalg.yield %1 : f32
    } -> tensor<37x53xf32>
    scf.yield %next : tensor<37x53xf32>
  }
  return %c_mean, %t, %m, %v, %h, %r, %w, %l, %i#0, %i#1, %pad, %k, %q, %u, %p_new
      : tensor<37x41xf32>, tensor<41x37xf32>, tensor<3x150x150xf32>,
        tensor<2x7x7x5xf32>, tensor<37x53xf16>, tensor<53xbf16>,
        tensor<7x7xf64>, tensor<f32>, tensor<37xi64>, tensor<37xi1>,
        tensor<40x61xf32>, tensor<2x3xf32>, tensor<300x300xf32>,
        tensor<1030x1030xf32>, tensor<37x53xf32>
}
