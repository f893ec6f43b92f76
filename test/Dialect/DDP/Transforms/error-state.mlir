// RUN: ddphook-opt %s --ddp-overlap | FileCheck %s --check-prefix=START
// RUN: ddphook-opt %s --ddp-overlap --canonicalize | FileCheck %s --check-prefix=FLIGHT
// RUN: ddphook-opt %s --ddp-flatten | FileCheck %s --check-prefix=FLAT
// RUN: ddphook-opt %s --ddp-overlap --ddp-flatten | FileCheck %s --check-prefix=FLATSTART

// Whatever takes an all-reduce's place feeds the same error back.

ddp.process_group @dp topology hierarchical
ddp.state @e : !ddp.bucket<f32, [8]> per_rank zero

// START-LABEL: func.func @step
// START:         ddp.all_reduce_start mean %{{.+}} on @dp wire !ddp.encoded<i8, 32> {ddp.error = @e}
// FLIGHT-LABEL: func.func @step
// FLIGHT:        ddp.all_reduce{{.*}} mean %{{.+}} on @dp wire !ddp.encoded<i8, 32> {ddp.error = @e}
// FLAT-LABEL: func.func @step
// FLAT:          ddp.flat.all_reduce mean %{{.+}} on @dp wire !ddp.encoded<i8, 32> {{.*}}{ddp.error = @e}
// FLATSTART-LABEL: func.func @step
// FLATSTART:     ddp.flat.all_reduce_start mean %{{.+}} on @dp wire !ddp.encoded<i8, 32> {{.*}}{ddp.error = @e}
func.func @step(%x: tensor<8xf32>, %y: tensor<64x64xf32>) -> (tensor<8xf32>, tensor<64x64xf32>) {
  %0 = ddp.all_reduce mean %x on @dp wire !ddp.encoded<i8, 32> {ddp.error = @e} : tensor<8xf32>
  %empty = tensor.empty() : tensor<64x64xf32>
  %1 = linalg.matmul ins(%y, %y : tensor<64x64xf32>, tensor<64x64xf32>) outs(%empty : tensor<64x64xf32>) -> tensor<64x64xf32>
  return %0, %1 : tensor<8xf32>, tensor<64x64xf32>
}
