// RUN: ddphook-opt %s --ddp-launch-kernels --split-input-file --verify-diagnostics | FileCheck %s

// The rest of the plan stays as it is.
// CHECK-NOT: gpu.
// CHECK: ddp.plan = #ddp.plan<abi = 10, memory = device, kernels = ["ddphook_kernel_0", "ddphook_kernel_1"], arena_bytes = 64>
// CHECK: llvm.func @ddphook_rt_launch(!llvm.ptr, i32, !llvm.ptr, !llvm.ptr, i64, !llvm.ptr)
module attributes {gpu.container_module,
    ddp.plan = #ddp.plan<abi = 10, memory = device, arena_bytes = 64>} {

// Kernels are numbered in this order; other functions are not.
gpu.module @ddphook_kernels {
  gpu.func @ddphook_kernel_0(%x: f32, %a: memref<1000xf32>) kernel
      attributes {known_block_size = array<i32: 256, 1, 1>} {
    gpu.return
  }
  func.func private @helper(f32) -> f32
  gpu.func @ddphook_kernel_1(%y: i1, %b: memref<i1>, %i: index) kernel
      attributes {known_block_size = array<i32: 256, 1, 1>} {
    gpu.return
  }
}

llvm.mlir.global internal @__ddphook_handle() : !llvm.ptr

// CHECK-LABEL: func.func @step(
func.func @step(%a: memref<1000xf32>, %b: memref<2000xi1>, %x: f32, %y: i1,
                %i: index) {
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  %c256 = arith.constant 256 : index
  // One array of sizes, of values and of addresses, for all launches.
  // CHECK:      %[[SLOT:.+]] = llvm.mlir.addressof @__ddphook_handle
  // CHECK-NEXT: %[[HANDLE:.+]] = llvm.load %[[SLOT]]
  // CHECK:      %[[SIX:.+]] = llvm.mlir.constant(6 : i64)
  // CHECK-NEXT: %[[SIZES:.+]] = llvm.alloca %[[SIX]] x i64
  // CHECK:      %[[THREE:.+]] = llvm.mlir.constant(3 : i64)
  // CHECK-NEXT: %[[VALUES:.+]] = llvm.alloca %[[THREE]] x i64
  // CHECK:      %[[ADDRESSES:.+]] = llvm.alloca %{{.+}} x !llvm.ptr
  // CHECK-NOT:  llvm.alloca

  // CHECK:      %[[GRID:.+]] = arith.index_cast %c4{{.*}} : index to i64
  // CHECK-NEXT: %[[GRID_SLOT:.+]] = llvm.getelementptr %[[SIZES]][0]
  // CHECK-NEXT: llvm.store %[[GRID]], %[[GRID_SLOT]]
  // CHECK:      %[[X_SLOT:.+]] = llvm.getelementptr %[[VALUES]][0]
  // CHECK-NEXT: llvm.store %{{.+}}, %[[X_SLOT]] : f32, !llvm.ptr
  // CHECK-NEXT: %[[X_ADDRESS:.+]] = llvm.getelementptr %[[ADDRESSES]][0]
  // CHECK-NEXT: llvm.store %[[X_SLOT]], %[[X_ADDRESS]]
  // CHECK:      %[[A:.+]] = memref.extract_aligned_pointer_as_index
  // CHECK:      %[[BLOCK:.+]] = llvm.getelementptr %[[SIZES]][3]{{.*}}
  // CHECK-NEXT: %[[NUMBER:.+]] = llvm.mlir.constant(0 : i32)
  // CHECK-NEXT: %[[SHARED:.+]] = llvm.mlir.constant(0 : i64)
  // CHECK-NEXT: llvm.call @ddphook_rt_launch(%[[HANDLE]], %[[NUMBER]], %[[SIZES]], %[[BLOCK]], %[[SHARED]], %[[ADDRESSES]])
  gpu.launch_func @ddphook_kernels::@ddphook_kernel_0
      blocks in (%c4, %c1, %c1) threads in (%c256, %c1, %c1)
      args(%x : f32, %a : memref<1000xf32>)

  // A truth value is a byte.
  // CHECK:      llvm.zext %{{.+}} : i1 to i8
  // CHECK:      llvm.mlir.constant(1 : i32)
  // CHECK-NEXT: llvm.mlir.constant(0 : i64)
  // CHECK-NEXT: llvm.call @ddphook_rt_launch
  %part = memref.subview %b[%i] [1] [1]
      : memref<2000xi1> to memref<1xi1, strided<[1], offset: ?>>
  %base, %offset, %size, %stride = memref.extract_strided_metadata %part
      : memref<1xi1, strided<[1], offset: ?>> -> memref<i1>, index, index, index
  gpu.launch_func @ddphook_kernels::@ddphook_kernel_1
      blocks in (%c4, %c1, %c1) threads in (%c256, %c1, %c1)
      args(%y : i1, %base : memref<i1>, %offset : index)
  return
}

}

// -----

// expected-error @below {{expected a plan without kernels, made by ddp-pipeline with memory=device}}
module attributes {gpu.container_module,
    ddp.plan = #ddp.plan<abi = 10, memory = device, kernels = ["mine"]>} {
  gpu.module @ddphook_kernels {
  }
}
