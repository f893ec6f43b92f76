// RUN: ddphook-opt %s --convert-ddp-to-runtime | FileCheck %s

// In the IR a symbol may be used before it is defined; in the plan groups follow
// their parents, and states the generators whose numbers they begin with.

// CHECK: @__ddphook_plan(
// CHECK-SAME: process_groups
// CHECK-SAME: {\22name\22:\22dp\22
// CHECK-SAME: {\22name\22:\22pairs\22
// CHECK-SAME: {\22name\22:\22node\22
// CHECK-SAME: {\22name\22:\22other\22
// CHECK-SAME: states
// CHECK-SAME: {\22name\22:\22first\22
// CHECK-SAME: {\22name\22:\22late\22
// CHECK-SAME: {\22name\22:\22filled\22
// CHECK-SAME: {\22name\22:\22last\22
ddp.process_group @node placement intra_node parent @pairs
ddp.process_group @pairs placement inter_node parent @dp
ddp.process_group @dp
ddp.process_group @other
ddp.state @first : i64 replicated zero
ddp.state @filled : !ddp.bucket<f32, [4]> replicated normal from @late draws [4]
ddp.state @late : tensor<625xi32> replicated mt19937 seed 0
ddp.state @last : !ddp.bucket<f32, [4]> replicated normal from @late draws [4]

func.func @step(%m: memref<4xf32>) {
  ddp.all_reduce sum %m on @node into %m : memref<4xf32>, : memref<4xf32>
  return
}
