// The plugin in stock mlir-opt, which knows nothing of ddphook.

// RUN: mlir-opt %s --load-dialect-plugin=%plugin | FileCheck %s --check-prefix=PARSE
// RUN: mlir-opt %s --load-dialect-plugin=%plugin --pass-pipeline="builtin.module(ddp-bucketize{bucket-cap-mb=0.5},ddp-expand-hooks{hook=fp16},ddp-fuse)" | FileCheck %s --check-prefix=PASSES
// RUN: mlir-opt %s --load-dialect-plugin=%plugin --pass-pipeline="builtin.module(ddp-pipeline{hook=fp16 bucket_cap_mb=2})" > %t.plugin
// RUN: FileCheck %s --check-prefix=PIPELINE < %t.plugin

// Passes in the plugin and upstream's work on each other's output.
// RUN: mlir-opt %s --load-dialect-plugin=%plugin --pass-pipeline="builtin.module(canonicalize,cse,ddp-verify-sync,ddp-pipeline{require-no-copy=false},canonicalize)" | FileCheck %s --check-prefix=PIPELINE

// The same text as our own tool gives.
// RUN: ddphook-opt %s --ddp-pipeline="hook=fp16 bucket_cap_mb=2" > %t.tool
// RUN: diff %t.plugin %t.tool

// A hook as an attribute.
// RUN: mlir-opt %s --load-dialect-plugin=%plugin --pass-pipeline="builtin.module(ddp-pipeline{hook=#ddp.fp16 bucket_cap_mb=2})" > %t.attribute
// RUN: diff %t.plugin %t.attribute

// A hook of another dialect, in a plugin that has both.
// RUN: mlir-opt %s --load-dialect-plugin=%stock-plugin --pass-pipeline="builtin.module(ddp-pipeline{hook=#testhook.scaled<0.5>})" | FileCheck %s --check-prefix=FOREIGN
// RUN: mlir-opt %s --load-dialect-plugin=%stock-plugin --pass-pipeline="builtin.module(ddp-pipeline{hook=testhook.weighted weight=2})" | FileCheck %s --check-prefix=WEIGHTED
// FOREIGN: hook = "#testhook.scaled<5.000000e-01 : f64>"
// WEIGHTED: hook = "#testhook.weighted<weight = 2.000000e+00 : f64>"

// Without the plugin, nothing of this exists.
// RUN: not mlir-opt %s 2>&1 | FileCheck %s --check-prefix=NOTHING
// NOTHING: error: {{.*}}ddp.process_group

// As a pass plugin, passes are there; --load-dialect-plugin brings the dialect.
// RUN: mlir-opt --load-dialect-plugin=%plugin --help | FileCheck %s --check-prefix=HELP
// HELP-DAG: --convert-ddp-to-runtime
// HELP-DAG: --ddp-bucketize
// HELP-DAG: --ddp-pipeline
// RUN: mlir-opt --load-pass-plugin=%plugin --help | FileCheck %s --check-prefix=HELP

// Its diagnostics come out of mlir-opt as any other's.
// RUN: not mlir-opt %s --load-dialect-plugin=%plugin --pass-pipeline="builtin.module(ddp-pipeline{hook=gzip})" 2>&1 | FileCheck %s --check-prefix=ERROR
// ERROR: error: expected hook=allreduce, fp16, bf16, noop, {{.+}} or an attribute, but got 'gzip'

// PARSE: ddp.process_group @dp
// PARSE: ddp.all_reduce mean %{{.+}} on @dp : tensor<300x200xf32>

// PASSES-LABEL: func.func @step(
// PASSES:         %[[B:.+]] = ddp.pack
// PASSES-NEXT:    ddp.all_reduce mean %[[B]] on @dp wire f16 as "b0" {ddp.hook = #ddp.allreduce} : !ddp.bucket<f32, [300x200, 200]>

// PIPELINE:       module attributes {ddp.plan = #ddp.plan<
// PIPELINE-LABEL: func.func @step(
// PIPELINE:         llvm.call @ddphook_rt_collective
// PIPELINE-NOT:     ddp.all_reduce
// PIPELINE:         return

ddp.process_group @dp
func.func @step(%g0: tensor<300x200xf32>, %g1: tensor<200xf32>)
    -> (tensor<300x200xf32>, tensor<200xf32>) {
  %r0 = ddp.all_reduce mean %g0 on @dp : tensor<300x200xf32>
  %r1 = ddp.all_reduce mean %g1 on @dp : tensor<200xf32>
  return %r0, %r1 : tensor<300x200xf32>, tensor<200xf32>
}
