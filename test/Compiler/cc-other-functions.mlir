// A public function without collectives is an entry point of what ddphook-cc
// compiles itself. The pipeline alone leaves it alone, on tensors; it is no entry
// of the plan then, and in nobody's way.

// RUN: ddphook-cc %s -o %t.o --name=model
// RUN: llvm-nm --defined-only --extern-only --format=just-symbols %t.o | sort | FileCheck %s --check-prefix=WHOLE
// WHOLE:      model_module
// WHOLE-NEXT: model_other
// WHOLE-NEXT: model_step

// RUN: ddphook-opt %s --ddp-pipeline -o %t.planned.mlir
// RUN: ddphook-cc %t.planned.mlir -o %t.planned.o --name=model 2>&1 | FileCheck %s --check-prefix=WARNING
// WARNING: warning: 'other' is public but not an entry of the plan: it cannot be called from C
// WARNING-NOT: error
// RUN: llvm-nm --defined-only --extern-only --format=just-symbols %t.planned.o | sort | FileCheck %s --check-prefix=PLANNED
// PLANNED:      model_module
// PLANNED-NEXT: model_step
// PLANNED-NOT:  {{.}}

// RUN: ddphook-opt %s --ddp-pipeline=all-functions=true -o %t.all.mlir
// RUN: ddphook-cc %t.all.mlir -o %t.all.o --name=model
// RUN: llvm-nm --defined-only --extern-only --format=just-symbols %t.all.o | sort | FileCheck %s --check-prefix=WHOLE

ddp.process_group @dp
func.func @step(%g: tensor<4xf32>) -> tensor<4xf32> {
  %r = ddp.all_reduce mean %g on @dp : tensor<4xf32>
  return %r : tensor<4xf32>
}
func.func @other(%a: tensor<4xf32>) -> tensor<4xf32> {
  %e = tensor.empty() : tensor<4xf32>
  %0 = func.call @inner(%a, %e)
      : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}
func.func private @inner(%a: tensor<4xf32>, %e: tensor<4xf32>)
    -> tensor<4xf32> {
  %0 = linalg.exp ins(%a : tensor<4xf32>) outs(%e : tensor<4xf32>)
      -> tensor<4xf32>
  return %0 : tensor<4xf32>
}
