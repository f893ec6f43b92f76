// RUN: ddphook-opt %s --ddp-order-loops | FileCheck %s

// CHECK-DAG: #[[IJ:.*]] = affine_map<(d0, d1) -> (d0, d1)>
// CHECK-DAG: #[[J:.*]] = affine_map<(d0, d1) -> (d1)>
// CHECK-DAG: #[[JI:.*]] = affine_map<(d0, d1) -> (d1, d0)>
// CHECK-DAG: #[[HWCJ:.*]] = affine_map<(d0, d1, d2, d3, d4, d5, d6) -> (d3, d4, d5, d6)>

// Whole rows are added: the columns come last already or are moved there.
// CHECK-LABEL: func @column_sum
// CHECK:         linalg.generic {indexing_maps = [#[[IJ]], #[[J]]], iterator_types = ["reduction", "parallel"]}
func.func @column_sum(%a: memref<30x50xf32>, %s: memref<50xf32>) {
  linalg.generic {
      indexing_maps = [affine_map<(d0, d1) -> (d1, d0)>, affine_map<(d0, d1) -> (d0)>],
      iterator_types = ["parallel", "reduction"]}
      ins(%a : memref<30x50xf32>) outs(%s : memref<50xf32>) {
  ^bb0(%x: f32, %y: f32):
    %0 = arith.addf %x, %y : f32
    linalg.yield %0 : f32
  }
  return
}

// Sums that do not wait for each other, though the walk is strided.
// CHECK-LABEL: func @row_sum
// CHECK:         linalg.generic {indexing_maps = [#[[JI]], #[[J]]], iterator_types = ["reduction", "parallel"]}
func.func @row_sum(%a: memref<30x50xf32>, %s: memref<30xf32>) {
  linalg.reduce {arith.addf} ins(%a : memref<30x50xf32>)
      outs(%s : memref<30xf32>) dimensions = [1]
  return
}

// Too many rows for the cache: the sum stays in a register.
// CHECK-LABEL: func @long_row_sum
// CHECK:         linalg.generic {indexing_maps = [#[[IJ]], #{{.*}}], iterator_types = ["parallel", "reduction"]}
func.func @long_row_sum(%a: memref<3000x50xf32>, %s: memref<3000xf32>) {
  linalg.reduce {arith.addf} ins(%a : memref<3000x50xf32>)
      outs(%s : memref<3000xf32>) dimensions = [1]
  return
}

// The channels move inside, the three reductions keep their order.
// CHECK-LABEL: func @convolution
// CHECK:         linalg.generic
// CHECK-SAME:      #[[HWCJ]]
// CHECK-SAME:      iterator_types = ["parallel", "parallel", "parallel", "reduction", "reduction", "reduction", "parallel"]
func.func @convolution(%i: memref<2x9x9x3xf32>, %w: memref<3x3x3x18xf32>,
                       %o: memref<2x7x7x18xf32>) {
  linalg.conv_2d_nhwc_hwcf
      ins(%i, %w : memref<2x9x9x3xf32>, memref<3x3x3x18xf32>)
      outs(%o : memref<2x7x7x18xf32>)
  return
}

// CHECK-LABEL: func @elementwise
// CHECK:         linalg.generic
// CHECK-SAME:      iterator_types = ["parallel", "parallel"]
func.func @elementwise(%a: memref<3x5xf32>) {
  linalg.map {math.exp} ins(%a : memref<3x5xf32>) outs(%a : memref<3x5xf32>)
  return
}
