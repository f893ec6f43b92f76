// RUN: ddphook-opt %s --pass-pipeline='builtin.module(gpu.module(ddp-expand-device-math))' --split-input-file --verify-diagnostics

gpu.module @kernels {
  gpu.func @kernel(%a: memref<f64>, %b: memref<f32>) kernel {
    %x = memref.load %a[] : memref<f64>
    // The device has an instruction for these.
    %0 = math.sqrt %x : f64
    %1 = math.absf %0 : f64
    %2 = math.fma %1, %x, %x : f64
    // expected-error @below {{'math.exp' of 'f64' has no device implementation}}
    %3 = math.exp %2 : f64
    %4 = math.exp %3 : f64
    memref.store %4, %a[] : memref<f64>
    %y = memref.load %b[] : memref<f32>
    // expected-error @below {{'math.log10' of 'f32' has no device implementation}}
    %5 = math.log10 %y : f32
    // expected-error @below {{'arith.remf' of 'f32' has no device implementation}}
    %6 = arith.remf %5, %y : f32
    memref.store %6, %b[] : memref<f32>
    gpu.return
  }
}
