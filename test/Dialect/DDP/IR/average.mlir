// RUN: ddphook-opt %s | FileCheck %s
// RUN: ddphook-opt %s | ddphook-opt | FileCheck %s
// RUN: ddphook-opt %s --mlir-print-op-generic | ddphook-opt | FileCheck %s
// RUN: ddphook-opt %s --emit-bytecode | ddphook-opt | FileCheck %s
// RUN: ddphook-opt %s --mlir-print-op-generic | FileCheck %s --check-prefix=GENERIC

// ddp.average on each type of gradient, and #ddp.post_local_sgd.

ddp.process_group @dp
ddp.process_group @pairs ranks [[0, 1], [2, 3]]

// CHECK-LABEL: func.func @averages(
// CHECK-SAME:    %[[W:[a-z0-9]+]]: tensor<4x8xf32>, %[[H:[a-z0-9]+]]: tensor<0xf16>, %[[B:[a-z0-9]+]]: tensor<bf16>, %[[D:[a-z0-9]+]]: tensor<3xf64>)
func.func @averages(%w: tensor<4x8xf32>, %h: tensor<0xf16>, %b: tensor<bf16>,
                    %d: tensor<3xf64>)
    -> (tensor<4x8xf32>, tensor<0xf16>, tensor<bf16>, tensor<3xf64>) {
  // CHECK-NEXT: %[[W1:.+]] = ddp.average %[[W]] on @dp every 4 warmup 100 : tensor<4x8xf32>
  // GENERIC: "ddp.average"(%{{.+}}) <{group = @dp, period = 4 : i64, warmup = 100 : i64}> : (tensor<4x8xf32>) -> tensor<4x8xf32>
  %w1 = ddp.average %w on @dp every 4 warmup 100 : tensor<4x8xf32>
  // Without a warmup.
  // CHECK-NEXT: %[[H1:.+]] = ddp.average %[[H]] on @pairs every 1 : tensor<0xf16>
  // GENERIC: "ddp.average"(%{{.+}}) <{group = @pairs, period = 1 : i64, warmup = 0 : i64}>
  %h1 = ddp.average %h on @pairs every 1 warmup 0 : tensor<0xf16>
  // CHECK-NEXT: %[[B1:.+]] = ddp.average %[[B]] on @dp every 9223372036854775807 warmup 9223372036854775807 : tensor<bf16>
  %b1 = ddp.average %b on @dp every 9223372036854775807
      warmup 9223372036854775807 : tensor<bf16>
  // CHECK-NEXT: %[[D1:.+]] = ddp.average %[[D]] on @dp every 2 {note = "kept"} : tensor<3xf64>
  %d1 = ddp.average %d on @dp every 2 {note = "kept"} : tensor<3xf64>
  // CHECK-NEXT: return %[[W1]], %[[H1]], %[[B1]], %[[D1]]
  return %w1, %h1, %b1, %d1
      : tensor<4x8xf32>, tensor<0xf16>, tensor<bf16>, tensor<3xf64>
}

// CHECK-LABEL: func.func @hooks(
func.func @hooks(%g: tensor<4xf32>) {
  // Parameters that have their default are not printed.
  // CHECK: ddp.all_reduce {{.+}} {ddp.hook = #ddp.post_local_sgd} :
  %0 = ddp.all_reduce mean %g on @dp {ddp.hook = #ddp.post_local_sgd<start_localSGD_iter = 100, post_local_gradient_allreduce = true>} : tensor<4xf32>
  // CHECK: ddp.all_reduce {{.+}} {ddp.hook = #ddp.post_local_sgd<start_localSGD_iter = 0, subgroup = @pairs>} :
  %1 = ddp.all_reduce mean %g on @dp {ddp.hook = #ddp.post_local_sgd<subgroup = @pairs, start_localSGD_iter = 0>} : tensor<4xf32>
  // CHECK: ddp.all_reduce {{.+}} {ddp.hook = #ddp.wrap<f16, #ddp.post_local_sgd<start_localSGD_iter = -1, post_local_gradient_allreduce = false>>} :
  %2 = ddp.all_reduce mean %g on @dp {ddp.hook = #ddp.wrap<f16, #ddp.post_local_sgd<start_localSGD_iter = -1, post_local_gradient_allreduce = false>>} : tensor<4xf32>
  // CHECK: ddp.all_reduce {{.+}} {ddp.hook = #ddp.powersgd<local_error_feedback = true, keep_zero_columns = false, independent_columns = true, skip_nonfinite = true, wire_type = bf16>} :
  %3 = ddp.all_reduce mean %g on @dp {ddp.hook = #ddp.powersgd<wire_type = bf16, skip_nonfinite = true, independent_columns = true, keep_zero_columns = false, local_error_feedback = true>} : tensor<4xf32>
  // CHECK: ddp.all_reduce {{.+}} {ddp.hook = #ddp.batched_powersgd<wire_type = f16>} :
  %4 = ddp.all_reduce mean %g on @dp {ddp.hook = #ddp.batched_powersgd<local_error_feedback = false, keep_zero_columns = true, independent_columns = false, skip_nonfinite = false, wire_type = f16>} : tensor<4xf32>
  return
}
