// RUN: ddphook-opt %s --ddp-import-stablehlo -split-input-file | FileCheck %s

// Running statistics that each rank moves by itself, and all average: what is reduced is
// the old value with something added, and the result is the new one. A gradient with
// weight decay in it moves a parameter.
// CHECK-LABEL: func.func @running(
// CHECK: ddp.all_reduce mean %{{.+}} on @replicas {ddp.hook = #ddp.allreduce, ddp.name = "running"} : tensor<3xf32>
// CHECK: ddp.all_reduce sum %{{.+}} on @replicas {ddp.name = "w"} : tensor<3xf32>
func.func @running(%w: tensor<3xf32>, %running: tensor<3xf32>, %x: tensor<3xf32>)
    -> (tensor<3xf32> {jax.result_info = "result['w']"},
        tensor<3xf32> {jax.result_info = "result['running']"}) {
  %most = "stablehlo.constant"() <{value = dense<0.9> : tensor<3xf32>}> : () -> tensor<3xf32>
  %rest = "stablehlo.constant"() <{value = dense<0.1> : tensor<3xf32>}> : () -> tensor<3xf32>
  %two = "stablehlo.constant"() <{value = dense<2.0> : tensor<3xf32>}> : () -> tensor<3xf32>
  %0 = "stablehlo.multiply"(%most, %running) : (tensor<3xf32>, tensor<3xf32>) -> tensor<3xf32>
  %1 = "stablehlo.multiply"(%rest, %x) : (tensor<3xf32>, tensor<3xf32>) -> tensor<3xf32>
  %2 = "stablehlo.add"(%0, %1) : (tensor<3xf32>, tensor<3xf32>) -> tensor<3xf32>
  %3 = "stablehlo.all_reduce"(%2) <{replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>}> ({
  ^bb0(%c: tensor<f32>, %d: tensor<f32>):
    %s = "stablehlo.add"(%c, %d) : (tensor<f32>, tensor<f32>) -> tensor<f32>
    "stablehlo.return"(%s) : (tensor<f32>) -> ()
  }) : (tensor<3xf32>) -> tensor<3xf32>
  %4 = "stablehlo.divide"(%3, %two) : (tensor<3xf32>, tensor<3xf32>) -> tensor<3xf32>
  %5 = "stablehlo.multiply"(%rest, %w) : (tensor<3xf32>, tensor<3xf32>) -> tensor<3xf32>
  %6 = "stablehlo.add"(%5, %x) : (tensor<3xf32>, tensor<3xf32>) -> tensor<3xf32>
  %7 = "stablehlo.all_reduce"(%6) <{replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>}> ({
  ^bb0(%c: tensor<f32>, %d: tensor<f32>):
    %s = "stablehlo.add"(%c, %d) : (tensor<f32>, tensor<f32>) -> tensor<f32>
    "stablehlo.return"(%s) : (tensor<f32>) -> ()
  }) : (tensor<3xf32>) -> tensor<3xf32>
  %8 = "stablehlo.subtract"(%w, %7) : (tensor<3xf32>, tensor<3xf32>) -> tensor<3xf32>
  return %8, %4 : tensor<3xf32>, tensor<3xf32>
}

// -----

// A function that only returns gradients: one with weight decay looks like an average of
// a state, but nothing is moved, so that it is none.
// CHECK-LABEL: func.func @gradients(
// CHECK: ddp.all_reduce sum %{{.+}} on @replicas {ddp.name = "w"} : tensor<3xf32>
// CHECK: ddp.all_reduce sum %{{.+}} on @replicas {ddp.name = "b"} : tensor<3xf32>
func.func @gradients(%w: tensor<3xf32>, %b: tensor<3xf32>, %x: tensor<3xf32>)
    -> (tensor<3xf32> {jax.result_info = "result['w']"},
        tensor<3xf32> {jax.result_info = "result['b']"}) {
  %decay = "stablehlo.constant"() <{value = dense<0.1> : tensor<3xf32>}> : () -> tensor<3xf32>
  %0 = "stablehlo.multiply"(%decay, %w) : (tensor<3xf32>, tensor<3xf32>) -> tensor<3xf32>
  %1 = "stablehlo.add"(%0, %x) : (tensor<3xf32>, tensor<3xf32>) -> tensor<3xf32>
  %2 = "stablehlo.all_reduce"(%1) <{replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>}> ({
  ^bb0(%c: tensor<f32>, %d: tensor<f32>):
    %s = "stablehlo.add"(%c, %d) : (tensor<f32>, tensor<f32>) -> tensor<f32>
    "stablehlo.return"(%s) : (tensor<f32>) -> ()
  }) : (tensor<3xf32>) -> tensor<3xf32>
  %3 = "stablehlo.all_reduce"(%x) <{replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>}> ({
  ^bb0(%c: tensor<f32>, %d: tensor<f32>):
    %s = "stablehlo.add"(%c, %d) : (tensor<f32>, tensor<f32>) -> tensor<f32>
    "stablehlo.return"(%s) : (tensor<f32>) -> ()
  }) : (tensor<3xf32>) -> tensor<3xf32>
  return %2, %3 : tensor<3xf32>, tensor<3xf32>
}

// -----

// Momentum that is averaged, and then moves the parameter, is what is reduced of a
// gradient. So is a sum that is added to what the step keeps.
// CHECK-LABEL: func.func @momentum(
// CHECK: ddp.all_reduce sum %{{.+}} on @replicas {ddp.name = "w"} : tensor<3xf32>
// CHECK: ddp.all_reduce sum %{{.+}} on @replicas {ddp.name = "total"} : tensor<3xf32>
func.func @momentum(%w: tensor<3xf32>, %m: tensor<3xf32>, %total: tensor<3xf32>, %x: tensor<3xf32>)
    -> (tensor<3xf32> {jax.result_info = "result['w']"},
        tensor<3xf32> {jax.result_info = "result['m']"},
        tensor<3xf32> {jax.result_info = "result['total']"}) {
  %0 = "stablehlo.add"(%m, %x) : (tensor<3xf32>, tensor<3xf32>) -> tensor<3xf32>
  %1 = "stablehlo.all_reduce"(%0) <{replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>}> ({
  ^bb0(%c: tensor<f32>, %d: tensor<f32>):
    %s = "stablehlo.add"(%c, %d) : (tensor<f32>, tensor<f32>) -> tensor<f32>
    "stablehlo.return"(%s) : (tensor<f32>) -> ()
  }) : (tensor<3xf32>) -> tensor<3xf32>
  %2 = "stablehlo.subtract"(%w, %1) : (tensor<3xf32>, tensor<3xf32>) -> tensor<3xf32>
  %3 = "stablehlo.multiply"(%x, %w) : (tensor<3xf32>, tensor<3xf32>) -> tensor<3xf32>
  %4 = "stablehlo.all_reduce"(%3) <{replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>}> ({
  ^bb0(%c: tensor<f32>, %d: tensor<f32>):
    %s = "stablehlo.add"(%c, %d) : (tensor<f32>, tensor<f32>) -> tensor<f32>
    "stablehlo.return"(%s) : (tensor<f32>) -> ()
  }) : (tensor<3xf32>) -> tensor<3xf32>
  %5 = "stablehlo.add"(%total, %4) : (tensor<3xf32>, tensor<3xf32>) -> tensor<3xf32>
  return %2, %1, %5 : tensor<3xf32>, tensor<3xf32>, tensor<3xf32>
}

// -----

// With a rate that comes in, a choice in a function that others call as well, and a bound.
// A value that goes through the same function but reaches no parameter is a metric.
// CHECK-LABEL: func.func @chosen(
// CHECK: ddp.all_reduce sum %{{.+}} on @replicas {ddp.name = "w"} : tensor<3xf32>
// CHECK: ddp.all_reduce sum %{{.+}} on @replicas {ddp.hook = #ddp.allreduce, ddp.name = "running"} : tensor<3xf32>
// CHECK: ddp.all_reduce sum %{{.+}} on @replicas {ddp.hook = #ddp.allreduce, ddp.name = "other"} : tensor<3xf32>
func.func @chosen(%w: tensor<3xf32>, %running: tensor<3xf32>, %x: tensor<3xf32>, %rate: tensor<f32>, %is_first: tensor<i1>)
    -> (tensor<3xf32> {jax.result_info = "result['w']"},
        tensor<3xf32> {jax.result_info = "result['running']"},
        tensor<3xf32> {jax.result_info = "result['other']"}) {
  %g = "stablehlo.all_reduce"(%x) <{replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>}> ({
  ^bb0(%c: tensor<f32>, %d: tensor<f32>):
    %s = "stablehlo.add"(%c, %d) : (tensor<f32>, tensor<f32>) -> tensor<f32>
    "stablehlo.return"(%s) : (tensor<f32>) -> ()
  }) : (tensor<3xf32>) -> tensor<3xf32>
  %moved = "stablehlo.subtract"(%w, %g) : (tensor<3xf32>, tensor<3xf32>) -> tensor<3xf32>
  %rates = "stablehlo.broadcast_in_dim"(%rate) <{broadcast_dimensions = array<i64>}> : (tensor<f32>) -> tensor<3xf32>
  %0 = "stablehlo.multiply"(%rates, %running) : (tensor<3xf32>, tensor<3xf32>) -> tensor<3xf32>
  %1 = "stablehlo.add"(%0, %x) : (tensor<3xf32>, tensor<3xf32>) -> tensor<3xf32>
  %2 = func.call @choose(%is_first, %x, %1) : (tensor<i1>, tensor<3xf32>, tensor<3xf32>) -> tensor<3xf32>
  %least = "stablehlo.constant"() <{value = dense<0.001> : tensor<3xf32>}> : () -> tensor<3xf32>
  %3 = "stablehlo.maximum"(%2, %least) : (tensor<3xf32>, tensor<3xf32>) -> tensor<3xf32>
  %4 = "stablehlo.all_reduce"(%3) <{replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>}> ({
  ^bb0(%c: tensor<f32>, %d: tensor<f32>):
    %s = "stablehlo.add"(%c, %d) : (tensor<f32>, tensor<f32>) -> tensor<f32>
    "stablehlo.return"(%s) : (tensor<f32>) -> ()
  }) : (tensor<3xf32>) -> tensor<3xf32>
  %5 = func.call @choose(%is_first, %x, %least) : (tensor<i1>, tensor<3xf32>, tensor<3xf32>) -> tensor<3xf32>
  %6 = "stablehlo.all_reduce"(%5) <{replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>}> ({
  ^bb0(%c: tensor<f32>, %d: tensor<f32>):
    %s = "stablehlo.add"(%c, %d) : (tensor<f32>, tensor<f32>) -> tensor<f32>
    "stablehlo.return"(%s) : (tensor<f32>) -> ()
  }) : (tensor<3xf32>) -> tensor<3xf32>
  return %moved, %4, %6 : tensor<3xf32>, tensor<3xf32>, tensor<3xf32>
}
func.func private @choose(%c: tensor<i1>, %a: tensor<3xf32>, %b: tensor<3xf32>) -> tensor<3xf32> {
  %0 = "stablehlo.select"(%c, %a, %b) : (tensor<i1>, tensor<3xf32>, tensor<3xf32>) -> tensor<3xf32>
  return %0 : tensor<3xf32>
}
