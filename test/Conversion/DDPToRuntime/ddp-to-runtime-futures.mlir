// RUN: ddphook-opt %s --convert-ddp-to-runtime | FileCheck %s

// Collectives in flight are numbered like all others, in the order of the program;
// the wait gets the call's ticket.

// CHECK:     collectives = [
// CHECK-SAME: <bucket = "b0", group = 0, count = 16, dtype = f32, wire_dtype = bf16, divide = true>,
// CHECK-SAME: <bucket = "b1", group = 1, count = 6, dtype = f64, divide = false>,
// CHECK-SAME: <group = 0, count = 16, dtype = f32, divide = true>]
// CHECK-DAG: llvm.func @ddphook_rt_collective_start(!llvm.ptr, i32, !llvm.ptr, !llvm.ptr, i64) -> i64
// CHECK-DAG: llvm.func @ddphook_rt_collective(!llvm.ptr, i32, !llvm.ptr, !llvm.ptr, i64)
// CHECK-DAG: llvm.func @ddphook_rt_wait(!llvm.ptr, i64)

ddp.process_group @dp
ddp.process_group @other
ddp.bucket_info "b0" mean on @dp hook #ddp.bf16 wire bf16 bytes 32 state_bytes 0
    : !ddp.bucket<f32, [16]>
ddp.bucket_info "b1" sum on @other hook #ddp.allreduce wire f64 bytes 48 state_bytes 0
    : !ddp.bucket<f64, [2x3]>

// CHECK-LABEL: func.func @step(
// CHECK:         %[[H:.+]] = llvm.load
// CHECK:         %[[C0:.+]] = llvm.mlir.constant(0 : i32)
// CHECK:         %[[T0:.+]] = llvm.call @ddphook_rt_collective_start(%[[H]], %[[C0]], %[[X:[^,]+]], %[[Y:[^,)]+]], %{{.+}})
// CHECK:         %[[C1:.+]] = llvm.mlir.constant(1 : i32)
// CHECK:         %[[T1:.+]] = llvm.call @ddphook_rt_collective_start(%[[H]], %[[C1]], %[[Z:[^,]+]], %{{.+}}, %{{.+}})
// CHECK:         %[[C2:.+]] = llvm.mlir.constant(2 : i32)
// CHECK:         llvm.call @ddphook_rt_collective(%[[H]], %[[C2]],
// CHECK-NEXT:    llvm.call @ddphook_rt_wait(%[[H]], %[[T1]])
// CHECK-NEXT:    llvm.call @ddphook_rt_wait(%[[H]], %[[T0]])
// CHECK-NEXT:    return
// CHECK-NOT:   ddp.
func.func @step(%x: memref<16xf32>, %y: memref<16xf32>, %z: memref<2x3xf64>, %a: memref<16xf32>) {
  %t0 = ddp.flat.all_reduce_start mean %x on @dp wire bf16 as "b0" into %y
      : memref<16xf32>, memref<16xf32>
  %t1 = ddp.flat.all_reduce_start sum %z on @other as "b1" into %z
      : memref<2x3xf64>, memref<2x3xf64>
  ddp.flat.all_reduce mean %a on @dp into %a : memref<16xf32>, memref<16xf32>
  ddp.flat.wait %z, %t1 : memref<2x3xf64>
  ddp.flat.wait %y, %t0 reading %x : memref<16xf32>, memref<16xf32>
  return
}
