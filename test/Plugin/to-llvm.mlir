// Stock tools alone from gradients to a program that runs: mlir-opt with the
// plugin, mlir-translate, llc, a linker. ddphook-exec runs the result as it runs
// one of ddphook-cc's.

// RUN: rm -rf %t && mkdir %t
// RUN: mlir-opt %s --load-dialect-plugin=%plugin --pass-pipeline="builtin.module(ddp-pipeline{hook=powersgd start-powersgd-iter=2 bucket-cap-mb=1},ddp-lower-to-llvm{name=stock shared=true})" -o %t/llvm.mlir
// RUN: FileCheck %s < %t/llvm.mlir
// RUN: mlir-translate --mlir-to-llvmir %t/llvm.mlir -o %t/step.ll
// RUN: llc -O2 --relocation-model=pic --filetype=obj %t/step.ll -o %t/step.o
// RUN: llvm-nm --defined-only --extern-only %t/step.o | FileCheck %s --check-prefix=SYMBOLS
// RUN: clang -shared -Wl,-Bsymbolic %t/step.o -o %t/step.so -lm
// RUN: ddphook-exec %t/step.so --entry=step --ranks=2 --steps=4 --inputs=random:7 --outputs='%t/stock.{rank}.{step}'
// RUN: ddphook-run %s --entry=step --ranks=2 --steps=4 --inputs=random:7 --outputs='%t/ours.{rank}.{step}' --ddp-pipeline="hook=powersgd start-powersgd-iter=2 bucket-cap-mb=1"
// RUN: cmp %t/stock.0.3 %t/ours.0.3
// RUN: cmp %t/stock.1.3 %t/ours.1.3

// Without a name there are no entry points, and the plan stays.
// RUN: mlir-opt %s --load-dialect-plugin=%plugin --pass-pipeline="builtin.module(ddp-pipeline,ddp-lower-to-llvm)" | FileCheck %s --check-prefix=PLAIN
// PLAIN: module attributes {ddp.plan
// PLAIN-NOT: stock_module

// A name that is none in C, and a module that has no plan.
// RUN: not mlir-opt %s --load-dialect-plugin=%plugin --pass-pipeline="builtin.module(ddp-pipeline,ddp-lower-to-llvm{name=a-b})" 2>&1 | FileCheck %s --check-prefix=NAME
// NAME: error: expected a C identifier as the module's name, but got 'a-b'
// RUN: not mlir-opt %s --load-dialect-plugin=%plugin --pass-pipeline="builtin.module(ddp-lower-to-llvm{name=a})" 2>&1 | FileCheck %s --check-prefix=PLAN
// PLAN: error:{{.*}}plan

// What host code may not do with memory of a device is noticed here, too.
// RUN: not mlir-opt %s --load-dialect-plugin=%plugin --pass-pipeline="builtin.module(ddp-pipeline{memory=device},ddp-lower-to-llvm{name=a})" 2>&1 | FileCheck %s --check-prefix=DEVICE
// DEVICE: error: 'linalg.{{.+}}' works on device memory, which the host cannot access

// CHECK-NOT:   ddp.plan
// CHECK:       llvm.func @stock_step(
// CHECK:       llvm.mlir.global external constant @stock_module
// CHECK:       llvm.mlir.alias external @ddphook_compiled_module
// SYMBOLS-DAG: ddphook_compiled_module
// SYMBOLS-DAG: stock_module
// SYMBOLS-DAG: stock_step

ddp.process_group @dp
func.func @step(%x: tensor<64x48xf32>, %b: tensor<48xf32>)
    -> (tensor<64x48xf32>, tensor<48xf32>) {
  %0 = tensor.empty() : tensor<64x48xf32>
  %g = linalg.mul ins(%x, %x : tensor<64x48xf32>, tensor<64x48xf32>) outs(%0 : tensor<64x48xf32>) -> tensor<64x48xf32>
  %r0 = ddp.all_reduce mean %g on @dp : tensor<64x48xf32>
  %r1 = ddp.all_reduce mean %b on @dp : tensor<48xf32>
  return %r0, %r1 : tensor<64x48xf32>, tensor<48xf32>
}
