// RUN: ddphook-opt %s --ddp-outline-gpu-kernels --split-input-file | FileCheck %s

module attributes {ddp.plan = #ddp.plan<abi = 10, memory = device>} {

// CHECK: module attributes {ddp.plan = {{.+}}, gpu.container_module}

// One kernel for equal operations, whatever they work on; a scalar is an
// argument, a constant is not.

func.func private @between()

// CHECK-LABEL: func.func @equal(
// CHECK-SAME:      %[[A:[a-z0-9]+]]: memref<1000xf32>, %[[B:[a-z0-9]+]]: memref<1000xf32>, %[[S:[a-z0-9]+]]: f32
func.func @equal(%a: memref<1000xf32>, %b: memref<1000xf32>, %s: f32) {
  // CHECK-DAG:  %[[C4:.+]] = arith.constant 4 : index
  // CHECK-DAG:  %[[C256:.+]] = arith.constant 256 : index
  // CHECK:      gpu.launch_func @ddphook_kernels::@ddphook_kernel_0 blocks in (%[[C4]], %{{.+}}, %{{.+}}) threads in (%[[C256]], %{{.+}}, %{{.+}}) args(%[[S]] : f32, %[[A]] : memref<1000xf32>)
  // CHECK:      gpu.launch_func @ddphook_kernels::@ddphook_kernel_0 {{.*}} args(%[[S]] : f32, %[[B]] : memref<1000xf32>)
  // CHECK:      gpu.launch_func @ddphook_kernels::@ddphook_kernel_1 {{.*}} args(%[[A]] : memref<1000xf32>)
  linalg.fill ins(%s : f32) outs(%a : memref<1000xf32>)
  func.call @between() : () -> ()
  linalg.fill ins(%s : f32) outs(%b : memref<1000xf32>)
  func.call @between() : () -> ()
  %one = arith.constant 1.0 : f32
  linalg.fill ins(%one : f32) outs(%a : memref<1000xf32>)
  // Nothing to do.
  %none = memref.subview %a[0] [0] [1] : memref<1000xf32> to memref<0xf32, strided<[1]>>
  linalg.fill ins(%one : f32) outs(%none : memref<0xf32, strided<[1]>>)
  // CHECK-NOT:  gpu.launch_func
  // CHECK:      return
  return
}

// CHECK:      gpu.module @ddphook_kernels {
// CHECK:        gpu.func @ddphook_kernel_0(%[[X:.+]]: f32, %[[OUT:.+]]: memref<1000xf32>) kernel attributes {known_block_size = array<i32: 256, 1, 1>}
// CHECK:          %[[FLAT:.+]] = memref.reinterpret_cast %[[OUT]] to offset: [0], sizes: [1000], strides: [1]
// CHECK:          %[[BLOCK_ID:.+]] = gpu.block_id x
// CHECK:          %[[BLOCK:.+]] = arith.index_castui %[[BLOCK_ID]] : index to i32
// CHECK:          %[[FIRST:.+]] = arith.muli %[[BLOCK]], %c256_i32 overflow<nsw, nuw>
// CHECK:          %[[THREAD_ID:.+]] = gpu.thread_id x
// CHECK:          %[[THREAD:.+]] = arith.index_castui %[[THREAD_ID]] : index to i32
// CHECK:          %[[I:.+]] = arith.addi %[[FIRST]], %[[THREAD]] overflow<nsw, nuw>
// CHECK:          %[[INSIDE:.+]] = arith.cmpi ult, %[[I]], %c1000_i32
// CHECK-NEXT:     scf.if %[[INSIDE]] {
// CHECK-NEXT:       %[[AT:.+]] = arith.index_castui %[[I]] : i32 to index
// CHECK-NEXT:       memref.store %[[X]], %[[FLAT]][%[[AT]]]
// CHECK:          gpu.return
// CHECK:        gpu.func @ddphook_kernel_1(%{{.+}}: memref<1000xf32>) kernel
// CHECK:          arith.constant 1.000000e+00 : f32

}

// -----

module attributes {ddp.plan = #ddp.plan<abi = 10, memory = device>} {

// Parts of arrays travel as the array's address and an offset that is not
// known; threads are numbered along the result, rows that end in its middle
// included; a reduction is a loop of its thread.

// CHECK-LABEL: func.func @reduction(
// CHECK:         %[[BASE:.+]], %[[OFFSET:.+]], %{{.+}}:2, %{{.+}}:2 = memref.extract_strided_metadata
// CHECK:         gpu.launch_func {{.*}} args(%{{.+}} : memref<3x5x4xf32>, %[[BASE]] : memref<f32>, %[[OFFSET]] : index)
// CHECK:       gpu.func @ddphook_kernel_0(%[[IN:.+]]: memref<3x5x4xf32>, %[[B:.+]]: memref<f32>, %[[O:.+]]: index) kernel
// CHECK:         %[[FLAT:.+]] = memref.reinterpret_cast %[[IN]] to offset: [0], sizes: [60], strides: [1]
// CHECK:         %[[OUT:.+]] = memref.reinterpret_cast %[[B]] to offset: [%[[O]]], sizes: [4, 3], strides: [10, 1]
// CHECK:         %[[FLAT_OUT:.+]] = memref.reinterpret_cast %[[OUT]] to offset: [%{{.+}}], sizes: [33], strides: [1]
// CHECK:         %[[J:.+]] = arith.remui %[[N:.+]], %c3
// CHECK:         %[[I:.+]] = arith.divui %[[N]], %c3
// CHECK:         %[[INIT:.+]] = memref.load %[[FLAT_OUT]]
// CHECK:         %[[SUM:.+]] = scf.for %[[K:.+]] = %{{.+}} to %c5{{.*}} iter_args(%[[S:.+]] = %[[INIT]])
// CHECK:           arith.muli %[[J]], %c20
// CHECK:           arith.muli %[[K]], %c4
// CHECK:           %[[V:.+]] = memref.load %[[FLAT]]
// CHECK:           arith.addf %[[V]], %[[S]]
// CHECK:         memref.store %[[SUM]], %[[FLAT_OUT]]
func.func @reduction(%a: memref<3x5x4xf32>, %b: memref<8x10xf32>, %i: index) {
  %out = memref.subview %b[%i, 2] [4, 3] [1, 1]
      : memref<8x10xf32> to memref<4x3xf32, strided<[10, 1], offset: ?>>
  linalg.generic
      {indexing_maps = [affine_map<(p, k, q) -> (p, k, q)>,
                        affine_map<(p, k, q) -> (q, p)>],
       iterator_types = ["parallel", "reduction", "parallel"]}
      ins(%a : memref<3x5x4xf32>)
      outs(%out : memref<4x3xf32, strided<[10, 1], offset: ?>>) {
  ^bb0(%x: f32, %sum: f32):
    %0 = arith.addf %x, %sum : f32
    linalg.yield %0 : f32
  }
  return
}

}

// -----

module attributes {ddp.plan = #ddp.plan<abi = 10, memory = device>} {

// Copies with gaps; constant arrays get a copy on the device; values of the
// array that the body looks up itself.

memref.global "private" constant @table : memref<2x3xf32> = dense<[[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]>

// CHECK-LABEL: func.func @lookup(
// CHECK-NOT:     memref.copy
// CHECK:         gpu.launch_func @ddphook_kernels::@ddphook_kernel_0
// CHECK:         gpu.launch_func @ddphook_kernels::@ddphook_kernel_1
// CHECK-SAME:        args(%{{.+}} : memref<4xi32>, %{{.+}} : memref<4xf32>, %{{.+}} : memref<9xf32>)
// CHECK:       gpu.module
// CHECK:         memref.global "private" constant @table
// CHECK:         gpu.func @ddphook_kernel_0(
// CHECK:           memref.get_global @table
// CHECK:         gpu.func @ddphook_kernel_1(%[[AT:.+]]: memref<4xi32>, %[[OUT:.+]]: memref<4xf32>, %[[IN:.+]]: memref<9xf32>)
// CHECK:           scf.if %{{.+}} {
// CHECK:             %[[N:.+]] = memref.load %{{.+}} : memref<4xi32>
// CHECK:             %[[I:.+]] = arith.index_castui %{{.+}} : i32 to index
// CHECK:             %[[INDEX:.+]] = arith.index_cast %[[N]]
// CHECK:             %[[SUM:.+]] = arith.addi %[[INDEX]], %[[I]]
// CHECK:             memref.load %[[IN]][%[[SUM]]]
func.func @lookup(%a: memref<2x4xf32>, %at: memref<4xi32>, %out: memref<4xf32>,
                  %in: memref<9xf32>) {
  %table = memref.get_global @table : memref<2x3xf32>
  %part = memref.subview %a[0, 0] [2, 3] [1, 1]
      : memref<2x4xf32> to memref<2x3xf32, strided<[4, 1]>>
  memref.copy %table, %part
      : memref<2x3xf32> to memref<2x3xf32, strided<[4, 1]>>
  linalg.generic
      {indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>],
       iterator_types = ["parallel"]}
      ins(%at : memref<4xi32>) outs(%out : memref<4xf32>) {
  ^bb0(%n: i32, %old: f32):
    %i = linalg.index 0 : index
    %j = arith.index_cast %n : i32 to index
    %k = arith.addi %j, %i : index
    %v = memref.load %in[%k] : memref<9xf32>
    linalg.yield %v : f32
  }
  return
}

}

// -----

module attributes {ddp.plan = #ddp.plan<abi = 10, memory = device>} {

// A large contraction: 2x2 elements a thread, 64 columns and 16 rows a block. Where
// arrays are aligned: vectors of two columns, and of four steps of the left operand.

// CHECK-LABEL: func.func @matmul(
// CHECK-DAG:     %[[X:.+]] = arith.constant 5 : index
// CHECK-DAG:     %[[Y:.+]] = arith.constant 16 : index
// CHECK:         gpu.launch_func {{.*}} blocks in (%[[X]], %[[Y]], %{{.+}}) threads in
// CHECK:       gpu.func @ddphook_kernel_0({{.*}}) kernel attributes {known_block_size = array<i32: 32, 8, 1>}
// CHECK-DAG:     arith.andi %{{.+}}, %c7
// CHECK-DAG:     arith.andi %{{.+}}, %c15
// CHECK:         scf.if
// Columns end inside a block; rows do not.
// CHECK:         arith.cmpi ule, %[[C:.+]], %c298
// CHECK:         arith.minui %[[C]], %c298
// CHECK:         gpu.block_id y
// CHECK-NOT:     arith.minui
// CHECK:         vector.load {{.*}}alignment = 8
// CHECK:         scf.for {{.*}} step %c4
// CHECK-COUNT-2: vector.load {{.*}}alignment = 16 : i64} : memref<10240xf32>, vector<4xf32>
// CHECK-COUNT-4: vector.load {{.*}}alignment = 8 : i64} : memref<12000xf32>, vector<2xf32>
// CHECK-COUNT-16: arith.mulf
// CHECK-COUNT-2: vector.store {{.*}}alignment = 8
// Where they are not.
// CHECK:         } else {
// CHECK:         arith.cmpi ule, %[[C:.+]], %c299
// CHECK:         %[[C0:.+]] = arith.minui %[[C]], %c299
// CHECK:         %[[C1:.+]] = arith.minui
// CHECK:         gpu.block_id y
// CHECK-NOT:     arith.minui
// CHECK:         %[[SUMS:.+]]:4 = scf.for
// CHECK-COUNT-4: arith.mulf
// CHECK:         scf.if
// CHECK:           memref.store %[[SUMS]]#0
func.func @matmul(%a: memref<256x40xf32>, %b: memref<40x300xf32>,
                  %c: memref<256x300xf32>) {
  linalg.matmul ins(%a, %b : memref<256x40xf32>, memref<40x300xf32>)
                outs(%c : memref<256x300xf32>)
  return
}

}

// -----

// For the host nothing changes.

module attributes {ddp.plan = #ddp.plan<abi = 10, memory = host>} {

// CHECK-LABEL: func.func @host(
// CHECK-NEXT:    linalg.exp
func.func @host(%a: memref<4xf32>) {
  linalg.exp ins(%a : memref<4xf32>) outs(%a : memref<4xf32>)
  return
}

}
