// A parameter that is updated in place is averaged in place: it is the argument,
// before and after.

// RUN: ddphook-opt %s --ddp-pipeline="hook=post_local_sgd" | FileCheck %s

ddp.process_group @dp

// CHECK:       results = [<type = memref<64x32xf32>, argument = 0>]
// CHECK-LABEL: func.func @step(
// CHECK-SAME:    %[[W:[a-z0-9]+]]: memref<64x32xf32>, %[[G:[a-z0-9]+]]: memref<64x32xf32>)
// The gradient, an argument, goes into its bucket.
// CHECK:         memref.copy %[[G]], %[[BUCKET:.+]] :
// CHECK:         linalg.sub {{.+}} outs(%[[W]] : memref<64x32xf32>)
// CHECK:         scf.if
// CHECK:           memref.copy %[[W]], %[[FLAT:[^ ]+]] :
// CHECK:           ddphook_rt_collective
// CHECK:           linalg.copy ins(%{{.+}} : memref<64x32xf32>) outs(%[[W]] : memref<64x32xf32>)
// CHECK-NOT:     copy
// CHECK:         return
func.func @step(%w: tensor<64x32xf32> {bufferization.writable = true},
                %g: tensor<64x32xf32>) -> tensor<64x32xf32> {
  %r = ddp.all_reduce mean %g on @dp : tensor<64x32xf32>
  %n = linalg.sub ins(%w, %r : tensor<64x32xf32>, tensor<64x32xf32>)
      outs(%w : tensor<64x32xf32>) -> tensor<64x32xf32>
  %a = ddp.average %n on @dp every 4 warmup 3 : tensor<64x32xf32>
  return %a : tensor<64x32xf32>
}
