// RUN: ddphook-opt %s --ddp-flatten | FileCheck %s --implicit-check-not=unrealized_conversion_cast

// What shapes say, in attributes; members that do not lie side by side.

ddp.process_group @dp
// States keep their shapes: the plan tells them.
// CHECK: ddp.state @b0.error : !ddp.bucket<f32, [5, 8x9]> per_rank zero
ddp.state @b0.error : !ddp.bucket<f32, [5, 8x9]> per_rank zero
ddp.state @g : tensor<625xi32> replicated mt19937 seed 0
ddp.state @iter : i64 replicated zero

// CHECK-LABEL: func.func @state(
// CHECK:         %[[ERROR:.+]] = ddp.load @b0.error : tensor<77xf32>
// CHECK:         ddp.store %[[ERROR]], @b0.error : tensor<77xf32>
// CHECK:         %[[INTO:.+]] = tensor.empty() : tensor<77xf32>
// CHECK:         %[[Q:.+]] = ddp.flat.random_normal from @g draws [5, 72] into %[[INTO]] : tensor<77xf32>
// CHECK:         ddp.store %[[Q]], @b0.error : tensor<77xf32>
// CHECK:         %[[LOAD:.+]] = ddp.load @iter : i64
// CHECK:         ddp.store %[[LOAD]], @iter : i64
func.func @state() {
  %0 = ddp.load @b0.error : !ddp.bucket<f32, [5, 8x9]>
  ddp.store %0, @b0.error : !ddp.bucket<f32, [5, 8x9]>
  %1 = ddp.random_normal from @g draws [5, 72]
      : () -> !ddp.bucket<f32, [5, 8x9]>
  ddp.store %1, @b0.error : !ddp.bucket<f32, [5, 8x9]>
  %2 = ddp.load @iter : i64
  ddp.store %2, @iter : i64
  return
}

// All three products, and members in another order. Of [2x3, 5, 4x3x2x1] with
// rank 2 the third is 4x6; P is 4x2 and 2x2, Q is 6x2 and 3x2.
// CHECK-LABEL: func.func @matmul(
// CHECK-SAME:    %[[ARG0:[a-z0-9]+]]: tensor<35xf32>, %[[ARG1:[a-z0-9]+]]: tensor<18xf32>) -> tensor<30xf32>
// CHECK:         %[[INTO:.+]] = tensor.empty() : tensor<12xf32>
// CHECK:         %[[P:.+]] = ddp.flat.matmul %[[ARG0]], %[[ARG1]] layout <0 to 35, [11, 0, 0, 4, 6, 2, 0, 8, 12, 2, 3, 2], [6, 0, 5]> into %[[INTO]]
// CHECK:         %[[INTO1:.+]] = tensor.empty() : tensor<18xf32>
// CHECK:         %[[Q:.+]] = ddp.flat.matmul transpose_lhs %[[ARG0]], %[[P]] layout <0 to 35, [11, 0, 0, 4, 6, 2, 0, 8, 12, 2, 3, 2], [6, 0, 5]> into %[[INTO1]]
// CHECK:         %[[INTO2:.+]] = tensor.empty() : tensor<30xf32>
// CHECK:         %[[MHAT:.+]] = ddp.flat.matmul transpose_rhs %[[P]], %[[Q]] layout <0 to 30, [0, 0, 0, 4, 6, 2, 24, 8, 12, 2, 3, 2], []> into %[[INTO2]]
// CHECK:         return %[[MHAT]] : tensor<30xf32>
func.func @matmul(%m: !ddp.bucket<f32, [2x3, 5, 4x3x2x1]>,
                  %q: !ddp.bucket<f32, [6x2, 3x2]>)
    -> !ddp.bucket<f32, [4x6, 2x3]> {
  %p = ddp.matmul %m members [2, 0], %q
      : (!ddp.bucket<f32, [2x3, 5, 4x3x2x1]>, !ddp.bucket<f32, [6x2, 3x2]>)
      -> !ddp.bucket<f32, [4x2, 2x2]>
  %r = ddp.matmul transpose_lhs %m members [2, 0], %p
      : (!ddp.bucket<f32, [2x3, 5, 4x3x2x1]>, !ddp.bucket<f32, [4x2, 2x2]>)
      -> !ddp.bucket<f32, [6x2, 3x2]>
  %x = ddp.matmul transpose_rhs %p, %r
      : (!ddp.bucket<f32, [4x2, 2x2]>, !ddp.bucket<f32, [6x2, 3x2]>)
      -> !ddp.bucket<f32, [4x6, 2x3]>
  return %x : !ddp.bucket<f32, [4x6, 2x3]>
}

// Factors are listed as those of matrices without rows; ranks may differ.
// CHECK-LABEL: func.func @orthogonalize(
// CHECK-SAME:    %[[ARG0:[a-z0-9]+]]: tensor<30xf16>) -> tensor<30xf16>
// CHECK:         %[[INTO:.+]] = tensor.empty() : tensor<30xf16>
// CHECK:         %[[O:.+]] = ddp.flat.orthogonalize %[[ARG0]] epsilon 1.000000e-08 layout <0 to 0, [0, 0, 0, 0, 4, 2, 0, 0, 8, 0, 1, 1, 0, 0, 9, 0, 7, 3], []> into %[[INTO]]
// CHECK:         return %[[O]]
func.func @orthogonalize(%p: !ddp.bucket<f16, [4x2, 1x1, 7x3]>)
    -> !ddp.bucket<f16, [4x2, 1x1, 7x3]> {
  %0 = ddp.orthogonalize %p epsilon 1.0e-8
      : !ddp.bucket<f16, [4x2, 1x1, 7x3]>
  return %0 : !ddp.bucket<f16, [4x2, 1x1, 7x3]>
}

// Members [2, 0] and the pieces around them.
// CHECK-LABEL: func.func @project(
// CHECK-SAME:    %[[ARG0:[a-z0-9]+]]: tensor<36xf32>, %[[ARG1:[a-z0-9]+]]: tensor<18xf32>)
// CHECK-DAG:     %[[INTO:.+]] = tensor.empty() : tensor<36xf32>
// CHECK-DAG:     %[[INTO1:.+]] = tensor.empty() : tensor<12xf32>
// CHECK-DAG:     %[[INTO2:.+]] = tensor.empty() : tensor<6xf32>
// CHECK:         %[[M:.+]]:3 = ddp.flat.project %[[ARG0]] plus %[[ARG0]] by %[[ARG1]] layout <0 to 36, [11, 0, 0, 4, 6, 2, 0, 8, 12, 2, 3, 2], [6, 0, 5, 35, 5, 0, 35, 5, 1]> into(%[[INTO]], %[[INTO1]], %[[INTO2]])
// CHECK:         return %[[M]]#0, %[[M]]#1, %[[M]]#2
func.func @project(%m: !ddp.bucket<f32, [2x3, 5, 4x6, 0x2, scalar]>,
                   %q: !ddp.bucket<f32, [6x2, 3x2]>)
    -> (!ddp.bucket<f32, [2x3, 5, 4x6, 0x2, scalar]>,
        !ddp.bucket<f32, [4x2, 2x2]>, !ddp.bucket<f32, [5, 0x2, scalar]>) {
  %0:3 = ddp.project %m plus %m members [2, 0] by %q
      : (!ddp.bucket<f32, [2x3, 5, 4x6, 0x2, scalar]>,
         !ddp.bucket<f32, [2x3, 5, 4x6, 0x2, scalar]>,
         !ddp.bucket<f32, [6x2, 3x2]>)
      -> (!ddp.bucket<f32, [2x3, 5, 4x6, 0x2, scalar]>,
          !ddp.bucket<f32, [4x2, 2x2]>, !ddp.bucket<f32, [5, 0x2, scalar]>)
  return %0#0, %0#1, %0#2 : !ddp.bucket<f32, [2x3, 5, 4x6, 0x2, scalar]>,
      !ddp.bucket<f32, [4x2, 2x2]>, !ddp.bucket<f32, [5, 0x2, scalar]>
}

// CHECK-LABEL: func.func @project_packed(
// CHECK-SAME:    %[[ARG0:[a-z0-9]+]]: tensor<29xf32>, %[[ARG1:[a-z0-9]+]]: tensor<12xf32>)
// CHECK:         %[[INTO:.+]] = tensor.empty() : tensor<13xf32>
// CHECK:         %[[M:.+]] = ddp.flat.project %[[ARG0]] by %[[ARG1]] packed layout <0 to 29, [5, 0, 0, 4, 6, 2], [0, 0, 5]> into(%[[INTO]])
// CHECK:         return %[[M]]
func.func @project_packed(%m: !ddp.bucket<f32, [5, 4x6]>,
                          %q: !ddp.bucket<f32, [6x2]>)
    -> !ddp.bucket<f32, [4x2, 5]> {
  %0 = ddp.project %m members [1] by %q packed
      : (!ddp.bucket<f32, [5, 4x6]>, !ddp.bucket<f32, [6x2]>)
      -> !ddp.bucket<f32, [4x2, 5]>
  return %0 : !ddp.bucket<f32, [4x2, 5]>
}

// CHECK-LABEL: func.func @reconstruct(
// CHECK-SAME:    %[[ARG0:[a-z0-9]+]]: tensor<8xf32>, %[[ARG1:[a-z0-9]+]]: tensor<12xf32>, %[[ARG2:[a-z0-9]+]]: tensor<8xf32>, %[[ARG3:[a-z0-9]+]]: tensor<32xf32>)
// CHECK-DAG:     %[[INTO:.+]] = tensor.empty() : tensor<32xf32>
// CHECK-DAG:     %[[INTO1:.+]] = tensor.empty() : tensor<32xf32>
// CHECK:         %[[OUT:.+]]:2 = ddp.flat.reconstruct %[[ARG0]], %[[ARG1]] rest %[[ARG2]] from %[[ARG3]] by_world_of @dp layout <0 to 32, [5, 0, 0, 4, 6, 2], [0, 0, 5, 29, 5, 3]> into(%[[INTO]], %[[INTO1]])
// CHECK:         return %[[OUT]]#0, %[[OUT]]#1
func.func @reconstruct(%p: !ddp.bucket<f32, [4x2]>, %q: !ddp.bucket<f32, [6x2]>,
                       %v: !ddp.bucket<f32, [5, 3]>,
                       %m: !ddp.bucket<f32, [5, 4x6, 3]>)
    -> (!ddp.bucket<f32, [5, 4x6, 3]>, !ddp.bucket<f32, [5, 4x6, 3]>) {
  %0:2 = ddp.reconstruct %p, %q members [1] rest %v from %m by_world_of @dp
      : (!ddp.bucket<f32, [4x2]>, !ddp.bucket<f32, [6x2]>,
         !ddp.bucket<f32, [5, 3]>, !ddp.bucket<f32, [5, 4x6, 3]>)
      -> (!ddp.bucket<f32, [5, 4x6, 3]>, !ddp.bucket<f32, [5, 4x6, 3]>)
  return %0#0, %0#1 : !ddp.bucket<f32, [5, 4x6, 3]>,
      !ddp.bucket<f32, [5, 4x6, 3]>
}

// Neighbours in one slice; apart from each other, joined.
// CHECK-LABEL: func.func @extract(
// CHECK-SAME:    %[[ARG0:[a-z0-9]+]]: tensor<15xf32>) -> (tensor<12xf32>, tensor<3xf32>)
// CHECK-DAG:     %[[SL:.+]] = tensor.extract_slice %[[ARG0]][6] [9] [1]
// CHECK-DAG:     %[[SL1:.+]] = tensor.extract_slice %[[ARG0]][0] [3] [1]
// CHECK:         %[[C:.+]] = ddp.concat %[[SL]], %[[SL1]] : tensor<9xf32>, tensor<3xf32> -> tensor<12xf32>
// CHECK-DAG:     %[[SL2:.+]] = tensor.extract_slice %[[ARG0]][1] [2] [1]
// CHECK-DAG:     %[[SL3:.+]] = tensor.extract_slice %[[ARG0]][0] [1] [1]
// CHECK:         %[[C1:.+]] = ddp.concat %[[SL2]], %[[SL3]] : tensor<2xf32>, tensor<1xf32> -> tensor<3xf32>
// CHECK:         return %[[C]], %[[C1]]
func.func @extract(%b: !ddp.bucket<f32, [1, 2, 3, 4, 5]>)
    -> (!ddp.bucket<f32, [4, 5, 1, 2]>, !ddp.bucket<f32, [2, 1]>) {
  %0 = ddp.extract %b [3, 4, 0, 1] : !ddp.bucket<f32, [1, 2, 3, 4, 5]>
  %1 = ddp.extract %b [1, 0] : !ddp.bucket<f32, [1, 2, 3, 4, 5]>
  return %0, %1 : !ddp.bucket<f32, [4, 5, 1, 2]>, !ddp.bucket<f32, [2, 1]>
}

// A concat with an order takes its operands apart, as far as it has to.
// CHECK-LABEL: func.func @concat(
// CHECK-SAME:    %[[ARG0:[a-z0-9]+]]: tensor<6xf32>, %[[ARG1:[a-z0-9]+]]: tensor<4xf32>) -> (tensor<10xf32>, tensor<10xf32>)
// CHECK-DAG:     %[[SL:.+]] = tensor.extract_slice %[[ARG0]][0] [1] [1]
// CHECK-DAG:     %[[SL1:.+]] = tensor.extract_slice %[[ARG0]][1] [5] [1]
// CHECK:         %[[C:.+]] = ddp.concat %[[SL]], %[[ARG1]], %[[SL1]] : tensor<1xf32>, tensor<4xf32>, tensor<5xf32> -> tensor<10xf32>
// CHECK-NEXT:    %[[C1:.+]] = ddp.concat %[[ARG1]], %[[ARG0]] : tensor<4xf32>, tensor<6xf32> -> tensor<10xf32>
// CHECK-NEXT:    return %[[C]], %[[C1]]
func.func @concat(%a: !ddp.bucket<f32, [1, 2, 3]>, %b: !ddp.bucket<f32, [4]>)
    -> (!ddp.bucket<f32, [1, 4, 2, 3]>, !ddp.bucket<f32, [4, 1, 2, 3]>) {
  %0 = ddp.concat %a, %b order [0, 2, 3, 1]
      : !ddp.bucket<f32, [1, 2, 3]>, !ddp.bucket<f32, [4]>
      -> !ddp.bucket<f32, [1, 4, 2, 3]>
  %1 = ddp.concat %a, %b order [1, 2, 3, 0]
      : !ddp.bucket<f32, [1, 2, 3]>, !ddp.bucket<f32, [4]>
      -> !ddp.bucket<f32, [4, 1, 2, 3]>
  return %0, %1 : !ddp.bucket<f32, [1, 4, 2, 3]>,
      !ddp.bucket<f32, [4, 1, 2, 3]>
}

// In order it is its only operand; of nothing it is nothing.
// CHECK-LABEL: func.func @concat_in_order(
// CHECK-SAME:    %[[ARG0:[a-z0-9]+]]: tensor<3xf32>) -> (tensor<3xf32>, tensor<0xf32>)
// CHECK-NEXT:   %[[C:.+]] = ddp.concat -> tensor<0xf32>
// CHECK-NEXT:   return %[[ARG0]], %[[C]] : tensor<3xf32>, tensor<0xf32>
func.func @concat_in_order(%a: !ddp.bucket<f32, [1, 2]>)
    -> (!ddp.bucket<f32, [1, 2]>, !ddp.bucket<f32, []>) {
  %0 = ddp.concat %a order [0, 1]
      : !ddp.bucket<f32, [1, 2]> -> !ddp.bucket<f32, [1, 2]>
  %1 = ddp.concat order [] -> !ddp.bucket<f32, []>
  return %0, %1 : !ddp.bucket<f32, [1, 2]>, !ddp.bucket<f32, []>
}

// Filled up with zeros, cut off, the same size with other members.
// CHECK-LABEL: func.func @resize(
// CHECK-SAME:    %[[ARG0:[a-z0-9]+]]: tensor<7xbf16>) -> (tensor<9xbf16>, tensor<4xbf16>, tensor<7xbf16>, tensor<0xbf16>)
// CHECK-DAG:     %[[ZERO:.+]] = arith.constant 0.000000e+00 : bf16
// CHECK-DAG:     %[[EMPTY:.+]] = tensor.empty() : tensor<2xbf16>
// CHECK:         %[[FILL:.+]] = linalg.fill ins(%[[ZERO]] : bf16) outs(%[[EMPTY]] : tensor<2xbf16>)
// CHECK:         %[[C:.+]] = ddp.concat %[[ARG0]], %[[FILL]] : tensor<7xbf16>, tensor<2xbf16> -> tensor<9xbf16>
// CHECK-DAG:     %[[SL:.+]] = tensor.extract_slice %[[C]][0] [4] [1]
// CHECK-DAG:     %[[SL1:.+]] = tensor.extract_slice %[[ARG0]][0] [0] [1]
// CHECK:         return %[[C]], %[[SL]], %[[ARG0]], %[[SL1]]
func.func @resize(%a: !ddp.bucket<bf16, [2x3, 1]>)
    -> (!ddp.bucket<bf16, [3x3]>, !ddp.bucket<bf16, [2x2]>,
        !ddp.bucket<bf16, [7]>, !ddp.bucket<bf16, []>) {
  %0 = ddp.resize %a : !ddp.bucket<bf16, [2x3, 1]> -> !ddp.bucket<bf16, [3x3]>
  %1 = ddp.resize %0 : !ddp.bucket<bf16, [3x3]> -> !ddp.bucket<bf16, [2x2]>
  %2 = ddp.resize %a : !ddp.bucket<bf16, [2x3, 1]> -> !ddp.bucket<bf16, [7]>
  %3 = ddp.resize %a : !ddp.bucket<bf16, [2x3, 1]> -> !ddp.bucket<bf16, []>
  return %0, %1, %2, %3 : !ddp.bucket<bf16, [3x3]>, !ddp.bucket<bf16, [2x2]>,
      !ddp.bucket<bf16, [7]>, !ddp.bucket<bf16, []>
}
