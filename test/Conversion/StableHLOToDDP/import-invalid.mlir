// One program a reason. -verify-diagnostics also proves that nothing else is said.

// RUN: ddphook-opt %s -split-input-file -verify-diagnostics --ddp-import-stablehlo

func.func @f(%a: tensor<4xf32>) {
  // expected-error @+1 {{'stablehlo.all_reduce' op expected a sum, but got 'stablehlo.maximum'}}
  %0 = "stablehlo.all_reduce"(%a) <{replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>}> ({
  ^bb0(%x: tensor<f32>, %y: tensor<f32>):
    %s = "stablehlo.maximum"(%x, %y) : (tensor<f32>, tensor<f32>) -> tensor<f32>
    "stablehlo.return"(%s) : (tensor<f32>) -> ()
  }) : (tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

func.func @f(%a: tensor<4xi32>) {
  // expected-error-re @+1 {{'stablehlo.all_reduce' op expected statically shaped tensors of {{.+}}, but got 'tensor<4xi32>'}}
  %0 = "stablehlo.all_reduce"(%a) <{replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>}> ({
  ^bb0(%x: tensor<i32>, %y: tensor<i32>):
    %s = "stablehlo.add"(%x, %y) : (tensor<i32>, tensor<i32>) -> tensor<i32>
    "stablehlo.return"(%s) : (tensor<i32>) -> ()
  }) : (tensor<4xi32>) -> tensor<4xi32>
  return
}

// -----

func.func @f(%a: tensor<?xf32>) {
  // expected-error-re @+1 {{'stablehlo.all_reduce' op expected statically shaped tensors of {{.+}}, but got 'tensor<?xf32>'}}
  %0 = "stablehlo.all_reduce"(%a) <{replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>}> ({
  ^bb0(%x: tensor<f32>, %y: tensor<f32>):
    %s = "stablehlo.add"(%x, %y) : (tensor<f32>, tensor<f32>) -> tensor<f32>
    "stablehlo.return"(%s) : (tensor<f32>) -> ()
  }) : (tensor<?xf32>) -> tensor<?xf32>
  return
}

// -----

// The same number twice, and one that is something else before it is added.

func.func @f(%a: tensor<4xf32>) {
  // expected-error @+1 {{'stablehlo.all_reduce' op expected a sum, but got another computation on 'tensor<f32>'}}
  %0 = "stablehlo.all_reduce"(%a) <{replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>}> ({
  ^bb0(%x: tensor<f32>, %y: tensor<f32>):
    %s = "stablehlo.add"(%x, %x) : (tensor<f32>, tensor<f32>) -> tensor<f32>
    "stablehlo.return"(%s) : (tensor<f32>) -> ()
  }) : (tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

func.func @f(%a: tensor<4xf32>) {
  // expected-error @+1 {{'stablehlo.all_reduce' op expected a sum, but got another computation on 'tensor<f32>'}}
  %0 = "stablehlo.all_reduce"(%a) <{replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>}> ({
  ^bb0(%x: tensor<f32>, %y: tensor<f32>):
    %z = "stablehlo.negate"(%y) : (tensor<f32>) -> tensor<f32>
    %s = "stablehlo.add"(%x, %z) : (tensor<f32>, tensor<f32>) -> tensor<f32>
    "stablehlo.return"(%s) : (tensor<f32>) -> ()
  }) : (tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

func.func @f(%a: tensor<4xf32>) {
  // expected-error @+1 {{'stablehlo.all_reduce' op expected a sum, but got another computation on 'tensor<f32>'}}
  %0 = "stablehlo.all_reduce"(%a) <{replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>}> ({
  ^bb0(%x: tensor<f32>, %y: tensor<f32>):
    %s = "stablehlo.add"(%x, %y) : (tensor<f32>, tensor<f32>) -> tensor<f32>
    "stablehlo.return"(%x) : (tensor<f32>) -> ()
  }) : (tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

func.func @f(%a: tensor<4xf32>) {
  // expected-error @+1 {{'stablehlo.all_reduce' op expected a sum, but got another computation on 'tensor<f32>'}}
  %0 = "stablehlo.all_reduce"(%a) <{replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>}> ({
  }) : (tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

// The sum of other numbers.

func.func @f(%a: tensor<4xf32>) {
  // expected-error @+1 {{'stablehlo.all_reduce' op expected a sum, but got another computation on 'tensor<f32>'}}
  %0 = "stablehlo.all_reduce"(%a) <{replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>}> ({
  ^bb0(%x: tensor<f64>, %y: tensor<f64>):
    %s = "stablehlo.add"(%x, %y) : (tensor<f64>, tensor<f64>) -> tensor<f64>
    "stablehlo.return"(%s) : (tensor<f64>) -> ()
  }) : (tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

func.func @f(%a: tensor<4xf32>) {
  // expected-error @+1 {{'stablehlo.all_reduce' op expected operands, results of the same types, and one region}}
  %0 = "stablehlo.all_reduce"(%a) <{replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>}> ({
  ^bb0(%x: tensor<f32>, %y: tensor<f32>):
    %s = "stablehlo.add"(%x, %y) : (tensor<f32>, tensor<f32>) -> tensor<f32>
    "stablehlo.return"(%s) : (tensor<f32>) -> ()
  }) : (tensor<4xf32>) -> tensor<4xf64>
  return
}

// -----

func.func @f(%a: tensor<4xf32>) {
  // expected-error @+1 {{'stablehlo.all_reduce' op expected operands, results of the same types, and one region}}
  "stablehlo.all_reduce"() <{replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>}> ({
  ^bb0(%x: tensor<f32>, %y: tensor<f32>):
    %s = "stablehlo.add"(%x, %y) : (tensor<f32>, tensor<f32>) -> tensor<f32>
    "stablehlo.return"(%s) : (tensor<f32>) -> ()
  }) : () -> ()
  return
}

// -----

func.func @f(%a: tensor<4xf32>) {
  // expected-error @+1 {{'stablehlo.all_reduce' op expected operands, results of the same types, and one region}}
  %0 = "stablehlo.all_reduce"(%a) <{replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>}> : (tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

func.func @f(%a: tensor<4xf32>) {
  // expected-error @+1 {{'stablehlo.all_reduce' op expected no attribute 'precision'}}
  %0 = "stablehlo.all_reduce"(%a) <{replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>, precision = 1 : i32}> ({
  ^bb0(%x: tensor<f32>, %y: tensor<f32>):
    %s = "stablehlo.add"(%x, %y) : (tensor<f32>, tensor<f32>) -> tensor<f32>
    "stablehlo.return"(%s) : (tensor<f32>) -> ()
  }) : (tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

func.func @f(%a: tensor<4xf32>) {
  // expected-error @+1 {{'stablehlo.all_reduce' op expected replica_groups to be lists of ranks or axes of a mesh}}
  %0 = "stablehlo.all_reduce"(%a) <{use_global_device_ids}> ({
  ^bb0(%x: tensor<f32>, %y: tensor<f32>):
    %s = "stablehlo.add"(%x, %y) : (tensor<f32>, tensor<f32>) -> tensor<f32>
    "stablehlo.return"(%s) : (tensor<f32>) -> ()
  }) : (tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

func.func @f(%a: tensor<4xf32>) {
  // expected-error @+1 {{'stablehlo.all_reduce' op expected replica_groups to be lists of ranks or axes of a mesh}}
  %0 = "stablehlo.all_reduce"(%a) <{replica_groups = "all"}> ({
  ^bb0(%x: tensor<f32>, %y: tensor<f32>):
    %s = "stablehlo.add"(%x, %y) : (tensor<f32>, tensor<f32>) -> tensor<f32>
    "stablehlo.return"(%s) : (tensor<f32>) -> ()
  }) : (tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

// No ranks, in very many groups.

func.func @f(%a: tensor<4xf32>) {
  // expected-error @+1 {{'stablehlo.all_reduce' op expected replica_groups to be a table of at most 1048576 ranks}}
  %0 = "stablehlo.all_reduce"(%a) <{replica_groups = dense<> : tensor<4611686018427387904x0xi64>}> ({
  ^bb0(%x: tensor<f32>, %y: tensor<f32>):
    %s = "stablehlo.add"(%x, %y) : (tensor<f32>, tensor<f32>) -> tensor<f32>
    "stablehlo.return"(%s) : (tensor<f32>) -> ()
  }) : (tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

func.func @f(%a: tensor<4xf32>) {
  // expected-error @+1 {{'stablehlo.all_reduce' op expected replica_groups to be a table of at most 1048576 ranks}}
  %0 = "stablehlo.all_reduce"(%a) <{replica_groups = dense<[0, 1]> : tensor<2xi64>}> ({
  ^bb0(%x: tensor<f32>, %y: tensor<f32>):
    %s = "stablehlo.add"(%x, %y) : (tensor<f32>, tensor<f32>) -> tensor<f32>
    "stablehlo.return"(%s) : (tensor<f32>) -> ()
  }) : (tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

func.func @f(%a: tensor<4xf32>) {
  // expected-error @+1 {{'stablehlo.all_reduce' op expected replica_groups to be a table of at most 1048576 ranks}}
  %0 = "stablehlo.all_reduce"(%a) <{replica_groups = dense<0> : tensor<1x99999999xi64>}> ({
  ^bb0(%x: tensor<f32>, %y: tensor<f32>):
    %s = "stablehlo.add"(%x, %y) : (tensor<f32>, tensor<f32>) -> tensor<f32>
    "stablehlo.return"(%s) : (tensor<f32>) -> ()
  }) : (tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

func.func @f(%a: tensor<4xf32>) {
  // expected-error @+1 {{'stablehlo.all_reduce' op expected groups of equal size, but got dense<[[0, 1], [2, -1]]>}}
  %0 = "stablehlo.all_reduce"(%a) <{replica_groups = dense<[[0, 1], [2, -1]]> : tensor<2x2xi64>}> ({
  ^bb0(%x: tensor<f32>, %y: tensor<f32>):
    %s = "stablehlo.add"(%x, %y) : (tensor<f32>, tensor<f32>) -> tensor<f32>
    "stablehlo.return"(%s) : (tensor<f32>) -> ()
  }) : (tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

func.func @f(%a: tensor<4xf32>) {
  // expected-error @+1 {{'stablehlo.all_reduce' op expected replica_groups to have each of the program's ranks once, but got dense<[[0, 2]]>}}
  %0 = "stablehlo.all_reduce"(%a) <{replica_groups = dense<[[0, 2]]> : tensor<1x2xi64>}> ({
  ^bb0(%x: tensor<f32>, %y: tensor<f32>):
    %s = "stablehlo.add"(%x, %y) : (tensor<f32>, tensor<f32>) -> tensor<f32>
    "stablehlo.return"(%s) : (tensor<f32>) -> ()
  }) : (tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

func.func @f(%a: tensor<4xf32>) {
  // expected-error @+1 {{'stablehlo.all_reduce' op expected replica_groups to have each of the program's ranks once, but got dense<[[0, 1], [1, 0]]>}}
  %0 = "stablehlo.all_reduce"(%a) <{replica_groups = dense<[[0, 1], [1, 0]]> : tensor<2x2xi64>}> ({
  ^bb0(%x: tensor<f32>, %y: tensor<f32>):
    %s = "stablehlo.add"(%x, %y) : (tensor<f32>, tensor<f32>) -> tensor<f32>
    "stablehlo.return"(%s) : (tensor<f32>) -> ()
  }) : (tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

// All ranks, but nobody says how many.

func.func @f(%a: tensor<4xf32>) {
  // expected-error @+1 {{'stablehlo.all_reduce' op expected replica_groups to have each of the program's ranks once}}
  %0 = "stablehlo.all_reduce"(%a) <{replica_groups = dense<> : tensor<0x0xi64>}> ({
  ^bb0(%x: tensor<f32>, %y: tensor<f32>):
    %s = "stablehlo.add"(%x, %y) : (tensor<f32>, tensor<f32>) -> tensor<f32>
    "stablehlo.return"(%s) : (tensor<f32>) -> ()
  }) : (tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

module attributes {mhlo.num_partitions = 4 : i64, mhlo.num_replicas = 1 : i32} {
  func.func @f(%a: tensor<4xf32>) {
    // expected-error @+1 {{'stablehlo.all_reduce' op expected replica_groups to have each of the program's 4 ranks once}}
    %0 = "stablehlo.all_reduce"(%a) <{replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>, use_global_device_ids}> ({
    ^bb0(%x: tensor<f32>, %y: tensor<f32>):
      %s = "stablehlo.add"(%x, %y) : (tensor<f32>, tensor<f32>) -> tensor<f32>
      "stablehlo.return"(%s) : (tensor<f32>) -> ()
    }) : (tensor<4xf32>) -> tensor<4xf32>
    return
  }
}

// -----

module attributes {mhlo.num_partitions = 4 : i64, mhlo.num_replicas = 1 : i32} {
  func.func @f(%a: tensor<4xf32>) {
    // expected-error @+1 {{'stablehlo.all_reduce' op expected use_global_device_ids in a program of 4 partitions}}
    %0 = "stablehlo.all_reduce"(%a) <{replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>}> ({
    ^bb0(%x: tensor<f32>, %y: tensor<f32>):
      %s = "stablehlo.add"(%x, %y) : (tensor<f32>, tensor<f32>) -> tensor<f32>
      "stablehlo.return"(%s) : (tensor<f32>) -> ()
    }) : (tensor<4xf32>) -> tensor<4xf32>
    return
  }
}

// -----

module attributes {mhlo.num_partitions = 4 : i64, mhlo.num_replicas = 1 : i32} {
  func.func @f(%a: tensor<4xf32>) {
    // expected-error @+1 {{'stablehlo.all_reduce' op expected use_global_device_ids without a value}}
    %0 = "stablehlo.all_reduce"(%a) <{replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>, use_global_device_ids = false}> ({
    ^bb0(%x: tensor<f32>, %y: tensor<f32>):
      %s = "stablehlo.add"(%x, %y) : (tensor<f32>, tensor<f32>) -> tensor<f32>
      "stablehlo.return"(%s) : (tensor<f32>) -> ()
    }) : (tensor<4xf32>) -> tensor<4xf32>
    return
  }
}

// -----

module attributes {mhlo.num_partitions = 9223372036854775807 : i64, mhlo.num_replicas = 7 : i32} {
  func.func @f(%a: tensor<4xf32>) {
    // expected-error @+1 {{'stablehlo.all_reduce' op expected the module to have from 1 to 1048576 ranks}}
    %0 = "stablehlo.all_reduce"(%a) <{replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>, use_global_device_ids}> ({
    ^bb0(%x: tensor<f32>, %y: tensor<f32>):
      %s = "stablehlo.add"(%x, %y) : (tensor<f32>, tensor<f32>) -> tensor<f32>
      "stablehlo.return"(%s) : (tensor<f32>) -> ()
    }) : (tensor<4xf32>) -> tensor<4xf32>
    return
  }
}

// -----

module attributes {mhlo.num_partitions = -4 : i64, mhlo.num_replicas = 1 : i32} {
  func.func @f(%a: tensor<4xf32>) {
    // expected-error @+1 {{'stablehlo.all_reduce' op expected the module to have from 1 to 1048576 ranks}}
    %0 = "stablehlo.all_reduce"(%a) <{replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>, use_global_device_ids}> ({
    ^bb0(%x: tensor<f32>, %y: tensor<f32>):
      %s = "stablehlo.add"(%x, %y) : (tensor<f32>, tensor<f32>) -> tensor<f32>
      "stablehlo.return"(%s) : (tensor<f32>) -> ()
    }) : (tensor<4xf32>) -> tensor<4xf32>
    return
  }
}

// -----

"sdy.mesh"() <{mesh = #sdy.mesh<["dp"=2]>, sym_name = "mesh"}> : () -> ()
func.func @f(%a: tensor<4xf32>) {
  // expected-error @+1 {{'stablehlo.all_reduce' op expected replica_groups to be lists of ranks or axes of a mesh}}
  %0 = "stablehlo.all_reduce"(%a) <{replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @other, axes = [#stablehlo.axis_ref<name = "dp">]>}> ({
  ^bb0(%x: tensor<f32>, %y: tensor<f32>):
    %s = "stablehlo.add"(%x, %y) : (tensor<f32>, tensor<f32>) -> tensor<f32>
    "stablehlo.return"(%s) : (tensor<f32>) -> ()
  }) : (tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

"sdy.mesh"() <{mesh = #sdy.mesh<["dp"=2]>, sym_name = "mesh"}> : () -> ()
func.func @f(%a: tensor<4xf32>) {
  // expected-error @+1 {{'stablehlo.all_reduce' op expected replica_groups to be lists of ranks or axes of a mesh}}
  %0 = "stablehlo.all_reduce"(%a) <{replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [#stablehlo.axis_ref<name = "mp">]>}> ({
  ^bb0(%x: tensor<f32>, %y: tensor<f32>):
    %s = "stablehlo.add"(%x, %y) : (tensor<f32>, tensor<f32>) -> tensor<f32>
    "stablehlo.return"(%s) : (tensor<f32>) -> ()
  }) : (tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

"sdy.mesh"() <{mesh = #sdy.mesh<["dp"=2]>, sym_name = "mesh"}> : () -> ()
func.func @f(%a: tensor<4xf32>) {
  // expected-error @+1 {{'stablehlo.all_reduce' op expected replica_groups to be lists of ranks or axes of a mesh}}
  %0 = "stablehlo.all_reduce"(%a) <{replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [#stablehlo.axis_ref<name = "dp", sub_axis_info = (1)2>]>}> ({
  ^bb0(%x: tensor<f32>, %y: tensor<f32>):
    %s = "stablehlo.add"(%x, %y) : (tensor<f32>, tensor<f32>) -> tensor<f32>
    "stablehlo.return"(%s) : (tensor<f32>) -> ()
  }) : (tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

"sdy.mesh"() <{mesh = #sdy.mesh<["dp"=2]>, sym_name = "mesh"}> : () -> ()
func.func @f(%a: tensor<4xf32>) {
  // expected-error @+1 {{'stablehlo.all_reduce' op expected replica_groups to be lists of ranks or axes of a mesh}}
  %0 = "stablehlo.all_reduce"(%a) <{replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [#stablehlo.axis_ref<name = "dp">, #stablehlo.axis_ref<name = "dp">]>}> ({
  ^bb0(%x: tensor<f32>, %y: tensor<f32>):
    %s = "stablehlo.add"(%x, %y) : (tensor<f32>, tensor<f32>) -> tensor<f32>
    "stablehlo.return"(%s) : (tensor<f32>) -> ()
  }) : (tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

"sdy.mesh"() <{mesh = #sdy.mesh<["dp"=2]>, sym_name = "mesh"}> : () -> ()
func.func @f(%a: tensor<4xf32>) {
  // expected-error @+1 {{'stablehlo.all_reduce' op expected replica_groups to be lists of ranks or axes of a mesh}}
  %0 = "stablehlo.all_reduce"(%a) <{replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh>}> ({
  ^bb0(%x: tensor<f32>, %y: tensor<f32>):
    %s = "stablehlo.add"(%x, %y) : (tensor<f32>, tensor<f32>) -> tensor<f32>
    "stablehlo.return"(%s) : (tensor<f32>) -> ()
  }) : (tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

"sdy.mesh"() <{mesh = #sdy.mesh<["dp"=2]>, sym_name = "mesh"}> : () -> ()
func.func @f(%a: tensor<4xf32>) {
  // expected-error @+1 {{'stablehlo.all_reduce' op expected replica_groups to be lists of ranks or axes of a mesh}}
  %0 = "stablehlo.all_reduce"(%a) <{replica_groups = #stablehlo.replica_group_mesh_axes<mesh = #stablehlo.mesh<axes=[<name = "dp", size = 0>]>, axes = []>}> ({
  ^bb0(%x: tensor<f32>, %y: tensor<f32>):
    %s = "stablehlo.add"(%x, %y) : (tensor<f32>, tensor<f32>) -> tensor<f32>
    "stablehlo.return"(%s) : (tensor<f32>) -> ()
  }) : (tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

"sdy.mesh"() <{mesh = #sdy.mesh<["dp"=2]>, sym_name = "mesh"}> : () -> ()
func.func @f(%a: tensor<4xf32>) {
  // expected-error @+1 {{'stablehlo.all_reduce' op expected replica_groups to be lists of ranks or axes of a mesh}}
  %0 = "stablehlo.all_reduce"(%a) <{replica_groups = #stablehlo.replica_group_mesh_axes<mesh = #stablehlo.mesh<axes=[<name = "dp", size = 2>], device_ids=dense<1> : tensor<2xi64>>, axes = []>}> ({
  ^bb0(%x: tensor<f32>, %y: tensor<f32>):
    %s = "stablehlo.add"(%x, %y) : (tensor<f32>, tensor<f32>) -> tensor<f32>
    "stablehlo.return"(%s) : (tensor<f32>) -> ()
  }) : (tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

"sdy.mesh"() <{mesh = #sdy.mesh<["dp"=2, "dp"=2]>, sym_name = "mesh"}> : () -> ()
func.func @f(%a: tensor<4xf32>) {
  // expected-error @+1 {{'stablehlo.all_reduce' op expected replica_groups to be lists of ranks or axes of a mesh}}
  %0 = "stablehlo.all_reduce"(%a) <{replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [#stablehlo.axis_ref<name = "dp">]>}> ({
  ^bb0(%x: tensor<f32>, %y: tensor<f32>):
    %s = "stablehlo.add"(%x, %y) : (tensor<f32>, tensor<f32>) -> tensor<f32>
    "stablehlo.return"(%s) : (tensor<f32>) -> ()
  }) : (tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

"sdy.mesh"() <{mesh = #sdy.mesh<["dp"=2147483648]>, sym_name = "mesh"}> : () -> ()
func.func @f(%a: tensor<4xf32>) {
  // expected-error @+1 {{'stablehlo.all_reduce' op expected replica_groups to be lists of ranks or axes of a mesh}}
  %0 = "stablehlo.all_reduce"(%a) <{replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [#stablehlo.axis_ref<name = "dp">]>}> ({
  ^bb0(%x: tensor<f32>, %y: tensor<f32>):
    %s = "stablehlo.add"(%x, %y) : (tensor<f32>, tensor<f32>) -> tensor<f32>
    "stablehlo.return"(%s) : (tensor<f32>) -> ()
  }) : (tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

"sdy.mesh"() <{mesh = #sdy.mesh<["dp"=2], device_ids=[0, 0]>, sym_name = "mesh"}> : () -> ()
func.func @f(%a: tensor<4xf32>) {
  // expected-error @+1 {{'stablehlo.all_reduce' op expected replica_groups to be lists of ranks or axes of a mesh}}
  %0 = "stablehlo.all_reduce"(%a) <{replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [#stablehlo.axis_ref<name = "dp">]>}> ({
  ^bb0(%x: tensor<f32>, %y: tensor<f32>):
    %s = "stablehlo.add"(%x, %y) : (tensor<f32>, tensor<f32>) -> tensor<f32>
    "stablehlo.return"(%s) : (tensor<f32>) -> ()
  }) : (tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

"sdy.mesh"() <{mesh = #sdy.mesh<["d\"p"=2]>, sym_name = "mesh"}> : () -> ()
func.func @f(%a: tensor<4xf32>) {
  // expected-error @+1 {{'stablehlo.all_reduce' op expected replica_groups to be lists of ranks or axes of a mesh}}
  %0 = "stablehlo.all_reduce"(%a) <{replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [#stablehlo.axis_ref<name = "dp">]>}> ({
  ^bb0(%x: tensor<f32>, %y: tensor<f32>):
    %s = "stablehlo.add"(%x, %y) : (tensor<f32>, tensor<f32>) -> tensor<f32>
    "stablehlo.return"(%s) : (tensor<f32>) -> ()
  }) : (tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

"sdy.mesh"() <{mesh = #sdy.mesh<["dp"=99999999999999999999999]>, sym_name = "mesh"}> : () -> ()
func.func @f(%a: tensor<4xf32>) {
  // expected-error @+1 {{'stablehlo.all_reduce' op expected replica_groups to be lists of ranks or axes of a mesh}}
  %0 = "stablehlo.all_reduce"(%a) <{replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [#stablehlo.axis_ref<name = "dp">]>}> ({
  ^bb0(%x: tensor<f32>, %y: tensor<f32>):
    %s = "stablehlo.add"(%x, %y) : (tensor<f32>, tensor<f32>) -> tensor<f32>
    "stablehlo.return"(%s) : (tensor<f32>) -> ()
  }) : (tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

"sdy.mesh"() <{mesh = #sdy.mesh<[dp=2]>, sym_name = "mesh"}> : () -> ()
func.func @f(%a: tensor<4xf32>) {
  // expected-error @+1 {{'stablehlo.all_reduce' op expected replica_groups to be lists of ranks or axes of a mesh}}
  %0 = "stablehlo.all_reduce"(%a) <{replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [#stablehlo.axis_ref<name = "dp">]>}> ({
  ^bb0(%x: tensor<f32>, %y: tensor<f32>):
    %s = "stablehlo.add"(%x, %y) : (tensor<f32>, tensor<f32>) -> tensor<f32>
    "stablehlo.return"(%s) : (tensor<f32>) -> ()
  }) : (tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

// Run for each element.

func.func @f(%a: tensor<4xf32>) {
  %0 = "stablehlo.map"(%a) ({
  ^bb0(%b: tensor<f32>):
  // expected-error @+1 {{'stablehlo.all_reduce' op expected it in a function, a loop or a branch, but it is in 'stablehlo.map'}}
  %1 = "stablehlo.all_reduce"(%b) <{replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>}> ({
  ^bb0(%x: tensor<f32>, %y: tensor<f32>):
    %s = "stablehlo.add"(%x, %y) : (tensor<f32>, tensor<f32>) -> tensor<f32>
    "stablehlo.return"(%s) : (tensor<f32>) -> ()
  }) : (tensor<f32>) -> tensor<f32>
    "stablehlo.return"(%1) : (tensor<f32>) -> ()
  }) : (tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

func.func @f(%a: tensor<4xf32>) {
  // expected-error @+1 {{'stablehlo.collective_permute' op expected all-reduces, reduce-scatters, all-gathers, all-to-alls and broadcasts only; keep-others leaves it unchanged}}
  %0 = "stablehlo.collective_permute"(%a) : (tensor<4xf32>) -> tensor<4xf32>
  // expected-error @+1 {{'stablehlo.all_reduce_start' op expected the collective as one operation, but got its start or its end; ddp-overlap splits collectives}}
  %s = "stablehlo.all_reduce_start"(%a) : (tensor<4xf32>) -> tensor<4xf32>
  // expected-error @+1 {{'stablehlo.all_reduce_done' op expected the collective as one operation}}
  %d = "stablehlo.all_reduce_done"(%s) : (tensor<4xf32>) -> tensor<4xf32>
  // expected-error @+1 {{'stablehlo.partition_id' op expected a program that does not need the rank's number, which compiled code does not know}}
  %1 = "stablehlo.partition_id"() : () -> tensor<ui32>
  // expected-error @+1 {{'mhlo.all_reduce' op expected StableHLO, but got MHLO}}
  %2 = "mhlo.all_reduce"(%a) : (tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

// JAX's grad gives a sum already; pmean makes another one of it.

func.func @f(%a: tensor<4xf32>) {
  // expected-note @+1 {{this 'stablehlo.all_reduce' has reduced it}}
  %0 = "stablehlo.all_reduce"(%a) <{replica_groups = dense<[[0, 1, 2, 3]]> : tensor<1x4xi64>}> ({
  ^bb0(%x: tensor<f32>, %y: tensor<f32>):
    %s = "stablehlo.add"(%x, %y) : (tensor<f32>, tensor<f32>) -> tensor<f32>
    "stablehlo.return"(%s) : (tensor<f32>) -> ()
  }) : (tensor<4xf32>) -> tensor<4xf32>
  %1 = "stablehlo.constant"() <{value = dense<0.5> : tensor<4xf32>}> : () -> tensor<4xf32>
  %2 = "stablehlo.multiply"(%1, %0) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  // expected-error @+1 {{'stablehlo.all_reduce' op expected a value that is not reduced over the same ranks yet; allow-repeated=true reduces it again}}
  %3 = "stablehlo.all_reduce"(%2) <{replica_groups = dense<[[0, 1], [2, 3]]> : tensor<2x2xi64>}> ({
  ^bb0(%x: tensor<f32>, %y: tensor<f32>):
    %s = "stablehlo.add"(%x, %y) : (tensor<f32>, tensor<f32>) -> tensor<f32>
    "stablehlo.return"(%s) : (tensor<f32>) -> ()
  }) : (tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

"sdy.mesh"() <{mesh = #sdy.mesh<["dp"=2]>, sym_name = "mesh"}> : () -> ()
func.func @f(%a: tensor<4xf32>) {
  // expected-error @+1 {{'sdy.manual_computation' op expected shardings along whole axes of a mesh of the module, for each operand and result}}
  %0 = "sdy.manual_computation"(%a) <{in_shardings = #sdy.sharding_per_value<[<@other, [{"dp"}]>]>, manual_axes = #sdy<manual_axes{"dp"}>, out_shardings = #sdy.sharding_per_value<[<@mesh, [{"dp"}]>]>}> ({
  ^bb0(%p: tensor<2xf32>):
    "sdy.return"(%p) : (tensor<2xf32>) -> ()
  }) : (tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

"sdy.mesh"() <{mesh = #sdy.mesh<["dp"=2]>, sym_name = "mesh"}> : () -> ()
func.func @f(%a: tensor<4xf32>) {
  // expected-error @+1 {{'sdy.manual_computation' op expected shardings along whole axes of a mesh of the module, for each operand and result}}
  %0 = "sdy.manual_computation"(%a) <{in_shardings = #sdy.sharding_per_value<[<@mesh, [{"dp":(1)2}]>]>, manual_axes = #sdy<manual_axes{"dp"}>, out_shardings = #sdy.sharding_per_value<[<@mesh, [{"dp"}]>]>}> ({
  ^bb0(%p: tensor<2xf32>):
    "sdy.return"(%p) : (tensor<2xf32>) -> ()
  }) : (tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

"sdy.mesh"() <{mesh = #sdy.mesh<["dp"=2]>, sym_name = "mesh"}> : () -> ()
func.func @f(%a: tensor<4xf32>) {
  // expected-error @+1 {{'sdy.manual_computation' op expected shardings along whole axes of a mesh of the module, for each operand and result}}
  %0 = "sdy.manual_computation"(%a) <{in_shardings = #sdy.sharding_per_value<[<@mesh, [{"dp", "dp"}]>]>, manual_axes = #sdy<manual_axes{"dp"}>, out_shardings = #sdy.sharding_per_value<[<@mesh, [{"dp"}]>]>}> ({
  ^bb0(%p: tensor<2xf32>):
    "sdy.return"(%p) : (tensor<2xf32>) -> ()
  }) : (tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

"sdy.mesh"() <{mesh = #sdy.mesh<["dp"=2]>, sym_name = "mesh"}> : () -> ()
func.func @f(%a: tensor<4xf32>) {
  // expected-error @+1 {{'sdy.manual_computation' op expected shardings along whole axes of a mesh of the module, for each operand and result}}
  %0 = "sdy.manual_computation"(%a) <{in_shardings = #sdy.sharding_per_value<[<@mesh, [{"dp"}], unreduced={"dp"}>]>, manual_axes = #sdy<manual_axes{"dp"}>, out_shardings = #sdy.sharding_per_value<[<@mesh, [{"dp"}]>]>}> ({
  ^bb0(%p: tensor<2xf32>):
    "sdy.return"(%p) : (tensor<2xf32>) -> ()
  }) : (tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

"sdy.mesh"() <{mesh = #sdy.mesh<["dp"=2]>, sym_name = "mesh"}> : () -> ()
func.func @f(%a: tensor<4xf32>) {
  // expected-error @+1 {{'sdy.manual_computation' op expected shardings along whole axes of a mesh of the module, for each operand and result}}
  %0 = "sdy.manual_computation"(%a) <{in_shardings = #sdy.sharding_per_value<[]>, manual_axes = #sdy<manual_axes{"dp"}>, out_shardings = #sdy.sharding_per_value<[<@mesh, [{"dp"}]>]>}> ({
  ^bb0(%p: tensor<2xf32>):
    "sdy.return"(%p) : (tensor<2xf32>) -> ()
  }) : (tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

"sdy.mesh"() <{mesh = #sdy.mesh<["dp"=2]>, sym_name = "mesh"}> : () -> ()
func.func @f(%a: tensor<4xf32>) {
  // expected-error @+1 {{'sdy.manual_computation' op expected shardings along whole axes of a mesh of the module, for each operand and result}}
  %0 = "sdy.manual_computation"(%a) <{in_shardings = #sdy.sharding_per_value<[<@mesh, [{"dp"}]>]>, manual_axes = #sdy<manual_axes{"dp"}>, out_shardings = #sdy.sharding_per_value<[<@mesh, [{"dp"}]>, <@mesh, [{"dp"}]>]>}> ({
  ^bb0(%p: tensor<2xf32>):
    "sdy.return"(%p) : (tensor<2xf32>) -> ()
  }) : (tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

"sdy.mesh"() <{mesh = #sdy.mesh<["dp"=2]>, sym_name = "mesh"}> : () -> ()
func.func @f(%a: tensor<4xf32>) {
  // expected-error @+1 {{'sdy.manual_computation' op expected shardings along whole axes of a mesh of the module, for each operand and result}}
  %0 = "sdy.manual_computation"(%a) <{in_shardings = #sdy.sharding_per_value<[<@mesh, [{"dp"}]>]>, manual_axes = #sdy<manual_axes{"dp"}>, out_shardings = #sdy.sharding_per_value<[<@mesh, [{"dp"}]>]>}> ({
  ^bb0(%p: tensor<2xf32>):
    "stablehlo.return"(%p) : (tensor<2xf32>) -> ()
  }) : (tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

"sdy.mesh"() <{mesh = #sdy.mesh<["dp"=2]>, sym_name = "mesh"}> : () -> ()
func.func @f(%a: tensor<4xf32>) {
  // expected-error @+1 {{'sdy.manual_computation' op expected shardings along whole axes of a mesh of the module, for each operand and result}}
  %0 = "sdy.manual_computation"(%a) <{in_shardings = #sdy.sharding_per_value<[<@mesh, [{"dp"}]>]>, manual_axes = #sdy<manual_axes{"dp"}>, out_shardings = #sdy.sharding_per_value<[<@mesh, [{"dp"}]>]>}> ({
  ^bb0(%p: tensor<2xf32>, %q: tensor<2xf32>):
    "sdy.return"(%p) : (tensor<2xf32>) -> ()
  }) : (tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

"sdy.mesh"() <{mesh = #sdy.mesh<["dp"=2]>, sym_name = "mesh"}> : () -> ()
func.func @f(%a: tensor<4xf32>) {
  // expected-error @+1 {{'sdy.manual_computation' op expected shardings along whole axes of a mesh of the module, for each operand and result}}
  %0 = "sdy.manual_computation"(%a) <{in_shardings = #sdy.sharding_per_value<[<@mesh, [{"dp"}]>]>, manual_axes = #sdy<manual_axes{dp}>, out_shardings = #sdy.sharding_per_value<[<@mesh, [{"dp"}]>]>}> ({
  ^bb0(%p: tensor<2xf32>):
    "sdy.return"(%p) : (tensor<2xf32>) -> ()
  }) : (tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

"sdy.mesh"() <{mesh = #sdy.mesh<["dp"=2]>, sym_name = "mesh"}> : () -> ()
func.func @f(%a: tensor<4xf32>) {
  // expected-error @+1 {{'sdy.manual_computation' op expected shardings along whole axes of a mesh of the module, for each operand and result}}
  %0 = "sdy.manual_computation"(%a) <{in_shardings = #sdy.sharding_per_value<[<mesh<[dp=2]>, [{"dp"}]>]>, manual_axes = #sdy<manual_axes{"dp"}>, out_shardings = #sdy.sharding_per_value<[<@mesh, [{"dp"}]>]>}> ({
  ^bb0(%p: tensor<2xf32>):
    "sdy.return"(%p) : (tensor<2xf32>) -> ()
  }) : (tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

"sdy.mesh"() <{mesh = #sdy.mesh<["dp"=2]>, sym_name = "mesh"}> : () -> ()
func.func @f(%a: tensor<4xf32>) {
  // expected-error @+1 {{'sdy.manual_computation' op expected all of the mesh's axes to be manual, but "dp" is not; in JAX, 'shard_map' without 'axis_names' makes them so}}
  %0 = "sdy.manual_computation"(%a) <{in_shardings = #sdy.sharding_per_value<[<@mesh, [{"dp"}]>]>, manual_axes = #sdy<manual_axes{"mp"}>, out_shardings = #sdy.sharding_per_value<[<@mesh, [{"dp"}]>]>}> ({
  ^bb0(%p: tensor<2xf32>):
    "sdy.return"(%p) : (tensor<2xf32>) -> ()
  }) : (tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

"sdy.mesh"() <{mesh = #sdy.mesh<["dp"=2]>, sym_name = "mesh"}> : () -> ()
func.func @f(%a: tensor<4xf32>) {
  // expected-error @+1 {{'sdy.manual_computation' op expected operand #0 to be split as its sharding says, but got 'tensor<2xf32>' of 'tensor<4xf32>'}}
  %0 = "sdy.manual_computation"(%a) <{in_shardings = #sdy.sharding_per_value<[<@mesh, [{}]>]>, manual_axes = #sdy<manual_axes{"dp"}>, out_shardings = #sdy.sharding_per_value<[<@mesh, [{"dp"}]>]>}> ({
  ^bb0(%p: tensor<2xf32>):
    "sdy.return"(%p) : (tensor<2xf32>) -> ()
  }) : (tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

"sdy.mesh"() <{mesh = #sdy.mesh<["dp"=2]>, sym_name = "mesh"}> : () -> ()
func.func @f(%a: tensor<4xf32>) {
  // expected-error @+1 {{'sdy.manual_computation' op expected operand #0 to be split as its sharding says, but got 'tensor<2xf32>' of 'tensor<4xf32>'}}
  %0 = "sdy.manual_computation"(%a) <{in_shardings = #sdy.sharding_per_value<[<@mesh, [{"dp"}, {}]>]>, manual_axes = #sdy<manual_axes{"dp"}>, out_shardings = #sdy.sharding_per_value<[<@mesh, [{"dp"}]>]>}> ({
  ^bb0(%p: tensor<2xf32>):
    "sdy.return"(%p) : (tensor<2xf32>) -> ()
  }) : (tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

"sdy.mesh"() <{mesh = #sdy.mesh<["dp"=2]>, sym_name = "mesh"}> : () -> ()
func.func @f(%a: tensor<4xf32>) {
  // expected-error @+1 {{'sdy.manual_computation' op expected result #0 to be split as its sharding says, but got 'tensor<2xf32>' of 'tensor<2xf32>'}}
  %0 = "sdy.manual_computation"(%a) <{in_shardings = #sdy.sharding_per_value<[<@mesh, [{"dp"}]>]>, manual_axes = #sdy<manual_axes{"dp"}>, out_shardings = #sdy.sharding_per_value<[<@mesh, [{"dp"}]>]>}> ({
  ^bb0(%p: tensor<2xf32>):
    "sdy.return"(%p) : (tensor<2xf32>) -> ()
  }) : (tensor<4xf32>) -> tensor<2xf32>
  return
}

// -----

"sdy.mesh"() <{mesh = #sdy.mesh<["dp"=2]>, sym_name = "mesh"}> : () -> ()
func.func @f(%a: tensor<4xf32>) {
  // expected-error @+1 {{'sdy.manual_computation' op expected a region of one block}}
  %0 = "sdy.manual_computation"(%a) : (tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

"sdy.mesh"() <{mesh = #sdy.mesh<["dp"=2]>, sym_name = "mesh"}> : () -> ()
func.func @f(%a: tensor<4xf32>) {
  %0 = "sdy.manual_computation"(%a) <{in_shardings = #sdy.sharding_per_value<[<@mesh, [{"dp"}]>]>, manual_axes = #sdy<manual_axes{"dp"}>, out_shardings = #sdy.sharding_per_value<[<@mesh, [{"dp"}]>]>}> ({
  ^bb0(%p: tensor<2xf32>):
    // expected-error @+1 {{'sdy.manual_computation' op expected no nested manual computations}}
  %1 = "sdy.manual_computation"(%p) <{in_shardings = #sdy.sharding_per_value<[<@mesh, [{"dp"}]>]>, manual_axes = #sdy<manual_axes{"dp"}>, out_shardings = #sdy.sharding_per_value<[<@mesh, [{"dp"}]>]>}> ({
  ^bb0(%q: tensor<1xf32>):
    "sdy.return"(%q) : (tensor<1xf32>) -> ()
  }) : (tensor<2xf32>) -> tensor<2xf32>
    "sdy.return"(%p) : (tensor<2xf32>) -> ()
  }) : (tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

// What is outside needs all of it.

"sdy.mesh"() <{mesh = #sdy.mesh<["dp"=2]>, sym_name = "mesh"}> : () -> ()
func.func @f(%a: tensor<4xf32>) {
  %0 = "sdy.manual_computation"(%a) <{in_shardings = #sdy.sharding_per_value<[<@mesh, [{"dp"}]>]>, manual_axes = #sdy<manual_axes{"dp"}>, out_shardings = #sdy.sharding_per_value<[<@mesh, [{"dp"}]>]>}> ({
  ^bb0(%p: tensor<2xf32>):
    "sdy.return"(%p) : (tensor<2xf32>) -> ()
  }) : (tensor<4xf32>) -> tensor<4xf32>
  // expected-error @+1 {{'stablehlo.negate' op expected an operand that every rank has in full, but it is split; move the operation into the 'sdy.manual_computation'}}
  %1 = "stablehlo.negate"(%0) : (tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

"sdy.mesh"() <{mesh = #sdy.mesh<["dp"=2]>, sym_name = "mesh"}> : () -> ()
func.func @f(%a: tensor<4xf32>) {
  // expected-error @+1 {{expected a split value to be an argument of the function or the result of a 'sdy.manual_computation'}}
  %1 = "stablehlo.negate"(%a) : (tensor<4xf32>) -> tensor<4xf32>
  %0 = "sdy.manual_computation"(%1) <{in_shardings = #sdy.sharding_per_value<[<@mesh, [{"dp"}]>]>, manual_axes = #sdy<manual_axes{"dp"}>, out_shardings = #sdy.sharding_per_value<[<@mesh, [{"dp"}]>]>}> ({
  ^bb0(%p: tensor<2xf32>):
    "sdy.return"(%p) : (tensor<2xf32>) -> ()
  }) : (tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

// The loop, not a location inside the text.
"sdy.mesh"() <{mesh = #sdy.mesh<["dp"=2]>, sym_name = "mesh"}> : () -> ()
func.func @f(%a: tensor<4xf32>, %c: tensor<i1>) {
  // expected-error @+1 {{'stablehlo.while' op expected a split value to be an argument of the function or the result of a 'sdy.manual_computation'; in JAX, put the loop or branch inside 'shard_map'}}
  %w:2 = "stablehlo.while"(%a, %c) ({
  ^bb0(%x: tensor<4xf32>, %d: tensor<i1>):
    "stablehlo.return"(%d) : (tensor<i1>) -> ()
  }, {
  ^bb0(%x: tensor<4xf32>, %d: tensor<i1>):
    %0 = "sdy.manual_computation"(%x) <{in_shardings = #sdy.sharding_per_value<[<@mesh, [{"dp"}]>]>, manual_axes = #sdy<manual_axes{"dp"}>, out_shardings = #sdy.sharding_per_value<[<@mesh, [{"dp"}]>]>}> ({
    ^bb0(%p: tensor<2xf32>):
      "sdy.return"(%p) : (tensor<2xf32>) -> ()
    }) : (tensor<4xf32>) -> tensor<4xf32>
    "stablehlo.return"(%0, %d) : (tensor<4xf32>, tensor<i1>) -> ()
  }) : (tensor<4xf32>, tensor<i1>) -> (tensor<4xf32>, tensor<i1>)
  return
}

// -----

// What is split is used in the computation as a whole.

"sdy.mesh"() <{mesh = #sdy.mesh<["dp"=2]>, sym_name = "mesh"}> : () -> ()
func.func @f(%a: tensor<4xf32>) {
  %0 = "sdy.manual_computation"(%a) <{in_shardings = #sdy.sharding_per_value<[<@mesh, [{"dp"}]>]>, manual_axes = #sdy<manual_axes{"dp"}>, out_shardings = #sdy.sharding_per_value<[<@mesh, [{"dp"}]>]>}> ({
  ^bb0(%p: tensor<2xf32>):
    // expected-error @+1 {{'stablehlo.negate' op expected an operand that every rank has in full, but it is split; move the operation into the 'sdy.manual_computation'}}
  %1 = "stablehlo.negate"(%a) : (tensor<4xf32>) -> tensor<4xf32>
    "sdy.return"(%p) : (tensor<2xf32>) -> ()
  }) : (tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

"sdy.mesh"() <{mesh = #sdy.mesh<["dp"=2]>, sym_name = "mesh"}> : () -> ()
func.func @f(%a: tensor<4xf32>) {
  %0 = "sdy.manual_computation"(%a) <{in_shardings = #sdy.sharding_per_value<[<@mesh, [{"dp"}]>]>, manual_axes = #sdy<manual_axes{"dp"}>, out_shardings = #sdy.sharding_per_value<[<@mesh, [{"dp"}]>]>}> ({
  ^bb0(%p: tensor<2xf32>):
    "sdy.return"(%p) : (tensor<2xf32>) -> ()
  }) : (tensor<4xf32>) -> tensor<4xf32>
  // expected-error @+1 {{'sdy.manual_computation' op expected operand #0 to be split as it is elsewhere}}
  %1 = "sdy.manual_computation"(%a) <{in_shardings = #sdy.sharding_per_value<[<@mesh, [{}]>]>, manual_axes = #sdy<manual_axes{"dp"}>, out_shardings = #sdy.sharding_per_value<[<@mesh, [{}]>]>}> ({
  ^bb0(%p: tensor<4xf32>):
    "sdy.return"(%p) : (tensor<4xf32>) -> ()
  }) : (tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

"sdy.mesh"() <{mesh = #sdy.mesh<["dp"=2, "mp"=2]>, sym_name = "mesh"}> : () -> ()
func.func @f(%a: tensor<4xf32>) {
  %0 = "sdy.manual_computation"(%a) <{in_shardings = #sdy.sharding_per_value<[<@mesh, [{"dp"}]>]>, manual_axes = #sdy<manual_axes{"dp", "mp"}>, out_shardings = #sdy.sharding_per_value<[<@mesh, [{"dp"}]>]>}> ({
  ^bb0(%p: tensor<2xf32>):
    "sdy.return"(%p) : (tensor<2xf32>) -> ()
  }) : (tensor<4xf32>) -> tensor<4xf32>
  // expected-error @+1 {{'sdy.manual_computation' op expected a tensor to be split in the same way everywhere, but got 'tensor<2xf32>' and 'tensor<2xf32>' for one value}}
  %1 = "sdy.manual_computation"(%a) <{in_shardings = #sdy.sharding_per_value<[<@mesh, [{"mp"}]>]>, manual_axes = #sdy<manual_axes{"dp", "mp"}>, out_shardings = #sdy.sharding_per_value<[<@mesh, [{"dp"}]>]>}> ({
  ^bb0(%p: tensor<2xf32>):
    "sdy.return"(%p) : (tensor<2xf32>) -> ()
  }) : (tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

"sdy.mesh"() <{mesh = #sdy.mesh<["dp"=2]>, sym_name = "mesh"}> : () -> ()
func.func @f(%a: tensor<4xf32>) {
  // expected-error @+1 {{'func.call' op expected no recursion in a function with a 'sdy.manual_computation', @f}}
  func.call @f(%a) : (tensor<4xf32>) -> ()
  %0 = "sdy.manual_computation"(%a) <{in_shardings = #sdy.sharding_per_value<[<@mesh, [{"dp"}]>]>, manual_axes = #sdy<manual_axes{"dp"}>, out_shardings = #sdy.sharding_per_value<[<@mesh, [{"dp"}]>]>}> ({
  ^bb0(%p: tensor<2xf32>):
    "sdy.return"(%p) : (tensor<2xf32>) -> ()
  }) : (tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

"sdy.mesh"() <{mesh = #sdy.mesh<["dp"=2]>, sym_name = "mesh"}> : () -> ()
func.func @f(%a: tensor<4xf32>) {
  %0 = "sdy.manual_computation"(%a) <{in_shardings = #sdy.sharding_per_value<[<@mesh, [{"dp"}]>]>, manual_axes = #sdy<manual_axes{"dp"}>, out_shardings = #sdy.sharding_per_value<[<@mesh, [{"dp"}]>]>}> ({
  ^bb0(%p: tensor<2xf32>):
    "sdy.return"(%p) : (tensor<2xf32>) -> ()
  }) : (tensor<4xf32>) -> tensor<4xf32>
  cf.br ^bb1
^bb1:
  return
}
func.func @g(%a: tensor<4xf32>) {
  // expected-error @+1 {{'func.call' op expected a function of one block, since it has a 'sdy.manual_computation'}}
  func.call @f(%a) : (tensor<4xf32>) -> ()
  return
}

// -----

"sdy.mesh"() <{mesh = #sdy.mesh<["dp"=2]>, sym_name = "mesh"}> : () -> ()
// expected-error @+1 {{'func.func' op expected a function of one block}}
func.func @f(%a: tensor<4xf32>) {
  %0 = "sdy.manual_computation"(%a) <{in_shardings = #sdy.sharding_per_value<[<@mesh, [{"dp"}]>]>, manual_axes = #sdy<manual_axes{"dp"}>, out_shardings = #sdy.sharding_per_value<[<@mesh, [{"dp"}]>]>}> ({
  ^bb0(%p: tensor<2xf32>):
    "sdy.return"(%p) : (tensor<2xf32>) -> ()
  }) : (tensor<4xf32>) -> tensor<4xf32>
  cf.br ^bb1
^bb1:
  return
}

// -----

"sdy.mesh"() <{mesh = #sdy.mesh<["dp"=2]>, sym_name = "mesh"}> : () -> ()
// expected-error @+1 {{'func.func' op expected a program of one rank's tensors, but got #sdy.sharding<@mesh}}
func.func @f(%a: tensor<4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"dp"}]>}) {
  return
}

// -----

"sdy.mesh"() <{mesh = #sdy.mesh<["dp"=2]>, sym_name = "mesh"}> : () -> ()
// expected-error @+1 {{'func.func' op expected a program of one rank's tensors, but got #sdy.sharding<@mesh}}
func.func @f(%a: tensor<4xf32>) -> (tensor<4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"dp"}]>}) {
  return %a : tensor<4xf32>
}

// -----

"sdy.mesh"() <{mesh = #sdy.mesh<["dp"=2]>, sym_name = "mesh"}> : () -> ()
func.func @f(%a: tensor<4xf32>) {
  // expected-error @+1 {{'stablehlo.negate' op expected a program of one rank's tensors, but got #sdy.sharding_per_value<}}
  %0 = "stablehlo.negate"(%a) {sdy.sharding = #sdy.sharding_per_value<[<@mesh, [{"dp"}]>]>} : (tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

"sdy.mesh"() <{mesh = #sdy.mesh<["dp"=2]>, sym_name = "mesh"}> : () -> ()
func.func @f(%a: tensor<4xf32>) {
  // expected-error @+1 {{'sdy.sharding_constraint' op expected a program of one rank's tensors, but got 'sdy.sharding_constraint'}}
  %0 = "sdy.sharding_constraint"(%a) <{sharding = #sdy.sharding<@mesh, [{"dp"}]>}> : (tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

"sdy.mesh"() <{mesh = #sdy.mesh<["dp"=2]>, sym_name = "mesh"}> : () -> ()
func.func @f(%a: tensor<4xf32>) {
  // expected-error @+1 {{'sdy.all_reduce' op expected a program of one rank's tensors, but got 'sdy.all_reduce'}}
  %0 = "sdy.all_reduce"(%a) <{reduction_axes = #sdy<axis_ref_list{"dp"}>}> : (tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

// expected-error @+1 {{'func.func' op expected a program of one rank's tensors, but got an argument with an XLA sharding}}
func.func @f(%a: tensor<4xf32> {mhlo.sharding = "{devices=[2]<=[2]}"}) {
  return
}

// -----

// expected-error @+1 {{'func.func' op expected a program of one rank's tensors, but got an argument with an XLA sharding}}
func.func @f(%a: tensor<4xf32> {mhlo.frontend_attributes = {xla.sdy.sharding = "x"}}) {
  return
}

// -----

func.func @f(%a: tensor<4xf32>) {
  // expected-error @+1 {{'stablehlo.custom_call' op expected a program of one rank's tensors, but got an XLA sharding}}
  %0 = "stablehlo.custom_call"(%a) <{call_target_name = "SPMDFullToShardShape"}> : (tensor<4xf32>) -> tensor<2xf32>
  return
}

// -----

func.func @f(%a: tensor<4xf32>) {
  // expected-error @+1 {{'stablehlo.negate' op expected a program of one rank's tensors, but got an XLA sharding}}
  %0 = "stablehlo.negate"(%a) {mhlo.sharding = "{maximal device=0}"} : (tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

// A split argument that shard_map does not take.

"sdy.mesh"() <{mesh = #sdy.mesh<["dp"=2]>, sym_name = "mesh"}> : () -> ()
// expected-error @+1 {{'func.func' op expected a program of one rank's tensors, but got #sdy.sharding<@mesh}}
func.func @f(%a: tensor<4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"dp"}]>}, %b: tensor<4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"dp"}]>}) -> tensor<4xf32> {
  %0 = "sdy.manual_computation"(%a) <{in_shardings = #sdy.sharding_per_value<[<@mesh, [{"dp"}]>]>, manual_axes = #sdy<manual_axes{"dp"}>, out_shardings = #sdy.sharding_per_value<[<@mesh, [{"dp"}]>]>}> ({
  ^bb0(%p: tensor<2xf32>):
    "sdy.return"(%p) : (tensor<2xf32>) -> ()
  }) : (tensor<4xf32>) -> tensor<4xf32>
  return %b : tensor<4xf32>
}

// -----

// A result that is split only when it is given back.

"sdy.mesh"() <{mesh = #sdy.mesh<["dp"=2]>, sym_name = "mesh"}> : () -> ()
// expected-error @+1 {{'func.func' op expected a program of one rank's tensors, but got #sdy.sharding<@mesh}}
func.func @f(%a: tensor<4xf32>) -> (tensor<4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"dp"}]>}) {
  %0 = "sdy.manual_computation"(%a) <{in_shardings = #sdy.sharding_per_value<[<@mesh, [{}]>]>, manual_axes = #sdy<manual_axes{"dp"}>, out_shardings = #sdy.sharding_per_value<[<@mesh, [{}]>]>}> ({
  ^bb0(%p: tensor<4xf32>):
    "sdy.return"(%p) : (tensor<4xf32>) -> ()
  }) : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// -----

// expected-error @+1 {{'sdy.mesh' op expected a program of one rank's tensors, but got 'sdy.mesh'}}
%0 = "sdy.mesh"() <{mesh = #sdy.mesh<["dp"=2]>, sym_name = "mesh"}> : () -> i32

// -----

// Values that depend on themselves.

"sdy.mesh"() <{mesh = #sdy.mesh<["dp"=2]>, sym_name = "mesh"}> : () -> ()
func.func @f() {
  "stablehlo.optimization_barrier"() ({
    // expected-error @+1 {{'sdy.sharding_constraint' op expected results that do not depend on themselves}}
    %0 = "sdy.sharding_constraint"(%0) <{sharding = #sdy.sharding<@mesh, [{}]>}> : (tensor<4xf32>) -> tensor<4xf32>
  }) : () -> ()
  return
}

// -----

"sdy.mesh"() <{mesh = #sdy.mesh<["dp"=2]>, sym_name = "mesh"}> : () -> ()
func.func @f(%a: tensor<4xf32>) {
  "stablehlo.optimization_barrier"() ({
    // expected-error @+1 {{'sdy.manual_computation' op expected results that do not depend on themselves}}
    %0 = "sdy.manual_computation"(%a) <{in_shardings = #sdy.sharding_per_value<[<@mesh, [{}]>]>, manual_axes = #sdy<manual_axes{"dp"}>, out_shardings = #sdy.sharding_per_value<[<@mesh, [{}]>]>}> ({
    ^bb0(%p: tensor<4xf32>):
      "sdy.return"(%0) : (tensor<4xf32>) -> ()
    }) : (tensor<4xf32>) -> tensor<4xf32>
  }) : () -> ()
  return
}

// -----

"sdy.mesh"() <{mesh = #sdy.mesh<["dp"=2]>, sym_name = "mesh"}> : () -> ()
func.func @g(%a: tensor<4xf32>) -> tensor<4xf32> {
  "sdy.manual_computation"() <{in_shardings = #sdy.sharding_per_value<[]>, manual_axes = #sdy<manual_axes{"dp"}>, out_shardings = #sdy.sharding_per_value<[]>}> ({
    "sdy.return"() : () -> ()
  }) : () -> ()
  return %a : tensor<4xf32>
}
func.func @f() {
  "stablehlo.optimization_barrier"() ({
    // expected-error @+1 {{'func.call' op expected results that do not depend on themselves}}
    %0 = func.call @g(%0) : (tensor<4xf32>) -> tensor<4xf32>
  }) : () -> ()
  return
}

// -----

// What jit says of arguments and results, and shard_map does not.

"sdy.mesh"() <{mesh = #sdy.mesh<["dp"=2, "mp"=2]>, sym_name = "mesh"}> : () -> ()
// expected-error @+1 {{'func.func' op expected argument #0 to be split as in its 'sdy.manual_computation', but got #sdy.sharding<@mesh, [{"mp"}]>}}
func.func @f(%a: tensor<4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"mp"}]>}) {
  %0 = "sdy.manual_computation"(%a) <{in_shardings = #sdy.sharding_per_value<[<@mesh, [{"dp"}]>]>, manual_axes = #sdy<manual_axes{"dp", "mp"}>, out_shardings = #sdy.sharding_per_value<[<@mesh, [{"dp"}]>]>}> ({
  ^bb0(%p: tensor<2xf32>):
    "sdy.return"(%p) : (tensor<2xf32>) -> ()
  }) : (tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

"sdy.mesh"() <{mesh = #sdy.mesh<["dp"=2]>, sym_name = "mesh"}> : () -> ()
// expected-error @+1 {{'func.func' op expected result #1 to be split as in its 'sdy.manual_computation', but got #sdy.sharding<@mesh, [{}]>}}
func.func @f(%a: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}]>}) {
  %0 = "sdy.manual_computation"(%a) <{in_shardings = #sdy.sharding_per_value<[<@mesh, [{"dp"}]>]>, manual_axes = #sdy<manual_axes{"dp"}>, out_shardings = #sdy.sharding_per_value<[<@mesh, [{"dp"}]>]>}> ({
  ^bb0(%p: tensor<2xf32>):
    "sdy.return"(%p) : (tensor<2xf32>) -> ()
  }) : (tensor<4xf32>) -> tensor<4xf32>
  return %0, %0 : tensor<4xf32>, tensor<4xf32>
}

// -----

// expected-error @+1 {{'func.func' op expected a program of one rank's tensors, but got a result with an XLA sharding}}
func.func @f(%a: tensor<4xf32>) -> (tensor<4xf32> {mhlo.sharding = "{devices=[2]<=[2]}"}) {
  return %a : tensor<4xf32>
}

// -----

"sdy.mesh"() <{mesh = #sdy.mesh<["dp"=2, "mp"=2]>, sym_name = "mesh"}> : () -> ()
func.func @f(%a: tensor<4xf32>) {
  // expected-error @+1 {{'sdy.sharding_constraint' op expected its operand to be split as in its 'sdy.manual_computation'}}
  %0 = "sdy.sharding_constraint"(%a) <{sharding = #sdy.sharding<@mesh, [{"mp"}]>}> : (tensor<4xf32>) -> tensor<4xf32>
  "sdy.manual_computation"(%0) <{in_shardings = #sdy.sharding_per_value<[<@mesh, [{"dp"}]>]>, manual_axes = #sdy<manual_axes{"dp", "mp"}>, out_shardings = #sdy.sharding_per_value<[]>}> ({
  ^bb0(%p: tensor<2xf32>):
    "sdy.return"() : () -> ()
  }) : (tensor<4xf32>) -> ()
  return
}

// -----

func.func @parts(%a: tensor<4xf32>, %i: tensor<4xi32>) {
  // expected-error @+1 {{'stablehlo.all_gather' op expected the ranks of a group in ascending order, which is the order of their parts}}
  %0 = "stablehlo.all_gather"(%a) <{all_gather_dim = 0 : i64, replica_groups = dense<[[1, 0]]> : tensor<1x2xi64>}> : (tensor<4xf32>) -> tensor<8xf32>
  // expected-error @+1 {{'stablehlo.all_gather' op expected equal parts of a tensor, one for each rank of a group}}
  %1 = "stablehlo.all_gather"(%a) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>}> : (tensor<4xf32>) -> tensor<12xf32>
  // expected-error @+1 {{'stablehlo.collective_broadcast' op expected the rank at the same position in each group to send}}
  %2 = "stablehlo.collective_broadcast"(%a) <{replica_groups = dense<[[1, 0], [2, 3]]> : tensor<2x2xi64>}> : (tensor<4xf32>) -> tensor<4xf32>
  // expected-error @+1 {{'stablehlo.all_gather' op expected statically shaped tensors of f16, bf16, f32 or f64, but got 'tensor<4xi32>'}}
  %3 = "stablehlo.all_gather"(%i) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>}> : (tensor<4xi32>) -> tensor<8xi32>
  // expected-error @+1 {{'stablehlo.reduce_scatter' op expected a sum}}
  %4 = "stablehlo.reduce_scatter"(%a) <{replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>, scatter_dimension = 0 : i64}> ({
  ^bb0(%x: tensor<f32>, %y: tensor<f32>):
    %s = "stablehlo.maximum"(%x, %y) : (tensor<f32>, tensor<f32>) -> tensor<f32>
    "stablehlo.return"(%s) : (tensor<f32>) -> ()
  }) : (tensor<4xf32>) -> tensor<2xf32>
  return
}
