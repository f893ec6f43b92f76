// The larger of -0 and +0 is +0, whichever comes first, in every type.

// RUN: rm -rf %t && mkdir %t
// RUN: ddphook-cc %s -o %t/zeros.so --shared
// RUN: %python %S/Inputs/signed_zeros.py ddphook-exec %t/zeros.so %t

func.func @f32(%a: tensor<16xf32>, %b: tensor<16xf32>) -> (tensor<16xf32>, tensor<16xf32>) {
  %e = tensor.empty() : tensor<16xf32>
  %f = tensor.empty() : tensor<16xf32>
  %max = linalg.max ins(%a, %b : tensor<16xf32>, tensor<16xf32>) outs(%e : tensor<16xf32>) -> tensor<16xf32>
  %min = linalg.min ins(%a, %b : tensor<16xf32>, tensor<16xf32>) outs(%f : tensor<16xf32>) -> tensor<16xf32>
  return %max, %min : tensor<16xf32>, tensor<16xf32>
}
func.func @f64(%a: tensor<16xf64>, %b: tensor<16xf64>) -> (tensor<16xf64>, tensor<16xf64>) {
  %e = tensor.empty() : tensor<16xf64>
  %f = tensor.empty() : tensor<16xf64>
  %max = linalg.max ins(%a, %b : tensor<16xf64>, tensor<16xf64>) outs(%e : tensor<16xf64>) -> tensor<16xf64>
  %min = linalg.min ins(%a, %b : tensor<16xf64>, tensor<16xf64>) outs(%f : tensor<16xf64>) -> tensor<16xf64>
  return %max, %min : tensor<16xf64>, tensor<16xf64>
}
func.func @f16(%a: tensor<16xf16>, %b: tensor<16xf16>) -> (tensor<16xf16>, tensor<16xf16>) {
  %e = tensor.empty() : tensor<16xf16>
  %f = tensor.empty() : tensor<16xf16>
  %max = linalg.max ins(%a, %b : tensor<16xf16>, tensor<16xf16>) outs(%e : tensor<16xf16>) -> tensor<16xf16>
  %min = linalg.min ins(%a, %b : tensor<16xf16>, tensor<16xf16>) outs(%f : tensor<16xf16>) -> tensor<16xf16>
  return %max, %min : tensor<16xf16>, tensor<16xf16>
}
func.func @bf16(%a: tensor<16xbf16>, %b: tensor<16xbf16>) -> (tensor<16xbf16>, tensor<16xbf16>) {
  %e = tensor.empty() : tensor<16xbf16>
  %f = tensor.empty() : tensor<16xbf16>
  %max = linalg.max ins(%a, %b : tensor<16xbf16>, tensor<16xbf16>) outs(%e : tensor<16xbf16>) -> tensor<16xbf16>
  %min = linalg.min ins(%a, %b : tensor<16xbf16>, tensor<16xbf16>) outs(%f : tensor<16xbf16>) -> tensor<16xbf16>
  return %max, %min : tensor<16xbf16>, tensor<16xbf16>
}
