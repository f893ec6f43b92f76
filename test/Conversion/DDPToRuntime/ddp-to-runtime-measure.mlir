// RUN: ddphook-opt %s --convert-ddp-to-runtime | FileCheck %s

// What a hook compresses is measured right after it, for the bucket that the
// attribute names.

ddp.process_group @dp size 2
ddp.bucket_info "b0" mean on @dp hook #ddp.fp16 wire f16 bytes 40 state_bytes 0
    : !ddp.bucket<f32, [20]>
ddp.bucket_info "b1" mean on @dp hook #ddp.fp16 wire f16 bytes 12 state_bytes 0
    : !ddp.bucket<f32, [2x3]>

// CHECK-LABEL: func.func @product(
// CHECK:         llvm.call @ddphook_rt_matmul(%[[MODULE:.+]], %[[LIST:.+]], %{{.+}}, %[[M:.+]], %[[P:.+]], %[[Q:.+]]) :
// CHECK:         %[[BUCKET:.+]] = llvm.mlir.constant(1 : i32) : i32
// CHECK:         llvm.call @ddphook_rt_measure_product(%[[MODULE]], %[[BUCKET]], %{{.+}}, %{{.+}}, %{{.+}}, %{{.+}}) : (!llvm.ptr, i32, i32, !llvm.ptr, !llvm.ptr, !llvm.ptr) -> ()
// CHECK-NOT:     ddphook_rt_measure
func.func @product(%m: memref<6xf32>, %p: memref<4xf32>, %q: memref<6xf32>) {
  ddp.flat.matmul transpose_lhs %m, %p
      layout <0 to 6, [0, 0, 0, 2, 3, 2], []> into %q {ddp.compresses = "b1"}
      : memref<6xf32>, memref<4xf32>, memref<6xf32>
  ddp.flat.matmul %m, %q layout <0 to 6, [0, 0, 0, 2, 3, 2], []> into %p
      : memref<6xf32>, memref<6xf32>, memref<4xf32>
  return
}

// CHECK-LABEL: func.func @entries(
// CHECK:         llvm.call @ddphook_rt_sparsify(
// CHECK:         llvm.call @ddphook_rt_measure_entries({{.+}}) : (!llvm.ptr, i32, i64, !llvm.ptr, !llvm.ptr, i64) -> ()
func.func @entries(%x: memref<20xf32>, %e: memref<4xf32>) {
  ddp.flat.sparsify %x keep 2 into (%e, %x) {ddp.compresses = "b0"}
      : memref<20xf32>, memref<4xf32>, memref<20xf32>
  return
}
