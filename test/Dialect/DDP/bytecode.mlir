// What users write stays readable as bytecode: Inputs/version-N.mlirbc is this file
// as the first ddphook of version N of the dialect wrote it (with --emit-bytecode).
// Such a file is never written again; a new version gets another one.
//
// RUN: ddphook-opt %s -o %t.text.mlir
// RUN: ddphook-opt %S/Inputs/version-1.mlirbc -o %t.version-1.mlir
// RUN: diff %t.text.mlir %t.version-1.mlir
//
// What is written now is read now.
// RUN: ddphook-opt %s --emit-bytecode | ddphook-opt -o %t.now.mlir
// RUN: diff %t.text.mlir %t.now.mlir
//
// The files are bytecode, and hold the dialect's version.
// RUN: head -c 4 %S/Inputs/version-1.mlirbc | FileCheck %s --check-prefix=MAGIC
// MAGIC: ML{{.}}R

module attributes {ddp.hook = #ddp.bf16} {
  ddp.process_group @dp
  ddp.process_group @four size 4
  ddp.process_group @pairs size 2 ranks [[0, 1], [2, 3]]
  ddp.process_group @node placement intra_node
  ddp.process_group @between placement inter_node parent @dp

  func.func @step(
      %w: tensor<4x8xf32> {bufferization.writable = true, ddp.replicated},
      %a: tensor<4x8xf32> {ddp.name = "w"}, %b: tensor<8xf16>,
      %c: tensor<bf16>, %d: tensor<0x3xf64>, %out: memref<8xf32> {ddp.gradient})
      -> (tensor<4x8xf32> {ddp.gradient}, tensor<8xf16>, tensor<4x8xf32>) {
    %0 = ddp.all_reduce mean %a on @dp : tensor<4x8xf32>
    %1 = ddp.all_reduce sum %b on @pairs {ddp.name = "b"} : tensor<8xf16>
    %2 = ddp.all_reduce mean %c on @four {ddp.hook = #ddp.noop} : tensor<bf16>
    %3 = ddp.all_reduce sum %d on @node {ddp.hook = #ddp.allreduce}
        : tensor<0x3xf64>
    %4 = ddp.all_reduce mean %a on @between {ddp.hook = #ddp.fp16}
        : tensor<4x8xf32>
    %5 = ddp.all_reduce mean %a on @dp wire bf16 : tensor<4x8xf32>
    ddp.all_reduce mean %out on @dp into %out : memref<8xf32>, : memref<8xf32>
    %6 = ddp.average %w on @dp every 4 : tensor<4x8xf32>
    %7 = ddp.average %w on @node every 4 warmup 100 : tensor<4x8xf32>
    return %0, %1, %6 : tensor<4x8xf32>, tensor<8xf16>, tensor<4x8xf32>
  }

  func.func @hooks(%a: tensor<64x32xf32>) attributes {
      ddp.hook = #ddp.wrap<bf16, #ddp.powersgd<
          matrix_approximation_rank = 2, start_powerSGD_iter = 10,
          min_compression_rate = 1.5, use_error_feedback = true,
          warm_start = false, orthogonalization_epsilon = 1.0e-8,
          random_seed = 7>>} {
    %0 = ddp.all_reduce mean %a on @dp : tensor<64x32xf32>
    %1 = ddp.all_reduce mean %a on @dp {ddp.hook = #ddp.powersgd}
        : tensor<64x32xf32>
    %2 = ddp.all_reduce mean %a on @dp {ddp.hook = #ddp.batched_powersgd<
        stop_powerSGD_iter = 5000, local_error_feedback = true,
        keep_zero_columns = true, skip_nonfinite = true, wire_type = f16,
        compression_stats_logging_frequency = 1,
        batch_tensors_with_same_shape = true>} : tensor<64x32xf32>
    %3 = ddp.all_reduce mean %a on @dp {ddp.hook = #ddp.post_local_sgd<
        start_localSGD_iter = 10, subgroup = @node,
        post_local_gradient_allreduce = false>} : tensor<64x32xf32>
    return
  }
}
