// RUN: ddphook-opt %s -split-input-file -verify-diagnostics

// What `ddp.deal` may be, and where.

ddp.process_group @dp topology hierarchical
func.func @on_another_op(%x: tensor<8xf32>) {
  // expected-error @+1 {{'ddp.scale' op expected 'ddp.deal' to be a #ddp.deal, on an all-reduce or a low-rank operation, but got #ddp.deal<"b0" groups[0] members[0] counts[8]>}}
  %0 = ddp.scale %x by 2.0 {ddp.deal = #ddp.deal<"b0" groups [0] members [0] counts [8]>} : tensor<8xf32>
  return
}

// -----

ddp.process_group @dp topology hierarchical
func.func @another_attribute(%x: tensor<8xf32>) {
  // expected-error @+1 {{'ddp.all_reduce' op expected 'ddp.deal' to be a #ddp.deal, on an all-reduce or a low-rank operation, but got "b0"}}
  %0 = ddp.all_reduce sum %x on @dp {ddp.deal = "b0"} : tensor<8xf32>
  return
}

// -----

ddp.process_group @dp topology hierarchical
func.func @other_size(%x: !ddp.bucket<f32, [4x2, 3]>) {
  // expected-error @+1 {{'ddp.all_reduce' op expected a deal of 11 elements, but got #ddp.deal<"b0" groups[0] members[0, 1] counts[8, 4]>}}
  %0 = ddp.all_reduce sum %x on @dp {ddp.deal = #ddp.deal<"b0" groups [0] members [0, 1] counts [8, 4]>} : !ddp.bucket<f32, [4x2, 3]>
  return
}

// -----

// expected-error @+1 {{expected a count of at least 0 for each member, but got 2 members and 1 counts}}
#few = #ddp.deal<"b0" groups [0] members [0, 1] counts [8]>

// -----

// expected-error @+1 {{expected a count of at least 0 for each member, but got 1 members and 1 counts}}
#negative = #ddp.deal<"b0" groups [0] members [0] counts [-8]>

// -----

// expected-error @+1 {{expected the first members of groups to ascend from 0, but got [1]}}
#late = #ddp.deal<"b0" groups [1] members [1] counts [8]>

// -----

// expected-error @+1 {{expected the first members of groups to ascend from 0, but got [0, 2, 2]}}
#twice = #ddp.deal<"b0" groups [0, 2, 2] members [1] counts [8]>
