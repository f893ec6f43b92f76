// RUN: ddphook-opt %s --ddp-pipeline="hook=fp16" --mlir-print-ir-after-all 2>&1 >/dev/null | FileCheck %s

// A function after every pass of the pipeline.

// CHECK:       After DDPVerifySyncPass
// CHECK:       func.func @step(%[[X:.+]]: tensor<3x2xf32>, %[[G1:.+]]: tensor<2xf32>)
// CHECK:         %[[G0:.+]] = linalg.exp
// CHECK-NEXT:    %[[R0:.+]] = ddp.all_reduce mean %[[G0]] on @dp : tensor<3x2xf32>
// CHECK-NEXT:    %[[R1:.+]] = ddp.all_reduce mean %[[G1]] on @dp : tensor<2xf32>
// CHECK-NEXT:    return %[[R0]], %[[R1]]

// CHECK:       After DDPBucketizePass
// CHECK:         %[[G0:.+]] = linalg.exp
// CHECK-NEXT:    %[[B:.+]] = ddp.pack %{{.+}}, %[[G0]]
// CHECK-NEXT:    %[[R:.+]] = ddp.all_reduce mean %[[B]] on @dp as "b0" : !ddp.bucket<f32, [2, 3x2]>
// CHECK-NEXT:    %[[U:.+]]:2 = ddp.unpack %[[R]]
// CHECK-NEXT:    return %[[U]]#1, %[[U]]#0

// CHECK:       After DDPExpandHooksPass
// CHECK:         %[[B:.+]] = ddp.pack
// CHECK-NEXT:    %[[H:.+]] = ddp.cast %[[B]]
// CHECK-NEXT:    %[[S:.+]] = ddp.all_reduce mean %[[H]] on @dp as "b0" {ddp.hook = #ddp.allreduce} : !ddp.bucket<f16, [2, 3x2]>
// CHECK-NEXT:    %[[R:.+]] = ddp.cast %[[S]]
// CHECK-NEXT:    ddp.unpack %[[R]]
// CHECK:       ddp.bucket_info "b0" mean on @dp hook #ddp.fp16 wire f16 bytes 16 state_bytes 0 : !ddp.bucket<f32, [2, 3x2]>

// CHECK:       After DDPFusePass
// CHECK:         %[[B:.+]] = ddp.pack
// CHECK-NEXT:    %[[R:.+]] = ddp.all_reduce mean %[[B]] on @dp wire f16 as "b0"
// CHECK-NEXT:    ddp.unpack %[[R]]

// CHECK:       After DDPFlattenPass
// CHECK:         %[[B:.+]] = ddp.pack {{.+}} -> tensor<8xf32>
// CHECK-NEXT:    %[[E:.+]] = tensor.empty() : tensor<8xf32>
// CHECK-NEXT:    %[[R:.+]] = ddp.flat.all_reduce mean %[[B]] on @dp wire f16 as "b0" into %[[E]] : tensor<8xf32>, tensor<8xf32>
// CHECK-NEXT:    ddp.unpack %[[R]] : tensor<8xf32> -> tensor<2xf32>, tensor<3x2xf32>

// CHECK:       After DDPPrepareEntriesPass
// CHECK:       func.func @step(%[[X:.+]]: memref<3x2xf32>, %[[G1:.+]]: memref<2xf32>, %[[O0:.+]]: memref<3x2xf32>, %[[O1:.+]]: memref<2xf32>)
// CHECK:         bufferization.to_tensor %[[X]] restrict :
// CHECK:         %[[U:.+]]:2 = ddp.unpack
// CHECK-DAG:     bufferization.materialize_in_destination %[[U]]#1 in writable %[[O0]]
// CHECK-DAG:     bufferization.materialize_in_destination %[[U]]#0 in writable %[[O1]]
// CHECK:         return{{$}}

// CHECK:       After DDPAssignDestinationsPass
// CHECK:         %[[B:.+]] = ddp.pack
// CHECK-NEXT:    ddp.flat.all_reduce mean %[[B]] on @dp wire f16 as "b0" into %[[B]]

// CHECK:       After DDPMaterializeBucketsPass
// CHECK:         %[[M:.+]] = memref.alloc() {alignment = 64 : i64} : memref<8xf32>
// CHECK-DAG:     %[[V0:.+]] = ddp.view %[[M]][0]
// CHECK-DAG:     %[[V1:.+]] = ddp.view %[[M]][2]
// CHECK:         %[[T:.+]] = bufferization.to_tensor %[[V1]] restrict writable
// CHECK:         linalg.exp {{.+}} outs(%[[T]] :
// CHECK:         ddp.flat.all_reduce
// CHECK:         ddp.view

// CHECK:       After DDPBufferizePass
// CHECK:         %[[M:.+]] = memref.alloc
// CHECK:         linalg.exp {{.+}} outs(%[[V1:.+]] : memref<3x2xf32>)
// CHECK:         memref.copy %[[V1]], %[[V1]]
// CHECK:         ddp.flat.all_reduce mean %[[M]] on @dp wire f16 as "b0" into %[[M]]

// CHECK:       After CSE

// The gradient that was born in its bucket is not copied; the argument is.
// CHECK:       After DDPFoldCopiesPass
// CHECK:       func.func @step(%[[X:.+]]: memref<3x2xf32>, %[[G1:.+]]: memref<2xf32>, %[[O0:.+]]: memref<3x2xf32>, %[[O1:.+]]: memref<2xf32>)
// CHECK:         linalg.exp ins(%[[X]] : {{.+}}) outs(%[[V1:.+]] : memref<3x2xf32>)
// CHECK-NEXT:    memref.copy %[[G1]], %[[V0:.+]] :
// CHECK-NEXT:    ddp.flat.all_reduce
// CHECK-NEXT:    memref.copy %[[V1]], %[[O0]]
// CHECK-NEXT:    memref.copy %[[V0]], %[[O1]]
// CHECK-NEXT:    return

// CHECK:       After DDPResultsToOutParamsPass

// CHECK:       After DDPPlanArenaPass
// CHECK:         %[[ARENA:.+]] = ddp.arena : memref<64xi8>
// CHECK:         memref.view %[[ARENA]]
// CHECK-NOT:     memref.alloc

// CHECK:       After ConvertDDPToRuntimePass
// CHECK:       module attributes {ddp.plan = #ddp.plan<
// CHECK:         llvm.call @ddphook_rt_arena
// CHECK:         llvm.call @ddphook_rt_collective
// CHECK-NOT:     ddp.all_reduce

ddp.process_group @dp
func.func @step(%x: tensor<3x2xf32>, %g1: tensor<2xf32>)
    -> (tensor<3x2xf32>, tensor<2xf32>) {
  %e = tensor.empty() : tensor<3x2xf32>
  %g0 = linalg.exp ins(%x : tensor<3x2xf32>) outs(%e : tensor<3x2xf32>)
      -> tensor<3x2xf32>
  %r0 = ddp.all_reduce mean %g0 on @dp : tensor<3x2xf32>
  %r1 = ddp.all_reduce mean %g1 on @dp : tensor<2xf32>
  return %r0, %r1 : tensor<3x2xf32>, tensor<2xf32>
}
