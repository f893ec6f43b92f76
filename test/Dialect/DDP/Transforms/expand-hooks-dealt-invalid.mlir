// RUN: ddphook-opt %s --ddp-expand-hooks -split-input-file -verify-diagnostics

// The groups of a node's ranks, and of a position's, need their names.

ddp.process_group @dp topology hierarchical
// expected-note @+1 {{the name is used here}}
ddp.process_group @dp.node
func.func @node(%b: !ddp.bucket<f32, [8x9]>) {
  // expected-error @+2 {{hook #ddp.powersgd could not be expanded}}
  // expected-error @+1 {{expected the name @dp.node to be free for the ranks of @dp on a node}}
  %0 = ddp.all_reduce mean %b on @dp as "b0" {ddp.hook = #ddp.powersgd} : !ddp.bucket<f32, [8x9]>
  return
}

// -----

ddp.process_group @dp topology hierarchical
// expected-note @+1 {{the name is used here}}
ddp.process_group @dp.across placement intra_node parent @dp
func.func @across(%b: !ddp.bucket<f32, [8x9]>) {
  // expected-error @+2 {{hook #ddp.powersgd could not be expanded}}
  // expected-error @+1 {{expected the name @dp.across to be free for the ranks of @dp at the same position on all nodes}}
  %0 = ddp.all_reduce mean %b on @dp as "b0" {ddp.hook = #ddp.powersgd} : !ddp.bucket<f32, [8x9]>
  return
}

// -----

// Groups that are these already are used.
ddp.process_group @dp topology hierarchical
ddp.process_group @dp.node placement intra_node parent @dp
ddp.process_group @dp.across placement inter_node parent @dp
func.func @both(%b: !ddp.bucket<f32, [8x9]>) {
  %0 = ddp.all_reduce mean %b on @dp as "b0" {ddp.hook = #ddp.powersgd} : !ddp.bucket<f32, [8x9]>
  return
}
