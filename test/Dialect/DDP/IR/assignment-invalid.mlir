// RUN: ddphook-opt %s -split-input-file -verify-diagnostics

// What `ddp.assignment` may be, and where.

ddp.process_group @dp topology hierarchical
func.func @on_another_op(%x: tensor<8xf32>) {
  // expected-error @+1 {{'ddp.scale' op expected 'ddp.assignment' to be a #ddp.assignment, on an all-reduce or a low-rank operation, but got #ddp.assignment<"b0" groups[0] members[0] counts[8]>}}
  %0 = ddp.scale %x by 2.0 {ddp.assignment = #ddp.assignment<"b0" groups [0] members [0] counts [8]>} : tensor<8xf32>
  return
}

// -----

ddp.process_group @dp topology hierarchical
func.func @another_attribute(%x: tensor<8xf32>) {
  // expected-error @+1 {{'ddp.all_reduce' op expected 'ddp.assignment' to be a #ddp.assignment, on an all-reduce or a low-rank operation, but got "b0"}}
  %0 = ddp.all_reduce sum %x on @dp {ddp.assignment = "b0"} : tensor<8xf32>
  return
}

// -----

ddp.process_group @dp topology hierarchical
func.func @other_size(%x: !ddp.bucket<f32, [4x2, 3]>) {
  // expected-error @+1 {{'ddp.all_reduce' op expected an assignment of 11 elements, but got #ddp.assignment<"b0" groups[0] members[0, 1] counts[8, 4]>}}
  %0 = ddp.all_reduce sum %x on @dp {ddp.assignment = #ddp.assignment<"b0" groups [0] members [0, 1] counts [8, 4]>} : !ddp.bucket<f32, [4x2, 3]>
  return
}

// -----

// expected-error @+1 {{expected a count of at least 0 for each member, but got 2 members and 1 counts}}
#few = #ddp.assignment<"b0" groups [0] members [0, 1] counts [8]>

// -----

// expected-error @+1 {{expected a count of at least 0 for each member, but got 1 members and 1 counts}}
#negative = #ddp.assignment<"b0" groups [0] members [0] counts [-8]>

// -----

// expected-error @+1 {{expected the first members of groups to ascend from 0, but got [1]}}
#late = #ddp.assignment<"b0" groups [1] members [1] counts [8]>

// -----

// expected-error @+1 {{expected the first members of groups to ascend from 0, but got [0, 2, 2]}}
#twice = #ddp.assignment<"b0" groups [0, 2, 2] members [1] counts [8]>

// -----

ddp.process_group @dp topology hierarchical
func.func @wire_type(%x: tensor<8xf32>) {
  // expected-error @+1 {{'ddp.all_reduce' op expected no wire type with 'ddp.assignment', but got 'f16'}}
  %0 = ddp.all_reduce sum %x on @dp wire f16 {ddp.assignment = #ddp.assignment<"b0" groups [0] members [0] counts [8]>} : tensor<8xf32>
  return
}

// -----

ddp.process_group @dp topology hierarchical
func.func @mean(%x: tensor<8xf32>) {
  // expected-error @+1 {{'ddp.all_reduce' op expected a sum with 'ddp.assignment' over a hierarchical group, but got a mean}}
  %0 = ddp.all_reduce mean %x on @dp {ddp.assignment = #ddp.assignment<"b0" groups [0] members [0] counts [8]>} : tensor<8xf32>
  return
}

// -----

ddp.process_group @flat
func.func @flat_group(%x: tensor<8xf32>) {
  // expected-error @+1 {{'ddp.all_reduce' op expected 'ddp.assignment' over a hierarchical group or its ranks on a node, but got @flat}}
  %0 = ddp.all_reduce sum %x on @flat {ddp.assignment = #ddp.assignment<"b0" groups [0] members [0] counts [8]>} : tensor<8xf32>
  return
}

// -----

ddp.process_group @dp topology hierarchical
ddp.process_group @across placement inter_node parent @dp
func.func @across_nodes(%x: memref<8xf32>) {
  // expected-error @+1 {{'ddp.flat.all_reduce' op expected 'ddp.assignment' over a hierarchical group or its ranks on a node, but got @across}}
  ddp.flat.all_reduce sum %x on @across into %x {ddp.assignment = #ddp.assignment<"b0" groups [0] members [0] counts [8]>} : memref<8xf32>, memref<8xf32>
  return
}

// -----

ddp.process_group @node placement intra_node
func.func @nodes_of_a_flat_group(%x: tensor<8xf32>) {
  // expected-error @+1 {{'ddp.all_reduce' op expected 'ddp.assignment' over a hierarchical group or its ranks on a node, but got @node}}
  %0 = ddp.all_reduce sum %x on @node {ddp.assignment = #ddp.assignment<"b0" groups [0] members [0] counts [8]>} : tensor<8xf32>
  return
}

// -----

// Over the hierarchical group members may be in any order.

ddp.process_group @dp topology hierarchical
ddp.process_group @node placement intra_node parent @dp
func.func @not_adjacent(%x: tensor<8xf32>) {
  %0 = ddp.all_reduce sum %x on @dp {ddp.assignment = #ddp.assignment<"b0" groups [0, 1] members [2, 0] counts [3, 5]>} : tensor<8xf32>
  // expected-error @+1 {{'ddp.all_reduce' op expected adjacent members of one group within nodes, but got #ddp.assignment<"b0" groups[0] members[0, 2] counts[3, 5]>}}
  %1 = ddp.all_reduce mean %x on @node {ddp.assignment = #ddp.assignment<"b0" groups [0] members [0, 2] counts [3, 5]>} : tensor<8xf32>
  return
}

// -----

ddp.process_group @dp topology hierarchical
ddp.process_group @node placement intra_node parent @dp
func.func @two_groups(%x: tensor<8xf32>) {
  // expected-error @+1 {{'ddp.all_reduce' op expected adjacent members of one group within nodes, but got #ddp.assignment<"b0" groups[0, 1] members[0, 1] counts[3, 5]>}}
  %1 = ddp.all_reduce mean %x on @node {ddp.assignment = #ddp.assignment<"b0" groups [0, 1] members [0, 1] counts [3, 5]>} : tensor<8xf32>
  return
}

// -----

func.func @product_of_two_groups(%x: !ddp.bucket<f32, [4x3]>, %q: !ddp.bucket<f32, [3x2]>) {
  // expected-error @+1 {{'ddp.matmul' op expected members of one group, but got #ddp.assignment<"b0" groups[0, 1] members[0, 1] counts[6, 6]>}}
  %0 = ddp.matmul %x, %q {ddp.assignment = #ddp.assignment<"b0" groups [0, 1] members [0, 1] counts [6, 6]>} : (!ddp.bucket<f32, [4x3]>, !ddp.bucket<f32, [3x2]>) -> !ddp.bucket<f32, [4x2]>
  return
}

// -----

func.func @cut_matrix(%x: memref<12xf32>, %q: memref<6xf32>, %p: memref<8xf32>) {
  // expected-error @+1 {{'ddp.flat.matmul' op expected parts that split no matrix, but got #ddp.assignment<"b0" groups[0] members[0, 1] counts[6, 6]>}}
  "ddp.flat.matmul"(%x, %q, %p) <{layout = #ddp.matrix_list<0 to 12, [0, 0, 0, 4, 3, 2], []>}> {ddp.assignment = #ddp.assignment<"b0" groups [0] members [0, 1] counts [6, 6]>} : (memref<12xf32>, memref<6xf32>, memref<8xf32>) -> ()
  return
}

// -----

func.func @cut_piece(%x: memref<17xf32>, %q: memref<6xf32>, %p: memref<8xf32>) {
  // expected-error @+1 {{'ddp.flat.matmul' op expected parts that split no piece, but got #ddp.assignment<"b0" groups[0] members[0, 1] counts[13, 4]>}}
  "ddp.flat.matmul"(%x, %q, %p) <{layout = #ddp.matrix_list<0 to 17, [0, 0, 0, 4, 3, 2], [12, 0, 5]>}> {ddp.assignment = #ddp.assignment<"b0" groups [0] members [0, 1] counts [13, 4]>} : (memref<17xf32>, memref<6xf32>, memref<8xf32>) -> ()
  return
}

// -----

ddp.process_group @dp topology hierarchical
func.func @huge(%x: tensor<8xf32>) {
  // expected-error @+1 {{expected an assignment of 8 elements}}
  %0 = ddp.all_reduce sum %x on @dp {ddp.assignment = #ddp.assignment<"b0" groups [0] members [0, 1, 2] counts [9223372036854775807, 9223372036854775807, 10]>} : tensor<8xf32>
  return
}
