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
    // Parameters that are PyTorch's defaults are left out.
    // CHECK: ddp.all_reduce {{.+}} {ddp.hook = #ddp.powersgd}
    %6 = ddp.all_reduce mean %g on @dp {ddp.hook = #ddp.powersgd<matrix_approximation_rank = 1, start_powerSGD_iter = 1000, min_compression_rate = 2.0 : f64, use_error_feedback = true, warm_start = true, orthogonalization_epsilon = 0.0 : f64, random_seed = 0, compression_stats_logging_frequency = 10000, batch_tensors_with_same_shape = false>} : tensor<4xf32>
    // CHECK: ddp.all_reduce {{.+}} {ddp.hook = #ddp.powersgd<matrix_approximation_rank = 4, start_powerSGD_iter = -3, min_compression_rate = 1.500000e+00 : f64, use_error_feedback = false, warm_start = false, orthogonalization_epsilon = 1.000000e-08 : f64, random_seed = 4294967295, compression_stats_logging_frequency = -1, batch_tensors_with_same_shape = true>}
    %7 = ddp.all_reduce mean %g on @dp {ddp.hook = #ddp.powersgd<batch_tensors_with_same_shape = true, matrix_approximation_rank = 4, start_powerSGD_iter = -3, min_compression_rate = 1.5 : f64, use_error_feedback = false, warm_start = false, orthogonalization_epsilon = 1.0e-8 : f64, random_seed = 4294967295, compression_stats_logging_frequency = -1>} : tensor<4xf32>
    // CHECK: ddp.all_reduce {{.+}} {ddp.hook = #ddp.batched_powersgd}
    %8 = ddp.all_reduce mean %g on @dp {ddp.hook = #ddp.batched_powersgd} : tensor<4xf32>
    // CHECK: ddp.all_reduce {{.+}} {ddp.hook = #ddp.wrap<bf16, #ddp.batched_powersgd<matrix_approximation_rank = 2, start_powerSGD_iter = 2>>}
    %9 = ddp.all_reduce mean %g on @dp {ddp.hook = #ddp.wrap<bf16, #ddp.batched_powersgd<matrix_approximation_rank = 2, start_powerSGD_iter = 2>>} : tensor<4xf32>
    // CHECK: ddp.all_reduce {{.+}} {ddp.hook = #ddp.wrap<f16, #ddp.powersgd<random_seed = 7>>}
    %10 = ddp.all_reduce mean %g on @dp {ddp.hook = #ddp.wrap<f16, #ddp.powersgd<random_seed = 7>>} : tensor<4xf32>
    // A matrix list.
    // CHECK: ddp.all_reduce {{.+}} {list = #ddp.matrix_list<3 to 52, [7, 0, 0, 5, 9, 2], [3, 0, 4]>}
    %11 = ddp.all_reduce mean %g on @dp {list = #ddp.matrix_list<3 to 52, [7, 0, 0, 5, 9, 2], [3, 0, 4]>} : tensor<4xf32>
    // CHECK: ddp.all_reduce {{.+}} {list = #ddp.matrix_list<0 to 0, [], []>}
    %12 = ddp.all_reduce mean %g on @dp {list = #ddp.matrix_list<0 to 0, [], []>} : tensor<4xf32>
    return
  }
}
