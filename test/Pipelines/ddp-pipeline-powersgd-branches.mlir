// RUN: ddphook-opt %s --ddp-pipeline="hook=powersgd start-powersgd-iter=2 group-mb=0.0001" | FileCheck %s

// Both branches compress one bucket, in groups: each splits it, and puts it together
// again where it has split it itself.

// CHECK-LABEL: func.func @step(
// CHECK:         return
ddp.process_group @dp
func.func @step(%x: tensor<12x12xf32>, %y: tensor<12x12xf32>, %c: i1 {ddp.replicated})
    -> (tensor<12x12xf32>, tensor<12x12xf32>) {
  %b = ddp.pack %x, %y : tensor<12x12xf32>, tensor<12x12xf32> -> !ddp.bucket<f32, [12x12, 12x12]>
  %r = scf.if %c -> (!ddp.bucket<f32, [12x12, 12x12]>) {
    %s = ddp.all_reduce mean %b on @dp as "one" : !ddp.bucket<f32, [12x12, 12x12]>
    scf.yield %s : !ddp.bucket<f32, [12x12, 12x12]>
  } else {
    %s = ddp.all_reduce sum %b on @dp as "other" : !ddp.bucket<f32, [12x12, 12x12]>
    scf.yield %s : !ddp.bucket<f32, [12x12, 12x12]>
  }
  %u:2 = ddp.unpack %r : !ddp.bucket<f32, [12x12, 12x12]> -> tensor<12x12xf32>, tensor<12x12xf32>
  return %u#0, %u#1 : tensor<12x12xf32>, tensor<12x12xf32>
}
