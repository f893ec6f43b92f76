// RUN: ddphook-opt %s -split-input-file --ddp-widen-accumulators | FileCheck %s
// RUN: ddphook-opt %s -split-input-file --ddp-widen-accumulators --remarks-filter=ddp-widen-accumulators 2>&1 >/dev/null | FileCheck %s --check-prefix=REMARK

// REMARK: [Passed] Accumulators {{.+}}"16-bit sums are accumulated in f32", operations=2
// REMARK: [Passed] Accumulators {{.+}}operations=1
// REMARK: [Missed] Accumulators {{.+}}kept in 16 bits

// A contraction becomes the same operation on f32. An operation that accumulates into its
// result continues with the unrounded value.
// CHECK-LABEL: module {
// CHECK-LABEL: func.func @products(
// CHECK-SAME:      %[[A:.+]]: tensor<4x8xbf16>, %[[B:.+]]: tensor<8x2xbf16>
// CHECK:         %[[Z:.+]] = arith.extf %cst : bf16 to f32
// CHECK:         %[[F:.+]] = linalg.fill ins(%[[Z]] : f32) outs(%{{.+}} : tensor<4x2xf32>)
// CHECK:         %[[P:.+]] = linalg.matmul ins(%{{.+}}, %{{.+}} : tensor<4x8xf32>, tensor<8x2xf32>) outs(%[[F]] : tensor<4x2xf32>)
// CHECK:         %[[Q:.+]] = linalg.matmul ins(%{{.+}}, %{{.+}} : tensor<4x8xf32>, tensor<8x2xf32>) outs(%[[P]] : tensor<4x2xf32>)
// CHECK:         %[[R:.+]] = linalg.generic {{.+}} ins(%[[Q]] : tensor<4x2xf32>) outs(%{{.+}} : tensor<4x2xbf16>)
// CHECK:           arith.truncf
// CHECK:         return %[[R]]
module attributes {ddp.widen_accumulators} {
  func.func @products(%a: tensor<4x8xbf16>, %b: tensor<8x2xbf16>) -> tensor<4x2xbf16> {
    %zero = arith.constant 0.0 : bf16
    %e = tensor.empty() : tensor<4x2xbf16>
    %f = linalg.fill ins(%zero : bf16) outs(%e : tensor<4x2xbf16>) -> tensor<4x2xbf16>
    %0 = linalg.matmul ins(%a, %b : tensor<4x8xbf16>, tensor<8x2xbf16>)
        outs(%f : tensor<4x2xbf16>) -> tensor<4x2xbf16>
    %1 = linalg.matmul ins(%a, %b : tensor<4x8xbf16>, tensor<8x2xbf16>)
        outs(%0 : tensor<4x2xbf16>) -> tensor<4x2xbf16>
    return %1 : tensor<4x2xbf16>
  }
}

// -----

// Only accumulators and products of elements are widened. A maximum is exact, and a sum of
// f32 is wide already.
// CHECK-LABEL: func.func @bodies(
// CHECK:         linalg.generic {{.+}}iterator_types = ["reduction"]
// CHECK-NEXT:    ^bb0(%[[X:.+]]: f16, %[[Y:.+]]: f16, %[[S:.+]]: f32, %[[M:.+]]: f16):
// CHECK-NEXT:      %[[U:.+]] = arith.extf %[[X]] : f16 to f32
// CHECK-NEXT:      %[[V:.+]] = arith.extf %[[Y]] : f16 to f32
// CHECK-NEXT:      %[[W:.+]] = arith.mulf %[[U]], %[[V]] : f32
// CHECK-NEXT:      %[[N:.+]] = arith.addf %[[W]], %[[S]] : f32
// CHECK-NEXT:      %[[MAX:.+]] = arith.maximumf %[[X]], %[[M]] : f16
// CHECK-NEXT:      linalg.yield %[[N]], %[[MAX]]
// CHECK-NOT:     ddp.widen_accumulators
#in = affine_map<(i) -> (i)>
#out = affine_map<(i) -> ()>
module attributes {ddp.widen_accumulators} {
  func.func @bodies(%x: tensor<8xf16>, %y: tensor<8xf16>, %s: tensor<f16>,
                    %m: tensor<f16>) -> (tensor<f16>, tensor<f16>) {
    %0:2 = linalg.generic {indexing_maps = [#in, #in, #out, #out],
                           iterator_types = ["reduction"]}
        ins(%x, %y : tensor<8xf16>, tensor<8xf16>) outs(%s, %m : tensor<f16>, tensor<f16>) {
    ^bb0(%a: f16, %b: f16, %sum: f16, %max: f16):
      %p = arith.mulf %a, %b : f16
      %n = arith.addf %p, %sum : f16
      %k = arith.maximumf %a, %max : f16
      linalg.yield %n, %k : f16, f16
    } -> (tensor<f16>, tensor<f16>)
    return %0#0, %0#1 : tensor<f16>, tensor<f16>
  }
}

// -----

// The body of a running mean is not a plain sum.
// CHECK-LABEL: func.func @other(
// CHECK:         linalg.reduce ins(%{{.+}} : tensor<8xbf16>) outs(%{{.+}} : tensor<bf16>)
module attributes {ddp.widen_accumulators} {
  func.func @other(%x: tensor<8xbf16>, %z: tensor<bf16>) -> tensor<bf16> {
    %0 = linalg.reduce ins(%x : tensor<8xbf16>) outs(%z : tensor<bf16>) dimensions = [0]
        (%in: bf16, %acc: bf16) {
      %half = arith.constant 0.5 : bf16
      %s = arith.addf %in, %acc : bf16
      %m = arith.mulf %s, %half : bf16
      linalg.yield %m : bf16
    }
    return %0 : tensor<bf16>
  }
}

// -----

// Without the attribute the program is computed as written.
// CHECK-LABEL: func.func @exact(
// CHECK-NEXT:    linalg.reduce { arith.addf } ins(%{{.+}} : tensor<8xbf16>)
func.func @exact(%x: tensor<8xbf16>, %z: tensor<bf16>) -> tensor<bf16> {
  %0 = linalg.reduce { arith.addf } ins(%x : tensor<8xbf16>) outs(%z : tensor<bf16>)
      dimensions = [0]
  return %0 : tensor<bf16>
}

// -----

// jaxlib wraps the elements of a reduction in tensors.
module attributes {ddp.widen_accumulators} {
  // CHECK-LABEL: func.func @wrapped(
  // CHECK:       linalg.generic {{.+}} ins(%{{.+}} : tensor<8xbf16>) outs(%{{.+}} : tensor<f32>)
  // CHECK-NEXT:  ^bb0(%[[IN:.+]]: bf16, %[[OUT:.+]]: f32):
  // CHECK-NEXT:    %[[WIDE:.+]] = arith.extf %[[IN]] : bf16 to f32
  // CHECK-NEXT:    %[[SUM:.+]] = arith.addf %[[OUT]], %[[WIDE]] : f32
  // CHECK-NEXT:    linalg.yield %[[SUM]] : f32
  func.func @wrapped(%x: tensor<8xbf16>, %zero: tensor<bf16>) -> tensor<bf16> {
    %0 = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> ()>], iterator_types = ["reduction"]}
        ins(%x : tensor<8xbf16>) outs(%zero : tensor<bf16>) {
    ^bb0(%in: bf16, %out: bf16):
      %a = tensor.from_elements %in : tensor<bf16>
      %b = tensor.from_elements %out : tensor<bf16>
      %c = tensor.extract %b[] : tensor<bf16>
      %d = tensor.extract %a[] : tensor<bf16>
      %e = arith.addf %c, %d : bf16
      %f = tensor.from_elements %e : tensor<bf16>
      %g = tensor.extract %f[] : tensor<bf16>
      linalg.yield %g : bf16
    } -> tensor<bf16>
    return %0 : tensor<bf16>
  }
}
