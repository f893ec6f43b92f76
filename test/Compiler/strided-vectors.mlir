// RUN: ddphook-opt %s --ddp-pipeline --ddp-lower-to-llvm | FileCheck %s

// LLVM loads contiguous vectors only. From a column of a matrix, a loop loads one element after
// another.

// CHECK-LABEL: llvm.func {{.*}}@step
// CHECK:         llvm.load %{{.+}} : !llvm.ptr -> f32
// CHECK-NEXT:    llvm.insertelement
// CHECK-NOT:     vector.
// CHECK:         llvm.intr.vector.reduce.fadd
ddp.process_group @dp
func.func @step(%a: tensor<4x8xf32>, %g: tensor<4xf32>) -> (tensor<4xf32>, f32) {
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0.0 : f32
  %column = tensor.extract_slice %a[0, 3] [4, 1] [1, 1] : tensor<4x8xf32> to tensor<4xf32>
  %v = vector.transfer_read %column[%c0], %zero {in_bounds = [true]} : tensor<4xf32>, vector<4xf32>
  %sum = vector.reduction <add>, %v : vector<4xf32> into f32
  %r = ddp.all_reduce mean %g on @dp : tensor<4xf32>
  return %r, %sum : tensor<4xf32>, f32
}
