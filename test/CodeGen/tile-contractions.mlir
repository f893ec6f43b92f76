// RUN: ddphook-opt %s --ddp-tile-contractions="vector-width=256 vector-registers=16" \
// RUN:   | FileCheck %s
// RUN: not ddphook-opt %s --ddp-tile-contractions=vector-width=32 2>&1 \
// RUN:   | FileCheck %s --check-prefix=OPTIONS
// OPTIONS: error: expected vector registers of at least 64 bits and at least 8 of them, but got 16 of 32 bits

// 6 rows of two vectors and the rest of the registers for operands.
// CHECK-LABEL: func @matmul
// CHECK-SAME:    %[[A:.*]]: memref<12x32xf32>, %[[B:.*]]: memref<32x19xf32>, %[[C:.*]]: memref<12x19xf32>
// CHECK:         scf.for %[[M:[a-z0-9]+]] = %{{.*}} to %{{.*}} step %{{.*}} {
// CHECK-COUNT-12:  vector.load %[[C]]{{.*}} : memref<12x19xf32>, vector<8xf32>
// CHECK:           %[[TILE:.*]]:12 = scf.for %[[K:[a-z0-9]+]] =
// CHECK-DAG:         %[[B0:.*]] = vector.load %[[B]][%[[K]], %{{.*}}] : memref<32x19xf32>, vector<8xf32>
// CHECK-DAG:         %[[B1:.*]] = vector.load %[[B]][%[[K]], %{{.*}}] : memref<32x19xf32>, vector<8xf32>
// CHECK:             %[[ELEMENT:.*]] = memref.load %[[A]][%[[M]], %[[K]]]
// CHECK:             %[[FACTOR:.*]] = vector.broadcast %[[ELEMENT]]
// CHECK:             %[[PRODUCT:.*]] = arith.mulf %[[FACTOR]], %[[B0]]
// CHECK:             arith.addf %{{.*}}, %[[PRODUCT]]
// CHECK-COUNT-12:  vector.store %[[TILE]]
// No lane is computed for nothing: 19 = 8 + 8 + 2 + 1.
// CHECK:         vector.load %[[C]]{{.*}} : memref<12x19xf32>, vector<2xf32>
// CHECK:         vector.load %[[C]]{{.*}} : memref<12x19xf32>, vector<1xf32>
// CHECK-NOT:     linalg.matmul
func.func @matmul(%a: memref<12x32xf32>, %b: memref<32x19xf32>,
                  %c: memref<12x19xf32>) {
  linalg.matmul ins(%a, %b : memref<12x32xf32>, memref<32x19xf32>)
      outs(%c : memref<12x19xf32>)
  return
}

// A panel of the transposed operand, on the stack.
// CHECK-LABEL: func @transposed
// CHECK-SAME:    %[[A:.*]]: memref<16x32xf32>, %[[B:.*]]: memref<16x32xf32>, %[[C:.*]]: memref<16x16xf32>
// CHECK:         %[[SCRATCH:.*]] = memref.alloca() {alignment = 64 : i64} : memref<32768xi8>
// CHECK:         %[[PANEL:.*]] = memref.view %[[SCRATCH]]{{.*}} to memref<32x16xf32>
// CHECK:         scf.for
// CHECK:           vector.from_elements
// CHECK:           vector.store %{{.*}}, %[[PANEL]]
// CHECK:         scf.for
// CHECK:           scf.for %[[K:[a-z0-9]+]] =
// CHECK:             vector.load %[[PANEL]][%[[K]],
func.func @transposed(%a: memref<16x32xf32>, %b: memref<16x32xf32>,
                      %c: memref<16x16xf32>) {
  linalg.matmul
      indexing_maps = [affine_map<(m, n, k) -> (m, k)>,
                       affine_map<(m, n, k) -> (n, k)>,
                       affine_map<(m, n, k) -> (m, n)>]
      ins(%a, %b : memref<16x32xf32>, memref<16x32xf32>)
      outs(%c : memref<16x16xf32>)
  return
}

// A deep product takes several panels, none larger than the memory for them.
// CHECK-LABEL: func @deep
// CHECK:         memref.alloca() {alignment = 64 : i64} : memref<32768xi8>
// CHECK:         memref.view {{.*}} to memref<512x16xf32>
// CHECK:         memref.view {{.*}} to memref<488x16xf32>
// CHECK-NOT:     memref.view
func.func @deep(%a: memref<16x1000xf32>, %b: memref<16x1000xf32>,
                %c: memref<16x16xf32>) {
  linalg.matmul
      indexing_maps = [affine_map<(m, n, k) -> (m, k)>,
                       affine_map<(m, n, k) -> (n, k)>,
                       affine_map<(m, n, k) -> (m, n)>]
      ins(%a, %b : memref<16x1000xf32>, memref<16x1000xf32>)
      outs(%c : memref<16x16xf32>)
  return
}

// CHECK-LABEL: func @convolution
// CHECK-NOT:     linalg
// CHECK:         affine.apply
// CHECK:         memref.load
func.func @convolution(%i: memref<2x9x9x3xf32>, %w: memref<3x3x3x18xf32>,
                       %o: memref<2x7x7x18xf32>) {
  linalg.conv_2d_nhwc_hwcf
      ins(%i, %w : memref<2x9x9x3xf32>, memref<3x3x3x18xf32>)
      outs(%o : memref<2x7x7x18xf32>)
  return
}

// What is left alone: dynamic shapes, integers, mixed types, other bodies, an
// output whose rows are not contiguous, no iterations.
// CHECK-LABEL: func @others
// CHECK-COUNT-6: linalg.
// CHECK:         return
func.func @others(%d: memref<?x?xf32>, %i: memref<4x4xi32>, %h: memref<4x4xf16>,
                  %f: memref<4x4xf32>, %s: memref<4x4xf32, strided<[1, 4]>>,
                  %e: memref<4x0xf32>, %e2: memref<0x4xf32>) {
  linalg.matmul ins(%d, %d : memref<?x?xf32>, memref<?x?xf32>) outs(%d : memref<?x?xf32>)
  linalg.matmul ins(%i, %i : memref<4x4xi32>, memref<4x4xi32>) outs(%i : memref<4x4xi32>)
  linalg.matmul ins(%h, %h : memref<4x4xf16>, memref<4x4xf16>) outs(%f : memref<4x4xf32>)
  linalg.generic {
      indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (k, n)>,
                       affine_map<(m, n, k) -> (m, n)>],
      iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%f, %f : memref<4x4xf32>, memref<4x4xf32>) outs(%f : memref<4x4xf32>) {
  ^bb0(%x: f32, %y: f32, %z: f32):
    %0 = arith.mulf %x, %y : f32
    %1 = arith.maximumf %z, %0 : f32
    linalg.yield %1 : f32
  }
  linalg.matmul ins(%f, %f : memref<4x4xf32>, memref<4x4xf32>)
      outs(%s : memref<4x4xf32, strided<[1, 4]>>)
  linalg.matmul ins(%e, %e2 : memref<4x0xf32>, memref<0x4xf32>) outs(%f : memref<4x4xf32>)
  return
}
