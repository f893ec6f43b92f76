// RUN: ddphook-opt %s --ddp-outline-gpu-kernels --split-input-file | FileCheck %s

// Several elements a thread, and how wide its numbers are.

module attributes {ddp.plan = #ddp.plan<abi = 10, memory = device>} {

// Four of f32. Blocks that are whole read and write vectors, if all arrays that
// are used are aligned; in any other, and the last one, elements of a thread are
// as far apart as the block has threads.

// CHECK-LABEL: func.func @update(
// CHECK:         %[[BLOCKS:.+]] = arith.constant 3 : index
// CHECK:         gpu.launch_func {{.*}} blocks in (%[[BLOCKS]], %{{.+}}, %{{.+}})
// CHECK:       gpu.func @ddphook_kernel_0(%[[A:.+]]: memref<2053xf32>, %[[B:.+]]: memref<2053xf32>)
// CHECK-DAG:     %[[FLAT_A:.+]] = memref.reinterpret_cast %[[A]]
// CHECK-DAG:     %[[FLAT_B:.+]] = memref.reinterpret_cast %[[B]]
// CHECK:         %[[P:.+]] = memref.extract_aligned_pointer_as_index
// CHECK:         arith.andi %[[P]], %c15
// CHECK:         %[[Q:.+]] = memref.extract_aligned_pointer_as_index
// CHECK:         arith.andi %[[Q]], %c15
// CHECK:         %[[ALIGNED:.+]] = arith.cmpi eq
// CHECK:         %[[WHOLE:.+]] = arith.cmpi ult, %{{.+}}, %c2_i32
// CHECK:         %[[BOTH:.+]] = arith.andi %[[ALIGNED]], %[[WHOLE]]
// CHECK:         scf.if %[[BOTH]] {
// CHECK-COUNT-2:   vector.load {{.*}}alignment = 16 : i64} : memref<2053xf32>, vector<4xf32>
// CHECK-COUNT-4:   arith.addf
// CHECK-NOT:       arith.addf
// CHECK:           vector.store {{.*}}alignment = 16 : i64} : memref<2053xf32>, vector<4xf32>
// CHECK:         } else {
// CHECK:           arith.minui %{{.+}}, %c2052_i32
// CHECK:           arith.addi %{{.+}}, %c256_i32
// CHECK:           arith.addi %{{.+}}, %c512_i32
// CHECK:           arith.addi %{{.+}}, %c768_i32
// CHECK-COUNT-4:   memref.store
// CHECK-NOT:       memref.store
func.func @update(%a: memref<2053xf32>, %b: memref<2053xf32>) {
  linalg.add ins(%a, %b : memref<2053xf32>, memref<2053xf32>) outs(%b : memref<2053xf32>)
  return
}

}

// -----

module attributes {ddp.plan = #ddp.plan<abi = 10, memory = device>} {

// As many as 16 bytes hold of the widest type; eight at most. A row of one array
// belongs to all rows of another.

// CHECK-LABEL: func.func @types(
// CHECK:       gpu.func @ddphook_kernel_0(
// CHECK:         vector.load {{.*}}alignment = 16 : i64} : memref<8192xf16>, vector<8xf16>
// CHECK:       gpu.func @ddphook_kernel_1(
// CHECK:         vector.load {{.*}}alignment = 16 : i64} : memref<8192xf64>, vector<2xf64>
// CHECK:       gpu.func @ddphook_kernel_2(
// CHECK:         vector.load {{.*}}alignment = 8 : i64} : memref<8192xf16>, vector<4xf16>
// CHECK:         vector.store {{.*}}alignment = 16 : i64} : memref<8192xf32>, vector<4xf32>
// CHECK:       gpu.func @ddphook_kernel_3(
// CHECK:         arith.remui %{{.+}}, %c25_i32
// CHECK:         vector.load {{.*}} : memref<100xf32>, vector<4xf32>
// CHECK:         vector.store {{.*}} : memref<6400xf32>, vector<4xf32>
func.func @types(%h: memref<64x128xf16>, %w: memref<8192xf64>, %f: memref<64x128xf32>,
                 %row: memref<100xf32>, %rows: memref<64x100xf32>) {
  linalg.negf ins(%h : memref<64x128xf16>) outs(%h : memref<64x128xf16>)
  linalg.negf ins(%w : memref<8192xf64>) outs(%w : memref<8192xf64>)
  linalg.copy ins(%h : memref<64x128xf16>) outs(%f : memref<64x128xf32>)
  linalg.broadcast ins(%row : memref<100xf32>) outs(%rows : memref<64x100xf32>) dimensions = [0]
  return
}

}

// -----

module attributes {ddp.plan = #ddp.plan<abi = 10, memory = device>} {

// No vectors: rows that end inside one, elements with gaps, too few of them.

// CHECK-LABEL: func.func @none(
// CHECK-NOT:     vector
func.func @none(%row: memref<101xf32>, %rows: memref<64x101xf32>,
                %gaps: memref<4096xf32, strided<[2]>>, %few: memref<1023xf32>) {
  linalg.broadcast ins(%row : memref<101xf32>) outs(%rows : memref<64x101xf32>) dimensions = [0]
  linalg.exp ins(%gaps : memref<4096xf32, strided<[2]>>) outs(%gaps : memref<4096xf32, strided<[2]>>)
  linalg.exp ins(%few : memref<1023xf32>) outs(%few : memref<1023xf32>)
  return
}

}

// -----

module attributes {ddp.plan = #ddp.plan<abi = 10, memory = device>} {

// A sum along a row reads vectors, and adds them in order.

// CHECK-LABEL: func.func @rows(
// CHECK:       gpu.func @ddphook_kernel_0(
// CHECK:         %[[INIT:.+]] = memref.load
// CHECK:         scf.if {{.*}} -> (f32) {
// CHECK:           scf.for {{.*}} to %c1000{{.*}} step %c4{{.*}} iter_args(%[[S:.+]] = %[[INIT]])
// CHECK:             %[[V:.+]] = vector.load {{.*}}alignment = 16
// CHECK:             %[[E0:.+]] = vector.extract %[[V]][0]
// CHECK:             %[[E1:.+]] = vector.extract %[[V]][1]
// CHECK:             %[[S0:.+]] = arith.addf %[[S]], %[[E0]]
// CHECK:             %[[S1:.+]] = arith.addf %[[S0]], %[[E1]]
// CHECK:         } else {
// CHECK:           scf.for {{.*}} to %c1000{{.*}} step %c1{{.*}} iter_args(%{{.+}} = %[[INIT]])
// CHECK-NOT:         vector
func.func @rows(%a: memref<7x1000xf32>, %s: memref<7xf32>) {
  linalg.reduce {arith.addf} ins(%a : memref<7x1000xf32>) outs(%s : memref<7xf32>) dimensions = [1]
  return
}

}

// -----

module attributes {ddp.plan = #ddp.plan<abi = 10, memory = device>} {

// Squares of 4x4 elements, read by columns and written by rows: 32 x 128 a block.

// CHECK-LABEL: func.func @transpose(
// CHECK-DAG:     %[[X:.+]] = arith.constant 2 : index
// CHECK-DAG:     %[[Y:.+]] = arith.constant 3 : index
// CHECK:         gpu.launch_func {{.*}} blocks in (%[[X]], %[[Y]], %{{.+}})
// CHECK:       gpu.func @ddphook_kernel_0({{.*}}) kernel attributes {known_block_size = array<i32: 8, 32, 1>}
// CHECK:         arith.cmpi ult, %{{.+}}, %c15_i32
// CHECK:         arith.cmpi ult, %{{.+}}, %c80_i32
// CHECK:         %[[FIRST:.+]] = vector.load {{.*}}alignment = 16
// CHECK:         %[[E:.+]] = vector.extract %[[FIRST]][0]
// CHECK-COUNT-3: vector.load {{.*}}alignment = 16
// CHECK-NOT:     vector.load
// CHECK:         %[[ROW:.+]] = vector.from_elements %[[E]], %
// CHECK:         vector.store %[[ROW]]
// CHECK-COUNT-3: vector.store
// CHECK:         } else {
// CHECK-COUNT-16: memref.store
// CHECK-NOT:     memref.store
func.func @transpose(%a: memref<60x320xf32>, %b: memref<320x60xf32>) {
  linalg.transpose ins(%a : memref<60x320xf32>) outs(%b : memref<320x60xf32>) permutation = [1, 0]
  return
}

}

// -----

module attributes {ddp.plan = #ddp.plan<abi = 10, memory = device>} {

// Numbers have 32 bits as long as those of all threads fit, 4096 to spare: one
// element more, and they do not. The bytes of an address do not matter.

// CHECK-LABEL: func.func @most(
// CHECK:         gpu.func @ddphook_kernel_0({{.*}} kernel attributes {{.*}}
// CHECK:           arith.index_castui %{{.+}} : index to i32
func.func @most(%a: memref<2147479551xf64>) {
  linalg.exp ins(%a : memref<2147479551xf64>) outs(%a : memref<2147479551xf64>)
  return
}

}

// -----

module attributes {ddp.plan = #ddp.plan<abi = 10, memory = device>} {

// CHECK-LABEL: func.func @more(
// CHECK:         gpu.func @ddphook_kernel_0({{.*}} kernel attributes {{.*}}
// CHECK-NOT:       i32
// CHECK:           gpu.return
func.func @more(%a: memref<2147479552xi8>) {
  linalg.copy ins(%a : memref<2147479552xi8>) outs(%a : memref<2147479552xi8>)
  return
}

}

// -----

module attributes {ddp.plan = #ddp.plan<abi = 10, memory = device>} {

// Few threads, but an element that 31 bits cannot number: the last one counts. Steps
// of loops have 64 bits anyway.

// CHECK-LABEL: func.func @near(
// CHECK:         gpu.func @ddphook_kernel_0({{.*}} kernel attributes {{.*}}
// CHECK:           arith.index_castui %{{.+}} : index to i32
func.func @near(%a: memref<2x2xi8, strided<[2147483646, 1]>>) {
  linalg.copy ins(%a : memref<2x2xi8, strided<[2147483646, 1]>>)
      outs(%a : memref<2x2xi8, strided<[2147483646, 1]>>)
  return
}

}

// -----

module attributes {ddp.plan = #ddp.plan<abi = 10, memory = device>} {

// CHECK-LABEL: func.func @far(
// CHECK:         gpu.func @ddphook_kernel_0({{.*}} kernel attributes {{.*}}
// CHECK-NOT:       i32
// CHECK:           gpu.return
func.func @far(%a: memref<2x2xi8, strided<[2147483647, 1]>>) {
  linalg.copy ins(%a : memref<2x2xi8, strided<[2147483647, 1]>>)
      outs(%a : memref<2x2xi8, strided<[2147483647, 1]>>)
  return
}

}

// -----

module attributes {ddp.plan = #ddp.plan<abi = 10, memory = device>} {

// CHECK-LABEL: func.func @loops(
// CHECK:         gpu.func @ddphook_kernel_0({{.*}} kernel attributes {{.*}}
// CHECK:           arith.index_castui %{{.+}} : index to i32
// CHECK:           scf.for %[[K:.+]] = %{{.+}} to %c4294967296
// CHECK:             arith.addi %{{.+}}, %[[K]] overflow<nsw, nuw> : index
func.func @loops(%a: memref<4294967296xi8>, %s: memref<i8>) {
  linalg.generic
      {indexing_maps = [affine_map<(k) -> (k)>, affine_map<(k) -> ()>],
       iterator_types = ["reduction"]}
      ins(%a : memref<4294967296xi8>) outs(%s : memref<i8>) {
  ^bb0(%x: i8, %sum: i8):
    %0 = arith.addi %x, %sum : i8
    linalg.yield %0 : i8
  }
  return
}

}
