// Register tiles, loop orders and expanded copies compute the bits of the plain
// loops, for every width of vector registers.
//
// RUN: ddphook-opt %s --ddp-pipeline=all-functions=true -o %t.mlir
// RUN: mlir-opt %t.mlir --allow-unregistered-dialect --convert-linalg-to-loops -o %t.loops.mlir
// RUN: ddphook-cc %t.loops.mlir -o %t.plain.o --name=plain -O1
// RUN: ddphook-opt %t.mlir --ddp-expand-copies \
// RUN:   --ddp-tile-contractions="vector-width=128 vector-registers=16" \
// RUN:   -o %t.128.mlir
// RUN: ddphook-opt %t.mlir --ddp-expand-copies \
// RUN:   --ddp-tile-contractions="vector-width=512 vector-registers=32" \
// RUN:   -o %t.512.mlir
// RUN: ddphook-opt %t.mlir --ddp-outline-linalg-ops=max-ops=0 -o %t.kernels.mlir
// RUN: for variant in %t.mlir %t.128.mlir %t.512.mlir %t.kernels.mlir; do \
// RUN:   ddphook-cc $variant -o %t.tiled.o --name=tiled || exit 1; \
// RUN:   clang -O1 -I %runtime-include %S/Inputs/compare-modules.c \
// RUN:     %t.tiled.o %t.plain.o -lm -o %t.exe || exit 1; \
// RUN:   %t.exe || exit 1; \
// RUN: done | FileCheck %s
//
// CHECK-COUNT-96: {{^[a-z_0-9]+: equal}}

#row = affine_map<(m, n, k) -> (m, k)>
#col = affine_map<(m, n, k) -> (k, n)>
#rowT = affine_map<(m, n, k) -> (k, m)>
#colT = affine_map<(m, n, k) -> (n, k)>
#out = affine_map<(m, n, k) -> (m, n)>

// Remainders in every dimension.
func.func @matmul(%a: tensor<37x29xf32>, %b: tensor<29x83xf32>)
    -> tensor<37x83xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<37x83xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<37x83xf32>)
      -> tensor<37x83xf32>
  %r = linalg.matmul ins(%a, %b : tensor<37x29xf32>, tensor<29x83xf32>)
      outs(%f : tensor<37x83xf32>) -> tensor<37x83xf32>
  return %r : tensor<37x83xf32>
}

// The weights' gradient of a layer.
func.func @matmul_tn(%a: tensor<64x70xf32>, %b: tensor<64x10xf32>)
    -> tensor<70x10xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<70x10xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<70x10xf32>)
      -> tensor<70x10xf32>
  %r = linalg.matmul indexing_maps = [#rowT, #col, #out]
      ins(%a, %b : tensor<64x70xf32>, tensor<64x10xf32>)
      outs(%f : tensor<70x10xf32>) -> tensor<70x10xf32>
  return %r : tensor<70x10xf32>
}

// The input's gradient; the reduction is longer than a panel.
func.func @matmul_nt(%a: tensor<20x600xf32>, %b: tensor<45x600xf32>)
    -> tensor<20x45xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<20x45xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<20x45xf32>)
      -> tensor<20x45xf32>
  %r = linalg.matmul indexing_maps = [#row, #colT, #out]
      ins(%a, %b : tensor<20x600xf32>, tensor<45x600xf32>)
      outs(%f : tensor<20x45xf32>) -> tensor<20x45xf32>
  return %r : tensor<20x45xf32>
}

// Too few rows for a panel; the old value of the output counts.
func.func @matmul_nt_small(%a: tensor<3x50xf32>, %b: tensor<21x50xf32>,
                           %c: tensor<3x21xf32>) -> tensor<3x21xf32> {
  %r = linalg.matmul indexing_maps = [#row, #colT, #out]
      ins(%a, %b : tensor<3x50xf32>, tensor<21x50xf32>)
      outs(%c : tensor<3x21xf32>) -> tensor<3x21xf32>
  return %r : tensor<3x21xf32>
}

// A right operand that is contiguous but too large for the cache.
func.func @matmul_large(%a: tensor<24x200xf32>, %b: tensor<200x140xf32>,
                        %c: tensor<24x140xf32>) -> tensor<24x140xf32> {
  %r = linalg.matmul ins(%a, %b : tensor<24x200xf32>, tensor<200x140xf32>)
      outs(%c : tensor<24x140xf32>) -> tensor<24x140xf32>
  return %r : tensor<24x140xf32>
}

func.func @matmul_f64(%a: tensor<13x11xf64>, %b: tensor<11x19xf64>,
                      %c: tensor<13x19xf64>) -> tensor<13x19xf64> {
  %r = linalg.matmul ins(%a, %b : tensor<13x11xf64>, tensor<11x19xf64>)
      outs(%c : tensor<13x19xf64>) -> tensor<13x19xf64>
  return %r : tensor<13x19xf64>
}

// Slices: strides that are not the extents.
func.func @matmul_slices(%a: tensor<32x64xf32>, %b: tensor<40x64xf32>,
                         %c: tensor<9x17xf32>) -> tensor<9x17xf32> {
  %as = tensor.extract_slice %a[3, 5] [9, 12] [2, 1]
      : tensor<32x64xf32> to tensor<9x12xf32>
  %bs = tensor.extract_slice %b[1, 2] [12, 17] [3, 2]
      : tensor<40x64xf32> to tensor<12x17xf32>
  %r = linalg.matmul ins(%as, %bs : tensor<9x12xf32>, tensor<12x17xf32>)
      outs(%c : tensor<9x17xf32>) -> tensor<9x17xf32>
  return %r : tensor<9x17xf32>
}

func.func @matmul_empty(%a: tensor<4x0xf32>, %b: tensor<0x6xf32>,
                        %c: tensor<4x6xf32>) -> tensor<4x6xf32> {
  %r = linalg.matmul ins(%a, %b : tensor<4x0xf32>, tensor<0x6xf32>)
      outs(%c : tensor<4x6xf32>) -> tensor<4x6xf32>
  return %r : tensor<4x6xf32>
}

func.func @batch_matmul(%a: tensor<3x18x7xf32>, %b: tensor<3x7x20xf32>,
                        %c: tensor<3x18x20xf32>) -> tensor<3x18x20xf32> {
  %r = linalg.batch_matmul
      ins(%a, %b : tensor<3x18x7xf32>, tensor<3x7x20xf32>)
      outs(%c : tensor<3x18x20xf32>) -> tensor<3x18x20xf32>
  return %r : tensor<3x18x20xf32>
}

func.func @matvec(%a: tensor<35x60xf32>, %x: tensor<60xf32>,
                  %y: tensor<35xf32>) -> tensor<35xf32> {
  %r = linalg.matvec ins(%a, %x : tensor<35x60xf32>, tensor<60xf32>)
      outs(%y : tensor<35xf32>) -> tensor<35xf32>
  return %r : tensor<35xf32>
}

func.func @vecmat(%x: tensor<60xf32>, %a: tensor<60x35xf32>,
                  %y: tensor<35xf32>) -> tensor<35xf32> {
  %r = linalg.vecmat ins(%x, %a : tensor<60xf32>, tensor<60x35xf32>)
      outs(%y : tensor<35xf32>) -> tensor<35xf32>
  return %r : tensor<35xf32>
}

func.func @dot(%x: tensor<60xf32>, %y: tensor<60xf32>, %z: tensor<f32>)
    -> tensor<f32> {
  %r = linalg.dot ins(%x, %y : tensor<60xf32>, tensor<60xf32>)
      outs(%z : tensor<f32>) -> tensor<f32>
  return %r : tensor<f32>
}

func.func @conv_nhwc(%i: tensor<2x9x9x3xf32>, %w: tensor<3x3x3x18xf32>,
                     %o: tensor<2x7x7x18xf32>) -> tensor<2x7x7x18xf32> {
  %r = linalg.conv_2d_nhwc_hwcf
      ins(%i, %w : tensor<2x9x9x3xf32>, tensor<3x3x3x18xf32>)
      outs(%o : tensor<2x7x7x18xf32>) -> tensor<2x7x7x18xf32>
  return %r : tensor<2x7x7x18xf32>
}

func.func @conv_nchw(%i: tensor<2x3x9x9xf32>, %w: tensor<5x3x3x3xf32>,
                     %o: tensor<2x5x4x4xf32>) -> tensor<2x5x4x4xf32> {
  %r = linalg.conv_2d_nchw_fchw {strides = dense<2> : tensor<2xi64>}
      ins(%i, %w : tensor<2x3x9x9xf32>, tensor<5x3x3x3xf32>)
      outs(%o : tensor<2x5x4x4xf32>) -> tensor<2x5x4x4xf32>
  return %r : tensor<2x5x4x4xf32>
}

// Both factors depend on the columns: no contraction.
func.func @depthwise(%i: tensor<1x9x9x4xf32>, %w: tensor<3x3x4xf32>,
                     %o: tensor<1x7x7x4xf32>) -> tensor<1x7x7x4xf32> {
  %r = linalg.depthwise_conv_2d_nhwc_hwc
      ins(%i, %w : tensor<1x9x9x4xf32>, tensor<3x3x4xf32>)
      outs(%o : tensor<1x7x7x4xf32>) -> tensor<1x7x7x4xf32>
  return %r : tensor<1x7x7x4xf32>
}

func.func @row_sum(%a: tensor<30x50xf32>, %s: tensor<30xf32>)
    -> tensor<30xf32> {
  %r = linalg.reduce {arith.addf} ins(%a : tensor<30x50xf32>)
      outs(%s : tensor<30xf32>) dimensions = [1]
  return %r : tensor<30xf32>
}

func.func @column_sum(%a: tensor<30x50xf32>, %s: tensor<50xf32>)
    -> tensor<50xf32> {
  %r = linalg.reduce {arith.addf} ins(%a : tensor<30x50xf32>)
      outs(%s : tensor<50xf32>) dimensions = [0]
  return %r : tensor<50xf32>
}

func.func @sum_all(%a: tensor<9x5x7xf32>, %s: tensor<5xf32>) -> tensor<5xf32> {
  %r = linalg.reduce {arith.addf} ins(%a : tensor<9x5x7xf32>)
      outs(%s : tensor<5xf32>) dimensions = [0, 2]
  return %r : tensor<5xf32>
}

func.func @transpose(%a: tensor<30x50xf32>) -> tensor<50x30xf32> {
  %e = tensor.empty() : tensor<50x30xf32>
  %r = linalg.transpose ins(%a : tensor<30x50xf32>)
      outs(%e : tensor<50x30xf32>) permutation = [1, 0]
  return %r : tensor<50x30xf32>
}

// The position enters the result: loops may change places, indices not.
func.func @index(%a: tensor<30x50xf32>) -> tensor<50x30xf32> {
  %e = tensor.empty() : tensor<50x30xf32>
  %r = linalg.generic {
      indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (j, i)>],
      iterator_types = ["parallel", "parallel"]}
      ins(%a : tensor<30x50xf32>) outs(%e : tensor<50x30xf32>) {
  ^bb0(%x: f32, %old: f32):
    %i = linalg.index 0 : index
    %i64 = arith.index_cast %i : index to i64
    %f = arith.sitofp %i64 : i64 to f32
    %y = arith.addf %x, %f : f32
    linalg.yield %y : f32
  } -> tensor<50x30xf32>
  return %r : tensor<50x30xf32>
}

// A copy of strided memory.
func.func @slice(%a: tensor<30x50xf32>) -> tensor<7x8xf32> {
  %s = tensor.extract_slice %a[2, 3] [7, 8] [2, 3]
      : tensor<30x50xf32> to tensor<7x8xf32>
  return %s : tensor<7x8xf32>
}

func.func @math(%a: tensor<33xf32>) -> tensor<33xf32> {
  %e = tensor.empty() : tensor<33xf32>
  %r = linalg.map ins(%a : tensor<33xf32>) outs(%e : tensor<33xf32>)
    (%x: f32, %init: f32) {
      %1 = math.exp %x : f32
      %2 = math.tanh %1 : f32
      %3 = math.erf %2 : f32
      %4 = math.rsqrt %1 : f32
      %5 = arith.maximumf %3, %4 : f32
      %6 = math.log1p %5 : f32
      linalg.yield %6 : f32
    }
  return %r : tensor<33xf32>
}

func.func @half(%a: tensor<9x33xf16>, %b: tensor<33x17xbf16>)
    -> tensor<9x17xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<9x17xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<9x17xf32>)
      -> tensor<9x17xf32>
  %r = linalg.matmul ins(%a, %b : tensor<9x33xf16>, tensor<33x17xbf16>)
      outs(%f : tensor<9x17xf32>) -> tensor<9x17xf32>
  return %r : tensor<9x17xf32>
}

func.func @bfloat(%a: tensor<70xf32>, %b: tensor<70xbf16>) -> tensor<70xbf16> {
  %e = tensor.empty() : tensor<70xbf16>
  %r = linalg.map ins(%a, %b : tensor<70xf32>, tensor<70xbf16>)
      outs(%e : tensor<70xbf16>) (%x: f32, %y: bf16, %init: bf16) {
    %0 = arith.truncf %x : f32 to bf16
    %1 = arith.addf %0, %y : bf16
    %2 = math.exp %1 : bf16
    linalg.yield %2 : bf16
  }
  return %r : tensor<70xbf16>
}
