// Stock mlir-opt, with the plugin, splits a program and imports what it got. Upstream
// numbers processes as ddp does, so that the program runs as it comes out.

// RUN: mlir-opt %S/../../docs/examples/shard/step.mlir --load-dialect-plugin=%plugin --pass-pipeline="builtin.module(func.func(sharding-propagation{traversal=forward-backward},shard-partition),ddp-import-shard)" -o %t.mlir
// RUN: FileCheck %s < %t.mlir
// RUN: ddphook-run %t.mlir --entry=step --ranks=2 --inputs=random:7 --ddp-pipeline=hook=fp16 2>&1 | FileCheck %s --check-prefix=RUN-OUT
// The gradients go over the wire in 16 bits, the loss by itself in 32.
// RUN-OUT: wire: 316 bytes a rank in 2 collectives, uncompressed 628 bytes

// CHECK: ddp.process_group @dp_0 size 2
// CHECK-NOT: shard.
// CHECK-COUNT-4: ddp.all_reduce sum
// CHECK-NOT: ddp.all_reduce
// CHECK-NOT: shard.
