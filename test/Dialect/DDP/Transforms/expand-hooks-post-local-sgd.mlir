// RUN: split-file %s %t
// RUN: ddphook-opt %t/options.mlir --ddp-expand-hooks="hook=post_local_sgd" | FileCheck %s --check-prefixes=OPTIONS,DEFAULT
// RUN: ddphook-opt %t/options.mlir --ddp-expand-hooks="hook=post-local-sgd start_localsgd_iter=7 subgroup=pairs" | FileCheck %s --check-prefixes=OPTIONS,PAIRS
// RUN: ddphook-opt %t/options.mlir --ddp-expand-hooks="hook=post_local_sgd START_LOCALSGD_ITER=7 subgroup=@pairs post-local-gradient-allreduce=1" | FileCheck %s --check-prefixes=OPTIONS,PAIRS
// RUN: ddphook-opt %t/options.mlir --ddp-expand-hooks="hook=post_local_sgd post-local-gradient-allreduce=false" | FileCheck %s --check-prefixes=OPTIONS,ALONE
// RUN: ddphook-opt %t/options.mlir --ddp-expand-hooks="hook=post_local_sgd wrapper=bf16 start-localsgd-iter=-1" | FileCheck %s --check-prefixes=OPTIONS,WRAPPED
// RUN: ddphook-opt %t/invalid.mlir --ddp-expand-hooks -split-input-file -verify-diagnostics
// RUN: ddphook-opt %t/counters.mlir --ddp-expand-hooks | FileCheck %s --check-prefix=COUNTERS

// Options of post-local SGD, what it refuses, and its counter. The expansion is
// in expand-hooks-post-local-subgroups.mlir.

// RUN: not ddphook-opt --ddp-expand-hooks="hook=post_local_sgd start-localsgd-iter=soon" %S/Inputs/empty.mlir 2>&1 | FileCheck %s --check-prefix=START
// START: error: expected start-localsgd-iter to be a whole number, but got 'soon'
// RUN: not ddphook-opt --ddp-expand-hooks="hook=post_local_sgd post-local-gradient-allreduce=maybe" %S/Inputs/empty.mlir 2>&1 | FileCheck %s --check-prefix=FLAG
// FLAG: error: expected post-local-gradient-allreduce to be true or false, but got 'maybe'
// RUN: not ddphook-opt --ddp-expand-hooks="hook=powersgd start-localsgd-iter=5" %S/Inputs/empty.mlir 2>&1 | FileCheck %s --check-prefix=POWERSGD
// POWERSGD: error: expected start-localsgd-iter only with hook=post_local_sgd, but got hook=powersgd
// RUN: not ddphook-opt --ddp-expand-hooks="subgroup=pairs" %S/Inputs/empty.mlir 2>&1 | FileCheck %s --check-prefix=SUBGROUP
// SUBGROUP: error: expected subgroup only with hook=post_local_sgd, but got hook=allreduce
// RUN: not ddphook-opt --ddp-expand-hooks="hook=post_local_sgd random-seed=5" %S/Inputs/empty.mlir 2>&1 | FileCheck %s --check-prefix=SEED
// SEED: error: expected random-seed only with hook=powersgd, batched_powersgd, int8, int4 or fp8, but got hook=post_local_sgd

//--- options.mlir
ddp.process_group @dp
ddp.process_group @pairs ranks [[0, 1], [2, 3]]
// OPTIONS: ddp.state @post_local_sgd.iter : i64 replicated zero
// Before the start; then among these; or not at all.
// DEFAULT: arith.constant 100 : i64
// DEFAULT: ddp.all_reduce mean %{{.+}} on @dp as "b0"
// DEFAULT: ddp.all_reduce mean %{{.+}} on @dp.node as "b0"
// PAIRS:   arith.constant 7 : i64
// PAIRS:   ddp.all_reduce mean %{{.+}} on @dp as "b0"
// PAIRS:   ddp.all_reduce mean %{{.+}} on @pairs as "b0"
// ALONE:   arith.constant 100 : i64
// ALONE:   ddp.all_reduce mean %{{.+}} on @dp as "b0"
// ALONE-NOT: ddp.all_reduce
// WRAPPED: ddp.cast
// WRAPPED: arith.constant -1 : i64
// WRAPPED: ddp.all_reduce mean %{{.+}} on @dp.node as "b0" {{.+}} : !ddp.bucket<bf16, [4]>
// WRAPPED: ddp.cast
func.func @step(%b: !ddp.bucket<f32, [4]>) -> !ddp.bucket<f32, [4]> {
  %r = ddp.all_reduce mean %b on @dp as "b0" : !ddp.bucket<f32, [4]>
  return %r : !ddp.bucket<f32, [4]>
}
// OPTIONS: ddp.bucket_info "b0" mean on @dp hook
// DEFAULT-SAME: #ddp.post_local_sgd wire f32 bytes 16 state_bytes 0 :
// PAIRS-SAME:   #ddp.post_local_sgd<start_localSGD_iter = 7, subgroup = @pairs> wire f32 bytes 16 state_bytes 0 :
// ALONE-SAME:   #ddp.post_local_sgd<post_local_gradient_allreduce = false> wire f32 bytes 16 state_bytes 0 :
// WRAPPED-SAME: #ddp.wrap<bf16, #ddp.post_local_sgd<start_localSGD_iter = -1>> wire bf16 bytes 8 state_bytes 0 :

//--- invalid.mlir
// C1
ddp.process_group @dp
func.func @no_subgroup(%b: !ddp.bucket<f32, [4]>) -> !ddp.bucket<f32, [4]> {
  // expected-error @+2 {{expected subgroup @pairs to be declared as a process group}}
  // expected-error @+1 {{hook #ddp.post_local_sgd<subgroup = @pairs> could not be expanded}}
  %r = ddp.all_reduce mean %b on @dp as "b0"
      {ddp.hook = #ddp.post_local_sgd<subgroup = @pairs>} : !ddp.bucket<f32, [4]>
  return %r : !ddp.bucket<f32, [4]>
}

// -----

// C1, also where it is not used.
ddp.process_group @dp
func.func private @pairs()
func.func @no_group(%b: !ddp.bucket<f32, [4]>) -> !ddp.bucket<f32, [4]> {
  // expected-error @+2 {{expected subgroup @pairs to be declared as a process group}}
  // expected-error @+1 {{could not be expanded}}
  %r = ddp.all_reduce mean %b on @dp as "b0"
      {ddp.hook = #ddp.post_local_sgd<subgroup = @pairs, post_local_gradient_allreduce = false>} : !ddp.bucket<f32, [4]>
  return %r : !ddp.bucket<f32, [4]>
}

// -----

// The default subgroup's name is taken by something else.
ddp.process_group @dp
func.func private @dp.node()
func.func @name_taken(%b: !ddp.bucket<f32, [4]>) -> !ddp.bucket<f32, [4]> {
  // expected-error @+2 {{expected the name @dp.node to be free for a process group}}
  // expected-error @+1 {{hook #ddp.post_local_sgd could not be expanded}}
  %r = ddp.all_reduce mean %b on @dp as "b0" {ddp.hook = #ddp.post_local_sgd} : !ddp.bucket<f32, [4]>
  return %r : !ddp.bucket<f32, [4]>
}

// -----

// Or by a process group of other ranks.
ddp.process_group @dp
ddp.process_group @other
ddp.process_group @dp.node placement intra_node parent @other
func.func @other_parent(%b: !ddp.bucket<f32, [4]>) -> !ddp.bucket<f32, [4]> {
  // expected-error @+2 {{expected the name @dp.node to be free for a process group}}
  // expected-error @+1 {{hook #ddp.post_local_sgd could not be expanded}}
  %r = ddp.all_reduce mean %b on @dp as "b0" {ddp.hook = #ddp.post_local_sgd} : !ddp.bucket<f32, [4]>
  return %r : !ddp.bucket<f32, [4]>
}

// -----

ddp.process_group @dp
ddp.process_group @dp.node placement inter_node parent @dp
func.func @other_placement(%b: !ddp.bucket<f32, [4]>) -> !ddp.bucket<f32, [4]> {
  // expected-error @+2 {{expected the name @dp.node to be free for a process group}}
  // expected-error @+1 {{hook #ddp.post_local_sgd could not be expanded}}
  %r = ddp.all_reduce mean %b on @dp as "b0" {ddp.hook = #ddp.post_local_sgd} : !ddp.bucket<f32, [4]>
  return %r : !ddp.bucket<f32, [4]>
}

// -----

ddp.process_group @dp
// expected-note @+1 {{the name is used here}}
func.func private @post_local_sgd.iter()
func.func @counter_taken(%b: !ddp.bucket<f32, [4]>) -> !ddp.bucket<f32, [4]> {
  // expected-error @+2 {{expected the name @post_local_sgd.iter to be free for a state}}
  // expected-error @+1 {{hook #ddp.post_local_sgd could not be expanded}}
  %r = ddp.all_reduce mean %b on @dp as "b0" {ddp.hook = #ddp.post_local_sgd} : !ddp.bucket<f32, [4]>
  return %r : !ddp.bucket<f32, [4]>
}

//--- counters.mlir
// One counter for the buckets of an entry point, stored once, behind them; the
// declared group of near ranks serves. Another entry point counts by itself.
ddp.process_group @dp
// COUNTERS:     ddp.process_group @dp.node placement intra_node parent @dp
// COUNTERS-NOT: ddp.process_group
ddp.process_group @dp.node placement intra_node parent @dp
// COUNTERS:     ddp.state @post_local_sgd.iter : i64 replicated zero
// COUNTERS:     ddp.state @post_local_sgd.iter.1 : i64 replicated zero
// COUNTERS-LABEL: func.func @two(
// COUNTERS-COUNT-1: ddp.load @post_local_sgd.iter : i64
// COUNTERS-NOT:     ddp.load
// COUNTERS-COUNT-2: scf.if
// COUNTERS-COUNT-1: ddp.store %{{.+}}, @post_local_sgd.iter : i64
// COUNTERS-NOT:     ddp.store
func.func @two(%b: !ddp.bucket<f32, [4]>, %c: !ddp.bucket<f16, [4]>)
    -> (!ddp.bucket<f32, [4]>, !ddp.bucket<f16, [4]>) {
  %r = ddp.all_reduce mean %b on @dp as "b0" {ddp.hook = #ddp.post_local_sgd} : !ddp.bucket<f32, [4]>
  %s = ddp.all_reduce mean %c on @dp as "b1" {ddp.hook = #ddp.post_local_sgd} : !ddp.bucket<f16, [4]>
  return %r, %s : !ddp.bucket<f32, [4]>, !ddp.bucket<f16, [4]>
}
// COUNTERS-LABEL: func.func @another(
// COUNTERS:         ddp.load @post_local_sgd.iter.1 : i64
// COUNTERS:         ddp.store %{{.+}}, @post_local_sgd.iter.1 : i64
func.func @another(%b: !ddp.bucket<f32, [4]>) -> !ddp.bucket<f32, [4]> {
  %r = ddp.all_reduce mean %b on @dp as "b2" {ddp.hook = #ddp.post_local_sgd} : !ddp.bucket<f32, [4]>
  return %r : !ddp.bucket<f32, [4]>
}
