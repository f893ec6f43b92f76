// RUN: ddphook-opt %s --ddp-bucketize="bucket-cap-mb=0" --ddp-expand-hooks | FileCheck %s
// RUN: ddphook-opt %s --ddp-pipeline="bucket-cap-mb=0" | FileCheck %s --check-prefix=RUNTIME

// Hooks whose collectives are encoded, with and without an error that is fed back.

ddp.process_group @dp

// CHECK: ddp.state @[[ERROR:.*]] : !ddp.bucket<f32, [41x3]> per_rank zero

// The plan, which has the codes in place of a type.
// RUNTIME: ddp.plan = #ddp.plan<
// RUNTIME-SAME: count = 123, dtype = f32, wire_dtype = !ddp.encoded<i4, 64>, divide = true

// CHECK-LABEL: func.func @step
// RUNTIME-LABEL: func.func @step
func.func @step(%a: tensor<41x3xf32>, %b: tensor<41x3xf32>, %c: tensor<41x3xbf16>)
    -> (tensor<41x3xf32>, tensor<41x3xf32>, tensor<41x3xbf16>) {
  // CHECK: %[[LAST:.*]] = ddp.load @[[ERROR]]
  // CHECK: %[[SUM:.*]] = ddp.add %{{.*}}, %[[LAST]]
  // CHECK: %[[LOST:.*]] = ddp.encoding_error %[[SUM]] as !ddp.encoded<i4, 64>
  // CHECK: ddp.store %[[LOST]], @[[ERROR]]
  // CHECK: ddp.all_reduce mean %[[SUM]] on @dp wire !ddp.encoded<i4, 64>
  // RUNTIME: call @ddphook_rt_add
  // RUNTIME: call @ddphook_rt_encoding_error
  // RUNTIME: call @ddphook_rt_collective
  %0 = ddp.all_reduce mean %a on @dp {ddp.hook = #ddp.int4} : tensor<41x3xf32>
  // CHECK: ddp.all_reduce sum %{{.*}} on @dp wire !ddp.encoded<ui8, 512>
  %1 = ddp.all_reduce sum %b on @dp {ddp.hook = #ddp.quantization_perchannel} : tensor<41x3xf32>
  // CHECK: ddp.all_reduce mean %{{.*}} on @dp wire !ddp.encoded<f16>
  %2 = ddp.all_reduce mean %c on @dp {ddp.hook = #ddp.fp16<accumulate = f32>} : tensor<41x3xbf16>
  return %0, %1, %2 : tensor<41x3xf32>, tensor<41x3xf32>, tensor<41x3xbf16>
}

// Two buckets by chance: one count of steps, and a stream each, which the error
// has as well.
// CHECK-LABEL: func.func @by_chance
// CHECK-NEXT:    %[[STEP:.*]] = ddp.load @rounding.iter : i64
// RUNTIME-LABEL: func.func @by_chance
func.func @by_chance(%a: tensor<41x3xf32>, %b: tensor<41x3xf32>) -> (tensor<41x3xf32>, tensor<41x3xf32>) {
  // CHECK: %[[SUM:.*]] = ddp.add
  // CHECK: ddp.encoding_error %[[SUM]] as !ddp.encoded<i4, 64 stochastic [[STREAM:[0-9]+]]> step %[[STEP]] on @dp
  // CHECK: ddp.all_reduce mean %[[SUM]] on @dp wire !ddp.encoded<i4, 64 stochastic [[STREAM]]> as "b3" step %[[STEP]]
  // RUNTIME: call @ddphook_rt_encoding_error
  // RUNTIME: call @ddphook_rt_collective
  %0 = ddp.all_reduce mean %a on @dp {ddp.hook = #ddp.int4<rounding = stochastic>} : tensor<41x3xf32>
  // CHECK-NOT: stochastic [[STREAM]]>
  // CHECK: ddp.all_reduce mean %{{.*}} on @dp wire !ddp.encoded<f8E4M3FN, 256 stochastic {{[0-9]+}}> as "b4" step %[[STEP]]
  // CHECK: %[[NEXT:.*]] = arith.addi %[[STEP]]
  // CHECK: ddp.store %[[NEXT]], @rounding.iter
  %1 = ddp.all_reduce mean %b on @dp {ddp.hook = #ddp.fp8<rounding = stochastic, random_seed = 3>} : tensor<41x3xf32>
  return %0, %1 : tensor<41x3xf32>, tensor<41x3xf32>
}
