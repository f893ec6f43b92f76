// RUN: ddphook-opt %s --ddp-expand-hooks="hook=fp16" -split-input-file -verify-diagnostics

ddp.process_group @dp
func.func @wire(%g: memref<4xf32>) {
  // expected-error @+1 {{expected no wire type, since a hook chooses it}}
  ddp.all_reduce mean %g on @dp wire bf16 into %g : memref<4xf32>, : memref<4xf32>
  return
}
