// RUN: ddphook-opt %s -split-input-file --ddp-export-stablehlo="num-ranks=2 manifest=%t.json" | FileCheck %s
// RUN: ddphook-opt %s -split-input-file --ddp-export-stablehlo="num-ranks=2 manifest=%t.json" | FileCheck %s --check-prefix=NONE

// Nothing of ours is left, not even an attribute.
// NONE-NOT: ddp.

// A gradient alone keeps its shape. XLA multiplies by the inverse of a divisor unless a
// barrier stands behind the broadcast.

// CHECK-LABEL: func.func @alone
// CHECK-SAME: (%[[G:.*]]: tensor<4x8xf32>, %{{.*}}: tensor<2xf32>)
// CHECK-DAG: %[[TWO:.*]] = "stablehlo.constant"() {value = dense<2.000000e+00> : tensor<f32>}
// CHECK: %[[ALL:.*]] = "stablehlo.broadcast_in_dim"(%[[TWO]]) {broadcast_dimensions = array<i64>}
// CHECK: %[[DIVISOR:.*]] = "stablehlo.optimization_barrier"(%[[ALL]])
// CHECK: %[[QUOTIENT:.*]] = "stablehlo.divide"(%[[G]], %[[DIVISOR]])
// CHECK: %[[SUM:.*]] = "stablehlo.all_reduce"(%[[QUOTIENT]]) ({
// CHECK-NEXT: ^bb0(%[[A:.*]]: tensor<f32>, %[[B:.*]]: tensor<f32>):
// CHECK-NEXT: %[[BOTH:.*]] = "stablehlo.add"(%[[A]], %[[B]])
// CHECK-NEXT: "stablehlo.return"(%[[BOTH]])
// CHECK-NEXT: }) {channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, replica_groups = dense<{{\[\[}}0, 1]]> : tensor<1x2xi64>, use_global_device_ids} : (tensor<4x8xf32>) -> tensor<4x8xf32>
// CHECK-NEXT: return %[[SUM]]
module attributes {ddp.hook = #ddp.allreduce} {
  ddp.process_group @dp
  func.func @alone(%g: tensor<4x8xf32>, %x: tensor<2xf32> {ddp.name = "x"})
      -> (tensor<4x8xf32> {ddp.gradient}) attributes {ddp.hook = #ddp.allreduce} {
    %b = ddp.pack %g : tensor<4x8xf32> -> !ddp.bucket<f32, [4x8]>
    %s = ddp.all_reduce mean %b on @dp as "b0" {ddp.hook = #ddp.allreduce}
        : !ddp.bucket<f32, [4x8]>
    %r = ddp.unpack %s : !ddp.bucket<f32, [4x8]> -> tensor<4x8xf32>
    return %r : tensor<4x8xf32>
  }
}

// -----

// Several members share a collective. A 16-bit value goes through a barrier whenever it
// is rounded; quotients are computed in f32.

// CHECK-LABEL: func.func @half
// CHECK-SAME: (%[[W:.*]]: tensor<4x8xf32>, %[[B:.*]]: tensor<8xf32>)
// CHECK: %[[W16:.*]] = "stablehlo.convert"(%[[W]]) : (tensor<4x8xf32>) -> tensor<4x8xf16>
// CHECK: %[[W1:.*]] = "stablehlo.optimization_barrier"(%[[W16]])
// CHECK: %[[B16:.*]] = "stablehlo.convert"(%[[B]]) : (tensor<8xf32>) -> tensor<8xf16>
// CHECK: %[[B1:.*]] = "stablehlo.optimization_barrier"(%[[B16]])
// CHECK: %[[FLAT:.*]] = "stablehlo.reshape"(%[[W1]]) : (tensor<4x8xf16>) -> tensor<32xf16>
// CHECK: %[[JOINED:.*]] = "stablehlo.concatenate"(%[[FLAT]], %[[B1]]) {dimension = 0 : i64}
// CHECK: %[[WIDE:.*]] = "stablehlo.convert"(%[[JOINED]]) : (tensor<40xf16>) -> tensor<40xf32>
// CHECK: %[[QUOTIENT:.*]] = "stablehlo.divide"(%[[WIDE]],
// CHECK: %[[NARROW:.*]] = "stablehlo.convert"(%[[QUOTIENT]]) : (tensor<40xf32>) -> tensor<40xf16>
// CHECK: %[[ROUNDED:.*]] = "stablehlo.optimization_barrier"(%[[NARROW]])
// CHECK: %[[SUM:.*]] = "stablehlo.all_reduce"(%[[ROUNDED]])
// CHECK: (tensor<40xf16>) -> tensor<40xf16>
// CHECK: %[[KEPT:.*]] = "stablehlo.optimization_barrier"(%[[SUM]])
// CHECK: %[[PART:.*]] = "stablehlo.slice"(%[[KEPT]]) {limit_indices = array<i64: 32>, start_indices = array<i64: 0>, strides = array<i64: 1>}
// CHECK: %[[SHAPED:.*]] = "stablehlo.reshape"(%[[PART]]) : (tensor<32xf16>) -> tensor<4x8xf16>
// CHECK: %[[LAST:.*]] = "stablehlo.slice"(%[[KEPT]]) {limit_indices = array<i64: 40>, start_indices = array<i64: 32>, strides = array<i64: 1>}
// CHECK: %[[R0:.*]] = "stablehlo.convert"(%[[SHAPED]]) : (tensor<4x8xf16>) -> tensor<4x8xf32>
// CHECK: %[[R1:.*]] = "stablehlo.convert"(%[[LAST]]) : (tensor<8xf16>) -> tensor<8xf32>
// CHECK: return %[[R0]], %[[R1]]
ddp.process_group @dp
func.func @half(%w: tensor<4x8xf32>, %b: tensor<8xf32>)
    -> (tensor<4x8xf32>, tensor<8xf32>) {
  %0 = ddp.pack %w, %b : tensor<4x8xf32>, tensor<8xf32>
      -> !ddp.bucket<f32, [4x8, 8]>
  %1 = ddp.all_reduce mean %0 on @dp wire f16 as "b0" {ddp.hook = #ddp.allreduce}
      : !ddp.bucket<f32, [4x8, 8]>
  %2:2 = ddp.unpack %1 : !ddp.bucket<f32, [4x8, 8]> -> tensor<4x8xf32>, tensor<8xf32>
  return %2#0, %2#1 : tensor<4x8xf32>, tensor<8xf32>
}

// -----

// From f64 a 16-bit type is reached by way of f32, of which XLA must not see through
// either.

// CHECK-LABEL: func.func @casts
// CHECK: %[[SINGLE:.*]] = "stablehlo.convert"(%{{.*}}) : (tensor<3xf64>) -> tensor<3xf32>
// CHECK: %[[KEPT:.*]] = "stablehlo.optimization_barrier"(%[[SINGLE]])
// CHECK: "stablehlo.convert"(%[[KEPT]]) : (tensor<3xf32>) -> tensor<3xbf16>
func.func @casts(%x: tensor<3xf64>) -> tensor<3xbf16> {
  %b = ddp.pack %x : tensor<3xf64> -> !ddp.bucket<f64, [3]>
  %c = ddp.cast %b : !ddp.bucket<f64, [3]> -> !ddp.bucket<bf16, [3]>
  %r = ddp.unpack %c : !ddp.bucket<bf16, [3]> -> tensor<3xbf16>
  return %r : tensor<3xbf16>
}

// -----

// Channels begin behind the last one of the program; each group lists its ranks. One
// group says how many ranks the job has; that agrees with num-ranks.

// CHECK-LABEL: func.func @groups
// CHECK: handle = 7, type = 1
// CHECK: "stablehlo.all_reduce"
// CHECK: handle = 8, type = 1>, replica_groups = dense<{{\[\[}}0], [1]]> : tensor<2x1xi64>
// CHECK: "stablehlo.all_reduce"
// CHECK: handle = 9, type = 1>, replica_groups = dense<{{\[\[}}0, 1]]> : tensor<1x2xi64>
ddp.process_group @each size 1 ranks [[0], [1]]
ddp.process_group @dp
func.func @groups(%x: tensor<3xf32>) -> (tensor<3xf32>, tensor<3xf32>, tensor<3xf32>) {
  %0 = "stablehlo.all_reduce"(%x) ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %3 = "stablehlo.maximum"(%a, %b) : (tensor<f32>, tensor<f32>) -> tensor<f32>
    "stablehlo.return"(%3) : (tensor<f32>) -> ()
  }) {channel_handle = #stablehlo.channel_handle<handle = 7, type = 1>, replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>, use_global_device_ids} : (tensor<3xf32>) -> tensor<3xf32>
  %1 = ddp.all_reduce sum %x on @each {ddp.hook = #ddp.allreduce} : tensor<3xf32>
  %2 = ddp.all_reduce sum %x on @dp {ddp.hook = #ddp.allreduce} : tensor<3xf32>
  return %0, %1, %2 : tensor<3xf32>, tensor<3xf32>, tensor<3xf32>
}

// -----

// Nothing is sent for a bucket without elements, and a division by one is none.

// CHECK-LABEL: func.func @nothing
// CHECK-SAME: (%[[G:.*]]: tensor<0x4xf32>, %[[H:.*]]: tensor<2xf32>)
// CHECK-NEXT: return %[[G]], %[[H]]
ddp.process_group @dp
ddp.process_group @each ranks [[0], [1]]
func.func @nothing(%g: tensor<0x4xf32>, %h: tensor<2xf32>) -> (tensor<0x4xf32>, tensor<2xf32>) {
  %0 = ddp.all_reduce mean %g on @dp {ddp.hook = #ddp.allreduce} : tensor<0x4xf32>
  %1 = ddp.scale %h by_world_of @each : tensor<2xf32>
  return %0, %1 : tensor<0x4xf32>, tensor<2xf32>
}

// -----

// States are arguments and results, in the order of the module, whether a branch stores
// them or not. A counter has 32 bits outside, and stops at the end.

// CHECK-LABEL: func.func @states
// CHECK-SAME: (%[[G:.*]]: tensor<2x3xf32>, %[[ITER:.*]]: tensor<i32> {tf.aliasing_output = 1 : i32}, %[[ERROR:.*]]: tensor<6xf32> {tf.aliasing_output = 2 : i32})
// CHECK-SAME: -> (tensor<2x3xf32>, tensor<i32>, tensor<6xf32>)
// CHECK: %[[COUNT:.*]] = "stablehlo.convert"(%[[ITER]]) : (tensor<i32>) -> tensor<i64>
// CHECK: %[[ONE:.*]] = "stablehlo.constant"() {value = dense<1> : tensor<i64>}
// CHECK: %[[IS_ONE:.*]] = "stablehlo.compare"(%[[COUNT]], %[[ONE]]) {comparison_direction = #stablehlo<comparison_direction LT>}
// CHECK: %[[BRANCH:.*]]:2 = "stablehlo.if"(%[[IS_ONE]]) ({
// CHECK-NEXT: "stablehlo.return"(%[[G]], %[[ERROR]])
// CHECK-NEXT: }, {
// CHECK: %[[SHAPED:.*]] = "stablehlo.reshape"(%[[ERROR]]) : (tensor<6xf32>) -> tensor<2x3xf32>
// CHECK: %[[SUM:.*]] = "stablehlo.add"(%[[G]], %[[SHAPED]])
// CHECK: %[[FLAT:.*]] = "stablehlo.reshape"(%[[SUM]])
// CHECK: "stablehlo.return"(%[[SUM]], %[[FLAT]])
// CHECK: %[[NEXT:.*]] = "stablehlo.add"(%[[COUNT]], %[[ONE]])
// CHECK: %[[END:.*]] = "stablehlo.constant"() {value = dense<2147483647> : tensor<i64>}
// CHECK: %[[LIMITED:.*]] = "stablehlo.minimum"(%[[NEXT]], %[[END]])
// CHECK: %[[STORED:.*]] = "stablehlo.convert"(%[[LIMITED]]) : (tensor<i64>) -> tensor<i32>
// CHECK: return %[[BRANCH]]#0, %[[STORED]], %[[BRANCH]]#1
ddp.state @iter : i64 replicated zero
ddp.state @unused : !ddp.bucket<f32, [6]> replicated zero
ddp.state @empty : !ddp.bucket<f32, []> replicated zero
ddp.state @error : !ddp.bucket<f32, [2x3]> per_rank zero
func.func @states(%g: tensor<2x3xf32>) -> tensor<2x3xf32> {
  %i = ddp.load @iter : i64
  %one = arith.constant 1 : i64
  %isOne = arith.cmpi slt, %i, %one : i64
  %b = ddp.pack %g : tensor<2x3xf32> -> !ddp.bucket<f32, [2x3]>
  %r = scf.if %isOne -> !ddp.bucket<f32, [2x3]> {
    scf.yield %b : !ddp.bucket<f32, [2x3]>
  } else {
    %nothing = ddp.load @empty : !ddp.bucket<f32, []>
    ddp.store %nothing, @empty : !ddp.bucket<f32, []>
    %e = ddp.load @error : !ddp.bucket<f32, [2x3]>
    %m = ddp.add %b, %e : !ddp.bucket<f32, [2x3]>, !ddp.bucket<f32, [2x3]>
    ddp.store %m, @error : !ddp.bucket<f32, [2x3]>
    scf.yield %m : !ddp.bucket<f32, [2x3]>
  }
  %next = arith.addi %i, %one : i64
  ddp.store %next, @iter : i64
  %t = ddp.unpack %r : !ddp.bucket<f32, [2x3]> -> tensor<2x3xf32>
  return %t : tensor<2x3xf32>
}

// -----

// A load behind a branch without an else sees what the branch stored.

// CHECK-LABEL: func.func @stored
// CHECK-SAME: (%[[G:.*]]: tensor<4xf32>, %[[E:.*]]: tensor<4xf32> {
// CHECK: "stablehlo.is_finite"(%[[G]]) : (tensor<4xf32>) -> tensor<4xi1>
// CHECK: "stablehlo.reduce"
// CHECK: {dimensions = array<i64: 0>}
// CHECK: %[[OK:.*]] = "stablehlo.and"
// CHECK: %[[NEW:.*]] = "stablehlo.if"(%[[OK]]) ({
// CHECK-NEXT: "stablehlo.return"(%[[G]])
// CHECK-NEXT: }, {
// CHECK-NEXT: "stablehlo.return"(%[[E]])
// CHECK: return %[[NEW]], %[[NEW]]
ddp.state @error : !ddp.bucket<f32, [4]> per_rank zero
func.func @stored(%g: tensor<4xf32>) -> tensor<4xf32> {
  %b = ddp.pack %g : tensor<4xf32> -> !ddp.bucket<f32, [4]>
  %ok = ddp.is_finite %b : !ddp.bucket<f32, [4]>
  scf.if %ok {
    ddp.store %b, @error : !ddp.bucket<f32, [4]>
  }
  %e = ddp.load @error : !ddp.bucket<f32, [4]>
  %t = ddp.unpack %e : !ddp.bucket<f32, [4]> -> tensor<4xf32>
  return %t : tensor<4xf32>
}

// -----

// Products of matrices are those of 2-D views, in f32 at least; one function for all
// matrices of a shape makes columns orthonormal.

// CHECK-LABEL: func.func @lowRank
// CHECK: %[[M:.*]] = "stablehlo.reshape"(%{{.*}}) : (tensor<4x2x3xbf16>) -> tensor<4x6xbf16>
// CHECK: %[[P:.*]] = "stablehlo.dot_general"(%[[M]], %{{.*}}) {dot_dimension_numbers = #stablehlo.dot<lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [0]>, precision_config = [#stablehlo<precision HIGHEST>, #stablehlo<precision HIGHEST>]} : (tensor<4x6xbf16>, tensor<6x1xbf16>) -> tensor<4x1xf32>
// CHECK: "stablehlo.convert"(%[[P]]) : (tensor<4x1xf32>) -> tensor<4x1xbf16>
// CHECK: call @ddp_orthogonalize_1x4x1_bf16
// CHECK: call @ddp_orthogonalize_1x4x1_bf16
// CHECK: lhs_contracting_dimensions = [0], rhs_contracting_dimensions = [0]>
// CHECK: lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [1]>
// CHECK-SAME: (tensor<4x1xbf16>, tensor<6x1xbf16>) -> tensor<4x6xf32>
// CHECK: func.func private @ddp_orthogonalize_1x4x1_bf16(%{{.*}}: tensor<1x4x1xbf16>) -> tensor<1x4x1xbf16>
// CHECK-NOT: func.func
func.func @lowRank(%g: tensor<4x2x3xbf16>, %q: tensor<6x1xbf16>) -> tensor<4x2x3xbf16> {
  %m = ddp.pack %g : tensor<4x2x3xbf16> -> !ddp.bucket<bf16, [4x2x3]>
  %bq = ddp.pack %q : tensor<6x1xbf16> -> !ddp.bucket<bf16, [6x1]>
  %p = ddp.matmul %m, %bq
      : (!ddp.bucket<bf16, [4x2x3]>, !ddp.bucket<bf16, [6x1]>) -> !ddp.bucket<bf16, [4x1]>
  %p1 = ddp.orthogonalize %p epsilon 1.000000e-08 : !ddp.bucket<bf16, [4x1]>
  %p2 = ddp.orthogonalize %p1 epsilon 1.000000e-08 : !ddp.bucket<bf16, [4x1]>
  %q1 = ddp.matmul transpose_lhs %m, %p2
      : (!ddp.bucket<bf16, [4x2x3]>, !ddp.bucket<bf16, [4x1]>) -> !ddp.bucket<bf16, [6x1]>
  %out = ddp.matmul transpose_rhs %p2, %q1
      : (!ddp.bucket<bf16, [4x1]>, !ddp.bucket<bf16, [6x1]>) -> !ddp.bucket<bf16, [4x2x3]>
  %r = ddp.unpack %out : !ddp.bucket<bf16, [4x2x3]> -> tensor<4x2x3xbf16>
  return %r : tensor<4x2x3xbf16>
}

// -----

// What only moves members makes no operation, but for sizes that change.

// CHECK-LABEL: func.func @moves
// CHECK-SAME: (%[[A:.*]]: tensor<2xf32>, %[[B:.*]]: tensor<3xf32>)
// CHECK: %[[JOINED:.*]] = "stablehlo.concatenate"(%[[B]], %[[A]])
// CHECK: %[[ZEROS:.*]] = "stablehlo.constant"() {value = dense<0.000000e+00> : tensor<4xf32>}
// CHECK: %[[PADDED:.*]] = "stablehlo.concatenate"(%[[JOINED]], %[[ZEROS]])
// CHECK: %[[SQUARE:.*]] = "stablehlo.reshape"(%[[PADDED]]) : (tensor<9xf32>) -> tensor<3x3xf32>
// CHECK: %[[SCALED:.*]] = "stablehlo.multiply"(%[[SQUARE]], %{{.*}})
// CHECK: %[[FLAT:.*]] = "stablehlo.reshape"(%[[SCALED]])
// CHECK: %[[CUT:.*]] = "stablehlo.slice"(%[[FLAT]]) {limit_indices = array<i64: 5>
// CHECK: return %[[CUT]]
func.func @moves(%a: tensor<2xf32>, %b: tensor<3xf32>) -> tensor<5xf32> {
  %0 = ddp.pack %a, %b : tensor<2xf32>, tensor<3xf32> -> !ddp.bucket<f32, [2, 3]>
  %1:2 = ddp.split %0 : !ddp.bucket<f32, [2, 3]>
      -> !ddp.bucket<f32, [2]>, !ddp.bucket<f32, [3]>
  %2 = ddp.concat %1#0, %1#1 order [1, 0]
      : !ddp.bucket<f32, [2]>, !ddp.bucket<f32, [3]> -> !ddp.bucket<f32, [3, 2]>
  %3 = ddp.extract %2 [0, 1] : !ddp.bucket<f32, [3, 2]>
  %4 = ddp.resize %3 : !ddp.bucket<f32, [3, 2]> -> !ddp.bucket<f32, [3x3]>
  %5 = ddp.scale %4 by 2.500000e-01 : !ddp.bucket<f32, [3x3]>
  %6 = ddp.resize %5 : !ddp.bucket<f32, [3x3]> -> !ddp.bucket<f32, [5]>
  %r = ddp.unpack %6 : !ddp.bucket<f32, [5]> -> tensor<5xf32>
  return %r : tensor<5xf32>
}

// -----

// Matrices of one shape are made orthonormal together: two of 4x3, by Householder's
// reflections, and one of 5x2 by Gram-Schmidt, whose zero columns become unit vectors.

// CHECK-LABEL: func.func @together
// CHECK-SAME: (%[[A:.*]]: tensor<4x3xf32>, %[[B:.*]]: tensor<5x2xf32>, %[[C:.*]]: tensor<4x3xf32>)
// CHECK-DAG: %[[A1:.*]] = "stablehlo.reshape"(%[[A]]) : (tensor<4x3xf32>) -> tensor<1x4x3xf32>
// CHECK-DAG: %[[C1:.*]] = "stablehlo.reshape"(%[[C]]) : (tensor<4x3xf32>) -> tensor<1x4x3xf32>
// CHECK: %[[AC:.*]] = "stablehlo.concatenate"(%[[A1]], %[[C1]]) {dimension = 0 : i64}
// CHECK: %[[Q:.*]] = call @ddp_orthogonalize_2x4x3_f32(%[[AC]])
// CHECK: %[[QA:.*]] = "stablehlo.slice"(%[[Q]]) {limit_indices = array<i64: 1, 4, 3>
// CHECK: %[[RA:.*]] = "stablehlo.reshape"(%[[QA]])
// CHECK: %[[QC:.*]] = "stablehlo.slice"(%[[Q]]) {limit_indices = array<i64: 2, 4, 3>, start_indices = array<i64: 1, 0, 0>
// CHECK: %[[RC:.*]] = "stablehlo.reshape"(%[[QC]])
// CHECK: call @ddp_orthogonalize_1x5x2_f32
// CHECK: return %[[RA]], %{{.*}}, %[[RC]]
// CHECK: func.func private @ddp_orthogonalize_2x4x3_f32
// CHECK: lhs_batching_dimensions = [0], rhs_batching_dimensions = [0]
// CHECK-NOT: "stablehlo.iota"
// CHECK: func.func private @ddp_orthogonalize_1x5x2_f32
// CHECK: "stablehlo.iota"() {iota_dimension = 1 : i64}
func.func @together(%a: tensor<4x3xf32>, %b: tensor<5x2xf32>, %c: tensor<4x3xf32>)
    -> (tensor<4x3xf32>, tensor<5x2xf32>, tensor<4x3xf32>) {
  %0 = ddp.pack %a, %b, %c : tensor<4x3xf32>, tensor<5x2xf32>, tensor<4x3xf32>
      -> !ddp.bucket<f32, [4x3, 5x2, 4x3]>
  %1 = ddp.orthogonalize %0 epsilon 0.000000e+00 unit_columns
      : !ddp.bucket<f32, [4x3, 5x2, 4x3]>
  %2:3 = ddp.unpack %1 : !ddp.bucket<f32, [4x3, 5x2, 4x3]>
      -> tensor<4x3xf32>, tensor<5x2xf32>, tensor<4x3xf32>
  return %2#0, %2#1, %2#2 : tensor<4x3xf32>, tensor<5x2xf32>, tensor<4x3xf32>
}
