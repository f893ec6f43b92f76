// RUN: ddphook-opt %s --convert-ddp-to-runtime | FileCheck %s

// In the IR a symbol may be used before it is defined; in the plan groups follow
// their parents, and states the generators whose numbers they begin with.

// CHECK: ddp.plan
// CHECK-SAME: process_groups = [<name = "dp">
// CHECK-SAME: <name = "pairs"
// CHECK-SAME: <name = "node"
// CHECK-SAME: <name = "other">]
// CHECK-SAME: states = [<name = "first"
// CHECK-SAME: <name = "late"
// CHECK-SAME: <name = "filled"
// CHECK-SAME: <name = "last"
ddp.process_group @node placement intra_node parent @pairs
ddp.process_group @pairs placement inter_node parent @dp
ddp.process_group @dp
ddp.process_group @other
ddp.state @first : i64 replicated zero
ddp.state @filled : !ddp.bucket<f32, [4]> replicated normal from @late draws [4]
ddp.state @late : tensor<625xi32> replicated mt19937 seed 0
ddp.state @last : !ddp.bucket<f32, [4]> replicated normal from @late draws [4]

func.func @step(%m: memref<4xf32>) {
  ddp.flat.all_reduce sum %m on @node into %m : memref<4xf32>, memref<4xf32>
  return
}
