// RUN: ddphook-opt %s --convert-ddp-to-runtime | FileCheck %s
// RUN: ddphook-opt %s --convert-ddp-to-runtime --ddp-emit-entry-points | sed -n 's/.*@ddphook.plan("\(.*\)").*/\1/p' | sed 's/\\22/"/g' > %t.plan
// RUN: diff %t.plan %S/Inputs/ddp-to-runtime-plan.json

// The plan's text is compared to the byte: ranks compare its hash. The file also
// parses as JSON.
// RUN: %python -c "import json, sys; json.load(open(sys.argv[1]))" %t.plan

// Nothing of the dialect is left, attributes included, but the plan.
// CHECK: module attributes {ddp.plan = #ddp.plan<{{.*}}>} {
// CHECK-NOT: ddp.
// CHECK-DAG: llvm.func @ddphook_rt_arena(!llvm.ptr) -> !llvm.ptr
// CHECK-DAG: llvm.func @ddphook_rt_collective(!llvm.ptr, i32, !llvm.ptr, !llvm.ptr, i64)
// CHECK-DAG: llvm.func @ddphook_rt_cast(!llvm.ptr, !llvm.ptr, i32, !llvm.ptr, i32, i64)
// CHECK-DAG: llvm.func @ddphook_rt_scale(!llvm.ptr, f64, !llvm.ptr, !llvm.ptr, i64, i32)
// CHECK-DAG: llvm.func @ddphook_rt_divide_by_group_size(!llvm.ptr, i32, !llvm.ptr, !llvm.ptr, i64, i32)
// CHECK:     llvm.mlir.global internal @__ddphook_handle() {{.*}} : !llvm.ptr
// CHECK-NOT: {ddp.
module attributes {ddp.hook = #ddp.fp16} {

ddp.process_group @other size 2 ranks [[0, 1], [2, 3]]
ddp.process_group @dp
ddp.process_group @node placement intra_node parent @dp
ddp.bucket_info "b0" mean on @dp hook #ddp.fp16 wire f16 bytes 72 state_bytes 0
    : !ddp.bucket<f32, [4x8, scalar, 0x3, 3]>
ddp.bucket_info "b1" sum on @other hook #ddp.wrap<bf16, #ddp.noop> wire bf16
    bytes 0 state_bytes 8 : !ddp.bucket<f64, []>

// CHECK-LABEL: func.func @step(
// CHECK-SAME:      %[[W:[a-z0-9]+]]: memref<4x8xf32>, %{{.+}}: index, %{{.+}}: f16, %{{.+}}: memref<i1>, %{{.+}}: memref<f64>) {
// CHECK:         %[[SLOT:.+]] = llvm.mlir.addressof @__ddphook_handle
// CHECK:         %[[H:.+]] = llvm.load %[[SLOT]] : !llvm.ptr -> !llvm.ptr
func.func @step(%w: memref<4x8xf32> {ddp.inout, ddp.replicated}, %n: index,
                %f: f16, %flag: memref<i1>, %out: memref<f64> {ddp.gradient})
    attributes {ddp.hook = #ddp.bf16,
                ddp.result_arguments = array<i64: 0, -1>} {
  %c64 = arith.constant 64 : index

  // The arena, a memref made of the pointer that the runtime gives.
  // CHECK:         %[[P:.+]] = llvm.call @ddphook_rt_arena(%[[H]])
  // CHECK:         llvm.insertvalue %[[P]], %{{.+}}[0]
  // CHECK:         llvm.insertvalue %[[P]], %{{.+}}[1]
  // CHECK:         %[[SIZE:.+]] = llvm.mlir.constant(256 : index)
  // CHECK:         llvm.insertvalue %[[SIZE]], %{{.+}}[3, 0]
  // CHECK:         %[[ARENA:.+]] = builtin.unrealized_conversion_cast %{{.+}} to memref<256xi8>
  %arena = ddp.arena : memref<256xi8>

  // A view of a part of the arena is a part of the arena: 64 + 32 · 4 bytes.
  // CHECK:         %[[B:.+]] = memref.view %[[ARENA]][%{{.+}}][] : memref<256xi8> to memref<36xf32>
  // CHECK:         %[[SHIFT:.+]] = arith.constant 192 : index
  // CHECK:         memref.view %[[ARENA]][%[[SHIFT]]][] : memref<256xi8> to memref<f32>
  %b = memref.view %arena[%c64][] : memref<256xi8> to memref<36xf32>
  %v = ddp.view %b[32] : memref<36xf32> to memref<f32>

  // At an offset that is not known, too.
  // CHECK:         %[[BYTES:.+]] = arith.constant 12 : index
  // CHECK:         %[[SUM:.+]] = arith.addi %{{.+}}, %[[BYTES]] : index
  // CHECK:         memref.view %[[ARENA]][%[[SUM]]][] : memref<256xi8> to memref<2xf32>
  %d = memref.view %arena[%n][] : memref<256xi8> to memref<8xf32>
  %e = ddp.view %d[3] : memref<8xf32> to memref<2xf32>

  // Collective 0: in and out are the same memory.
  // CHECK:         %[[I0:.+]] = memref.extract_aligned_pointer_as_index %[[B]]
  // CHECK:         %[[L0:.+]] = arith.index_cast %[[I0]]
  // CHECK:         %[[IN:.+]] = llvm.inttoptr %[[L0]]
  // CHECK:         %[[I1:.+]] = memref.extract_aligned_pointer_as_index %[[B]]
  // CHECK:         %[[L1:.+]] = arith.index_cast %[[I1]]
  // CHECK:         %[[OUT:.+]] = llvm.inttoptr %[[L1]]
  // CHECK:         %[[N0:.+]] = llvm.mlir.constant(0 : i32) : i32
  // CHECK:         %[[STEP:.+]] = llvm.mlir.constant(0 : i64) : i64
  // CHECK:         llvm.call @ddphook_rt_collective(%[[H]], %[[N0]], %[[IN]], %[[OUT]], %[[STEP]])
  ddp.flat.all_reduce mean %b on @dp wire f16 as "b0" into %b
      : memref<36xf32>, memref<36xf32>

  // Group 2, 36 elements of type f32 (2).
  // CHECK:         %[[NODE:.+]] = llvm.mlir.constant(2 : i32) : i32
  // CHECK:         %[[COUNT:.+]] = llvm.mlir.constant(36 : i64) : i64
  // CHECK:         %[[F32:.+]] = llvm.mlir.constant(2 : i32) : i32
  // CHECK:         llvm.call @ddphook_rt_divide_by_group_size(%[[H]], %[[NODE]], %{{.+}}, %{{.+}}, %[[COUNT]], %[[F32]])
  ddp.flat.scale %b by_world_of @node into %b : memref<36xf32>, memref<36xf32>

  // From f32 (2) to f16 (0).
  // CHECK:         %[[HALF:.+]] = memref.view {{.+}} to memref<36xf16>
  // CHECK:         memref.extract_aligned_pointer_as_index %[[B]]
  // CHECK:         %[[IN:.+]] = llvm.inttoptr
  // CHECK:         memref.extract_aligned_pointer_as_index %[[HALF]]
  // CHECK:         %[[OUT:.+]] = llvm.inttoptr
  // CHECK-DAG:     %[[FROM:.+]] = llvm.mlir.constant(2 : i32) : i32
  // CHECK-DAG:     %[[TO:.+]] = llvm.mlir.constant(0 : i32) : i32
  // CHECK-DAG:     %[[COUNT:.+]] = llvm.mlir.constant(36 : i64) : i64
  // CHECK:         llvm.call @ddphook_rt_cast(%[[H]], %[[IN]], %[[FROM]], %[[OUT]], %[[TO]], %[[COUNT]])
  %h = memref.view %arena[%c64][] : memref<256xi8> to memref<36xf16>
  ddp.flat.cast %b into %h : memref<36xf32>, memref<36xf16>

  // CHECK:         %[[N1:.+]] = llvm.mlir.constant(1 : i32) : i32
  // CHECK:         llvm.call @ddphook_rt_collective(%[[H]], %[[N1]],
  ddp.flat.all_reduce sum %h on @other into %h : memref<36xf16>, memref<36xf16>
  return
}

// What is not in the arena: views by address, slices with an offset that is
// known and one that is not. Types bf16 (1) and f64 (3).
// CHECK-LABEL: func.func @views(
// CHECK-SAME:      %[[M:[a-z0-9]+]]: memref<8x8xbf16>, %[[D:[a-z0-9]+]]: memref<8x8xf64>, %[[K:[a-z0-9]+]]: index) {
// CHECK:         %[[H:.+]] = llvm.load
func.func @views(%m: memref<8x8xbf16>, %d: memref<8x8xf64>, %k: index) {
  // CHECK:         %[[BASE:.+]] = llvm.inttoptr
  // CHECK:         %[[OFFSET:.+]] = llvm.mlir.constant(5 : i64) : i64
  // CHECK:         %[[AT:.+]] = llvm.getelementptr %[[BASE]][%[[OFFSET]]] : (!llvm.ptr, i64) -> !llvm.ptr, bf16
  // CHECK:         llvm.insertvalue %[[AT]], %{{.+}}[0]
  // CHECK:         llvm.insertvalue %[[AT]], %{{.+}}[1]
  // CHECK:         %[[V:.+]] = builtin.unrealized_conversion_cast %{{.+}} to memref<2x3xbf16>
  // CHECK:         memref.extract_aligned_pointer_as_index %[[V]]
  // CHECK:         %[[TWO:.+]] = llvm.mlir.constant(2.000000e+00 : f64) : f64
  // CHECK:         %[[COUNT:.+]] = llvm.mlir.constant(6 : i64) : i64
  // CHECK:         %[[BF16:.+]] = llvm.mlir.constant(1 : i32) : i32
  // CHECK:         llvm.call @ddphook_rt_scale(%[[H]], %[[TWO]], %{{.+}}, %{{.+}}, %[[COUNT]], %[[BF16]])
  %v = ddp.view %m[5] : memref<8x8xbf16> to memref<2x3xbf16>
  ddp.flat.scale %v by 2.0 into %v : memref<2x3xbf16>, memref<2x3xbf16>

  // CHECK:         %[[S:.+]] = memref.subview %[[D]][2, 0]
  // CHECK:         %[[T:.+]] = memref.subview %[[D]][%[[K]], 0]
  // CHECK:         memref.extract_aligned_pointer_as_index %[[S]]
  // CHECK:         %{{.+}}, %[[O:.+]], %{{.+}}:2, %{{.+}}:2 = memref.extract_strided_metadata %[[S]]
  // CHECK:         %[[E:.+]] = arith.index_cast %[[O]] : index to i64
  // CHECK:         %[[IN:.+]] = llvm.getelementptr %{{.+}}[%[[E]]] : (!llvm.ptr, i64) -> !llvm.ptr, f64
  // CHECK:         memref.extract_aligned_pointer_as_index %[[T]]
  // CHECK:         %{{.+}}, %[[O:.+]], %{{.+}}:2, %{{.+}}:2 = memref.extract_strided_metadata %[[T]]
  // CHECK:         %[[E:.+]] = arith.index_cast %[[O]] : index to i64
  // CHECK:         %[[OUT:.+]] = llvm.getelementptr %{{.+}}[%[[E]]] : (!llvm.ptr, i64) -> !llvm.ptr, f64
  // CHECK:         %[[TWO:.+]] = llvm.mlir.constant(2.000000e+00 : f64) : f64
  // CHECK:         %[[COUNT:.+]] = llvm.mlir.constant(16 : i64) : i64
  // CHECK:         %[[F64:.+]] = llvm.mlir.constant(3 : i32) : i32
  // CHECK:         llvm.call @ddphook_rt_scale(%[[H]], %[[TWO]], %[[IN]], %[[OUT]], %[[COUNT]], %[[F64]])
  %s = memref.subview %d[2, 0] [2, 8] [1, 1]
      : memref<8x8xf64> to memref<2x8xf64, strided<[8, 1], offset: 16>>
  %t = memref.subview %d[%k, 0] [2, 8] [1, 1]
      : memref<8x8xf64> to memref<2x8xf64, strided<[8, 1], offset: ?>>
  ddp.flat.scale %s by 2.0 into %t
      : memref<2x8xf64, strided<[8, 1], offset: 16>>, memref<2x8xf64, strided<[8, 1], offset: ?>>
  return
}

// More than two to the 31 elements away.
// CHECK-LABEL: func.func @far(
// CHECK:         %[[OFFSET:.+]] = llvm.mlir.constant(3000000000 : i64) : i64
// CHECK:         llvm.getelementptr %{{.+}}[%[[OFFSET]]]
func.func @far(%m: memref<4294967296xf16>) {
  %v = ddp.view %m[3000000000] : memref<4294967296xf16> to memref<2xf16>
  ddp.flat.scale %v by 2.0 into %v : memref<2xf16>, memref<2xf16>
  return
}

// One dimension is contiguous whatever its stride, if there is one element.
// CHECK-LABEL: func.func @contiguous(
// CHECK:         llvm.call @ddphook_rt_scale
func.func @contiguous(%m: memref<8x8xf32>) {
  %s = memref.subview %m[1, 2] [1, 4] [1, 1]
      : memref<8x8xf32> to memref<1x4xf32, strided<[8, 1], offset: 10>>
  ddp.flat.scale %s by 2.0 into %s
      : memref<1x4xf32, strided<[8, 1], offset: 10>>, memref<1x4xf32, strided<[8, 1], offset: 10>>
  return
}

// In branches and loops the handle comes from the entry block; private
// functions load it themselves and are no entries of the plan.
// CHECK-LABEL: func.func private @nested(
// CHECK:         %[[SLOT:.+]] = llvm.mlir.addressof @__ddphook_handle
// CHECK:         %[[H:.+]] = llvm.load %[[SLOT]]
// CHECK:         scf.if
// CHECK:           scf.for
// CHECK:             llvm.call @ddphook_rt_scale(%[[H]],
// CHECK:         else
// CHECK:           llvm.call @ddphook_rt_collective(%[[H]],
func.func private @nested(%m: memref<4xf32>, %c: i1) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c3 = arith.constant 3 : index
  scf.if %c {
    scf.for %i = %c0 to %c3 step %c1 {
      ddp.flat.scale %m by 2.0 into %m : memref<4xf32>, memref<4xf32>
    }
  } else {
    ddp.flat.all_reduce sum %m on @dp into %m : memref<4xf32>, memref<4xf32>
  }
  return
}

// What the plan cannot describe and does not communicate is none of its
// business.
// CHECK-LABEL: func.func @unrelated(%{{.+}}: memref<?xf32>) -> tensor<4xi7>
func.func @unrelated(%m: memref<?xf32>) -> tensor<4xi7> {
  %0 = tensor.empty() : tensor<4xi7>
  return %0 : tensor<4xi7>
}

}
