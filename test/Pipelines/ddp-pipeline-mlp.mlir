// RUN: ddphook-opt %s --ddp-pipeline="require-no-copy=true overlap=false" | FileCheck %s
// RUN: ddphook-opt %s --ddp-pipeline="require-no-copy=true overlap=false hook=fp16" | FileCheck %s
// RUN: ddphook-opt %s --ddp-pipeline="require-no-copy=true overlap=false hook=bf16 fuse=false" | FileCheck %s
// RUN: ddphook-opt %s --ddp-pipeline="require-no-copy=true overlap=false hook=fp16 bucket-cap-mb=0" | FileCheck %s
// RUN: ddphook-opt %s --ddp-pipeline="require-no-copy=true overlap=false order=reverse" | FileCheck %s

// A training step of a two-layer perceptron: forward, backward, update in place.
// Every gradient is born in its bucket, the buckets are reduced in place, the
// weights are updated from them: nothing is copied or allocated.

// CHECK:       ddp.plan =
// CHECK-NOT:   ddp.{{[a-z_]+}}{{[ (]}}
// CHECK-LABEL: func.func @step(
// CHECK-SAME:    %[[X:[a-z0-9]+]]: memref<16x64xf32>, %[[T:[a-z0-9]+]]: memref<16x10xf32>, %[[W1:[a-z0-9]+]]: memref<64x32xf32>, %[[B1:[a-z0-9]+]]: memref<32xf32>, %[[W2:[a-z0-9]+]]: memref<32x10xf32>, %[[B2:[a-z0-9]+]]: memref<10xf32>, %[[LOSS:[a-z0-9]+]]: memref<f32>)
// CHECK-NOT:     memref.alloc
// CHECK-NOT:     memref.copy
// CHECK-NOT:     memref.dealloc
// CHECK:         llvm.call @ddphook_rt_collective(
// CHECK-NOT:     memref.alloc
// CHECK-NOT:     memref.copy
// CHECK-NOT:     memref.dealloc
// CHECK:         outs(%[[W1]] :
// CHECK-NOT:     memref.alloc
// CHECK-NOT:     memref.copy
// CHECK-NOT:     memref.dealloc
// CHECK:         return

#id = affine_map<(i, j) -> (i, j)>
#row = affine_map<(i, j) -> (j)>
#all = affine_map<(i, j) -> ()>
#one = affine_map<(i) -> (i)>
#mm_a = affine_map<(m, n, k) -> (m, k)>
#mm_at = affine_map<(m, n, k) -> (k, m)>
#mm_b = affine_map<(m, n, k) -> (k, n)>
#mm_bt = affine_map<(m, n, k) -> (n, k)>
#mm_c = affine_map<(m, n, k) -> (m, n)>

ddp.process_group @dp

func.func @step(%x: tensor<16x64xf32>, %t: tensor<16x10xf32>,
                %w1: tensor<64x32xf32> {bufferization.writable = true},
                %b1: tensor<32xf32> {bufferization.writable = true},
                %w2: tensor<32x10xf32> {bufferization.writable = true},
                %b2: tensor<10xf32> {bufferization.writable = true})
    -> (tensor<64x32xf32>, tensor<32xf32>, tensor<32x10xf32>, tensor<10xf32>,
        f32) {
  %zero = arith.constant 0.0 : f32
  %rate = arith.constant 0.1 : f32

  // h = relu(x·W1 + b1)
  %h_empty = tensor.empty() : tensor<16x32xf32>
  %h_start = linalg.generic {indexing_maps = [#row, #id],
      iterator_types = ["parallel", "parallel"]}
      ins(%b1 : tensor<32xf32>) outs(%h_empty : tensor<16x32xf32>) {
  ^bb0(%b: f32, %o: f32):
    linalg.yield %b : f32
  } -> tensor<16x32xf32>
  %h_sum = linalg.matmul ins(%x, %w1 : tensor<16x64xf32>, tensor<64x32xf32>)
      outs(%h_start : tensor<16x32xf32>) -> tensor<16x32xf32>
  %h = linalg.generic {indexing_maps = [#id],
      iterator_types = ["parallel", "parallel"]}
      outs(%h_sum : tensor<16x32xf32>) {
  ^bb0(%o: f32):
    %r = arith.maximumf %o, %zero : f32
    linalg.yield %r : f32
  } -> tensor<16x32xf32>

  // d = h·W2 + b2 - t, loss = Σ d²
  %d_empty = tensor.empty() : tensor<16x10xf32>
  %d_start = linalg.generic {indexing_maps = [#row, #id, #id],
      iterator_types = ["parallel", "parallel"]}
      ins(%b2, %t : tensor<10xf32>, tensor<16x10xf32>)
      outs(%d_empty : tensor<16x10xf32>) {
  ^bb0(%b: f32, %c: f32, %o: f32):
    %r = arith.subf %b, %c : f32
    linalg.yield %r : f32
  } -> tensor<16x10xf32>
  %d = linalg.matmul ins(%h, %w2 : tensor<16x32xf32>, tensor<32x10xf32>)
      outs(%d_start : tensor<16x10xf32>) -> tensor<16x10xf32>
  %loss_empty = tensor.empty() : tensor<f32>
  %loss_start = linalg.fill ins(%zero : f32) outs(%loss_empty : tensor<f32>)
      -> tensor<f32>
  %loss_sum = linalg.generic {indexing_maps = [#id, #all],
      iterator_types = ["reduction", "reduction"]}
      ins(%d : tensor<16x10xf32>) outs(%loss_start : tensor<f32>) {
  ^bb0(%e: f32, %o: f32):
    %q = arith.mulf %e, %e : f32
    %r = arith.addf %o, %q : f32
    linalg.yield %r : f32
  } -> tensor<f32>
  %loss = tensor.extract %loss_sum[] : tensor<f32>

  // gW2 = hᵀ·d, gb2 = Σ d
  %gw2_empty = tensor.empty() : tensor<32x10xf32>
  %gw2_start = linalg.fill ins(%zero : f32)
      outs(%gw2_empty : tensor<32x10xf32>) -> tensor<32x10xf32>
  %gw2 = linalg.generic {indexing_maps = [#mm_at, #mm_b, #mm_c],
      iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%h, %d : tensor<16x32xf32>, tensor<16x10xf32>)
      outs(%gw2_start : tensor<32x10xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %p = arith.mulf %a, %b : f32
    %r = arith.addf %o, %p : f32
    linalg.yield %r : f32
  } -> tensor<32x10xf32>
  %gb2_empty = tensor.empty() : tensor<10xf32>
  %gb2_start = linalg.fill ins(%zero : f32) outs(%gb2_empty : tensor<10xf32>)
      -> tensor<10xf32>
  %gb2 = linalg.generic {indexing_maps = [#id, #row],
      iterator_types = ["reduction", "parallel"]}
      ins(%d : tensor<16x10xf32>) outs(%gb2_start : tensor<10xf32>) {
  ^bb0(%a: f32, %o: f32):
    %r = arith.addf %o, %a : f32
    linalg.yield %r : f32
  } -> tensor<10xf32>

  // e = (d·W2ᵀ) where h > 0
  %e_empty = tensor.empty() : tensor<16x32xf32>
  %e_start = linalg.fill ins(%zero : f32) outs(%e_empty : tensor<16x32xf32>)
      -> tensor<16x32xf32>
  %e_sum = linalg.generic {indexing_maps = [#mm_a, #mm_bt, #mm_c],
      iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%d, %w2 : tensor<16x10xf32>, tensor<32x10xf32>)
      outs(%e_start : tensor<16x32xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %p = arith.mulf %a, %b : f32
    %r = arith.addf %o, %p : f32
    linalg.yield %r : f32
  } -> tensor<16x32xf32>
  %e = linalg.generic {indexing_maps = [#id, #id],
      iterator_types = ["parallel", "parallel"]}
      ins(%h : tensor<16x32xf32>) outs(%e_sum : tensor<16x32xf32>) {
  ^bb0(%a: f32, %o: f32):
    %c = arith.cmpf ogt, %a, %zero : f32
    %r = arith.select %c, %o, %zero : f32
    linalg.yield %r : f32
  } -> tensor<16x32xf32>

  // gW1 = xᵀ·e, gb1 = Σ e
  %gw1_empty = tensor.empty() : tensor<64x32xf32>
  %gw1_start = linalg.fill ins(%zero : f32)
      outs(%gw1_empty : tensor<64x32xf32>) -> tensor<64x32xf32>
  %gw1 = linalg.generic {indexing_maps = [#mm_at, #mm_b, #mm_c],
      iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%x, %e : tensor<16x64xf32>, tensor<16x32xf32>)
      outs(%gw1_start : tensor<64x32xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %p = arith.mulf %a, %b : f32
    %r = arith.addf %o, %p : f32
    linalg.yield %r : f32
  } -> tensor<64x32xf32>
  %gb1_empty = tensor.empty() : tensor<32xf32>
  %gb1_start = linalg.fill ins(%zero : f32) outs(%gb1_empty : tensor<32xf32>)
      -> tensor<32xf32>
  %gb1 = linalg.generic {indexing_maps = [#id, #row],
      iterator_types = ["reduction", "parallel"]}
      ins(%e : tensor<16x32xf32>) outs(%gb1_start : tensor<32xf32>) {
  ^bb0(%a: f32, %o: f32):
    %r = arith.addf %o, %a : f32
    linalg.yield %r : f32
  } -> tensor<32xf32>

  %rw2 = ddp.all_reduce mean %gw2 on @dp : tensor<32x10xf32>
  %rb2 = ddp.all_reduce mean %gb2 on @dp : tensor<10xf32>
  %rw1 = ddp.all_reduce mean %gw1 on @dp : tensor<64x32xf32>
  %rb1 = ddp.all_reduce mean %gb1 on @dp : tensor<32xf32>

  // w ← w - rate·g
  %uw1 = linalg.generic {indexing_maps = [#id, #id],
      iterator_types = ["parallel", "parallel"]}
      ins(%rw1 : tensor<64x32xf32>) outs(%w1 : tensor<64x32xf32>) {
  ^bb0(%g: f32, %o: f32):
    %s = arith.mulf %g, %rate : f32
    %r = arith.subf %o, %s : f32
    linalg.yield %r : f32
  } -> tensor<64x32xf32>
  %ub1 = linalg.generic {indexing_maps = [#one, #one],
      iterator_types = ["parallel"]}
      ins(%rb1 : tensor<32xf32>) outs(%b1 : tensor<32xf32>) {
  ^bb0(%g: f32, %o: f32):
    %s = arith.mulf %g, %rate : f32
    %r = arith.subf %o, %s : f32
    linalg.yield %r : f32
  } -> tensor<32xf32>
  %uw2 = linalg.generic {indexing_maps = [#id, #id],
      iterator_types = ["parallel", "parallel"]}
      ins(%rw2 : tensor<32x10xf32>) outs(%w2 : tensor<32x10xf32>) {
  ^bb0(%g: f32, %o: f32):
    %s = arith.mulf %g, %rate : f32
    %r = arith.subf %o, %s : f32
    linalg.yield %r : f32
  } -> tensor<32x10xf32>
  %ub2 = linalg.generic {indexing_maps = [#one, #one],
      iterator_types = ["parallel"]}
      ins(%rb2 : tensor<10xf32>) outs(%b2 : tensor<10xf32>) {
  ^bb0(%g: f32, %o: f32):
    %s = arith.mulf %g, %rate : f32
    %r = arith.subf %o, %s : f32
    linalg.yield %r : f32
  } -> tensor<10xf32>
  return %uw1, %ub1, %uw2, %ub2, %loss : tensor<64x32xf32>, tensor<32xf32>,
      tensor<32x10xf32>, tensor<10xf32>, f32
}
