// RUN: ddphook-opt %s --ddp-import-stablehlo | FileCheck %s

// A mean over the batches of all ranks is a part of the model: what the gradient is
// computed from. The gradient moves the parameter.
// CHECK-LABEL: func.func @normalized(
// CHECK: %[[MEAN:.+]] = ddp.all_reduce sum %{{.+}} on @replicas {ddp.hook = #ddp.allreduce, ddp.name = "running"} : tensor<3xf32>
// CHECK: ddp.all_reduce sum %{{.+}} on @replicas {ddp.name = "w"} : tensor<3xf32>
func.func @normalized(%w: tensor<3xf32>, %running: tensor<3xf32>, %x: tensor<4x3xf32>)
    -> (tensor<3xf32> {jax.result_info = "result['w']"},
        tensor<3xf32> {jax.result_info = "result['running']"}) {
  %zero = "stablehlo.constant"() <{value = dense<0.0> : tensor<f32>}> : () -> tensor<f32>
  %mine = "stablehlo.reduce"(%x, %zero) <{dimensions = array<i64: 0>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %s = "stablehlo.add"(%a, %b) : (tensor<f32>, tensor<f32>) -> tensor<f32>
    "stablehlo.return"(%s) : (tensor<f32>) -> ()
  }) : (tensor<4x3xf32>, tensor<f32>) -> tensor<3xf32>
  %mean = "stablehlo.all_reduce"(%mine) <{replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %s = "stablehlo.add"(%a, %b) : (tensor<f32>, tensor<f32>) -> tensor<f32>
    "stablehlo.return"(%s) : (tensor<f32>) -> ()
  }) : (tensor<3xf32>) -> tensor<3xf32>
  %new_running = "stablehlo.add"(%running, %mean) : (tensor<3xf32>, tensor<3xf32>) -> tensor<3xf32>
  %wide = "stablehlo.broadcast_in_dim"(%mean) <{broadcast_dimensions = array<i64: 1>}> : (tensor<3xf32>) -> tensor<4x3xf32>
  %y = "stablehlo.subtract"(%x, %wide) : (tensor<4x3xf32>, tensor<4x3xf32>) -> tensor<4x3xf32>
  %g = "stablehlo.reduce"(%y, %zero) <{dimensions = array<i64: 0>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %s = "stablehlo.add"(%a, %b) : (tensor<f32>, tensor<f32>) -> tensor<f32>
    "stablehlo.return"(%s) : (tensor<f32>) -> ()
  }) : (tensor<4x3xf32>, tensor<f32>) -> tensor<3xf32>
  %grad = "stablehlo.all_reduce"(%g) <{replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %s = "stablehlo.add"(%a, %b) : (tensor<f32>, tensor<f32>) -> tensor<f32>
    "stablehlo.return"(%s) : (tensor<f32>) -> ()
  }) : (tensor<3xf32>) -> tensor<3xf32>
  %new_w = "stablehlo.subtract"(%w, %grad) : (tensor<3xf32>, tensor<3xf32>) -> tensor<3xf32>
  return %new_w, %new_running : tensor<3xf32>, tensor<3xf32>
}

// Two steps in one program: the first one's gradient goes into the second one's, by
// way of a parameter and of a function that several use; so it does in a norm.
// CHECK-LABEL: func.func @two_steps(
// CHECK: ddp.all_reduce sum %{{.+}} on @replicas {ddp.name = "b"} : tensor<3xf32>
// CHECK: ddp.all_reduce sum %{{.+}} on @replicas {ddp.name = "a"} : tensor<3xf32>
// CHECK: ddp.all_reduce sum %{{.+}} on @replicas {ddp.name = "a#1"} : tensor<3xf32>
func.func @two_steps(%a: tensor<3xf32>, %b: tensor<3xf32>, %x: tensor<3xf32>)
    -> (tensor<3xf32> {jax.result_info = "result['a']"},
        tensor<3xf32> {jax.result_info = "result['b']"}) {
  %zero = "stablehlo.constant"() <{value = dense<0.0> : tensor<f32>}> : () -> tensor<f32>
  %0 = "stablehlo.multiply"(%b, %x) : (tensor<3xf32>, tensor<3xf32>) -> tensor<3xf32>
  %1 = "stablehlo.all_reduce"(%0) <{replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>}> ({
  ^bb0(%c: tensor<f32>, %d: tensor<f32>):
    %s = "stablehlo.add"(%c, %d) : (tensor<f32>, tensor<f32>) -> tensor<f32>
    "stablehlo.return"(%s) : (tensor<f32>) -> ()
  }) : (tensor<3xf32>) -> tensor<3xf32>
  %new_b = func.call @move(%b, %1) : (tensor<3xf32>, tensor<3xf32>) -> tensor<3xf32>
  %2 = "stablehlo.multiply"(%a, %x) : (tensor<3xf32>, tensor<3xf32>) -> tensor<3xf32>
  %3 = "stablehlo.all_reduce"(%2) <{replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>}> ({
  ^bb0(%c: tensor<f32>, %d: tensor<f32>):
    %s = "stablehlo.add"(%c, %d) : (tensor<f32>, tensor<f32>) -> tensor<f32>
    "stablehlo.return"(%s) : (tensor<f32>) -> ()
  }) : (tensor<3xf32>) -> tensor<3xf32>
  %norm = "stablehlo.reduce"(%3, %zero) <{dimensions = array<i64: 0>}> ({
  ^bb0(%c: tensor<f32>, %d: tensor<f32>):
    %s = "stablehlo.add"(%c, %d) : (tensor<f32>, tensor<f32>) -> tensor<f32>
    "stablehlo.return"(%s) : (tensor<f32>) -> ()
  }) : (tensor<3xf32>, tensor<f32>) -> tensor<f32>
  %factor = "stablehlo.broadcast_in_dim"(%norm) <{broadcast_dimensions = array<i64>}> : (tensor<f32>) -> tensor<3xf32>
  %once = func.call @move(%a, %3) : (tensor<3xf32>, tensor<3xf32>) -> tensor<3xf32>
  %4 = "stablehlo.multiply"(%once, %factor) : (tensor<3xf32>, tensor<3xf32>) -> tensor<3xf32>
  %5 = "stablehlo.all_reduce"(%4) <{replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>}> ({
  ^bb0(%c: tensor<f32>, %d: tensor<f32>):
    %s = "stablehlo.add"(%c, %d) : (tensor<f32>, tensor<f32>) -> tensor<f32>
    "stablehlo.return"(%s) : (tensor<f32>) -> ()
  }) : (tensor<3xf32>) -> tensor<3xf32>
  %new_a = func.call @move(%once, %5) : (tensor<3xf32>, tensor<3xf32>) -> tensor<3xf32>
  return %new_a, %new_b : tensor<3xf32>, tensor<3xf32>
}
func.func private @move(%p: tensor<3xf32>, %g: tensor<3xf32>) -> tensor<3xf32> {
  %0 = "stablehlo.subtract"(%p, %g) : (tensor<3xf32>, tensor<3xf32>) -> tensor<3xf32>
  return %0 : tensor<3xf32>
}

// A layer whose scale and shift are frozen: they are multiplied by the statistic and
// added to it as parameters are, but no step moves them.
// CHECK-LABEL: func.func @frozen(
// CHECK: ddp.all_reduce sum %{{.+}} on @replicas {ddp.hook = #ddp.allreduce, ddp.name = "frozen.w"} : tensor<3xf32>
// CHECK: ddp.all_reduce sum %{{.+}} on @replicas {ddp.name = "frozen.w#1"} : tensor<3xf32>
func.func @frozen(%w: tensor<3xf32>, %scale: tensor<3xf32>, %shift: tensor<3xf32>, %x: tensor<3xf32>)
    -> (tensor<3xf32> {jax.result_info = "result['frozen']['w']"},
        tensor<3xf32> {jax.result_info = "result['scale']"}) {
  %mean = "stablehlo.all_reduce"(%x) <{replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>}> ({
  ^bb0(%c: tensor<f32>, %d: tensor<f32>):
    %s = "stablehlo.add"(%c, %d) : (tensor<f32>, tensor<f32>) -> tensor<f32>
    "stablehlo.return"(%s) : (tensor<f32>) -> ()
  }) : (tensor<3xf32>) -> tensor<3xf32>
  %scaled = "stablehlo.multiply"(%mean, %scale) : (tensor<3xf32>, tensor<3xf32>) -> tensor<3xf32>
  %moved = "stablehlo.subtract"(%shift, %scaled) : (tensor<3xf32>, tensor<3xf32>) -> tensor<3xf32>
  %g = "stablehlo.multiply"(%moved, %w) : (tensor<3xf32>, tensor<3xf32>) -> tensor<3xf32>
  %grad = "stablehlo.all_reduce"(%g) <{replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>}> ({
  ^bb0(%c: tensor<f32>, %d: tensor<f32>):
    %s = "stablehlo.add"(%c, %d) : (tensor<f32>, tensor<f32>) -> tensor<f32>
    "stablehlo.return"(%s) : (tensor<f32>) -> ()
  }) : (tensor<3xf32>) -> tensor<3xf32>
  %new_w = "stablehlo.subtract"(%w, %grad) : (tensor<3xf32>, tensor<3xf32>) -> tensor<3xf32>
  return %new_w, %scale : tensor<3xf32>, tensor<3xf32>
}

// Two steps, whose gradients are reduced as one array.
// CHECK-LABEL: func.func @flat(
// CHECK-COUNT-2: ddp.all_reduce sum %{{.+}} on @replicas : tensor<6xf32>
func.func @flat(%a: tensor<3xf32>, %b: tensor<3xf32>, %x: tensor<3xf32>) -> (tensor<3xf32>, tensor<3xf32>) {
  %ga0 = "stablehlo.multiply"(%a, %x) : (tensor<3xf32>, tensor<3xf32>) -> tensor<3xf32>
  %gb0 = "stablehlo.multiply"(%b, %x) : (tensor<3xf32>, tensor<3xf32>) -> tensor<3xf32>
  %all0 = "stablehlo.concatenate"(%ga0, %gb0) <{dimension = 0 : i64}> : (tensor<3xf32>, tensor<3xf32>) -> tensor<6xf32>
  %sum0 = "stablehlo.all_reduce"(%all0) <{replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>}> ({
  ^bb0(%c: tensor<f32>, %d: tensor<f32>):
    %s = "stablehlo.add"(%c, %d) : (tensor<f32>, tensor<f32>) -> tensor<f32>
    "stablehlo.return"(%s) : (tensor<f32>) -> ()
  }) : (tensor<6xf32>) -> tensor<6xf32>
  %sa0 = "stablehlo.slice"(%sum0) <{start_indices = array<i64: 0>, limit_indices = array<i64: 3>, strides = array<i64: 1>}> : (tensor<6xf32>) -> tensor<3xf32>
  %new_a0 = "stablehlo.subtract"(%a, %sa0) : (tensor<3xf32>, tensor<3xf32>) -> tensor<3xf32>
  %sb0 = "stablehlo.slice"(%sum0) <{start_indices = array<i64: 3>, limit_indices = array<i64: 6>, strides = array<i64: 1>}> : (tensor<6xf32>) -> tensor<3xf32>
  %new_b0 = "stablehlo.subtract"(%b, %sb0) : (tensor<3xf32>, tensor<3xf32>) -> tensor<3xf32>
  %ga1 = "stablehlo.multiply"(%new_a0, %x) : (tensor<3xf32>, tensor<3xf32>) -> tensor<3xf32>
  %gb1 = "stablehlo.multiply"(%new_b0, %x) : (tensor<3xf32>, tensor<3xf32>) -> tensor<3xf32>
  %all1 = "stablehlo.concatenate"(%ga1, %gb1) <{dimension = 0 : i64}> : (tensor<3xf32>, tensor<3xf32>) -> tensor<6xf32>
  %sum1 = "stablehlo.all_reduce"(%all1) <{replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>}> ({
  ^bb0(%c: tensor<f32>, %d: tensor<f32>):
    %s = "stablehlo.add"(%c, %d) : (tensor<f32>, tensor<f32>) -> tensor<f32>
    "stablehlo.return"(%s) : (tensor<f32>) -> ()
  }) : (tensor<6xf32>) -> tensor<6xf32>
  %sa1 = "stablehlo.slice"(%sum1) <{start_indices = array<i64: 0>, limit_indices = array<i64: 3>, strides = array<i64: 1>}> : (tensor<6xf32>) -> tensor<3xf32>
  %new_a1 = "stablehlo.subtract"(%new_a0, %sa1) : (tensor<3xf32>, tensor<3xf32>) -> tensor<3xf32>
  %sb1 = "stablehlo.slice"(%sum1) <{start_indices = array<i64: 3>, limit_indices = array<i64: 6>, strides = array<i64: 1>}> : (tensor<6xf32>) -> tensor<3xf32>
  %new_b1 = "stablehlo.subtract"(%new_b0, %sb1) : (tensor<3xf32>, tensor<3xf32>) -> tensor<3xf32>
  return %new_a1, %new_b1 : tensor<3xf32>, tensor<3xf32>
}
