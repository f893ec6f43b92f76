// The manifest: which argument is which state, and how each begins. One number of the
// generator is another's.

// RUN: ddphook-opt %s --ddp-stablehlo-pipeline="hook=powersgd start-powersgd-iter=2 num-ranks=4 bucket-cap-mb=0 manifest=%t.json" -o %t.mlir
// RUN: FileCheck %s --input-file=%t.json
// RUN: %python -m json.tool %t.json
// RUN: not ddphook-opt %s --ddp-stablehlo-pipeline="hook=powersgd num-ranks=4 manifest=%t.missing/manifest.json" 2>&1 | FileCheck %s --check-prefix=MISSING
// RUN: not ddphook-opt %s --ddp-stablehlo-pipeline="hook=powersgd warm-start=false num-ranks=4 manifest=%t.json" 2>&1 | FileCheck %s --check-prefix=COLD
// RUN: not ddphook-opt %s --ddp-stablehlo-pipeline="num-ranks=no" 2>&1 | FileCheck %s --check-prefix=NUMBER
// RUN: not ddphook-opt %s --ddp-export-stablehlo="num-ranks=-1" 2>&1 | FileCheck %s --check-prefix=NEGATIVE
// RUN: not ddphook-opt %s --ddp-stablehlo-pipeline="fuse=true" 2>&1 | FileCheck %s --check-prefix=OPTION

// MISSING: error: cannot write the manifest {{.*}}manifest.json: {{.*}}No such file or directory
// COLD: 'ddp.random_normal' op has no form in StableHLO; expected no random numbers in a step, as with warm_start = true
// NUMBER: in the options of ddp-stablehlo-pipeline: expected num-ranks to be a number of at least 1, but got 'no'
// NEGATIVE: expected num-ranks to be at least 1, but got -1
// OPTION: in the options of ddp-stablehlo-pipeline: {{.*}}fuse

// CHECK: "version": 1,
// CHECK-NEXT: "ranks": 4,
// CHECK-NEXT: "functions": [
// CHECK: "name": "main",
// CHECK-NEXT: "states": [
// CHECK: "name": "powersgd.iter",
// CHECK-NEXT: "argument": 2,
// CHECK-NEXT: "result": 2
// CHECK: "name": "b0.error",
// CHECK-NEXT: "argument": 3,
// CHECK: "name": "b0.q",
// CHECK-NEXT: "argument": 4,
// CHECK: "name": "b1.error",
// CHECK: "name": "b1.q",
// CHECK-NEXT: "argument": 6,
// CHECK-NEXT: "result": 6

// CHECK: "states": [
// CHECK: "name": "powersgd.iter",
// CHECK-NEXT: "dtype": "int32",
// CHECK-NEXT: "shape": [],
// CHECK-NEXT: "placement": "replicated",
// CHECK-NEXT: "init": {
// CHECK-NEXT: "kind": "zero"
// CHECK-NEXT: },
// CHECK-NEXT: "role": "powersgd.iter",

// CHECK: "name": "b0.error",
// CHECK-NEXT: "dtype": "float32",
// CHECK-NEXT: "shape": [
// CHECK-NEXT: 512
// CHECK-NEXT: ],
// CHECK-NEXT: "placement": "per_rank",
// CHECK: "kind": "zero"
// CHECK: "under": "mean #ddp.powersgd<start_powerSGD_iter = 2>"

// CHECK: "name": "b0.q",
// CHECK: "placement": "replicated",
// CHECK-NEXT: "init": {
// CHECK-NEXT: "kind": "normal",
// CHECK-NEXT: "seed": 0,
// CHECK-NEXT: "number": 0,
// CHECK-NEXT: "draws": [
// CHECK-NEXT: 16
// CHECK-NEXT: ]

// CHECK: "name": "b1.q",
// CHECK: "number": 1,
// CHECK-NEXT: "draws": [
// CHECK-NEXT: 8

// CHECK: "buckets": [
// CHECK: "name": "b0",
// CHECK-NEXT: "hook": "#ddp.powersgd<start_powerSGD_iter = 2>",
// CHECK-NEXT: "reduction": "mean",
// CHECK-NEXT: "group": "dp",
// CHECK-NEXT: "gradients": [
// CHECK-NEXT: "w"
// CHECK-NEXT: ],
// CHECK-NEXT: "elements": 512,
// CHECK-NEXT: "dtype": "float32",
// CHECK-NEXT: "wire_dtype": "float32",
// CHECK-NEXT: "wire_bytes": 192,
// CHECK-NEXT: "compression": {
// CHECK-NEXT: "before": 512,
// CHECK-NEXT: "after": 48

ddp.process_group @dp
func.func @main(%w: tensor<32x16xf32>, %v: tensor<32x8xf32>)
    -> (tensor<32x16xf32>, tensor<32x8xf32>) {
  %0 = ddp.all_reduce mean %w on @dp {ddp.name = "w"} : tensor<32x16xf32>
  %1 = ddp.all_reduce mean %v on @dp {ddp.name = "v"} : tensor<32x8xf32>
  return %0, %1 : tensor<32x16xf32>, tensor<32x8xf32>
}
