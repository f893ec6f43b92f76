// Programs in the form in which JAX prints them.

// RUN: ddphook-opt %s -split-input-file --ddp-import-stablehlo --remarks-filter='ddp-.*' 2>%t.remarks | FileCheck %s
// RUN: FileCheck %s --check-prefix=REMARKS --input-file=%t.remarks

// REMARKS: [Passed] Reduction | Category:ddp-import-stablehlo | Remark=dp, exact=false, mean=true
// REMARKS: [Passed] Reduction | Category:ddp-import-stablehlo | Remark=dp, exact=true, mean=false

// shard_map with check_vma=False and pmean: each rank has a part of the batch, and
// all of the parameters.

// CHECK: ddp.process_group @dp size 2
// CHECK-NOT: sdy
// CHECK-LABEL: func.func public @main(
// CHECK-SAME: %[[W:.+]]: tensor<4xf32> {ddp.replicated}, %[[X:.+]]: tensor<4x4xf32>)
// CHECK-SAME: -> (tensor<4xf32> {jax.result_info = "result[0]['dense']['w']"}, tensor<f32> {jax.result_info = "result[1]"})
// CHECK-NEXT: %[[LOSS:.+]] = "stablehlo.dot_general"(%[[X]], %[[W]])
// CHECK-NEXT: %[[G:.+]] = ddp.all_reduce mean %[[W]] on @dp {ddp.name = "dense.w"} : tensor<4xf32>
// CHECK-NEXT: %[[L:.+]] = ddp.all_reduce sum %{{.+}} on @dp {ddp.hook = #ddp.allreduce, ddp.name = "result1"} : tensor<f32>
// CHECK-NEXT: %[[NEW:.+]] = "stablehlo.subtract"(%[[W]], %[[G]])
// CHECK-NEXT: return %[[NEW]], %[[L]]
"builtin.module"() <{sym_name = "jit_step"}> ({
  "sdy.mesh"() <{mesh = #sdy.mesh<["dp"=2]>, sym_name = "mesh"}> {stablehlo.mesh = {axes = [{name = "dp", size = 2 : i64}]}} : () -> ()
  "func.func"() <{arg_attrs = [{sdy.sharding = #sdy.sharding<@mesh, [{}]>}, {sdy.sharding = #sdy.sharding<@mesh, [{"dp"}, {}]>}], function_type = (tensor<4xf32>, tensor<8x4xf32>) -> (tensor<4xf32>, tensor<f32>), res_attrs = [{jax.result_info = "result[0]['dense']['w']"}, {jax.result_info = "result[1]"}], sym_name = "main", sym_visibility = "public"}> ({
  ^bb0(%arg0: tensor<4xf32>, %arg1: tensor<8x4xf32>):
    %0:2 = "sdy.manual_computation"(%arg0, %arg1) <{in_shardings = #sdy.sharding_per_value<[<@mesh, [{}]>, <@mesh, [{"dp"}, {}]>]>, manual_axes = #sdy<manual_axes{"dp"}>, out_shardings = #sdy.sharding_per_value<[<@mesh, [{}]>, <@mesh, []>]>}> ({
    ^bb0(%arg2: tensor<4xf32>, %arg3: tensor<4x4xf32>):
      %1 = "stablehlo.dot_general"(%arg3, %arg2) : (tensor<4x4xf32>, tensor<4xf32>) -> tensor<f32>
      %2 = "stablehlo.all_reduce"(%arg2) <{channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>, use_global_device_ids}> ({
      ^bb0(%arg4: tensor<f32>, %arg5: tensor<f32>):
        %7 = "stablehlo.add"(%arg4, %arg5) : (tensor<f32>, tensor<f32>) -> tensor<f32>
        "stablehlo.return"(%7) : (tensor<f32>) -> ()
      }) : (tensor<4xf32>) -> tensor<4xf32>
      %3 = "stablehlo.constant"() <{value = dense<2.000000e+00> : tensor<f32>}> : () -> tensor<f32>
      %4 = "stablehlo.broadcast_in_dim"(%3) <{broadcast_dimensions = array<i64>}> : (tensor<f32>) -> tensor<4xf32>
      %5 = "stablehlo.divide"(%2, %4) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
      %6 = "stablehlo.all_reduce"(%1) <{channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>, use_global_device_ids}> ({
      ^bb0(%arg4: tensor<f32>, %arg5: tensor<f32>):
        %9 = "stablehlo.add"(%arg5, %arg4) : (tensor<f32>, tensor<f32>) -> tensor<f32>
        "stablehlo.return"(%9) : (tensor<f32>) -> ()
      }) : (tensor<f32>) -> tensor<f32>
      %8 = "stablehlo.subtract"(%arg2, %5) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
      "sdy.return"(%8, %6) : (tensor<4xf32>, tensor<f32>) -> ()
    }) : (tensor<4xf32>, tensor<8x4xf32>) -> (tensor<4xf32>, tensor<f32>)
    "func.return"(%0#0, %0#1) : (tensor<4xf32>, tensor<f32>) -> ()
  }) : () -> ()
}) {mhlo.num_partitions = 2 : i32, mhlo.num_replicas = 1 : i32} : () -> ()

// -----

// Two shard_maps, what one of them splits goes into the other; between them, and in a
// callee, every rank computes what is whole. A computation that a loop repeats.

"sdy.mesh"() <{mesh = #sdy.mesh<["dp"=2, "mp"=1]>, sym_name = "mesh"}> : () -> ()

// CHECK-LABEL: func.func @twice(
// CHECK-SAME: %[[X:.+]]: tensor<2xf32>, %[[Y:.+]]: tensor<4xf32> {ddp.replicated}, %[[Z:.+]]: tensor<4xf32>) -> (tensor<2xf32>, tensor<4xf32>)
// CHECK-NEXT: %[[A:.+]] = "stablehlo.negate"(%[[X]]) : (tensor<2xf32>) -> tensor<2xf32>
// CHECK-NEXT: %[[B:.+]] = "stablehlo.add"(%[[Y]], %[[Z]]) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
// CHECK-NEXT: %[[C:.+]] = "stablehlo.while"(%[[B]])
// CHECK: }, {
// CHECK-NEXT: ^bb0(%[[D:.+]]: tensor<4xf32>):
// CHECK-NEXT: %[[E:.+]] = "stablehlo.abs"(%[[D]])
// CHECK-NEXT: "stablehlo.return"(%[[E]])
// CHECK: %[[F:.+]] = "stablehlo.dot"(%[[A]], %[[C]]) : (tensor<2xf32>, tensor<4xf32>) -> tensor<2xf32>
// CHECK-NEXT: return %[[F]], %[[C]]
func.func @twice(%x: tensor<4xf32>, %y: tensor<4xf32>, %z: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
  %0 = func.call @first(%x) : (tensor<4xf32>) -> tensor<4xf32>
  %1 = "stablehlo.add"(%y, %z) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %2 = "stablehlo.while"(%1) ({
  ^bb0(%arg0: tensor<4xf32>):
    %3 = "stablehlo.constant"() <{value = dense<false> : tensor<i1>}> : () -> tensor<i1>
    "stablehlo.return"(%3) : (tensor<i1>) -> ()
  }, {
  ^bb0(%arg0: tensor<4xf32>):
    %3 = "sdy.manual_computation"(%arg0) <{in_shardings = #sdy.sharding_per_value<[<@mesh, [{}]>]>, manual_axes = #sdy<manual_axes{"dp"}>, out_shardings = #sdy.sharding_per_value<[<@mesh, [{"mp"}]>]>}> ({
    ^bb0(%arg1: tensor<4xf32>):
      %4 = "stablehlo.abs"(%arg1) : (tensor<4xf32>) -> tensor<4xf32>
      "sdy.return"(%4) : (tensor<4xf32>) -> ()
    }) : (tensor<4xf32>) -> tensor<4xf32>
    "stablehlo.return"(%3) : (tensor<4xf32>) -> ()
  }) : (tensor<4xf32>) -> tensor<4xf32>
  %5:2 = "sdy.manual_computation"(%0, %2, %y) <{in_shardings = #sdy.sharding_per_value<[<@mesh, [{"dp", "mp"}]>, <@mesh, [{?}p1]>, <mesh<["dp"=2, "mp"=1]>, [{}], replicated={"dp"}>]>, manual_axes = #sdy<manual_axes{"dp", "mp"}>, out_shardings = #sdy.sharding_per_value<[<@mesh, [{"dp"}]>, <@mesh, [{}]>]>}> ({
  ^bb0(%arg0: tensor<2xf32>, %arg1: tensor<4xf32>, %arg2: tensor<4xf32>):
    %6 = "stablehlo.dot"(%arg0, %arg1) : (tensor<2xf32>, tensor<4xf32>) -> tensor<2xf32>
    "sdy.return"(%6, %arg1) : (tensor<2xf32>, tensor<4xf32>) -> ()
  }) : (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>)
  return %5#0, %5#1 : tensor<4xf32>, tensor<4xf32>
}
func.func private @first(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = "sdy.manual_computation"(%x) <{in_shardings = #sdy.sharding_per_value<[<@mesh, [{"dp", "mp"}]>]>, manual_axes = #sdy<manual_axes{"dp"}>, out_shardings = #sdy.sharding_per_value<[<@mesh, [{"dp", "mp"}]>]>}> ({
  ^bb0(%arg0: tensor<2xf32>):
    %1 = "stablehlo.negate"(%arg0) : (tensor<2xf32>) -> tensor<2xf32>
    "sdy.return"(%1) : (tensor<2xf32>) -> ()
  }) : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}
// CHECK-NOT: @first

// -----

// An axis whose name is no text of ours, and one without a name.

"sdy.mesh"() <{mesh = #sdy.mesh<["\C3\A9\22\\\n"=2, ""=2]>, sym_name = "mesh"}> : () -> ()

// CHECK: ddp.process_group @replicas size 2 ranks {{\[}}[0, 1], [2, 3]]
// CHECK-NEXT: ddp.process_group @_____ size 2 ranks {{\[}}[0, 2], [1, 3]]
// CHECK-LABEL: func.func @odd_names(
// CHECK-SAME: %[[A:.+]]: tensor<2xf32>)
func.func @odd_names(%a: tensor<4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"\c3\A9\"\5C\0a"}]>}) {
  "sdy.manual_computation"(%a) <{in_shardings = #sdy.sharding_per_value<[<@mesh, [{"\C3\A9\22\\\n"}]>]>, manual_axes = #sdy<manual_axes{"", "\C3\A9\22\\\n"}>, out_shardings = #sdy.sharding_per_value<[]>}> ({
  ^bb0(%arg0: tensor<2xf32>):
    // CHECK-NEXT: ddp.all_reduce sum %[[A]] on @replicas
    %0 = "stablehlo.all_reduce"(%arg0) <{replica_groups = dense<[[0, 1], [2, 3]]> : tensor<2x2xi64>, use_global_device_ids}> ({
    ^bb0(%x: tensor<f32>, %y: tensor<f32>):
      %s = "stablehlo.add"(%x, %y) : (tensor<f32>, tensor<f32>) -> tensor<f32>
      "stablehlo.return"(%s) : (tensor<f32>) -> ()
    }) : (tensor<2xf32>) -> tensor<2xf32>
    // CHECK-NEXT: ddp.all_reduce sum %[[A]] on @_____
    %1 = "stablehlo.all_reduce"(%arg0) <{replica_groups = dense<[[0, 2], [1, 3]]> : tensor<2x2xi64>, use_global_device_ids}> ({
    ^bb0(%x: tensor<f32>, %y: tensor<f32>):
      %s = "stablehlo.add"(%x, %y) : (tensor<f32>, tensor<f32>) -> tensor<f32>
      "stablehlo.return"(%s) : (tensor<f32>) -> ()
    }) : (tensor<2xf32>) -> tensor<2xf32>
    "sdy.return"() : () -> ()
  }) : (tensor<4xf32>) -> ()
  return
}

// -----

// A function's shardings may be open, and axes of one device split nothing.

"sdy.mesh"() <{mesh = #sdy.mesh<["dp"=2, "one"=1]>, sym_name = "mesh"}> : () -> ()

// CHECK-LABEL: func.func @signature(
// CHECK-SAME: %[[A:.+]]: tensor<2xf32>, %[[B:.+]]: tensor<2xf32>) -> (tensor<2xf32>, tensor<2xf32>)
// CHECK-NEXT: return %[[A]], %[[B]]
func.func @signature(%a: tensor<4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{?}]>}, %b: tensor<4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"dp", ?}]>}) -> (tensor<4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"one", "dp"}]>}, tensor<4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{?}]>}) {
  %0:2 = "sdy.manual_computation"(%a, %b) <{in_shardings = #sdy.sharding_per_value<[<@mesh, [{"dp"}]>, <@mesh, [{"dp"}]>]>, manual_axes = #sdy<manual_axes{"dp", "one"}>, out_shardings = #sdy.sharding_per_value<[<@mesh, [{"dp"}]>, <@mesh, [{"dp", "one"}]>]>}> ({
  ^bb0(%arg0: tensor<2xf32>, %arg1: tensor<2xf32>):
    "sdy.return"(%arg0, %arg1) : (tensor<2xf32>, tensor<2xf32>) -> ()
  }) : (tensor<4xf32>, tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>)
  return %0#0, %0#1 : tensor<4xf32>, tensor<4xf32>
}

// -----

// Groups: of a mesh's axes, in any order, and of no axis.

module attributes {mhlo.num_partitions = 4 : i32, mhlo.num_replicas = 1 : i32} {
  "sdy.mesh"() <{mesh = #sdy.mesh<["dp"=2, "m-p"=2]>, sym_name = "mesh"}> : () -> ()
  "sdy.mesh"() <{mesh = #sdy.mesh<["a"=2, "b"=2], device_ids=[0, 1, 3, 2]>, sym_name = "other mesh"}> : () -> ()
  // CHECK: ddp.process_group @dp_0 size 2 ranks {{\[}}[0, 2], [1, 3]]
  // CHECK-NEXT: ddp.process_group @m_p size 2 ranks {{\[}}[0, 1], [2, 3]]
  // CHECK-NEXT: ddp.process_group @dp_m_p size 4
  // CHECK-NEXT: ddp.process_group @replicas size 2 ranks {{\[}}[0, 3], [1, 2]]
  // CHECK-NEXT: func.func private @dp()
  func.func private @dp()
  // CHECK-LABEL: func.func @groups(
  func.func @groups(%a: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) {
    // CHECK-NEXT: on @dp_0 :
    %0 = "stablehlo.all_reduce"(%a) <{replica_groups = dense<[[0, 2], [1, 3]]> : tensor<2x2xi64>, use_global_device_ids}> ({
    ^bb0(%x: tensor<f32>, %y: tensor<f32>):
      %s = "stablehlo.add"(%x, %y) : (tensor<f32>, tensor<f32>) -> tensor<f32>
      "stablehlo.return"(%s) : (tensor<f32>) -> ()
    }) : (tensor<4xf32>) -> tensor<4xf32>
    // CHECK-NEXT: on @m_p :
    %1 = "stablehlo.all_reduce"(%a) <{replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [#stablehlo.axis_ref<name = "m-p">]>, use_global_device_ids}> ({
    ^bb0(%x: tensor<f32>, %y: tensor<f32>):
      %s = "stablehlo.add"(%x, %y) : (tensor<f32>, tensor<f32>) -> tensor<f32>
      "stablehlo.return"(%s) : (tensor<f32>) -> ()
    }) : (tensor<4xf32>) -> tensor<4xf32>
    // CHECK-NEXT: on @dp_m_p :
    %2 = "stablehlo.all_reduce"(%a) <{replica_groups = dense<[[3, 0, 2, 1]]> : tensor<1x4xi64>, use_global_device_ids}> ({
    ^bb0(%x: tensor<f32>, %y: tensor<f32>):
      %s = "stablehlo.add"(%x, %y) : (tensor<f32>, tensor<f32>) -> tensor<f32>
      "stablehlo.return"(%s) : (tensor<f32>) -> ()
    }) : (tensor<4xf32>) -> tensor<4xf32>
    // CHECK-NEXT: on @replicas :
    %3 = "stablehlo.all_reduce"(%a) <{replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @"other mesh", axes = [#stablehlo.axis_ref<name = "a">]>, use_global_device_ids}> ({
    ^bb0(%x: tensor<f32>, %y: tensor<f32>):
      %s = "stablehlo.add"(%x, %y) : (tensor<f32>, tensor<f32>) -> tensor<f32>
      "stablehlo.return"(%s) : (tensor<f32>) -> ()
    }) : (tensor<4xf32>) -> tensor<4xf32>
    // CHECK-NEXT: on @replicas :
    %4 = "stablehlo.all_reduce"(%a) <{replica_groups = #stablehlo.replica_group_mesh_axes<mesh = #stablehlo.mesh<axes=[<name = "a", size = 2>, <name = "b", size = 2>], device_ids=dense<[0, 1, 3, 2]> : tensor<4xi64>>, axes = [#stablehlo.axis_ref<name = "a">]>, use_global_device_ids}> ({
    ^bb0(%x: tensor<f32>, %y: tensor<f32>):
      %s = "stablehlo.add"(%x, %y) : (tensor<f32>, tensor<f32>) -> tensor<f32>
      "stablehlo.return"(%s) : (tensor<f32>) -> ()
    }) : (tensor<4xf32>) -> tensor<4xf32>
    // CHECK-NEXT: on @dp_m_p :
    // CHECK-NEXT: on @dp_m_p :
    %5:2 = "stablehlo.all_reduce"(%a, %a) <{replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [#stablehlo.axis_ref<name = "m-p">, #stablehlo.axis_ref<name = "dp">]>, use_global_device_ids}> ({
    ^bb0(%x: tensor<f32>, %y: tensor<f32>):
      %s = "stablehlo.add"(%x, %y) : (tensor<f32>, tensor<f32>) -> tensor<f32>
      "stablehlo.return"(%s) : (tensor<f32>) -> ()
    }) : (tensor<4xf32>, tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>)
    // CHECK-NEXT: return
    return %0, %1, %2, %3, %4, %5#0, %5#1 : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
  }
}

// -----

// Replicas in place of partitions: all of them, where no group is given. Attributes
// of other dialects stay.

module attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 3 : i32} {
  // CHECK: ddp.process_group @replicas size 3{{$}}
  // CHECK: ddp.all_reduce sum %{{.+}} on @replicas {ddp.name = "x", mhlo.frontend_attributes = {a = "b"}} : tensor<4xf32>
  func.func @all(%a: tensor<4xf32>) -> (tensor<4xf32> {jax.result_info = "x"}) {
    %0 = "stablehlo.all_reduce"(%a) <{replica_groups = dense<> : tensor<0x0xi64>}> ({
    ^bb0(%x: tensor<f32>, %y: tensor<f32>):
      %s = "stablehlo.add"(%x, %y) : (tensor<f32>, tensor<f32>) -> tensor<f32>
      "stablehlo.return"(%s) : (tensor<f32>) -> ()
    }) {mhlo.frontend_attributes = {a = "b"}} : (tensor<4xf32>) -> tensor<4xf32>
    return %0 : tensor<4xf32>
  }
}

// -----

// In loops, branches and callees; names go the same way.

// CHECK-LABEL: func.func @nested(
func.func @nested(%a: tensor<2x3xf32>, %n: tensor<i32>) -> (tensor<2x3xf32> {jax.result_info = "result.layers[0].w"}, tensor<2x3xf32> {jax.result_info = "result.layers[0].w"}, tensor<3x2xf32> {jax.result_info = "result[0]"}) {
  %0 = "stablehlo.while"(%a) ({
  ^bb0(%b: tensor<2x3xf32>):
    %3 = "stablehlo.constant"() <{value = dense<false> : tensor<i1>}> : () -> tensor<i1>
    "stablehlo.return"(%3) : (tensor<i1>) -> ()
  }, {
  ^bb0(%b: tensor<2x3xf32>):
    %3 = func.call @callee(%b) : (tensor<2x3xf32>) -> tensor<2x3xf32>
    "stablehlo.return"(%3) : (tensor<2x3xf32>) -> ()
  }) : (tensor<2x3xf32>) -> tensor<2x3xf32>
  %1 = "stablehlo.case"(%n) ({
    "stablehlo.return"(%a) : (tensor<2x3xf32>) -> ()
  }, {
    // CHECK: ddp.all_reduce sum %{{.+}} on @replicas {ddp.name = "layers.0.w"}
    %3 = "stablehlo.all_reduce"(%a) <{replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>}> ({
    ^bb0(%x: tensor<f32>, %y: tensor<f32>):
      %s = "stablehlo.add"(%x, %y) : (tensor<f32>, tensor<f32>) -> tensor<f32>
      "stablehlo.return"(%s) : (tensor<f32>) -> ()
    }) : (tensor<2x3xf32>) -> tensor<2x3xf32>
    "stablehlo.return"(%3) : (tensor<2x3xf32>) -> ()
  }) : (tensor<i32>) -> tensor<2x3xf32>
  // CHECK: ddp.all_reduce sum %{{.+}} on @replicas {ddp.name = "result0"}
  %2 = "stablehlo.all_reduce"(%a) <{replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>}> ({
  ^bb0(%x: tensor<f32>, %y: tensor<f32>):
    %s = "stablehlo.add"(%x, %y) : (tensor<f32>, tensor<f32>) -> tensor<f32>
    "stablehlo.return"(%s) : (tensor<f32>) -> ()
  }) : (tensor<2x3xf32>) -> tensor<2x3xf32>
  %4 = "stablehlo.transpose"(%2) <{permutation = array<i64: 1, 0>}> : (tensor<2x3xf32>) -> tensor<3x2xf32>
  return %0, %1, %4 : tensor<2x3xf32>, tensor<2x3xf32>, tensor<3x2xf32>
}
// CHECK-LABEL: func.func private @callee(
func.func private @callee(%a: tensor<2x3xf32>) -> tensor<2x3xf32> {
  // CHECK: ddp.all_reduce sum %{{.+}} on @replicas {ddp.name = "layers.0.w#1"}
  %0 = "stablehlo.all_reduce"(%a) <{replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>}> ({
  ^bb0(%x: tensor<f32>, %y: tensor<f32>):
    %s = "stablehlo.add"(%x, %y) : (tensor<f32>, tensor<f32>) -> tensor<f32>
    "stablehlo.return"(%s) : (tensor<f32>) -> ()
  }) : (tensor<2x3xf32>) -> tensor<2x3xf32>
  return %0 : tensor<2x3xf32>
}

// -----

// Attributes and operations that say of a tensor that each rank has all of it.

// CHECK-LABEL: func.func @constraint(%{{.+}}: tensor<4xf32>) -> tensor<4xf32> {
// CHECK-NEXT: return %arg0
"sdy.mesh"() <{mesh = #sdy.mesh<["dp"=2, "mp"=1]>, sym_name = "mesh"}> : () -> ()
func.func @constraint(%a: tensor<4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"mp", ?}]>}) -> (tensor<4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}]>}) {
  %0 = "sdy.sharding_constraint"(%a) <{sharding = #sdy.sharding<@mesh, [{"mp"}]>}> : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// -----

// A loss with statistics of all ranks, squared: its gradient adds up again, and is added up
// itself behind that.

// CHECK-LABEL: func.func @statistics(
// CHECK: %[[M:.+]] = ddp.all_reduce sum
// CHECK: %[[TWICE:.+]] = "stablehlo.add"(%[[M]], %[[M]])
// CHECK: %[[D:.+]] = ddp.all_reduce sum %[[TWICE]]
// CHECK: ddp.all_reduce sum
func.func @statistics(%h: tensor<4xf32>, %x: tensor<4xf32>) -> tensor<4xf32> {
  %m = "stablehlo.all_reduce"(%h) <{replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %s = "stablehlo.add"(%a, %b) : (tensor<f32>, tensor<f32>) -> tensor<f32>
    "stablehlo.return"(%s) : (tensor<f32>) -> ()
  }) : (tensor<4xf32>) -> tensor<4xf32>
  %twice = "stablehlo.add"(%m, %m) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %d = "stablehlo.all_reduce"(%twice) <{replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %s = "stablehlo.add"(%a, %b) : (tensor<f32>, tensor<f32>) -> tensor<f32>
    "stablehlo.return"(%s) : (tensor<f32>) -> ()
  }) : (tensor<4xf32>) -> tensor<4xf32>
  %g = "stablehlo.multiply"(%d, %x) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %sum = "stablehlo.all_reduce"(%g) <{replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %s = "stablehlo.add"(%a, %b) : (tensor<f32>, tensor<f32>) -> tensor<f32>
    "stablehlo.return"(%s) : (tensor<f32>) -> ()
  }) : (tensor<4xf32>) -> tensor<4xf32>
  return %sum : tensor<4xf32>
}
