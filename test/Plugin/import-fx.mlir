// Stock mlir-opt, with the plugin, makes PyTorch's collectives ours, and what comes
// of it runs.

// RUN: mlir-opt %s --load-dialect-plugin=%plugin --pass-pipeline="builtin.module(ddp-import-fx)" -o %t.mlir
// RUN: FileCheck %s < %t.mlir
// RUN: ddphook-run %t.mlir --entry=step --ranks=2 --inputs=random:7 --ddp-pipeline=hook=fp16 2>&1 | FileCheck %s --check-prefix=RUN-OUT
// RUN-OUT: wire: 16 bytes a rank in 1 collective, uncompressed 32 bytes

// CHECK-NOT: private
// CHECK:     ddp.all_reduce mean %{{.+}} on @"0" {ddp.name = "w"} : tensor<8xf32>
ddp.process_group @"0" size 2
func.func private @start(tensor<8xf32>) -> tensor<8xf32> attributes {
    fx = {target = "_c10d_functional.all_reduce", reduce_op = "avg", group_name = "0",
          names = ["w"]}}
func.func private @wait(tensor<8xf32>) -> tensor<8xf32> attributes {
    fx = {target = "_c10d_functional.wait_tensor"}}
func.func @step(%g: tensor<8xf32>) -> tensor<8xf32> {
  %s = call @start(%g) : (tensor<8xf32>) -> tensor<8xf32>
  %a = call @wait(%s) : (tensor<8xf32>) -> tensor<8xf32>
  return %a : tensor<8xf32>
}
