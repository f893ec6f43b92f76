// RUN: ddphook-opt %s --ddp-expand-hooks="hook=fp16" -split-input-file -verify-diagnostics | FileCheck %s
// RUN: ddphook-opt %s --ddp-expand-hooks -split-input-file | FileCheck %s --check-prefix=PLAIN

// Reductions of memory are compressed as those of tensors are, each where it
// stands.

ddp.process_group @dp
// CHECK-LABEL: func.func @step(
// CHECK-SAME:      %[[G:.+]]: memref<8x4xf32>, %[[S:.+]]: memref<2xf32, strided<[2]>>, %[[O:.+]]: memref<2xf32>)
// CHECK:         %[[T:.+]] = bufferization.to_tensor %[[G]] restrict : memref<8x4xf32> to tensor<8x4xf32>
// CHECK-NEXT:    %[[B:.+]] = ddp.pack %[[T]] : tensor<8x4xf32> -> !ddp.bucket<f32, [8x4]>
// CHECK-NEXT:    %[[H:.+]] = ddp.cast %[[B]]
// CHECK-NEXT:    %[[A:.+]] = ddp.all_reduce mean %[[H]] on @dp as "b0" {ddp.hook = #ddp.allreduce} : !ddp.bucket<f16, [8x4]>
// CHECK-NEXT:    %[[R:.+]] = ddp.cast %[[A]]
// CHECK-NEXT:    %[[U:.+]] = ddp.unpack %[[R]]
// CHECK-NEXT:    bufferization.materialize_in_destination %[[U]] in writable %[[G]]
// CHECK-NEXT:    linalg.fill
// The name "b1" is taken.
// CHECK:         ddp.all_reduce sum %{{.+}} on @dp as "b2" {ddp.hook = #ddp.allreduce} : !ddp.bucket<bf16, [2]>
// CHECK:         bufferization.materialize_in_destination %{{.+}} in writable %[[O]]
// An explicit plain all-reduce stays.
// CHECK:         ddp.all_reduce mean %[[O]] on @dp into %[[O]] : memref<2xf32>, {ddp.hook = #ddp.allreduce, ddp.name = "step.arg2"} : memref<2xf32>
// CHECK:         ddp.all_reduce mean %{{.+}} on @dp as "b1"
// CHECK-DAG:   ddp.bucket_info "b0" mean on @dp hook #ddp.fp16 wire f16 bytes 64 state_bytes 0 : !ddp.bucket<f32, [8x4]> of ["step.arg0"]
// CHECK-DAG:   ddp.bucket_info "b2" sum on @dp hook #ddp.bf16 wire bf16 bytes 4 state_bytes 0 : !ddp.bucket<f32, [2]> of ["step.arg1"]

// PLAIN-LABEL: func.func @step(
// PLAIN:         ddp.all_reduce mean %[[G:.+]] on @dp into %[[G]] : memref<8x4xf32>, {ddp.name = "step.arg0"} : memref<8x4xf32>
// PLAIN:         ddp.all_reduce sum %{{.+}} on @dp as "b{{.}}" {ddp.hook = #ddp.allreduce} : !ddp.bucket<bf16, [2]>
func.func @step(%g: memref<8x4xf32>, %s: memref<2xf32, strided<[2]>>,
                %o: memref<2xf32>) {
  %x = arith.constant 1.0 : f32
  ddp.all_reduce mean %g on @dp into %g : memref<8x4xf32>, : memref<8x4xf32>
  linalg.fill ins(%x : f32) outs(%g : memref<8x4xf32>)
  ddp.all_reduce sum %s on @dp into %o : memref<2xf32>,
      {ddp.hook = #ddp.bf16} : memref<2xf32, strided<[2]>>
  ddp.all_reduce mean %o on @dp into %o : memref<2xf32>,
      {ddp.hook = #ddp.allreduce} : memref<2xf32>
  %t = tensor.empty() : tensor<3xf32>
  %b = ddp.pack %t : tensor<3xf32> -> !ddp.bucket<f32, [3]>
  %r = ddp.all_reduce mean %b on @dp as "b1" : !ddp.bucket<f32, [3]>
  return
}

// -----

// What does not lie in one piece travels from a bucket, which is in one. What only has a
// layout that says so stays.

ddp.process_group @dp
// PLAIN-LABEL: func.func @strided(
// PLAIN-SAME:      %[[G:.+]]: memref<8x4xf32, strided<[8, 1]>>, %[[S:.+]]: memref<8x4xf32, strided<[4, 1], offset: 3>>
// PLAIN:         %[[T:.+]] = bufferization.to_tensor %[[G]] restrict
// PLAIN:         %[[B:.+]] = ddp.pack %[[T]]
// PLAIN:         %[[R:.+]] = ddp.all_reduce sum %[[B]] on @dp as "b0"
// PLAIN:         %[[U:.+]] = ddp.unpack %[[R]]
// PLAIN:         bufferization.materialize_in_destination %[[U]] in writable %[[S]]
// PLAIN:         ddp.all_reduce sum %[[S]] on @dp into %[[S]]
func.func @strided(%g: memref<8x4xf32, strided<[8, 1]>>,
                   %s: memref<8x4xf32, strided<[4, 1], offset: 3>>) {
  ddp.all_reduce sum %g on @dp into %s : memref<8x4xf32, strided<[4, 1], offset: 3>>,
      : memref<8x4xf32, strided<[8, 1]>>
  ddp.all_reduce sum %s on @dp into %s : memref<8x4xf32, strided<[4, 1], offset: 3>>,
      : memref<8x4xf32, strided<[4, 1], offset: 3>>
  return
}
