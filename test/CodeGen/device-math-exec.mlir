// The polynomials that kernels compute functions with, executed by the emulated device
// and compared with f64: the errors that docs/lowering.md states, and what becomes of
// infinities, NaN and zeros.

// RUN: rm -rf %t && mkdir %t
// RUN: ddphook-cc %s -o %t/device.so --shared --device=cuda
// RUN: env DDPHOOK_BACKEND=cuda_emulated %python %S/Inputs/device_math.py ddphook-exec %t/device.so %t

#map = affine_map<(i) -> (i)>
!t = tensor<20000xf32>

func.func @step(%exp: !t, %log: !t, %tanh: !t, %erf: !t, %sin: !t, %cos: !t,
                %rsqrt: !t, %log1p: !t, %expm1: !t)
    -> (!t, !t, !t, !t, !t, !t, !t, !t, !t) {
  %empty = tensor.empty() : !t
  %0 = linalg.exp ins(%exp : !t) outs(%empty : !t) -> !t
  %1 = linalg.log ins(%log : !t) outs(%empty : !t) -> !t
  %2 = linalg.tanh ins(%tanh : !t) outs(%empty : !t) -> !t
  %3 = linalg.erf ins(%erf : !t) outs(%empty : !t) -> !t
  %4 = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel"]}
      ins(%sin : !t) outs(%empty : !t) {
  ^bb0(%x: f32, %out: f32):
    %y = math.sin %x : f32
    linalg.yield %y : f32
  } -> !t
  %5 = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel"]}
      ins(%cos : !t) outs(%empty : !t) {
  ^bb0(%x: f32, %out: f32):
    %y = math.cos %x : f32
    linalg.yield %y : f32
  } -> !t
  %6 = linalg.rsqrt ins(%rsqrt : !t) outs(%empty : !t) -> !t
  %7 = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel"]}
      ins(%log1p : !t) outs(%empty : !t) {
  ^bb0(%x: f32, %out: f32):
    %y = math.log1p %x : f32
    linalg.yield %y : f32
  } -> !t
  %8 = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel"]}
      ins(%expm1 : !t) outs(%empty : !t) {
  ^bb0(%x: f32, %out: f32):
    %y = math.expm1 %x : f32
    linalg.yield %y : f32
  } -> !t
  return %0, %1, %2, %3, %4, %5, %6, %7, %8 : !t, !t, !t, !t, !t, !t, !t, !t, !t
}
