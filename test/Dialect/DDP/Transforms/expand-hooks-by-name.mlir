// How the option `hook` names a hook: as an attribute of any dialect, or by its
// name with options. The test dialect is in test/lib.

// Attributes of this dialect, quoted or not.
// RUN: ddphook-opt %s --ddp-expand-hooks="hook=#ddp.bf16" | FileCheck %s --check-prefix=BF16
// BF16: ddp.bucket_info "b0" mean on @dp hook #ddp.bf16 wire bf16
// RUN: ddphook-opt %s --ddp-expand-hooks="hook='#ddp.powersgd<matrix_approximation_rank = 2, warm_start = false>'" | FileCheck %s --check-prefix=POWERSGD
// RUN: ddphook-opt %s --ddp-expand-hooks="hook={#ddp.powersgd<warm_start = false, matrix_approximation_rank = 2>}" | FileCheck %s --check-prefix=POWERSGD
// RUN: ddphook-opt %s --pass-pipeline="builtin.module(ddp-expand-hooks{Hook=#ddp.powersgd<matrix_approximation_rank = 2, warm_start = false> wrapper=})" | FileCheck %s --check-prefix=POWERSGD
// RUN: ddphook-opt %s --ddp-expand-hooks="hook=ddp.powersgd matrix_approximation_rank=2 warm_start=0" | FileCheck %s --check-prefix=POWERSGD
// POWERSGD: hook #ddp.powersgd<matrix_approximation_rank = 2, warm_start = false> wire f32

// Wrappers around attributes.
// RUN: ddphook-opt %s --ddp-expand-hooks="hook=#ddp.wrap<f16,#ddp.noop>" | FileCheck %s --check-prefix=WRAP
// RUN: ddphook-opt %s --ddp-expand-hooks="wrapper=fp16 hook=#ddp.noop" | FileCheck %s --check-prefix=WRAP
// WRAP: hook #ddp.wrap<f16, #ddp.noop> wire f16

// Attributes of another dialect, which the module does not mention. It is loaded
// as well where passes run in passes.
// RUN: ddphook-test-opt %s --ddp-expand-hooks="hook=#testhook.scaled<0.5>" | FileCheck %s --check-prefix=SCALED
// SCALED: %[[S:.+]] = ddp.scale %{{.+}} by 5.000000e-01
// SCALED: ddp.all_reduce mean %[[S]]
// SCALED: hook #testhook.scaled<5.000000e-01 : f64> wire f32
// RUN: ddphook-test-opt %s --ddp-pipeline="hook='#ddp.wrap<bf16, #testhook.scaled<0.5>>' bucket-cap-mb=1" | FileCheck %s --check-prefix=PIPELINE
// PIPELINE: hook = "#ddp.wrap<bf16, #testhook.scaled<5.000000e-01 : f64>>"

// Their names, with options: all of them are read off the attribute.
// RUN: ddphook-test-opt %s --ddp-expand-hooks="hook=testhook.feedback" | FileCheck %s --check-prefix=FEEDBACK
// FEEDBACK: hook #testhook.feedback wire f16
// RUN: ddphook-test-opt %s --ddp-expand-hooks="hook=testhook.weighted" | FileCheck %s --check-prefix=DEFAULT
// DEFAULT: hook #testhook.weighted wire f32
// RUN: ddphook-test-opt %s --ddp-expand-hooks="hook=testhook.weighted Weight=0.25 UNDO wrapper=fp16" | FileCheck %s --check-prefix=WEIGHTED
// RUN: ddphook-test-opt %s --ddp-expand-hooks="undo=true weight=2.5e-1 hook=testhook.weighted wrapper=fp16" | FileCheck %s --check-prefix=WEIGHTED
// WEIGHTED: ddp.scale %{{.+}} by 2.500000e-01
// WEIGHTED: ddp.scale %{{.+}} by 4.000000e+00
// WEIGHTED: hook #ddp.wrap<f16, #testhook.weighted<weight = 2.500000e-01 : f64, undo = true>> wire f16

// A pipeline that is printed and parsed again.
// RUN: ddphook-test-opt %s --ddp-expand-hooks="hook=testhook.weighted weight=0.25 undo=1 wrapper=fp16" --dump-pass-pipeline -o /dev/null 2>&1 | FileCheck %s --check-prefix=DUMP
// DUMP: ddp-expand-hooks{group-mb={{.+}} hook={testhook.weighted weight=0.25 undo=1} wrapper=fp16}
// RUN: ddphook-test-opt %s --pass-pipeline="builtin.module(ddp-expand-hooks{hook={testhook.weighted weight=0.25 undo=1} wrapper=fp16})" | FileCheck %s --check-prefix=WEIGHTED

// All hooks are in the help text.
// RUN: ddphook-opt --help | FileCheck %s --check-prefix=HELP
// HELP: --ddp-pipeline
// HELP: --hook=<string>
// HELP: batched_powersgd
// HELP: matrix-approximation-rank=1 {{ *}}columns of the factors
// HELP: numerics=eager
// HELP: post_local_sgd
// HELP: start-localsgd-iter=100

// What cannot be understood: one line, and no output.
// RUN: not ddphook-opt %s --ddp-expand-hooks="hook=#testhook.scaled<0.5>" 2>&1 | FileCheck %s --check-prefix=UNKNOWN
// UNKNOWN: error: expected hook=#testhook.scaled<0.5> to be of a known dialect, but got 'testhook', which no plugin has loaded
// UNKNOWN-NOT: func.func
// RUN: not ddphook-opt %s --ddp-expand-hooks="hook=testhook.weighted" 2>&1 | FileCheck %s --check-prefix=NAME
// NAME: error: expected hook=testhook.weighted to be of a known dialect, but got 'testhook', which no plugin has loaded
// RUN: not ddphook-test-opt %s --ddp-expand-hooks="hook=testhook.scaled" 2>&1 | FileCheck %s --check-prefix=NONAME
// NONAME: error: expected hook=testhook.scaled to be a hook of the dialect 'testhook' that options can name, but it has no hook of this name
// RUN: not ddphook-opt %s --ddp-expand-hooks="hook=wrap" 2>&1 | FileCheck %s --check-prefix=INNER
// INNER: error: expected hook=allreduce, {{.*}} or an attribute, but got 'wrap'
// RUN: not ddphook-opt %s --ddp-expand-hooks="hook='#ddp.powersgd<matrix_approximation_rank = 0>'" 2>&1 | FileCheck %s --check-prefix=RANK
// RANK: error: in hook=#ddp.powersgd<matrix_approximation_rank = 0>: expected a matrix_approximation_rank of at least 1, but got 0
// RUN: not ddphook-opt %s --ddp-expand-hooks="hook='#ddp.powersgd<'" 2>&1 | FileCheck %s --check-prefix=SYNTAX
// SYNTAX: error: in hook=#ddp.powersgd<: unbalanced '<'
// RUN: not ddphook-opt %s --ddp-expand-hooks="hook=#ddp.fp16#ddp.bf16" 2>&1 | FileCheck %s --check-prefix=TRAILING
// TRAILING: error: in hook=#ddp.fp16#ddp.bf16: expected an attribute, and nothing after it
// RUN: not ddphook-opt %s --ddp-expand-hooks="hook='#ddp.matrix_list<0 to 12, [], []>'" 2>&1 | FileCheck %s --check-prefix=KIND
// KIND: error: expected a hook, but got #ddp.matrix_list
// RUN: not ddphook-opt %s --ddp-expand-hooks="hook=#ddp.powersgd warm-start=false" 2>&1 | FileCheck %s --check-prefix=BESIDE
// BESIDE: error: expected the parameters of #ddp.powersgd inside the attribute, but got the option warm-start
// RUN: not ddphook-test-opt %s --ddp-expand-hooks="hook=testhook.weighted wait=2" 2>&1 | FileCheck %s --check-prefix=OPTION
// OPTION: error: expected an option of hook=testhook.weighted (weight or undo), but got wait
// RUN: not ddphook-test-opt %s --ddp-expand-hooks="hook=testhook.feedback weight=2" 2>&1 | FileCheck %s --check-prefix=NONE
// NONE: error: expected an option of hook=testhook.feedback (it has none), but got weight
// RUN: not ddphook-test-opt %s --ddp-expand-hooks="hook=testhook.weighted warm-start=1" 2>&1 | FileCheck %s --check-prefix=OWNER
// OWNER: error: expected warm-start only with hook=powersgd or batched_powersgd, but got hook=testhook.weighted
// RUN: not ddphook-test-opt %s --ddp-expand-hooks="hook=testhook.weighted weight=much" 2>&1 | FileCheck %s --check-prefix=NUMBER
// NUMBER: error: expected weight to be a number, but got 'much'
// RUN: not ddphook-test-opt %s --ddp-expand-hooks="hook=testhook.weighted weight=inf" 2>&1 | FileCheck %s --check-prefix=FINITE
// FINITE: error: expected a finite weight, but got INF
// RUN: not ddphook-opt %s --ddp-expand-hooks="hook=powersgd random-seed" 2>&1 | FileCheck %s --check-prefix=VALUE
// VALUE: error: expected a value for the option random-seed

ddp.process_group @dp
func.func @step(%b: !ddp.bucket<f32, [64x32, 64]>)
    -> !ddp.bucket<f32, [64x32, 64]> {
  %r = ddp.all_reduce mean %b on @dp as "b0" : !ddp.bucket<f32, [64x32, 64]>
  return %r : !ddp.bucket<f32, [64x32, 64]>
}
