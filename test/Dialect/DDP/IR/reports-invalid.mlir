// RUN: ddphook-opt %s -split-input-file -verify-diagnostics

// What ddp.count_compression and ddp.is_finite refuse, under the number of the
// constraint.

// C1
func.func @before(%i: i64) {
  // expected-error @+1 {{expected element counts of at least 0 and a frequency of at least 1}}
  ddp.count_compression "b0" before -1 after 256 at %i every 10000
  return
}

// -----

// C1
func.func @after(%i: i64) {
  // expected-error @+1 {{expected element counts of at least 0 and a frequency of at least 1}}
  ddp.count_compression "b0" before 1 after -256 at %i every 10000
  return
}

// -----

// C1
func.func @never(%i: i64) {
  // expected-error @+1 {{expected element counts of at least 0 and a frequency of at least 1}}
  ddp.count_compression "b0" before 1 after 1 at %i every 0
  return
}

// -----

// C1
func.func @negative_frequency(%i: i64) {
  // expected-error @+1 {{expected element counts of at least 0 and a frequency of at least 1}}
  ddp.count_compression "b0" before 1 after 1 at %i every -10000
  return
}

// -----

// The iteration's type.
// expected-note @+1 {{prior use here}}
func.func @index(%i: index) {
  // expected-error @+1 {{use of value '%i' expects different type than prior uses: 'i64' vs 'index'}}
  ddp.count_compression "b0" before 1 after 1 at %i every 1
  return
}

// -----

func.func @integers(%t: tensor<4xi32>) {
  // expected-error @+1 {{operand #0 must be}}
  %0 = ddp.is_finite %t : tensor<4xi32>
  return
}
