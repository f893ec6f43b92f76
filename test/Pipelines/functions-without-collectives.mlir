// What has nothing to do with collectives comes out of the pipeline as it went
// in, wherever it stands, in words and in order: the whole of the first file is
// found in what becomes of both.

// RUN: rm -rf %t && split-file %s %t
// RUN: cat %t/others.mlir %t/step.mlir > %t/both.mlir
// RUN: ddphook-opt %t/others.mlir --allow-unregistered-dialect -o %t/before.mlir
// RUN: ddphook-opt %t/both.mlir --allow-unregistered-dialect --ddp-pipeline="hook=fp16" -o %t/after.mlir
// RUN: %python %t/contains.py %t/after.mlir %t/before.mlir
// RUN: FileCheck %t/step.mlir --input-file=%t/after.mlir
// RUN: ddphook-opt %t/both.mlir --allow-unregistered-dialect --ddp-pipeline="hook=powersgd overlap=true memory=device" -o %t/device.mlir
// RUN: %python %t/contains.py %t/device.mlir %t/before.mlir

// The pass has a text, inner passes included, and takes it.
// RUN: ddphook-opt %t/step.mlir --ddp-pipeline="hook=fp16" --dump-pass-pipeline -o /dev/null 2>&1 | FileCheck %s --check-prefix=TEXT
// TEXT: ddp-isolate-collectives{all-functions=false pipeline={builtin.module(ddp-verify-sync,{{.*}}convert-ddp-to-runtime
// RUN: ddphook-opt %t/both.mlir --allow-unregistered-dialect --pass-pipeline='builtin.module(ddp-isolate-collectives{pipeline=builtin.module(ddp-flatten,ddp-prepare-entries,one-shot-bufferize)})' -o %t/inner.mlir
// RUN: %python %t/contains.py %t/inner.mlir %t/before.mlir
// RUN: FileCheck %s --check-prefix=INNER --input-file=%t/inner.mlir
// INNER: func.func @step(%{{.+}}: memref<4xf32>, %{{.+}}: memref<4xf32>)

// A module without collectives.
// RUN: ddphook-opt %t/others.mlir --allow-unregistered-dialect --ddp-pipeline -o %t/none.mlir
// RUN: %python %t/contains.py %t/none.mlir %t/before.mlir

// If all functions are to be compiled, those that cannot be are errors.
// RUN: not ddphook-opt %t/both.mlir --allow-unregistered-dialect --ddp-pipeline="all-functions=true" 2>&1 | FileCheck %s --check-prefix=ALL
// ALL: error: expected 'foo.op' to implement BufferizableOpInterface, since it works on 'tensor<4xf32>' in 'unregistered'

// A pass alone, on operations that nobody has registered.
// RUN: ddphook-opt %t/others.mlir --allow-unregistered-dialect --convert-ddp-to-runtime -o %t/alone.mlir
// RUN: %python %t/contains.py %t/alone.mlir %t/before.mlir

//--- contains.py
import sys

after, before = (open(path).read() for path in sys.argv[1:])
body = before.split("module {\n", 1)[1].rsplit("}\n", 1)[0]
assert len(body) > 1000
sys.exit(body not in after)

//--- others.mlir
memref.global "private" constant @table : memref<2xf32> = dense<1.000000e+00>
func.func @dynamic(%a: tensor<?xf32> {bufferization.writable = true}) -> tensor<?xf32> {
  %c0 = arith.constant 0 : index
  %d = tensor.dim %a, %c0 : tensor<?xf32>
  %e = tensor.empty(%d) : tensor<?xf32>
  %r = linalg.exp ins(%a : tensor<?xf32>) outs(%e : tensor<?xf32>) -> tensor<?xf32>
  return %r : tensor<?xf32>
}
func.func @unregistered(%a: tensor<4xf32>) -> tensor<4xf32> {
  %0 = "foo.op"(%a) ({
  ^bb0(%x: f32):
    "foo.yield"(%x) : (f32) -> ()
  }) {entry = @dynamic} : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}
func.func @memory(%m: memref<4xf32>) {
  %g = memref.get_global @table : memref<2xf32>
  %a = memref.alloc() : memref<4xf32>
  memref.copy %a, %a : memref<4xf32> to memref<4xf32>
  memref.copy %a, %m : memref<4xf32> to memref<4xf32>
  memref.dealloc %a : memref<4xf32>
  return
}
func.func private @external(tensor<4xf32>) -> tensor<4xf32>
func.func @static(%a: tensor<4xf32>, %c: i1) -> tensor<4xf32> {
  %0 = func.call @external(%a) : (tensor<4xf32>) -> tensor<4xf32>
  cf.cond_br %c, ^bb1, ^bb2
^bb1:
  return %0 : tensor<4xf32>
^bb2:
  return %a : tensor<4xf32>
}
llvm.func @ddphook_rt_arena(!llvm.ptr) -> !llvm.ptr
llvm.func @lowered(%a: i32) -> i32 {
  llvm.return %a : i32
}
spirv.module Logical GLSL450 {
  spirv.func @shader() "None" {
    spirv.Return
  }
}
gpu.module @kernels {
  gpu.func @kernel() kernel {
    gpu.return
  }
}
module @nested {
  func.func @step() {
    return
  }
}
"foo.top"() ({
  "foo.in"() : () -> ()
}) : () -> ()

//--- step.mlir
// CHECK-LABEL: func.func private @helper(
// CHECK-SAME:      memref<4xf32>
// CHECK-LABEL: func.func @step(%{{.+}}: memref<4xf32>, %{{.+}}: memref<4xf32>)
// CHECK:         call @ddphook_rt_collective(
// CHECK-LABEL: func.func @calls_step(%{{.+}}: memref<4xf32>, %{{.+}}: memref<4xf32>)
ddp.process_group @dp
func.func private @helper(%a: tensor<4xf32>) -> tensor<4xf32> {
  %e = tensor.empty() : tensor<4xf32>
  %r = linalg.exp ins(%a : tensor<4xf32>) outs(%e : tensor<4xf32>) -> tensor<4xf32>
  return %r : tensor<4xf32>
}
func.func @step(%a: tensor<4xf32>) -> tensor<4xf32> {
  %h = call @helper(%a) : (tensor<4xf32>) -> tensor<4xf32>
  %r = ddp.all_reduce mean %h on @dp : tensor<4xf32>
  return %r : tensor<4xf32>
}
func.func @calls_step(%a: tensor<4xf32>) -> tensor<4xf32> {
  %r = call @step(%a) : (tensor<4xf32>) -> tensor<4xf32>
  return %r : tensor<4xf32>
}
