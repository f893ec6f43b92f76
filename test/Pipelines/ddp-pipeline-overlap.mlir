// Overlap through the whole pipeline, on the step of ddp-pipeline-mlp.mlir.

// RUN: ddphook-opt %S/ddp-pipeline-mlp.mlir --ddp-pipeline="require-no-copy=true bucket-cap-mb=0 overlap=true overlap-depth=2" | FileCheck %s

// The gradients of the last layer travel while those of the first one are computed;
// two are in flight at most, and weights are updated behind the wait. Nothing is
// copied.

// CHECK-LABEL: func.func @step(
// CHECK-NOT:     memref.{{alloc|copy|dealloc}}
// CHECK:         %[[T0:.+]] = llvm.call @ddphook_rt_collective_start(
// CHECK-NOT:     llvm.call
// CHECK:         linalg.generic
// CHECK-NOT:     llvm.call
// CHECK:         %[[T1:.+]] = llvm.call @ddphook_rt_collective_start(
// CHECK-NOT:     llvm.call
// CHECK:         linalg.generic
// CHECK-NOT:     llvm.call
// CHECK:         llvm.call @ddphook_rt_wait(%{{.+}}, %[[T0]])
// CHECK-NOT:     linalg.generic
// CHECK:         %[[T2:.+]] = llvm.call @ddphook_rt_collective_start(
// CHECK:         linalg.generic
// CHECK:         llvm.call @ddphook_rt_wait(%{{.+}}, %[[T1]])
// CHECK-NOT:     linalg.generic
// CHECK:         %[[T3:.+]] = llvm.call @ddphook_rt_collective_start(
// CHECK-COUNT-2: linalg.generic
// CHECK:         llvm.call @ddphook_rt_wait(%{{.+}}, %[[T2]])
// CHECK:         linalg.generic
// CHECK:         llvm.call @ddphook_rt_wait(%{{.+}}, %[[T3]])
// CHECK:         linalg.generic
// CHECK-NOT:     memref.{{alloc|copy|dealloc}}
// CHECK:         return

// Nor with these options.
// RUN: ddphook-opt %S/ddp-pipeline-mlp.mlir --ddp-pipeline="require-no-copy=true overlap=true overlap-depth=1 hook=bf16 bucket-cap-mb=0" -o /dev/null
// RUN: ddphook-opt %S/ddp-pipeline-mlp.mlir --ddp-pipeline="require-no-copy=true overlap=true overlap-depth=4 hook=fp16 bucket-cap-mb=0" -o /dev/null
// RUN: ddphook-opt %S/ddp-pipeline-mlp.mlir --ddp-pipeline="require-no-copy=true overlap=true hook=powersgd bucket-cap-mb=0" -o /dev/null
// RUN: ddphook-opt %S/ddp-pipeline-mlp.mlir --ddp-pipeline="require-no-copy=true overlap=true hook=powersgd bucket-cap-mb=0 min-compression-rate=0.5 overlap-depth=1" -o /dev/null
// RUN: ddphook-opt %S/ddp-pipeline-mlp.mlir --ddp-pipeline="require-no-copy=true overlap=true hook=powersgd bucket-cap-mb=0 min-compression-rate=0.5 overlap-depth=8" -o /dev/null
// RUN: ddphook-opt %S/ddp-pipeline-mlp.mlir --ddp-pipeline="require-no-copy=true overlap=true hook=powersgd bucket-cap-mb=0 min-compression-rate=0.5 warm-start=false" -o /dev/null
// RUN: ddphook-opt %S/ddp-pipeline-mlp.mlir --ddp-pipeline="require-no-copy=true overlap=true hook=powersgd bucket-cap-mb=0 min-compression-rate=0.5 warm-start=false use-error-feedback=false start-powersgd-iter=0" -o /dev/null
// RUN: ddphook-opt %S/ddp-pipeline-mlp.mlir --ddp-pipeline="require-no-copy=true overlap=true hook=powersgd wrapper=fp16 pack-collectives=false" -o /dev/null

// What travels keeps its memory: for this step none beyond what it needs anyway,
// with four in flight. The plan says so, and the remarks.
// RUN: ddphook-opt %S/ddp-pipeline-mlp.mlir --ddp-pipeline="bucket-cap-mb=0" --remarks-filter='ddp-.*' -o /dev/null 2>&1 | FileCheck %s --check-prefix=ARENA
// RUN: ddphook-opt %S/ddp-pipeline-mlp.mlir --ddp-pipeline="bucket-cap-mb=0 overlap=true overlap-depth=4" --remarks-filter='ddp-.*' -o /dev/null 2>&1 | FileCheck %s --check-prefixes=FLIGHT,ARENA
// FLIGHT: Overlap | Category:ddp-overlap | Remark="collectives overlap with computation", in-flight=4, in-flight-bytes=9640, started=4
// ARENA: Remark=step, buffers={{[0-9]+}}, bytes=14272

// RUN: not ddphook-opt %S/ddp-pipeline-mlp.mlir --ddp-pipeline="overlap=maybe" 2>&1 | FileCheck %s --check-prefix=FLAG
// FLAG: error: in the options of ddp-pipeline: expected overlap to be true or false, but got 'maybe'
// RUN: not ddphook-opt %S/ddp-pipeline-mlp.mlir --ddp-pipeline="overlap=true overlap_depth=0" 2>&1 | FileCheck %s --check-prefix=DEPTH
// DEPTH: error: in the options of ddp-pipeline: expected overlap-depth to be a number of at least 1, but got '0'
