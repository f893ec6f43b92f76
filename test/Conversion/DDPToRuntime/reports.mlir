// RUN: ddphook-opt %s --convert-ddp-to-runtime -split-input-file -verify-diagnostics | FileCheck %s

// ddp.is_finite and ddp.count_compression become calls of the runtime.

ddp.process_group @dp

// The pointer, the count, the element type; anything but 0 is true. An empty memref may
// have any strides.
// CHECK-LABEL: func.func private @is_finite(
// CHECK:         %[[COUNT:.+]] = llvm.mlir.constant(11 : i64) : i64
// CHECK-NEXT:    %[[F32:.+]] = llvm.mlir.constant(2 : i32) : i32
// CHECK-NEXT:    %[[R:.+]] = llvm.call @ddphook_rt_is_finite(%[[H:.+]], %[[P:.+]], %[[COUNT]], %[[F32]]) : (!llvm.ptr, !llvm.ptr, i64, i32) -> i32
// CHECK-NEXT:    %[[ZERO:.+]] = llvm.mlir.constant(0 : i32) : i32
// CHECK-NEXT:    %[[YES:.+]] = llvm.icmp "ne" %[[R]], %[[ZERO]] : i32
// CHECK:         llvm.mlir.constant(0 : i64) : i64
// CHECK-NEXT:    llvm.mlir.constant(0 : i32) : i32
// CHECK-NEXT:    llvm.call @ddphook_rt_is_finite(
// CHECK:         llvm.mlir.constant(6 : i64) : i64
// CHECK-NEXT:    llvm.mlir.constant(1 : i32) : i32
// CHECK-NEXT:    llvm.call @ddphook_rt_is_finite(
// CHECK:         llvm.mlir.constant(1 : i64) : i64
// CHECK-NEXT:    llvm.mlir.constant(3 : i32) : i32
// CHECK-NEXT:    llvm.call @ddphook_rt_is_finite(
// CHECK-NOT:     ddp.is_finite
func.func private @is_finite(%a: memref<11xf32>, %b: memref<0xf16, strided<[2]>>,
                             %c: memref<2x3xbf16>, %d: memref<f64>)
    -> (i1, i1, i1, i1) {
  %0 = ddp.is_finite %a : memref<11xf32>
  %1 = ddp.is_finite %b : memref<0xf16, strided<[2]>>
  %2 = ddp.is_finite %c : memref<2x3xbf16>
  %3 = ddp.is_finite %d : memref<f64>
  return %0, %1, %2, %3 : i1, i1, i1, i1
}

// The number of the bucket in the plan, the counts, the iteration, how often.
// CHECK-LABEL: func.func private @count(
// CHECK-SAME:    %[[I:[a-z0-9]+]]: i64)
// CHECK:         %[[B:.+]] = llvm.mlir.constant(1 : i32) : i32
// CHECK-NEXT:    %[[BEFORE:.+]] = llvm.mlir.constant(2112 : i64) : i64
// CHECK-NEXT:    %[[AFTER:.+]] = llvm.mlir.constant(256 : i64) : i64
// CHECK-NEXT:    %[[EVERY:.+]] = llvm.mlir.constant(10000 : i64) : i64
// CHECK-NEXT:    llvm.call @ddphook_rt_count_compression(%{{.+}}, %[[B]], %[[BEFORE]], %[[AFTER]], %[[I]], %[[EVERY]]) : (!llvm.ptr, i32, i64, i64, i64, i64) -> ()
// CHECK-NEXT:    return
func.func private @count(%i: i64) {
  ddp.count_compression "b1" before 2112 after 256 at %i every 10000
  return
}
ddp.bucket_info "b0" mean on @dp hook #ddp.powersgd wire f32 bytes 4
    state_bytes 0 : !ddp.bucket<f32, [1]>
ddp.bucket_info "b1" mean on @dp hook #ddp.powersgd wire f32 bytes 1024
    state_bytes 8704 : !ddp.bucket<f32, [64x32, 64]>

// -----

func.func private @unknown_bucket(%i: i64) {
  // expected-error @+1 {{expected a bucket that 'ddp.bucket_info' describes, but got "b7"}}
  ddp.count_compression "b7" before 1 after 1 at %i every 1
  return
}

// -----

func.func private @tensor(%t: tensor<4xf32>) -> i1 {
  // expected-error @+1 {{'ddp.is_finite' op could not be converted to a call of the runtime}}
  %0 = ddp.is_finite %t : tensor<4xf32>
  return %0 : i1
}

// -----

func.func private @strided(%m: memref<4xf32, strided<[2]>>) -> i1 {
  // expected-error @+1 {{expected contiguous memory, but got 'memref<4xf32, strided<[2]>>'}}
  %0 = ddp.is_finite %m : memref<4xf32, strided<[2]>>
  return %0 : i1
}

// -----

ddp.process_group @dp
func.func private @average(%t: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error @+1 {{'ddp.average' op could not be converted to a call of the runtime}}
  %0 = ddp.average %t on @dp every 4 : tensor<4xf32>
  return %0 : tensor<4xf32>
}
