// RUN: ddphook-opt %s | FileCheck %s
// RUN: ddphook-opt %s | ddphook-opt | FileCheck %s
// RUN: ddphook-opt %s --mlir-print-op-generic | ddphook-opt | FileCheck %s
// RUN: ddphook-opt %s --emit-bytecode | ddphook-opt | FileCheck %s

// On a module.
// CHECK: module attributes {ddp.hook = #ddp.bf16}
module attributes {ddp.hook = #ddp.bf16} {
  // CHECK: ddp.process_group @dp
  ddp.process_group @dp

  // On a function, its arguments and its results.
  // CHECK-LABEL: func.func @function(
  // CHECK-SAME:    %{{.+}}: i1 {ddp.replicated}
  // CHECK-SAME:    %{{.+}}: memref<4xf32> {ddp.gradient, ddp.inout}
  // CHECK-SAME:    -> (tensor<4xf32>, tensor<4xf16> {ddp.gradient})
  // CHECK-SAME:    attributes {ddp.hook = #ddp.fp16, ddp.result_arguments = array<i64: -1, 1>}
  func.func @function(%uniform: i1 {ddp.replicated},
                      %out: memref<4xf32> {ddp.gradient, ddp.inout},
                      %a: tensor<4xf32>, %b: tensor<4xf16>)
      -> (tensor<4xf32>, tensor<4xf16> {ddp.gradient})
      attributes {ddp.hook = #ddp.fp16,
                  ddp.result_arguments = array<i64: -1, 1>} {
    return %a, %b : tensor<4xf32>, tensor<4xf16>
  }

  // Every hook, on an operation.
  // CHECK-LABEL: func.func @hooks(
  func.func @hooks(%g: tensor<4xf32>) {
    // CHECK: ddp.all_reduce {{.+}} {ddp.hook = #ddp.allreduce}
    %0 = ddp.all_reduce mean %g on @dp {ddp.hook = #ddp.allreduce} : tensor<4xf32>
    // CHECK: ddp.all_reduce {{.+}} {ddp.hook = #ddp.fp16}
    %1 = ddp.all_reduce mean %g on @dp {ddp.hook = #ddp.fp16} : tensor<4xf32>
    // CHECK: ddp.all_reduce {{.+}} {ddp.hook = #ddp.bf16}
    %2 = ddp.all_reduce mean %g on @dp {ddp.hook = #ddp.bf16} : tensor<4xf32>
    // CHECK: ddp.all_reduce {{.+}} {ddp.hook = #ddp.noop}
    %3 = ddp.all_reduce mean %g on @dp {ddp.hook = #ddp.noop} : tensor<4xf32>
    // CHECK: ddp.all_reduce {{.+}} {ddp.hook = #ddp.wrap<f16, #ddp.allreduce>}
    %4 = ddp.all_reduce mean %g on @dp {ddp.hook = #ddp.wrap<f16, #ddp.allreduce>} : tensor<4xf32>
    // CHECK: ddp.all_reduce {{.+}} {ddp.hook = #ddp.wrap<bf16, #ddp.wrap<f16, #ddp.noop>>}
    %5 = ddp.all_reduce mean %g on @dp {ddp.hook = #ddp.wrap<bf16, #ddp.wrap<f16, #ddp.noop>>} : tensor<4xf32>
    return
  }
}
