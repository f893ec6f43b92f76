// RUN: ddphook-opt %s --convert-ddp-to-runtime=memory=device --split-input-file | FileCheck %s
// RUN: ddphook-opt %s --convert-ddp-to-runtime --split-input-file | FileCheck %s --check-prefix=HOST

// In the host's memory everything stays as it is.
// HOST:     memory = host
// HOST:     memref.copy
// HOST:     linalg.fill
// HOST:     memref.load

// CHECK: ddp.plan = #ddp.plan<abi = {{[0-9]+}}, memory = device, states =
// CHECK-SAME: arena_bytes = 104,
// CHECK-DAG: llvm.func @ddphook_rt_copy(!llvm.ptr, !llvm.ptr, !llvm.ptr, i64)
// CHECK-DAG: llvm.func @ddphook_rt_zero(!llvm.ptr, !llvm.ptr, i64)

ddp.state @iter : i64 replicated zero
ddp.state @error : !ddp.bucket<f32, [4]> per_rank zero

// CHECK-LABEL: func.func @step(
// CHECK-SAME:      %[[A:[a-z0-9]+]]: memref<4x2xf32>, %[[LABELS:[a-z0-9]+]]: memref<3xi32>
func.func @step(%a: memref<4x2xf32>, %labels: memref<3xi32>, %bits: memref<5xi1>,
                %i: index, %out: memref<8x2xf32>, %labels_out: memref<3xi32>,
                %bits_out: memref<5xi1>, %bytes_out: memref<5xi8>)
    attributes {ddp.result_arguments = array<i64: -1, -1, -1, -1>} {
  %c0 = arith.constant 0 : index
  %arena = ddp.arena : memref<104xi8>
  %view = memref.view %arena[%c0][] : memref<104xi8> to memref<8x2xf32>

  // Contiguous, the second one at an offset that nobody knows.
  // CHECK:      %[[P:.+]] = llvm.inttoptr
  // CHECK:      %[[Q:.+]] = llvm.inttoptr
  // CHECK:      %[[BYTES:.+]] = llvm.mlir.constant(32 : i64)
  // CHECK-NEXT: llvm.call @ddphook_rt_copy(%[[H:.+]], %[[P]], %[[Q:.+]], %[[BYTES]])
  %rows = memref.subview %view[%i, 0] [4, 2] [1, 1]
      : memref<8x2xf32> to memref<4x2xf32, strided<[2, 1], offset: ?>>
  memref.copy %a, %rows
      : memref<4x2xf32> to memref<4x2xf32, strided<[2, 1], offset: ?>>

  // Other types.
  // CHECK:      llvm.mlir.constant(12 : i64)
  // CHECK-NEXT: llvm.call @ddphook_rt_copy
  // CHECK:      llvm.mlir.constant(5 : i64)
  // CHECK-NEXT: llvm.call @ddphook_rt_copy
  memref.copy %labels, %labels_out : memref<3xi32> to memref<3xi32>
  memref.copy %bits, %bits_out : memref<5xi1> to memref<5xi1>

  // Another copy, but not one that converts.
  // CHECK:      llvm.mlir.constant(12 : i64)
  // CHECK-NEXT: llvm.call @ddphook_rt_copy
  // CHECK:      linalg.copy
  linalg.copy ins(%labels : memref<3xi32>) outs(%labels_out : memref<3xi32>)
  linalg.copy ins(%bits : memref<5xi1>) outs(%bytes_out : memref<5xi8>)

  // Of any size, at an offset that nobody knows.
  // CHECK:      %[[AT:.+]] = llvm.getelementptr
  // CHECK-NEXT: %[[SIZE:.+]] = llvm.mlir.constant(32 : i64)
  // CHECK-NEXT: llvm.call @ddphook_rt_zero(%[[H]], %[[AT]], %[[SIZE]])
  %zero = arith.constant 0.0 : f32
  linalg.fill ins(%zero : f32)
      outs(%rows : memref<4x2xf32, strided<[2, 1], offset: ?>>)

  // Other values are not made here; nor are copies with gaps.
  // CHECK:      linalg.fill
  // CHECK:      linalg.fill
  // CHECK:      memref.copy
  %one = arith.constant 1.0 : f32
  linalg.fill ins(%one : f32) outs(%view : memref<8x2xf32>)
  %minus_zero = arith.constant -0.0 : f32
  linalg.fill ins(%minus_zero : f32) outs(%view : memref<8x2xf32>)
  %column = memref.subview %view[0, 0] [8, 1] [1, 1]
      : memref<8x2xf32> to memref<8x1xf32, strided<[2, 1]>>
  %column_out = memref.subview %out[0, 0] [8, 1] [1, 1]
      : memref<8x2xf32> to memref<8x1xf32, strided<[2, 1]>>
  memref.copy %column, %column_out : memref<8x1xf32, strided<[2, 1]>>
      to memref<8x1xf32, strided<[2, 1]>>

  // A number by which code decides lies with the code.
  // CHECK:      %[[STATE:.+]] = llvm.call @ddphook_rt_state(
  // CHECK-NEXT: %[[N:.+]] = llvm.load %[[STATE]] : !llvm.ptr -> i64
  // CHECK-NEXT: %[[NEXT:.+]] = arith.addi %[[N]], %[[N]]
  // CHECK-NEXT: llvm.store %[[NEXT]], %[[STATE]] : i64, !llvm.ptr
  %iter = ddp.state_buffer @iter : memref<i64>
  %n = memref.load %iter[] : memref<i64>
  %next = arith.addi %n, %n : i64
  memref.store %next, %iter[] : memref<i64>

  // The other states are arrays.
  // CHECK:      llvm.call @ddphook_rt_state(
  // CHECK:      builtin.unrealized_conversion_cast %{{.+}} to memref<4xf32>
  %error = ddp.state_buffer @error : memref<4xf32>
  %part = memref.subview %out[0, 0] [2, 2] [1, 1]
      : memref<8x2xf32> to memref<2x2xf32, strided<[2, 1]>>
  %flat = memref.collapse_shape %part [[0, 1]]
      : memref<2x2xf32, strided<[2, 1]>> into memref<4xf32, strided<[1]>>
  // CHECK:      llvm.call @ddphook_rt_copy
  memref.copy %error, %flat : memref<4xf32> to memref<4xf32, strided<[1]>>
  return
}

// -----

// A constant lies in the host's memory: no copy of the runtime reaches it.

memref.global "private" constant @numbers : memref<2xf32> = dense<[1.0, 2.0]>

// CHECK-LABEL: func.func @constant(
// CHECK:         memref.get_global
// CHECK-NEXT:    memref.copy
func.func @constant(%out: memref<2xf32>)
    attributes {ddp.result_arguments = array<i64: -1>} {
  %0 = memref.get_global @numbers : memref<2xf32>
  memref.copy %0, %out : memref<2xf32> to memref<2xf32>
  return
}
