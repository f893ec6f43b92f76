// RUN: ddphook-opt %s --split-input-file --ddp-import-shard | FileCheck %s
// RUN: ddphook-opt %s --split-input-file --ddp-import-shard --remarks-filter=ddp-import-shard 2>&1 >/dev/null | FileCheck %s --check-prefix=REMARK

// Sums that are divided by the number of processes in a group, of two out of the grid's
// six: by each operation of linalg, and by those of arith on tensors.

// REMARK-COUNT-5: [Passed] Reduction {{.+}}grid_0, exact=false, mean=true
// REMARK: [Missed] Mean {{.+}}Remark="no mean over @grid_0: expected a quotient by 2, since the group has 2 ranks, but got one by 3"
// REMARK-COUNT-4: [Passed] Reduction {{.+}}grid_0, exact=false, mean=false
// REMARK-NOT: [Missed]

// CHECK-LABEL: func.func @behind(
// CHECK: %[[A:.+]] = ddp.all_reduce mean %{{.+}} on @grid_0
// CHECK: %[[B:.+]] = ddp.all_reduce mean %{{.+}} on @grid_0
// CHECK: %[[C:.+]] = ddp.all_reduce mean %{{.+}} on @grid_0
// CHECK: %[[D:.+]] = ddp.all_reduce mean %{{.+}} on @grid_0
// CHECK-NOT: arith
// CHECK-NOT: linalg.{{generic|map|div}}
// CHECK: return %[[A]], %[[B]], %[[C]], %[[D]]
shard.grid @grid(shape = 2x3)
func.func @behind(%g: tensor<8xf32>) -> (tensor<8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<8xf32>) {
  %e = tensor.empty() : tensor<8xf32>
  %two = arith.constant 2.0 : f32
  %half = arith.constant dense<0.5> : tensor<8xf32>
  %a = shard.all_reduce %g on @grid grid_axes = [0] : tensor<8xf32> -> tensor<8xf32>
  %0 = linalg.map ins(%a : tensor<8xf32>) outs(%e : tensor<8xf32>) (%x: f32, %out: f32) {
    %q = arith.divf %x, %two : f32
    linalg.yield %q : f32
  }
  %b = shard.all_reduce %g on @grid grid_axes = [0] : tensor<8xf32> -> tensor<8xf32>
  %twos = linalg.fill ins(%two : f32) outs(%e : tensor<8xf32>) -> tensor<8xf32>
  %1 = linalg.div ins(%b, %twos : tensor<8xf32>, tensor<8xf32>) outs(%e : tensor<8xf32>) -> tensor<8xf32>
  %c = shard.all_reduce %g on @grid grid_axes = [0] : tensor<8xf32> -> tensor<8xf32>
  %2 = arith.mulf %half, %c : tensor<8xf32>
  %d = shard.reduce_scatter %g on @grid grid_axes = [0] scatter_axis = 0 : tensor<8xf32> -> tensor<4xf32>
  %d1 = shard.all_gather %d on @grid grid_axes = [0] gather_axis = 0 : tensor<4xf32> -> tensor<8xf32>
  %3 = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> ()>, affine_map<(i) -> (i)>], iterator_types = ["parallel"]}
      ins(%d1, %two : tensor<8xf32>, f32) outs(%e : tensor<8xf32>) {
  ^bb0(%x: f32, %y: f32, %out: f32):
    %q = arith.divf %x, %y : f32
    linalg.yield %q : f32
  } -> tensor<8xf32>
  return %0, %1, %2, %3 : tensor<8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<8xf32>
}

// CHECK-LABEL: func.func @before(
// CHECK-SAME: %[[G:.+]]: tensor<8xf16>
// CHECK-NOT: divf
// CHECK: ddp.all_reduce mean %[[G]] on @grid_0
func.func @before(%g: tensor<8xf16>) -> tensor<8xf16> {
  %two = arith.constant dense<2.0> : tensor<8xf16>
  %0 = arith.divf %g, %two : tensor<8xf16>
  %1 = shard.all_reduce %0 on @grid grid_axes = [0] : tensor<8xf16> -> tensor<8xf16>
  return %1 : tensor<8xf16>
}

// No means: another number, a number divided by the sum, a use besides, and a sum of f16
// whose parts are too small to be divided before.

// CHECK-LABEL: func.func @none(
// CHECK-COUNT-4: ddp.all_reduce sum
func.func @none(%g: tensor<8xf32>, %h: tensor<8xf16>)
    -> (tensor<8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<8xf16>) {
  %three = arith.constant dense<3.0> : tensor<8xf32>
  %two = arith.constant dense<2.0> : tensor<8xf32>
  %narrow = arith.constant dense<2.0> : tensor<8xf16>
  %a = shard.all_reduce %g on @grid grid_axes = [0] : tensor<8xf32> -> tensor<8xf32>
  %0 = arith.divf %a, %three : tensor<8xf32>
  %b = shard.all_reduce %g on @grid grid_axes = [0] : tensor<8xf32> -> tensor<8xf32>
  %1 = arith.divf %two, %b : tensor<8xf32>
  %c = shard.all_reduce %g on @grid grid_axes = [0] : tensor<8xf32> -> tensor<8xf32>
  %2 = arith.divf %c, %two : tensor<8xf32>
  %3 = arith.addf %2, %c : tensor<8xf32>
  %d = shard.all_reduce %h on @grid grid_axes = [0] : tensor<8xf16> -> tensor<8xf16>
  %4 = arith.divf %d, %narrow : tensor<8xf16>
  return %0, %1, %3, %4 : tensor<8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<8xf16>
}

// -----

// How many processes there are is not known.

// CHECK-LABEL: func.func @unknown(
// CHECK: ddp.all_reduce sum
shard.grid @grid(shape = ?)
func.func @unknown(%g: tensor<8xf32>) -> tensor<8xf32> {
  %two = arith.constant dense<2.0> : tensor<8xf32>
  %a = shard.all_reduce %g on @grid grid_axes = [0] : tensor<8xf32> -> tensor<8xf32>
  %0 = arith.divf %a, %two : tensor<8xf32>
  return %0 : tensor<8xf32>
}
