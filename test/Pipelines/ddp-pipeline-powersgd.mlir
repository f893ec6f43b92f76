// PowerSGD through the whole pipeline, on the step of ddp-pipeline-mlp.mlir.

// RUN: ddphook-opt %S/ddp-pipeline-mlp.mlir --ddp-pipeline="hook=powersgd matrix_approximation_rank=2 start_powerSGD_iter=2 require-no-copy=true overlap=false" | FileCheck %s

// Nothing is allocated or copied: gradients are born in the bucket, M is made
// where the error lies, the new error where M lies, P and the rest in the
// message, Q in the state, the result of both branches in the bucket.
// CHECK-LABEL: func.func @step(
// CHECK-NOT:     memref.{{alloc|copy|dealloc}}
// CHECK:         llvm.call @ddphook_rt_state(
// CHECK:         %[[ITER:.+]] = memref.load %[[COUNTER:.+]][] : memref<i64>
// CHECK:         %[[IS:.+]] = arith.cmpi slt, %[[ITER]],
// CHECK:         scf.if %[[IS]]
// CHECK-NOT:       llvm.call
// CHECK:           llvm.call @ddphook_rt_collective(
// CHECK-NOT:       llvm.call
// CHECK:         } else {
// CHECK:           llvm.call @ddphook_rt_state(
// CHECK:           llvm.call @ddphook_rt_state(
// CHECK-NOT:       llvm.call
// CHECK:           llvm.call @ddphook_rt_orthogonalize(
// CHECK-NOT:       llvm.call
// CHECK:           llvm.call @ddphook_rt_project(
// CHECK-NOT:       llvm.call
// CHECK:           llvm.call @ddphook_rt_collective(
// CHECK-NOT:       llvm.call
// CHECK:           llvm.call @ddphook_rt_divide_by_group_size(
// CHECK-NOT:       llvm.call
// CHECK:           llvm.call @ddphook_rt_orthogonalize(
// CHECK-NOT:       llvm.call
// CHECK:           llvm.call @ddphook_rt_matmul(
// CHECK-NOT:       llvm.call
// CHECK:           llvm.call @ddphook_rt_measure_product(
// CHECK-NOT:       llvm.call
// CHECK:           llvm.call @ddphook_rt_collective(
// CHECK-NOT:       llvm.call
// CHECK:           llvm.call @ddphook_rt_divide_by_group_size(
// CHECK-NOT:       llvm.call
// CHECK:           llvm.call @ddphook_rt_reconstruct(
// CHECK-NOT:       llvm.call
// CHECK:         }
// CHECK-NOT:     llvm.call
// CHECK-NOT:     memref.{{alloc|copy|dealloc}}
// CHECK:         memref.store %{{.+}}, %[[COUNTER]][] : memref<i64>
// CHECK:         return

// Nor with these options.
// RUN: ddphook-opt %S/ddp-pipeline-mlp.mlir --ddp-pipeline="hook=powersgd require-no-copy=true pack-collectives=false" -o /dev/null
// RUN: ddphook-opt %S/ddp-pipeline-mlp.mlir --ddp-pipeline="hook=powersgd require-no-copy=true use-error-feedback=false" -o /dev/null
// RUN: ddphook-opt %S/ddp-pipeline-mlp.mlir --ddp-pipeline="hook=powersgd require-no-copy=true warm-start=false" -o /dev/null
// RUN: ddphook-opt %S/ddp-pipeline-mlp.mlir --ddp-pipeline="hook=powersgd require-no-copy=true warm-start=false use-error-feedback=false start-powersgd-iter=0" -o /dev/null
// RUN: ddphook-opt %S/ddp-pipeline-mlp.mlir --ddp-pipeline="hook=powersgd require-no-copy=true wrapper=fp16" -o /dev/null
// RUN: ddphook-opt %S/ddp-pipeline-mlp.mlir --ddp-pipeline="hook=powersgd require-no-copy=true wrapper=bf16 pack-collectives=false matrix-approximation-rank=4" -o /dev/null
// RUN: ddphook-opt %S/ddp-pipeline-mlp.mlir --ddp-pipeline="hook=powersgd require-no-copy=true bucket-cap-mb=0" -o /dev/null
// RUN: ddphook-opt %S/ddp-pipeline-mlp.mlir --ddp-pipeline="hook=powersgd require-no-copy=true min-compression-rate=1000" -o /dev/null
// RUN: ddphook-opt %S/ddp-pipeline-mlp.mlir --ddp-pipeline="hook=powersgd require-no-copy=true order=reverse batch-tensors-with-same-shape=true" -o /dev/null

// Nor in groups, whose factors are where the old ones were.
// RUN: ddphook-opt %S/ddp-pipeline-mlp.mlir --ddp-pipeline="hook=powersgd require-no-copy=true group-mb=0.00001" -o /dev/null

// The square of the batched hook is no bucket: there, its zeros, and back.
// RUN: ddphook-opt %S/ddp-pipeline-mlp.mlir --ddp-pipeline="hook=batched_powersgd" | FileCheck %s --check-prefix=BATCHED
// BATCHED-NOT:     memref.alloc
// BATCHED:         scf.if
// BATCHED-NOT:     memref.copy
// BATCHED:         } else {
// BATCHED-COUNT-3: memref.copy
// BATCHED-NOT:     memref.copy
// BATCHED:         return

// Beside its states PowerSGD needs no memory: the arena of this step is as large
// as without a hook, since P and Q fit where activations lay before.
// RUN: ddphook-opt %S/ddp-pipeline-mlp.mlir --ddp-pipeline --remarks-filter='ddp-.*' -o /dev/null 2>&1 | FileCheck %s --check-prefix=ARENA
// RUN: ddphook-opt %S/ddp-pipeline-mlp.mlir --ddp-pipeline="hook=powersgd" --remarks-filter='ddp-.*' -o /dev/null 2>&1 | FileCheck %s --check-prefixes=ARENA,BYTES
// BYTES: Remark=b0, compression-rate=13.39, gradient-bytes=9640, hook=#ddp.powersgd, state-bytes=9808, wire-bytes=720
// ARENA: Remark=step, buffers={{[0-9]+}}, bytes=14400

// Behind that of the vanilla phase: two collectives packed, three apart.
// RUN: ddphook-opt %S/ddp-pipeline-mlp.mlir --ddp-pipeline="hook=powersgd" | FileCheck %s --check-prefix=PACKED
// PACKED:      collectives = [<bucket = "b0", group = 0, count = 2410, dtype = f32, divide = true>,
// PACKED-SAME:   <bucket = "b0", group = 0, count = 138, dtype = f32, divide = false>,
// PACKED-SAME:   <bucket = "b0", group = 0, count = 42, dtype = f32, divide = false>],
// RUN: ddphook-opt %S/ddp-pipeline-mlp.mlir --ddp-pipeline="hook=powersgd pack_collectives=false" | FileCheck %s --check-prefix=APART
// APART: collectives = [<{{[^]]+}}count = 2410,{{[^]]+}}count = 96,{{[^]]+}}count = 42,{{[^]]+}}count = 42,{{[^],]+}}, divide = false>],
