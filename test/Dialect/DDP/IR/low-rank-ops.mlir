// RUN: ddphook-opt %s | FileCheck %s
// RUN: ddphook-opt %s | ddphook-opt | FileCheck %s
// RUN: ddphook-opt %s --mlir-print-op-generic | ddphook-opt | FileCheck %s
// RUN: ddphook-opt %s --emit-bytecode | ddphook-opt | FileCheck %s
// RUN: ddphook-opt %s --mlir-print-op-generic | FileCheck %s --check-prefix=GENERIC

ddp.process_group @dp

// CHECK-LABEL: func @add_sub(
// CHECK-SAME:    %[[B:[a-z0-9]+]]: !ddp.bucket<f32, [4x8]>, %[[T:[a-z0-9]+]]: tensor<32xf16>, %[[M:[a-z0-9]+]]: memref<32xf32>
// CHECK-SAME:    %[[S:[a-z0-9]+]]: memref<32xf32, strided<[1], offset: 7>>
func.func @add_sub(%b: !ddp.bucket<f32, [4x8]>, %t: tensor<32xf16>,
                   %m: memref<32xf32>,
                   %s: memref<32xf32, strided<[1], offset: 7>>) {
  // CHECK: ddp.add %[[B]], %[[B]] : !ddp.bucket<f32, [4x8]>, !ddp.bucket<f32, [4x8]>
  // GENERIC: "ddp.add"(%{{.+}}, %{{.+}}) : (!ddp.bucket<f32, [4x8]>, !ddp.bucket<f32, [4x8]>) -> !ddp.bucket<f32, [4x8]>
  %0 = ddp.add %b, %b : !ddp.bucket<f32, [4x8]>, !ddp.bucket<f32, [4x8]>
  // CHECK: ddp.flat.sub %[[T]], %[[T]] into %[[T]] {note} : tensor<32xf16>, tensor<32xf16>, tensor<32xf16>
  %1 = ddp.flat.sub %t, %t into %t {note} : tensor<32xf16>, tensor<32xf16>, tensor<32xf16>
  // Slices of memory, too.
  // CHECK: ddp.flat.add %[[M]], %[[S]] into %[[M]] : memref<32xf32>, memref<32xf32, strided<[1], offset: 7>>, memref<32xf32>
  ddp.flat.add %m, %s into %m : memref<32xf32>, memref<32xf32, strided<[1], offset: 7>>, memref<32xf32>
  // CHECK: ddp.flat.sub %[[M]], %[[M]] into %[[S]] : memref<32xf32>, memref<32xf32>, memref<32xf32, strided<[1], offset: 7>>
  ddp.flat.sub %m, %m into %s : memref<32xf32>, memref<32xf32>, memref<32xf32, strided<[1], offset: 7>>
  return
}

// The three products of a matrix and its factors; 4-D and 1-D members are
// matrices of their first dimension by all others.
// CHECK-LABEL: func @matmul(
// CHECK-SAME:    %[[MM:[a-z0-9]+]]: !ddp.bucket<f32, [4x3x2x2, 7]>, %[[P:[a-z0-9]+]]: !ddp.bucket<f32, [4x2, 7x1]>, %[[Q:[a-z0-9]+]]: !ddp.bucket<f32, [12x2, 1x1]>
func.func @matmul(%m: !ddp.bucket<f32, [4x3x2x2, 7]>,
                  %p: !ddp.bucket<f32, [4x2, 7x1]>,
                  %q: !ddp.bucket<f32, [12x2, 1x1]>) {
  // CHECK: ddp.matmul %[[MM]], %[[Q]] : (!ddp.bucket<f32, [4x3x2x2, 7]>, !ddp.bucket<f32, [12x2, 1x1]>) -> !ddp.bucket<f32, [4x2, 7x1]>
  %0 = ddp.matmul %m, %q
      : (!ddp.bucket<f32, [4x3x2x2, 7]>, !ddp.bucket<f32, [12x2, 1x1]>)
      -> !ddp.bucket<f32, [4x2, 7x1]>
  // CHECK: ddp.matmul transpose_lhs %[[MM]], %[[P]] : (!ddp.bucket<f32, [4x3x2x2, 7]>, !ddp.bucket<f32, [4x2, 7x1]>) -> !ddp.bucket<f32, [12x2, 1x1]>
  // GENERIC: "ddp.matmul"(%{{.+}}, %{{.+}}) <{transpose_lhs}>
  %1 = ddp.matmul transpose_lhs %m, %p
      : (!ddp.bucket<f32, [4x3x2x2, 7]>, !ddp.bucket<f32, [4x2, 7x1]>)
      -> !ddp.bucket<f32, [12x2, 1x1]>
  // CHECK: ddp.matmul transpose_rhs %[[P]], %[[Q]] : (!ddp.bucket<f32, [4x2, 7x1]>, !ddp.bucket<f32, [12x2, 1x1]>) -> !ddp.bucket<f32, [4x12, 7]>
  // GENERIC: "ddp.matmul"(%{{.+}}, %{{.+}}) <{transpose_rhs}>
  %2 = ddp.matmul transpose_rhs %p, %q
      : (!ddp.bucket<f32, [4x2, 7x1]>, !ddp.bucket<f32, [12x2, 1x1]>)
      -> !ddp.bucket<f32, [4x12, 7]>
  // CHECK: ddp.extract %{{.+}} [1, 0]
  %swapped = ddp.extract %q [1, 0] : !ddp.bucket<f32, [12x2, 1x1]>
  // CHECK: %[[R:.+]] = ddp.matmul %[[MM]] members [1, 0], %{{.+}} {note} : (!ddp.bucket<f32, [4x3x2x2, 7]>, !ddp.bucket<f32, [1x1, 12x2]>) -> !ddp.bucket<f32, [7x1, 4x2]>
  // GENERIC: "ddp.matmul"(%{{.+}}, %{{.+}}) <{members = array<i64: 1, 0>}>
  %3 = ddp.matmul %m members [1, 0], %swapped {note}
      : (!ddp.bucket<f32, [4x3x2x2, 7]>, !ddp.bucket<f32, [1x1, 12x2]>)
      -> !ddp.bucket<f32, [7x1, 4x2]>
  // CHECK: ddp.matmul transpose_lhs %[[MM]] members [1, 0], %[[R]] : (
  %4 = ddp.matmul transpose_lhs %m members [1, 0], %3
      : (!ddp.bucket<f32, [4x3x2x2, 7]>, !ddp.bucket<f32, [7x1, 4x2]>)
      -> !ddp.bucket<f32, [1x1, 12x2]>
  return
}

// CHECK-LABEL: func @matmul_flat(
// CHECK-SAME:    %[[M:[a-z0-9]+]]: tensor<48xf32>, %[[Q:[a-z0-9]+]]: tensor<24xf32>, %[[P:[a-z0-9]+]]: tensor<8xf32>
// CHECK-SAME:    %[[MM:[a-z0-9]+]]: memref<48xf32>, %[[MQ:[a-z0-9]+]]: memref<24xf32>, %[[MP:[a-z0-9]+]]: memref<8xf32>
func.func @matmul_flat(%m: tensor<48xf32>, %q: tensor<24xf32>,
                       %p: tensor<8xf32>, %mm: memref<48xf32>,
                       %mq: memref<24xf32>, %mp: memref<8xf32>) {
  // CHECK: ddp.flat.matmul %[[M]], %[[Q]] layout <0 to 48, [0, 0, 0, 4, 12, 2], []> into %[[P]] : tensor<48xf32>, tensor<24xf32>, tensor<8xf32>
  // GENERIC: "ddp.flat.matmul"(%{{.+}}, %{{.+}}, %{{.+}}) <{layout = #ddp.matrix_list<0 to 48, [0, 0, 0, 4, 12, 2], []>}>
  %0 = ddp.flat.matmul %m, %q layout <0 to 48, [0, 0, 0, 4, 12, 2], []> into %p
      : tensor<48xf32>, tensor<24xf32>, tensor<8xf32>
  // CHECK: ddp.flat.matmul transpose_rhs %[[MP]], %[[MQ]] layout <0 to 48, [0, 0, 0, 4, 12, 2], []> into %[[MM]] : memref<8xf32>, memref<24xf32>, memref<48xf32>
  ddp.flat.matmul transpose_rhs %mp, %mq layout <0 to 48, [0, 0, 0, 4, 12, 2], []>
      into %mm : memref<8xf32>, memref<24xf32>, memref<48xf32>
  return
}

// CHECK-LABEL: func @orthogonalize(
// CHECK-SAME:    %[[B:[a-z0-9]+]]: !ddp.bucket<f64, [64x2, 3x3]>, %[[T:[a-z0-9]+]]: tensor<128xf16>, %[[M:[a-z0-9]+]]: memref<128xf16>
func.func @orthogonalize(%b: !ddp.bucket<f64, [64x2, 3x3]>,
                         %t: tensor<128xf16>, %m: memref<128xf16>) {
  // CHECK: ddp.orthogonalize %[[B]] epsilon 1.000000e-08 : !ddp.bucket<f64, [64x2, 3x3]>
  // GENERIC: "ddp.orthogonalize"(%{{.+}}) <{epsilon = 1.000000e-08 : f64}>
  %0 = ddp.orthogonalize %b epsilon 1.0e-8 : !ddp.bucket<f64, [64x2, 3x3]>
  // CHECK: ddp.orthogonalize %[[B]] epsilon 0.000000e+00 unit_columns : !ddp.bucket<f64, [64x2, 3x3]>
  // GENERIC: "ddp.orthogonalize"(%{{.+}}) <{epsilon = 0.000000e+00 : f64, unit_columns}>
  %unit = ddp.orthogonalize %b epsilon 0.0 unit_columns
      : !ddp.bucket<f64, [64x2, 3x3]>
  // CHECK: ddp.orthogonalize %[[B]] epsilon 0.000000e+00 independent_columns :
  %independent = ddp.orthogonalize %b epsilon 0.0 independent_columns
      : !ddp.bucket<f64, [64x2, 3x3]>
  // CHECK: ddp.flat.orthogonalize %[[T]] epsilon 0.000000e+00 layout <0 to 0, [0, 0, 0, 0, 64, 2], []> into %[[T]] : tensor<128xf16>, tensor<128xf16>
  %1 = ddp.flat.orthogonalize %t epsilon 0.0
      layout <0 to 0, [0, 0, 0, 0, 64, 2], []> into %t : tensor<128xf16>, tensor<128xf16>
  // CHECK: ddp.flat.orthogonalize %[[M]] epsilon 0.000000e+00 layout <0 to 0, [0, 0, 0, 0, 64, 2], []> into %[[M]] {note} : memref<128xf16>, memref<128xf16>
  ddp.flat.orthogonalize %m epsilon 0.0 layout <0 to 0, [0, 0, 0, 0, 64, 2], []>
      into %m {note} : memref<128xf16>, memref<128xf16>
  return
}

// CHECK-LABEL: func @resize(
// CHECK-SAME:    %[[B:[a-z0-9]+]]: !ddp.bucket<f32, [4x8, 8]>
func.func @resize(%b: !ddp.bucket<f32, [4x8, 8]>) {
  // CHECK: %[[S:.+]] = ddp.resize %[[B]] : !ddp.bucket<f32, [4x8, 8]> -> !ddp.bucket<f32, [7x7]>
  // GENERIC: "ddp.resize"(%{{.+}}) : (!ddp.bucket<f32, [4x8, 8]>) -> !ddp.bucket<f32, [7x7]>
  %0 = ddp.resize %b : !ddp.bucket<f32, [4x8, 8]> -> !ddp.bucket<f32, [7x7]>
  // CHECK: ddp.resize %[[S]] {note} : !ddp.bucket<f32, [7x7]> -> !ddp.bucket<f32, []>
  %1 = ddp.resize %0 {note} : !ddp.bucket<f32, [7x7]> -> !ddp.bucket<f32, []>
  return
}

// CHECK-LABEL: func @concat_in_order(
// CHECK-SAME:    %[[A:[a-z0-9]+]]: !ddp.bucket<f32, [4x8, 3]>, %[[B:[a-z0-9]+]]: !ddp.bucket<f32, [8]>
func.func @concat_in_order(%a: !ddp.bucket<f32, [4x8, 3]>,
                           %b: !ddp.bucket<f32, [8]>) {
  // CHECK: ddp.concat %[[A]], %[[B]] order [2, 0, 1] : !ddp.bucket<f32, [4x8, 3]>, !ddp.bucket<f32, [8]> -> !ddp.bucket<f32, [3, 8, 4x8]>
  // GENERIC: "ddp.concat"(%{{.+}}, %{{.+}}) <{operandSegmentSizes = array<i32: 2, 0>, order = array<i64: 2, 0, 1>}>
  %0 = ddp.concat %a, %b order [2, 0, 1]
      : !ddp.bucket<f32, [4x8, 3]>, !ddp.bucket<f32, [8]>
      -> !ddp.bucket<f32, [3, 8, 4x8]>
  // CHECK: ddp.extract %{{.+}} [2, 0] : !ddp.bucket<f32, [3, 8, 4x8]>
  %1 = ddp.extract %0 [2, 0] : !ddp.bucket<f32, [3, 8, 4x8]>
  return
}

// CHECK-LABEL: func @project(
// CHECK-SAME:    %[[G:[a-z0-9]+]]: !ddp.bucket<f32, [64, 64x32]>, %[[Q:[a-z0-9]+]]: !ddp.bucket<f32, [32x2]>
// CHECK-SAME:    %[[M:[a-z0-9]+]]: memref<2112xf32>, %[[MQ:[a-z0-9]+]]: memref<64xf32>, %[[MP:[a-z0-9]+]]: memref<128xf32>
func.func @project(%g: !ddp.bucket<f32, [64, 64x32]>,
                   %q: !ddp.bucket<f32, [32x2]>, %m: memref<2112xf32>,
                   %mq: memref<64xf32>, %mp: memref<128xf32>) {
  // Error and rest, no error, no rest, neither.
  // CHECK: %[[R:.+]]:3 = ddp.project %[[G]] plus %[[G]] members [1] by %[[Q]] : (!ddp.bucket<f32, [64, 64x32]>, !ddp.bucket<f32, [64, 64x32]>, !ddp.bucket<f32, [32x2]>) -> (!ddp.bucket<f32, [64, 64x32]>, !ddp.bucket<f32, [64x2]>, !ddp.bucket<f32, [64]>)
  // GENERIC: "ddp.project"({{.+}}) <{members = array<i64: 1>}>
  %0:3 = ddp.project %g plus %g members [1] by %q
      : (!ddp.bucket<f32, [64, 64x32]>, !ddp.bucket<f32, [64, 64x32]>,
         !ddp.bucket<f32, [32x2]>)
      -> (!ddp.bucket<f32, [64, 64x32]>, !ddp.bucket<f32, [64x2]>,
          !ddp.bucket<f32, [64]>)
  // CHECK: ddp.project %[[G]] members [1] by %[[Q]] {note} : (!ddp.bucket<f32, [64, 64x32]>, !ddp.bucket<f32, [32x2]>) -> (!ddp.bucket<f32, [64x2]>, !ddp.bucket<f32, [64]>)
  %1:2 = ddp.project %g members [1] by %q {note}
      : (!ddp.bucket<f32, [64, 64x32]>, !ddp.bucket<f32, [32x2]>)
      -> (!ddp.bucket<f32, [64x2]>, !ddp.bucket<f32, [64]>)
  // CHECK: %[[W:.+]] = ddp.extract %[[R]]#0 [1]
  %w = ddp.extract %0#0 [1] : !ddp.bucket<f32, [64, 64x32]>
  // CHECK: ddp.project %[[W]] plus %[[W]] members [0] by %[[Q]] : {{.+}} -> (!ddp.bucket<f32, [64x32]>, !ddp.bucket<f32, [64x2]>)
  %2:2 = ddp.project %w plus %w members [0] by %q
      : (!ddp.bucket<f32, [64x32]>, !ddp.bucket<f32, [64x32]>,
         !ddp.bucket<f32, [32x2]>)
      -> (!ddp.bucket<f32, [64x32]>, !ddp.bucket<f32, [64x2]>)
  // CHECK: ddp.project %[[W]] members [0] by %[[Q]] : {{.+}} -> !ddp.bucket<f32, [64x2]>
  %3 = ddp.project %w members [0] by %q
      : (!ddp.bucket<f32, [64x32]>, !ddp.bucket<f32, [32x2]>)
      -> !ddp.bucket<f32, [64x2]>
  // The rest behind P, in one value.
  // CHECK: ddp.project %[[G]] members [1] by %[[Q]] packed : (!ddp.bucket<f32, [64, 64x32]>, !ddp.bucket<f32, [32x2]>) -> !ddp.bucket<f32, [64x2, 64]>
  // GENERIC: packed
  %4 = ddp.project %g members [1] by %q packed
      : (!ddp.bucket<f32, [64, 64x32]>, !ddp.bucket<f32, [32x2]>)
      -> !ddp.bucket<f32, [64x2, 64]>
  // CHECK: ddp.flat.project %[[M]] plus %[[M]] by %[[MQ]] layout <0 to 2112, [64, 0, 0, 64, 32, 2], [0, 0, 64]> into(%[[M]], %[[MP]], %[[MQ]]) : memref<2112xf32>, memref<2112xf32>, memref<64xf32>, memref<2112xf32>, memref<128xf32>, memref<64xf32>
  ddp.flat.project %m plus %m by %mq
      layout <0 to 2112, [64, 0, 0, 64, 32, 2], [0, 0, 64]>
      into (%m, %mp, %mq)
      : memref<2112xf32>, memref<2112xf32>, memref<64xf32>,
         memref<2112xf32>, memref<128xf32>, memref<64xf32>
  return
}

// CHECK-LABEL: func @reconstruct(
// CHECK-SAME:    %[[P:[a-z0-9]+]]: !ddp.bucket<f32, [64x2]>, %[[Q:[a-z0-9]+]]: !ddp.bucket<f32, [32x2]>
// CHECK-SAME:    %[[R:[a-z0-9]+]]: !ddp.bucket<f32, [64]>, %[[M:[a-z0-9]+]]: !ddp.bucket<f32, [64, 64x32]>
// CHECK-SAME:    %[[TP:[a-z0-9]+]]: tensor<128xf32>, %[[TQ:[a-z0-9]+]]: tensor<64xf32>, %[[TM:[a-z0-9]+]]: tensor<2112xf32>
func.func @reconstruct(%p: !ddp.bucket<f32, [64x2]>,
                       %q: !ddp.bucket<f32, [32x2]>,
                       %r: !ddp.bucket<f32, [64]>,
                       %m: !ddp.bucket<f32, [64, 64x32]>,
                       %tp: tensor<128xf32>, %tq: tensor<64xf32>,
                       %tm: tensor<2112xf32>) {
  // CHECK: ddp.reconstruct %[[P]], %[[Q]] members [1] rest %[[R]] from %[[M]] : (
  // GENERIC: "ddp.reconstruct"({{.+}}) <{members = array<i64: 1>, operandSegmentSizes = array<i32: 1, 1, 1, 1>}>
  %0:2 = ddp.reconstruct %p, %q members [1] rest %r from %m
      : (!ddp.bucket<f32, [64x2]>, !ddp.bucket<f32, [32x2]>,
         !ddp.bucket<f32, [64]>, !ddp.bucket<f32, [64, 64x32]>)
      -> (!ddp.bucket<f32, [64, 64x32]>, !ddp.bucket<f32, [64, 64x32]>)
  // CHECK: ddp.reconstruct %[[P]], %[[Q]] members [1] rest %[[R]] from %[[M]] by_world_of @dp {note} : (
  %1:2 = ddp.reconstruct %p, %q members [1] rest %r from %m by_world_of @dp
      {note}
      : (!ddp.bucket<f32, [64x2]>, !ddp.bucket<f32, [32x2]>,
         !ddp.bucket<f32, [64]>, !ddp.bucket<f32, [64, 64x32]>)
      -> (!ddp.bucket<f32, [64, 64x32]>, !ddp.bucket<f32, [64, 64x32]>)
  // CHECK: ddp.reconstruct %[[P]], %[[Q]] members [1] rest %[[R]] : ({{.+}}) -> !ddp.bucket<f32, [64, 64x32]>
  %2 = ddp.reconstruct %p, %q members [1] rest %r
      : (!ddp.bucket<f32, [64x2]>, !ddp.bucket<f32, [32x2]>,
         !ddp.bucket<f32, [64]>) -> !ddp.bucket<f32, [64, 64x32]>
  // CHECK: ddp.reconstruct %[[P]], %[[Q]] members [0] : ({{.+}}) -> !ddp.bucket<f32, [64x8x4]>
  %3 = ddp.reconstruct %p, %q members [0]
      : (!ddp.bucket<f32, [64x2]>, !ddp.bucket<f32, [32x2]>)
      -> !ddp.bucket<f32, [64x8x4]>
  // CHECK: ddp.flat.reconstruct %[[TP]], %[[TQ]] rest %[[TQ]] from %[[TM]] by_world_of @dp layout <0 to 2112, [64, 0, 0, 64, 32, 2], [0, 0, 64]> into(%[[TM]], %[[TM]]) : tensor<128xf32>
  %4:2 = ddp.flat.reconstruct %tp, %tq rest %tq from %tm by_world_of @dp
      layout <0 to 2112, [64, 0, 0, 64, 32, 2], [0, 0, 64]> into (%tm, %tm)
      : tensor<128xf32>, tensor<64xf32>, tensor<64xf32>, tensor<2112xf32>,
         tensor<2112xf32>, tensor<2112xf32>
  return
}
