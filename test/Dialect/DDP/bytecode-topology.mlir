// As bytecode.mlir, with what version 2 of the dialect added for users: topologies.
//
// RUN: ddphook-opt %s -o %t.text.mlir
// RUN: ddphook-opt %S/Inputs/version-2.mlirbc -o %t.version-2.mlir
// RUN: diff %t.text.mlir %t.version-2.mlir
//
// RUN: ddphook-opt %s --emit-bytecode | ddphook-opt -o %t.now.mlir
// RUN: diff %t.text.mlir %t.now.mlir

ddp.process_group @dp topology hierarchical
ddp.process_group @four size 4 topology flat
ddp.process_group @pairs ranks [[0, 1], [2, 3]] topology hierarchical
ddp.process_group @node placement intra_node

func.func @step(%a: tensor<4x8xf32>) -> tensor<4x8xf32> {
  %0 = ddp.all_reduce mean %a on @dp : tensor<4x8xf32>
  return %0 : tensor<4x8xf32>
}
