// Stock mlir-opt, with the plugin, makes a program ours that reduces with MPI.

// RUN: mlir-opt %S/../../docs/examples/mpi/step.mlir --load-dialect-plugin=%plugin --pass-pipeline="builtin.module(ddp-import-mpi)" -o %t.mlir
// RUN: FileCheck %s < %t.mlir
// RUN: ddphook-run %t.mlir --entry=step --ranks=2 --inputs=random:7 --ddp-pipeline=hook=fp16 2>&1 | FileCheck %s --check-prefix=RUN-OUT
// The gradient goes over the wire in 16 bits, the loss by itself in 32.
// RUN-OUT: wire: 20 bytes a rank in 2 collectives, uncompressed 36 bytes

// CHECK:     ddp.process_group @world
// CHECK-NOT: mpi.
// CHECK:     ddp.all_reduce sum %[[G:.+]] on @world into %[[G]]
// CHECK:     {ddp.hook = #ddp.allreduce} : memref<f32>
// CHECK-NOT: mpi.
