// The step of docs/examples/digits allocates nothing and copies nothing: all
// gradients are born in their bucket, all parameters are updated in place.
//
// RUN: ddphook-opt %S/../../docs/examples/digits/step.mlir \
// RUN:   --ddp-pipeline="hook=fp16 require-no-copy=true" | FileCheck %s
// RUN: ddphook-opt %S/../../docs/examples/digits/step.mlir \
// RUN:   --ddp-pipeline="hook=allreduce wrapper=bf16 require-no-copy=true bucket-cap-mb=0.01" \
// RUN:   | FileCheck %s --check-prefix=SMALL
//
// Nor with collectives in flight: every bucket but the last one travels while the
// next gradients are computed.
// RUN: ddphook-opt %S/../../docs/examples/digits/step.mlir \
// RUN:   --ddp-pipeline="overlap=true require-no-copy=true bucket-cap-mb=0.01" \
// RUN:   | FileCheck %s --check-prefix=OVERLAP
// RUN: ddphook-opt %S/../../docs/examples/digits/step.mlir \
// RUN:   --ddp-pipeline="overlap=true overlap-depth=4 require-no-copy=true bucket-cap-mb=0.01 hook=powersgd" -o /dev/null
//
// As object code it calls the runtime, the math library, and no allocator.
// RUN: ddphook-cc %S/../../docs/examples/digits/step.mlir -o %t.o \
// RUN:   --ddp-pipeline="hook=fp16 require-no-copy=true"
// RUN: llvm-nm --undefined-only %t.o | FileCheck %s --check-prefix=SYMBOLS

// CHECK-LABEL: func.func @step(
// CHECK-NOT:   memref.alloc
// CHECK-NOT:   memref.copy
// CHECK:       %[[ARENA:.*]] = llvm.call @ddphook_rt_arena
// CHECK:       %[[BUCKET:.*]] = memref.view {{.*}} to memref<17226xf32>
// CHECK-NOT:   memref.alloc
// CHECK-NOT:   memref.copy
// CHECK:       llvm.call @ddphook_rt_collective
// CHECK-NOT:   llvm.call
// CHECK-NOT:   memref.alloc
// CHECK-NOT:   memref.copy
// CHECK:       return
// CHECK-LABEL: func.func @predict(
// CHECK-NOT:   memref.alloc
// CHECK-NOT:   memref.copy
// CHECK:       return

// Buckets of at most 10 kB: the large weights get one each, and what became
// ready beside them shares the others.
// SMALL-LABEL:   func.func @step(
// SMALL-COUNT-3: llvm.call @ddphook_rt_collective
// SMALL-NOT:     llvm.call @ddphook_rt_collective
// SMALL-LABEL:   func.func @predict(

// OVERLAP-LABEL:   func.func @step(
// OVERLAP:         llvm.call @ddphook_rt_collective_start
// OVERLAP:         linalg
// OVERLAP-COUNT-2: llvm.call @ddphook_rt_collective_start
// OVERLAP:         llvm.call @ddphook_rt_wait
// OVERLAP-LABEL:   func.func @predict(

// SYMBOLS-NOT: {{malloc|free|memrefCopy}}
// SYMBOLS: ddphook_rt_collective
// SYMBOLS-NOT: {{malloc|free|memrefCopy}}
