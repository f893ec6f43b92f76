// RUN: ddphook-opt %s --ddp-outline-gpu-kernels --split-input-file | FileCheck %s

// Operations that share a launch, and those that must not.

#ab = affine_map<(a, b) -> (a, b)>
#ba = affine_map<(a, b) -> (b, a)>
#b = affine_map<(a, b) -> (b)>

module attributes {ddp.plan = #ddp.plan<abi = 10, memory = device>} {

// The biases, the product, and what follows: one kernel, which stores each
// element once. Neither of the first two loads what the one before it computed.

// CHECK-LABEL: func.func @layer(
// CHECK:         gpu.launch_func @ddphook_kernels::@ddphook_kernel_0
// CHECK-NOT:     gpu.launch_func
// CHECK:       gpu.func @ddphook_kernel_0(%[[BIAS:.+]]: memref<8xf32>, %[[Z:.+]]: memref<4x8xf32>, %[[X:.+]]: memref<4x3xf32>, %[[W:.+]]: memref<3x8xf32>)
// CHECK-COUNT-4: memref.reinterpret_cast
// CHECK:         %[[INIT:.+]] = memref.load %{{.+}} : memref<8xf32>
// CHECK-NOT:     memref.load
// CHECK:         %[[SUM:.+]] = scf.for {{.*}} iter_args(%{{.+}} = %[[INIT]])
// CHECK-COUNT-2:   memref.load
// CHECK-NOT:     memref.load
// CHECK:         %[[H:.+]] = arith.maximumf %[[SUM]], %{{.+}}
// CHECK:         memref.store %[[H]]
// CHECK-NOT:     memref.store
func.func @layer(%bias: memref<8xf32>, %x: memref<4x3xf32>, %w: memref<3x8xf32>,
                 %z: memref<4x8xf32>) {
  %zero = arith.constant 0.0 : f32
  linalg.broadcast ins(%bias : memref<8xf32>) outs(%z : memref<4x8xf32>) dimensions = [0]
  linalg.matmul ins(%x, %w : memref<4x3xf32>, memref<3x8xf32>) outs(%z : memref<4x8xf32>)
  linalg.generic {indexing_maps = [#ab], iterator_types = ["parallel", "parallel"]}
      outs(%z : memref<4x8xf32>) {
  ^bb0(%e: f32):
    %0 = arith.maximumf %e, %zero : f32
    linalg.yield %0 : f32
  }
  return
}

}

// -----

#ab = affine_map<(a, b) -> (a, b)>
#ba = affine_map<(a, b) -> (b, a)>
#a = affine_map<(a, b) -> (a)>

module attributes {ddp.plan = #ddp.plan<abi = 10, memory = device>} {

// Elements of other threads: the transposed array, and the whole row.

// CHECK-LABEL: func.func @others(
// CHECK-COUNT-4: gpu.launch_func
// CHECK-NOT:     gpu.launch_func
// CHECK:         return
func.func @others(%x: memref<4x4xf32>, %y: memref<4x4xf32>, %s: memref<4xf32>) {
  linalg.exp ins(%x : memref<4x4xf32>) outs(%y : memref<4x4xf32>)
  linalg.generic {indexing_maps = [#ba, #ab], iterator_types = ["parallel", "parallel"]}
      ins(%y : memref<4x4xf32>) outs(%x : memref<4x4xf32>) {
  ^bb0(%e: f32, %o: f32):
    linalg.yield %e : f32
  }
  linalg.reduce {arith.addf} ins(%x : memref<4x4xf32>) outs(%s : memref<4xf32>) dimensions = [1]
  linalg.generic {indexing_maps = [#a, #ab], iterator_types = ["parallel", "parallel"]}
      ins(%s : memref<4xf32>) outs(%x : memref<4x4xf32>) {
  ^bb0(%e: f32, %o: f32):
    %0 = arith.divf %o, %e : f32
    linalg.yield %0 : f32
  }
  return
}

// Something between them has effects, or an operation looks elements up itself.

func.func private @unknown()

// CHECK-LABEL: func.func @between(
// CHECK-COUNT-4: gpu.launch_func
// CHECK-NOT:     gpu.launch_func
// CHECK:         return
func.func @between(%x: memref<4xf32>, %y: memref<4xf32>, %z: memref<4xf32>) {
  %c0 = arith.constant 0 : index
  linalg.exp ins(%x : memref<4xf32>) outs(%y : memref<4xf32>)
  func.call @unknown() : () -> ()
  linalg.exp ins(%x : memref<4xf32>) outs(%z : memref<4xf32>)
  linalg.generic {indexing_maps = [affine_map<(a) -> (a)>], iterator_types = ["parallel"]}
      outs(%x : memref<4xf32>) {
  ^bb0(%o: f32):
    %e = memref.load %y[%c0] : memref<4xf32>
    linalg.yield %e : f32
  }
  linalg.exp ins(%x : memref<4xf32>) outs(%z : memref<4xf32>)
  return
}

// Two reductions share no launch; other extents neither.

// CHECK-LABEL: func.func @reductions(
// CHECK-COUNT-3: gpu.launch_func
// CHECK-NOT:     gpu.launch_func
// CHECK:         return
func.func @reductions(%x: memref<4x4xf32>, %s: memref<4xf32>, %t: memref<4xf32>,
                      %u: memref<2x2xf32>) {
  %zero = arith.constant 0.0 : f32
  linalg.reduce {arith.addf} ins(%x : memref<4x4xf32>) outs(%s : memref<4xf32>) dimensions = [1]
  linalg.reduce {arith.mulf} ins(%x : memref<4x4xf32>) outs(%t : memref<4xf32>) dimensions = [0]
  linalg.fill ins(%zero : f32) outs(%u : memref<2x2xf32>)
  return
}

}

// -----

module attributes {ddp.plan = #ddp.plan<abi = 10, memory = device>} {

// What an entry writes is reached through one argument. A function that is called
// knows that of nothing; of parts of an array everything counts that overlaps.

// CHECK-LABEL: func.func @entry(
// CHECK:         gpu.launch_func
// CHECK-NOT:     gpu.launch_func
// CHECK:         return
func.func @entry(%x: memref<8xf32>, %y: memref<8xf32>, %z: memref<8xf32>) {
  linalg.exp ins(%x : memref<8xf32>) outs(%y : memref<8xf32>)
  linalg.exp ins(%x : memref<8xf32>) outs(%z : memref<8xf32>)
  return
}

// One of two arguments is both.

// CHECK-LABEL: func.func @choice(
// CHECK-COUNT-2: gpu.launch_func
// CHECK:         return
func.func @choice(%x: memref<8xf32>, %y: memref<8xf32>, %z: memref<8xf32>, %c: i1) {
  %either = arith.select %c, %x, %y : memref<8xf32>
  linalg.exp ins(%x : memref<8xf32>) outs(%y : memref<8xf32>)
  linalg.exp ins(%either : memref<8xf32>) outs(%z : memref<8xf32>)
  return
}

// CHECK-LABEL: func.func private @called(
// CHECK-COUNT-2: gpu.launch_func
// CHECK:         return
func.func private @called(%x: memref<8xf32>, %y: memref<8xf32>, %z: memref<8xf32>) {
  linalg.exp ins(%x : memref<8xf32>) outs(%y : memref<8xf32>)
  linalg.exp ins(%x : memref<8xf32>) outs(%z : memref<8xf32>)
  return
}

// CHECK-LABEL: func.func @public_and_called(
// CHECK-COUNT-2: gpu.launch_func
// CHECK:         return
func.func @public_and_called(%x: memref<8xf32>, %y: memref<8xf32>, %z: memref<8xf32>) {
  linalg.exp ins(%x : memref<8xf32>) outs(%y : memref<8xf32>)
  linalg.exp ins(%x : memref<8xf32>) outs(%z : memref<8xf32>)
  return
}

// CHECK-LABEL: func.func @parts(
// CHECK-COUNT-2: gpu.launch_func
// CHECK-NOT:     gpu.launch_func
// CHECK:         call @called
func.func @parts(%arena: memref<96xi8>) {
  %c0 = arith.constant 0 : index
  %c28 = arith.constant 28 : index
  %c32 = arith.constant 32 : index
  %c64 = arith.constant 64 : index
  %x = memref.view %arena[%c0][] : memref<96xi8> to memref<8xf32>
  %near = memref.view %arena[%c28][] : memref<96xi8> to memref<8xf32>
  %y = memref.view %arena[%c32][] : memref<96xi8> to memref<8xf32>
  %z = memref.view %arena[%c64][] : memref<96xi8> to memref<8xf32>
  linalg.exp ins(%x : memref<8xf32>) outs(%y : memref<8xf32>)
  linalg.exp ins(%x : memref<8xf32>) outs(%z : memref<8xf32>)
  linalg.exp ins(%z : memref<8xf32>) outs(%near : memref<8xf32>)
  func.call @called(%x, %y, %z) : (memref<8xf32>, memref<8xf32>, memref<8xf32>) -> ()
  func.call @public_and_called(%x, %y, %z) : (memref<8xf32>, memref<8xf32>, memref<8xf32>) -> ()
  return
}

}

// -----

module attributes {ddp.plan = #ddp.plan<abi = 10, memory = device>} {

// Zeros that a sum begins with need no call; others do.

llvm.func @ddphook_rt_zero(!llvm.ptr, !llvm.ptr, i64)

// CHECK-LABEL: func.func @zeros(
// CHECK-NOT:     llvm.call
// CHECK:         gpu.launch_func @ddphook_kernels::@ddphook_kernel_0
// CHECK:         llvm.call @ddphook_rt_zero
// CHECK:         gpu.launch_func @ddphook_kernels::@ddphook_kernel_1
// CHECK:         llvm.call @ddphook_rt_zero
// CHECK:         return
// CHECK:       gpu.func @ddphook_kernel_0(
// CHECK:         %[[ZERO:.+]] = arith.constant 0.000000e+00 : f32
// CHECK:         scf.for {{.*}} iter_args(%{{.+}} = %[[ZERO]])
func.func @zeros(%handle: !llvm.ptr, %x: memref<4x4xf32>, %s: memref<4xf32>) {
  %bytes = llvm.mlir.constant(16 : i64) : i64
  %half = llvm.mlir.constant(8 : i64) : i64
  %address = memref.extract_aligned_pointer_as_index %s : memref<4xf32> -> index
  %number = arith.index_cast %address : index to i64
  %pointer = llvm.inttoptr %number : i64 to !llvm.ptr
  llvm.call @ddphook_rt_zero(%handle, %pointer, %bytes) : (!llvm.ptr, !llvm.ptr, i64) -> ()
  linalg.reduce {arith.addf} ins(%x : memref<4x4xf32>) outs(%s : memref<4xf32>) dimensions = [1]
  llvm.call @ddphook_rt_zero(%handle, %pointer, %half) : (!llvm.ptr, !llvm.ptr, i64) -> ()
  linalg.reduce {arith.mulf} ins(%x : memref<4x4xf32>) outs(%s : memref<4xf32>) dimensions = [1]
  llvm.call @ddphook_rt_zero(%handle, %pointer, %bytes) : (!llvm.ptr, !llvm.ptr, i64) -> ()
  return
}

}
