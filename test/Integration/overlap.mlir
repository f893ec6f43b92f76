// Overlap changes when things travel, not what is computed: with one, two and four
// collectives in flight, on one, two and three ranks, the same bits in every step as
// without, each step depending on the states that the one before left.

// RUN: rm -rf %t && mkdir %t
// RUN: %python %S/Inputs/overlap.py ddphook-cc ddphook-exec %s %t

// A backward pass through three layers on two process groups, reductions at its
// end; the averages are used in turn, one group's with the other's.

!x = tensor<7x40xf32>
!a = tensor<40x33xf32>
!b = tensor<33x24xf32>
!c = tensor<24x40xf32>

ddp.process_group @dp
ddp.process_group @other

func.func @step(%x: !x, %d0: tensor<7x33xf32>, %d1: tensor<7x24xf32>,
                %w0: !a {bufferization.writable = true},
                %w1: !b {bufferization.writable = true},
                %w2: !c {bufferization.writable = true},
                %h: tensor<5x9xf16>, %v: tensor<24xf32>)
    -> (!a, !b, !c, tensor<5x9xf16>, tensor<24xf32>, tensor<40xf32>) {
  %zero = arith.constant 0.0 : f32
  %ea = tensor.empty() : !a
  %eb = tensor.empty() : !b
  %ec = tensor.empty() : !c
  %ev = tensor.empty() : tensor<40xf32>
  %za = linalg.fill ins(%zero : f32) outs(%ea : !a) -> !a
  %zb = linalg.fill ins(%zero : f32) outs(%eb : !b) -> !b
  %zc = linalg.fill ins(%zero : f32) outs(%ec : !c) -> !c
  %zv = linalg.fill ins(%zero : f32) outs(%ev : tensor<40xf32>) -> tensor<40xf32>
  %ga = linalg.matmul
      indexing_maps = [affine_map<(m, n, k) -> (k, m)>, affine_map<(m, n, k) -> (k, n)>, affine_map<(m, n, k) -> (m, n)>]
      ins(%x, %d0 : !x, tensor<7x33xf32>) outs(%za : !a) -> !a
  %gb = linalg.matmul
      indexing_maps = [affine_map<(m, n, k) -> (k, m)>, affine_map<(m, n, k) -> (k, n)>, affine_map<(m, n, k) -> (m, n)>]
      ins(%d0, %d1 : tensor<7x33xf32>, tensor<7x24xf32>) outs(%zb : !b) -> !b
  %gc = linalg.matmul
      indexing_maps = [affine_map<(m, n, k) -> (k, m)>, affine_map<(m, n, k) -> (k, n)>, affine_map<(m, n, k) -> (m, n)>]
      ins(%d1, %x : tensor<7x24xf32>, !x) outs(%zc : !c) -> !c
  %gv = linalg.reduce {arith.addf} ins(%x : !x) outs(%zv : tensor<40xf32>) dimensions = [0]
  %ra = ddp.all_reduce mean %ga on @dp : !a
  %rb = ddp.all_reduce mean %gb on @other : !b
  %rc = ddp.all_reduce mean %gc on @dp : !c
  %rh = ddp.all_reduce mean %h on @other : tensor<5x9xf16>
  %rv = ddp.all_reduce sum %v on @dp : tensor<24xf32>
  %rg = ddp.all_reduce mean %gv on @dp : tensor<40xf32>
  %na = linalg.sub ins(%w0, %ra : !a, !a) outs(%w0 : !a) -> !a
  %nb = linalg.sub ins(%w1, %rb : !b, !b) outs(%w1 : !b) -> !b
  %nc = linalg.sub ins(%w2, %rc : !c, !c) outs(%w2 : !c) -> !c
  return %na, %nb, %nc, %rh, %rv, %rg : !a, !b, !c, tensor<5x9xf16>, tensor<24xf32>, tensor<40xf32>
}
