// Stock mlir-opt, with the plugin, reads what JAX prints, splits and imports it, and
// inlines it. It knows neither StableHLO nor Shardy.

// RUN: mlir-opt %S/../Dialect/Opaque/generic-form.mlir --load-dialect-plugin=%plugin --pass-pipeline="builtin.module(inline,symbol-dce,ddp-import-stablehlo,ddp-convert-stablehlo-control-flow)" | FileCheck %s

// CHECK: ddp.process_group @dp size 2
// CHECK: func.func public @main(%{{.+}}: tensor<4xf32>)
// CHECK-NOT: sdy.
// CHECK: scf.while
// CHECK: ddp.all_reduce sum
// CHECK-NOT: ddp.all_reduce
// CHECK-NOT: sdy.
