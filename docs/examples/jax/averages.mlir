// Two ranks have trained by themselves; their parameters and running statistics are
// averaged. The text is StableHLO as JAX writes it.
module attributes {mhlo.num_partitions = 2 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%w: tensor<16x8xf32>, %mean: tensor<8xf32>)
      -> (tensor<16x8xf32> {jax.result_info = "result['params']['w']"},
          tensor<8xf32> {jax.result_info = "result['batch_stats']['mean']"}) {
    %new_w = "stablehlo.all_reduce"(%w) <{channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>, use_global_device_ids}> ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %s = "stablehlo.add"(%a, %b) : (tensor<f32>, tensor<f32>) -> tensor<f32>
      "stablehlo.return"(%s) : (tensor<f32>) -> ()
    }) : (tensor<16x8xf32>) -> tensor<16x8xf32>
    %new_mean = "stablehlo.all_reduce"(%mean) <{channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>, use_global_device_ids}> ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %s = "stablehlo.add"(%a, %b) : (tensor<f32>, tensor<f32>) -> tensor<f32>
      "stablehlo.return"(%s) : (tensor<f32>) -> ()
    }) : (tensor<8xf32>) -> tensor<8xf32>
    return %new_w, %new_mean : tensor<16x8xf32>, tensor<8xf32>
  }
}
