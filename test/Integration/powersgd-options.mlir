// What packing, fusing and grouping change is where things lie and when they
// travel, not what is computed: at two ranks the same bits in every step, each of
// which depends on the states that the one before left.

// RUN: rm -rf %t && mkdir %t
// RUN: ddphook-run %s --entry=step --ranks=2 --steps=6 --inputs=random:3 "--outputs=%t/default.{rank}.{step}" --ddp-pipeline="hook=powersgd matrix_approximation_rank=2 start_powerSGD_iter=2"
// RUN: ddphook-run %s --entry=step --ranks=2 --steps=6 --inputs=random:3 "--outputs=%t/apart.{rank}.{step}" --ddp-pipeline="hook=powersgd matrix_approximation_rank=2 start_powerSGD_iter=2 pack_collectives=false"
// RUN: ddphook-run %s --entry=step --ranks=2 --steps=6 --inputs=random:3 "--outputs=%t/plain.{rank}.{step}" --ddp-pipeline="hook=powersgd matrix_approximation_rank=2 start_powerSGD_iter=2 pack_collectives=false fuse=false"
// RUN: ddphook-run %s --entry=step --ranks=2 --steps=6 --inputs=random:3 "--outputs=%t/grouped.{rank}.{step}" --ddp-pipeline="hook=powersgd matrix_approximation_rank=2 start_powerSGD_iter=2 group_mb=0.004"
// RUN: cmp %t/default.0.0 %t/apart.0.0
// RUN: cmp %t/default.0.2 %t/apart.0.2
// RUN: cmp %t/default.0.5 %t/apart.0.5
// RUN: cmp %t/default.1.5 %t/apart.1.5
// RUN: cmp %t/default.0.0 %t/plain.0.0
// RUN: cmp %t/default.0.2 %t/plain.0.2
// RUN: cmp %t/default.0.5 %t/plain.0.5
// RUN: cmp %t/default.1.5 %t/plain.1.5
// RUN: cmp %t/default.0.0 %t/grouped.0.0
// RUN: cmp %t/default.0.2 %t/grouped.0.2
// RUN: cmp %t/default.0.5 %t/grouped.0.5
// RUN: cmp %t/default.1.5 %t/grouped.1.5

// Ranks agree; steps differ.
// RUN: cmp %t/default.0.5 %t/default.1.5
// RUN: not cmp %t/default.0.2 %t/default.0.5

// In 16 bits; without error feedback and warm start; on `sum`.
// RUN: ddphook-run %s --entry=step --ranks=2 --steps=6 --inputs=random:3 "--outputs=%t/half.{rank}.{step}" --ddp-pipeline="hook=powersgd matrix_approximation_rank=2 start_powerSGD_iter=2 wrapper=fp16"
// RUN: ddphook-run %s --entry=step --ranks=2 --steps=6 --inputs=random:3 "--outputs=%t/half_plain.{rank}.{step}" --ddp-pipeline="hook=powersgd matrix_approximation_rank=2 start_powerSGD_iter=2 wrapper=fp16 fuse=false"
// RUN: ddphook-run %s --entry=step --ranks=2 --steps=6 --inputs=random:3 "--outputs=%t/half_grouped.{rank}.{step}" --ddp-pipeline="hook=powersgd matrix_approximation_rank=2 start_powerSGD_iter=2 wrapper=fp16 group_mb=0.002"
// RUN: cmp %t/half.0.0 %t/half_plain.0.0
// RUN: cmp %t/half.0.2 %t/half_plain.0.2
// RUN: cmp %t/half.0.5 %t/half_plain.0.5
// RUN: cmp %t/half.1.5 %t/half_plain.1.5
// RUN: cmp %t/half.0.0 %t/half_grouped.0.0
// RUN: cmp %t/half.0.2 %t/half_grouped.0.2
// RUN: cmp %t/half.0.5 %t/half_grouped.0.5
// RUN: cmp %t/half.1.5 %t/half_grouped.1.5
// RUN: ddphook-run %s --entry=step --ranks=2 --steps=6 --inputs=random:3 "--outputs=%t/cold.{rank}.{step}" --ddp-pipeline="hook=powersgd matrix_approximation_rank=2 start_powerSGD_iter=2 warm_start=false use_error_feedback=false"
// RUN: ddphook-run %s --entry=step --ranks=2 --steps=6 --inputs=random:3 "--outputs=%t/cold_grouped.{rank}.{step}" --ddp-pipeline="hook=powersgd matrix_approximation_rank=2 start_powerSGD_iter=2 warm_start=false use_error_feedback=false group_mb=0.004 pack_collectives=false"
// RUN: cmp %t/cold.0.0 %t/cold_grouped.0.0
// RUN: cmp %t/cold.0.2 %t/cold_grouped.0.2
// RUN: cmp %t/cold.0.5 %t/cold_grouped.0.5
// RUN: cmp %t/cold.1.5 %t/cold_grouped.1.5
// RUN: ddphook-run %s --entry=sum --ranks=2 --steps=6 --inputs=random:3 "--outputs=%t/sum.{rank}.{step}" --ddp-pipeline="hook=powersgd matrix_approximation_rank=2 start_powerSGD_iter=2"
// RUN: ddphook-run %s --entry=sum --ranks=2 --steps=6 --inputs=random:3 "--outputs=%t/sum_plain.{rank}.{step}" --ddp-pipeline="hook=powersgd matrix_approximation_rank=2 start_powerSGD_iter=2 fuse=false"
// RUN: ddphook-run %s --entry=sum --ranks=2 --steps=6 --inputs=random:3 "--outputs=%t/sum_grouped.{rank}.{step}" --ddp-pipeline="hook=powersgd matrix_approximation_rank=2 start_powerSGD_iter=2 group_mb=0.004"
// RUN: cmp %t/sum.0.0 %t/sum_plain.0.0
// RUN: cmp %t/sum.0.2 %t/sum_plain.0.2
// RUN: cmp %t/sum.0.5 %t/sum_plain.0.5
// RUN: cmp %t/sum.1.5 %t/sum_plain.1.5
// RUN: cmp %t/sum.0.0 %t/sum_grouped.0.0
// RUN: cmp %t/sum.0.2 %t/sum_grouped.0.2
// RUN: cmp %t/sum.0.5 %t/sum_grouped.0.5
// RUN: cmp %t/sum.1.5 %t/sum_grouped.1.5

ddp.process_group @dp
func.func @step(%a: tensor<20x31xf32>, %b: tensor<31xf32>,
                %c: tensor<31x2x3x3xf32>, %d: tensor<20x31xf32>,
                %e: tensor<f32>)
    -> (tensor<20x31xf32>, tensor<31xf32>, tensor<31x2x3x3xf32>,
        tensor<20x31xf32>, tensor<f32>) {
  %0 = ddp.all_reduce mean %a on @dp : tensor<20x31xf32>
  %1 = ddp.all_reduce mean %b on @dp : tensor<31xf32>
  %2 = ddp.all_reduce mean %c on @dp : tensor<31x2x3x3xf32>
  %3 = ddp.all_reduce mean %d on @dp : tensor<20x31xf32>
  %4 = ddp.all_reduce mean %e on @dp : tensor<f32>
  return %0, %1, %2, %3, %4 : tensor<20x31xf32>, tensor<31xf32>,
      tensor<31x2x3x3xf32>, tensor<20x31xf32>, tensor<f32>
}
func.func @sum(%a: tensor<20x31xf32>, %b: tensor<31xf32>,
               %c: tensor<31x2x3x3xf32>)
    -> (tensor<20x31xf32>, tensor<31xf32>, tensor<31x2x3x3xf32>) {
  %0 = ddp.all_reduce sum %a on @dp : tensor<20x31xf32>
  %1 = ddp.all_reduce sum %b on @dp : tensor<31xf32>
  %2 = ddp.all_reduce sum %c on @dp : tensor<31x2x3x3xf32>
  return %0, %1, %2 : tensor<20x31xf32>, tensor<31xf32>, tensor<31x2x3x3xf32>
}
