// RUN: ddphook-opt %s --ddp-set-topology=topology=hierarchical | FileCheck %s
// RUN: ddphook-opt %s --ddp-set-topology | FileCheck %s --check-prefix=FLAT
// RUN: ddphook-opt %s --ddp-tensor-pipeline="topology=hierarchical hook=bf16" | FileCheck %s --check-prefix=PIPELINE
// RUN: not ddphook-opt %s --ddp-pipeline=topology=tree 2>&1 | FileCheck %s --check-prefix=UNKNOWN

// CHECK: ddp.process_group @dp topology hierarchical
// CHECK: ddp.process_group @four size 4 topology flat
// CHECK: ddp.process_group @node placement intra_node{{$}}
// FLAT: ddp.process_group @dp topology flat
// FLAT: ddp.process_group @four size 4 topology flat
// FLAT: ddp.process_group @node placement intra_node{{$}}
ddp.process_group @dp
ddp.process_group @four size 4 topology flat
ddp.process_group @node placement intra_node

// UNKNOWN: expected topology to be flat or hierarchical, but got 'tree'

// PIPELINE: ddp.flat.all_reduce mean %{{.+}} on @dp wire bf16
func.func @step(%a: tensor<4x8xf32>) -> tensor<4x8xf32> {
  %0 = ddp.all_reduce mean %a on @dp : tensor<4x8xf32>
  return %0 : tensor<4x8xf32>
}
