// A module whose arrays lie in a device's memory makes a call for everything
// that touches them. So it also runs on the host, and must give the bits of the
// module that touches them itself: every hook, several steps, 1, 2 and 3 ranks.

// RUN: rm -rf %t && mkdir %t

// DEFINE: %{hook} =
// DEFINE: %{compare} = ddphook-cc %s -o %t/host.so --shared --ddp-pipeline="%{hook}" \
// DEFINE:   && ddphook-cc %s -o %t/device.so --shared --device=other --ddp-pipeline="%{hook}" \
// DEFINE:   && %python %S/Inputs/device_memory.py ddphook-exec %t/host.so %t/device.so %t \
// DEFINE:   && rm %t/*

// REDEFINE: %{hook} = hook=allreduce
// RUN: %{compare}
// REDEFINE: %{hook} = hook=allreduce bucket-cap-mb=0
// RUN: %{compare}
// REDEFINE: %{hook} = hook=fp16
// RUN: %{compare}
// REDEFINE: %{hook} = hook=fp16 fuse=false
// RUN: %{compare}
// REDEFINE: %{hook} = hook=bf16
// RUN: %{compare}
// REDEFINE: %{hook} = hook=allreduce wrapper=bf16
// RUN: %{compare}
// REDEFINE: %{hook} = hook=noop
// RUN: %{compare}
// REDEFINE: %{hook} = hook=post_local_sgd start_localSGD_iter=2
// RUN: %{compare}
// REDEFINE: %{hook} = hook=post_local_sgd start_localSGD_iter=2 post_local_gradient_allreduce=false
// RUN: %{compare}

// Never compressed; compressed from the third step on; in groups.
// REDEFINE: %{hook} = hook=powersgd
// RUN: %{compare}
// REDEFINE: %{hook} = hook=powersgd matrix_approximation_rank=2 start_powerSGD_iter=2
// RUN: %{compare}
// REDEFINE: %{hook} = hook=powersgd matrix_approximation_rank=2 start_powerSGD_iter=2 pack_collectives=false fuse=false
// RUN: %{compare}
// REDEFINE: %{hook} = hook=powersgd matrix_approximation_rank=2 start_powerSGD_iter=2 group_mb=0.004
// RUN: %{compare}
// REDEFINE: %{hook} = hook=powersgd start_powerSGD_iter=2 warm_start=false use_error_feedback=false
// RUN: %{compare}
// REDEFINE: %{hook} = hook=powersgd matrix_approximation_rank=4 start_powerSGD_iter=2 wrapper=fp16
// RUN: %{compare}
// REDEFINE: %{hook} = hook=powersgd matrix_approximation_rank=2 start_powerSGD_iter=2 numerics=improved skip_nonfinite=true
// RUN: %{compare}
// REDEFINE: %{hook} = hook=powersgd matrix_approximation_rank=2 start_powerSGD_iter=2 numerics=improved wrapper=bf16
// RUN: %{compare}
// REDEFINE: %{hook} = hook=batched_powersgd matrix_approximation_rank=2 start_powerSGD_iter=2
// RUN: %{compare}
// REDEFINE: %{hook} = hook=batched_powersgd start_powerSGD_iter=2 wrapper=bf16
// RUN: %{compare}

// Collectives in flight.
// REDEFINE: %{hook} = hook=fp16 overlap=true bucket_cap_mb=0
// RUN: %{compare}
// REDEFINE: %{hook} = hook=powersgd matrix_approximation_rank=2 start_powerSGD_iter=2 overlap=true bucket_cap_mb=0.003
// RUN: %{compare}

ddp.process_group @dp

// What is reduced, and integers that are only copied.
func.func @step(%a: tensor<20x31xf32>, %b: tensor<31xf32>,
                %c: tensor<31x2x3x3xf32>, %d: tensor<20x31xf32>,
                %e: tensor<f32>, %f: tensor<0x3xf32>, %labels: tensor<7xi32>)
    -> (tensor<20x31xf32>, tensor<31xf32>, tensor<31x2x3x3xf32>,
        tensor<20x31xf32>, tensor<f32>, tensor<0x3xf32>, tensor<7xi32>) {
  %0 = ddp.all_reduce mean %a on @dp : tensor<20x31xf32>
  %1 = ddp.all_reduce mean %b on @dp : tensor<31xf32>
  %2 = ddp.all_reduce mean %c on @dp : tensor<31x2x3x3xf32>
  %3 = ddp.all_reduce mean %d on @dp : tensor<20x31xf32>
  %4 = ddp.all_reduce mean %e on @dp : tensor<f32>
  %5 = ddp.all_reduce mean %f on @dp : tensor<0x3xf32>
  return %0, %1, %2, %3, %4, %5, %labels : tensor<20x31xf32>, tensor<31xf32>,
      tensor<31x2x3x3xf32>, tensor<20x31xf32>, tensor<f32>, tensor<0x3xf32>,
      tensor<7xi32>
}
