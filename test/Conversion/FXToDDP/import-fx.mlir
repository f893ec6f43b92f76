// RUN: ddphook-opt %s --ddp-import-fx --allow-unregistered-dialect -split-input-file | FileCheck %s
// RUN: ddphook-opt %s --ddp-import-fx --allow-unregistered-dialect -split-input-file --remarks-filter=ddp-import-fx 2>&1 >/dev/null | FileCheck %s --check-prefix=REMARK

// What ddphook.torch.export writes: calls. Scalars are reduced exactly.
// REMARK-DAG: [Passed] Reduction {{.+}}0, exact=false, mean=true
// REMARK-DAG: [Passed] Reduction {{.+}}0, exact=true, mean=true
// REMARK-DAG: [Missed] Mean {{.+}}Remark="no mean over @0: expected a quotient by 2, since the group has 2 ranks, but got one by 3"
// CHECK:       ddp.process_group @"0" size 2
// CHECK-NOT:   func.func private
// CHECK-LABEL: func.func @step(
// CHECK-SAME:      %[[G:.+]]: tensor<4x3xf32>, %[[L:.+]]: tensor<f32>
// CHECK-NEXT:    %[[A:.+]] = ddp.all_reduce mean %[[G]] on @"0" {ddp.name = "fc.weight"} : tensor<4x3xf32>
// CHECK-NEXT:    %[[B:.+]] = ddp.all_reduce mean %[[L]] on @"0" {ddp.hook = #ddp.allreduce} : tensor<f32>
// CHECK-NEXT:    return %[[A]], %[[B]]
ddp.process_group @"0" size 2
func.func private @start(tensor<4x3xf32>) -> tensor<4x3xf32> attributes {
    fx = {target = "_c10d_functional.all_reduce", reduce_op = "avg", group_name = "0",
          names = ["fc.weight"]}}
func.func private @wait(tensor<4x3xf32>) -> tensor<4x3xf32> attributes {
    fx = {target = "_c10d_functional.wait_tensor"}}
func.func private @start_loss(tensor<f32>) -> tensor<f32> attributes {
    fx = {target = "_c10d_functional.all_reduce", reduce_op = "avg", group_name = "0",
          names = [""]}}
func.func private @wait_loss(tensor<f32>) -> tensor<f32> attributes {
    fx = {target = "_c10d_functional.wait_tensor"}}
func.func @step(%g: tensor<4x3xf32>, %l: tensor<f32>) -> (tensor<4x3xf32>, tensor<f32>) {
  %s = call @start(%g) : (tensor<4x3xf32>) -> tensor<4x3xf32>
  %t = call @start_loss(%l) : (tensor<f32>) -> tensor<f32>
  %a = call @wait(%s) : (tensor<4x3xf32>) -> tensor<4x3xf32>
  %b = call @wait_loss(%t) : (tensor<f32>) -> tensor<f32>
  return %a, %b : tensor<4x3xf32>, tensor<f32>
}

// -----

// Operators as operations, one start for two tensors; what else there is stays.
// CHECK-LABEL: func.func @coalesced(
// CHECK-SAME:      %[[A:.+]]: tensor<4xf32>, %[[B:.+]]: tensor<2xf64>
// CHECK-NEXT:    %[[C:.+]] = "torch.aten.relu.default"(%[[A]])
// CHECK-NEXT:    %[[D:.+]] = ddp.all_reduce sum %[[C]] on @pairs {ddp.name = "a"} : tensor<4xf32>
// CHECK-NEXT:    %[[E:.+]] = ddp.all_reduce sum %[[B]] on @pairs : tensor<2xf64>
// CHECK-NEXT:    return %[[E]], %[[D]], %[[E]]
ddp.process_group @pairs ranks [[0, 1], [2, 3]]
func.func @coalesced(%a: tensor<4xf32>, %b: tensor<2xf64>)
    -> (tensor<2xf64>, tensor<4xf32>, tensor<2xf64>) {
  %c = "torch.aten.relu.default"(%a) : (tensor<4xf32>) -> tensor<4xf32>
  %s:2 = "torch._c10d_functional.all_reduce_coalesced.default"(%c, %b)
      {reduce_op = "sum", group_name = "pairs", names = ["a", ""]}
      : (tensor<4xf32>, tensor<2xf64>) -> (tensor<4xf32>, tensor<2xf64>)
  %0 = "torch._c10d_functional.wait_tensor.default"(%s#1) : (tensor<2xf64>) -> tensor<2xf64>
  %1 = "torch._c10d_functional.wait_tensor.default"(%s#0) : (tensor<4xf32>) -> tensor<4xf32>
  %2 = "torch._c10d_functional.wait_tensor"(%s#1) : (tensor<2xf64>) -> tensor<2xf64>
  return %0, %1, %2 : tensor<2xf64>, tensor<4xf32>, tensor<2xf64>
}

// -----

// A division before the sum, as DDP writes it; the other user of the quotient
// keeps it.
#id = affine_map<(d0) -> (d0)>
// CHECK-LABEL: func.func @divided_before(
// CHECK-SAME:      %[[G:.+]]: tensor<4xf32>
// CHECK:         %[[Q:.+]] = linalg.generic
// CHECK:           divf
// CHECK:         %[[A:.+]] = ddp.all_reduce mean %[[G]] on @"0"
// CHECK:         return %[[A]], %[[Q]]
ddp.process_group @"0" size 4
func.func @divided_before(%g: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
  %four = arith.constant 4 : i64
  %e = tensor.empty() : tensor<4xf32>
  %q = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]}
      ins(%g : tensor<4xf32>) outs(%e : tensor<4xf32>) {
  ^bb0(%x: f32, %o: f32):
    %size = arith.sitofp %four : i64 to f32
    %y = arith.divf %x, %size : f32
    linalg.yield %y : f32
  } -> tensor<4xf32>
  %s = "torch._c10d_functional.all_reduce"(%q) {reduce_op = "sum", group_name = "0"}
      : (tensor<4xf32>) -> tensor<4xf32>
  %a = "torch._c10d_functional.wait_tensor"(%s) : (tensor<4xf32>) -> tensor<4xf32>
  return %a, %q : tensor<4xf32>, tensor<4xf32>
}

// -----

// A product with one over the size behind the sum, in the numbers' own type: a
// third is rounded.
#id = affine_map<(d0) -> (d0)>
// CHECK-LABEL: func.func @multiplied_after(
// CHECK-SAME:      %[[G:.+]]: tensor<4xf32>
// CHECK-NOT:     linalg.generic
// CHECK:         %[[A:.+]] = ddp.all_reduce mean %[[G]] on @"0"
// CHECK:         return %[[A]]
ddp.process_group @"0" size 3
func.func @multiplied_after(%g: tensor<4xf32>) -> tensor<4xf32> {
  %third = arith.constant 0.33333333333333331 : f64
  %s = "torch._c10d_functional.all_reduce"(%g) {reduce_op = "sum", group_name = "0"}
      : (tensor<4xf32>) -> tensor<4xf32>
  %a = "torch._c10d_functional.wait_tensor"(%s) : (tensor<4xf32>) -> tensor<4xf32>
  %e = tensor.empty() : tensor<4xf32>
  %q = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]}
      ins(%a : tensor<4xf32>) outs(%e : tensor<4xf32>) {
  ^bb0(%x: f32, %o: f32):
    %factor = arith.truncf %third : f64 to f32
    %y = arith.mulf %x, %factor : f32
    linalg.yield %y : f32
  } -> tensor<4xf32>
  return %q : tensor<4xf32>
}

// -----

// A sum of f16 that is divided behind stays one, for its smallest numbers would be zero
// if they were divided before.
// CHECK-LABEL: func.func @half(
// CHECK:         ddp.all_reduce sum
// CHECK:         arith.divf
ddp.process_group @"0" size 2
func.func @half(%g: tensor<4xf16>) -> tensor<4xf16> {
  %two = arith.constant dense<2.0> : tensor<4xf16>
  %s = "torch._c10d_functional.all_reduce"(%g) {reduce_op = "sum", group_name = "0"}
      : (tensor<4xf16>) -> tensor<4xf16>
  %a = "torch._c10d_functional.wait_tensor"(%s) : (tensor<4xf16>) -> tensor<4xf16>
  %q = arith.divf %a, %two : tensor<4xf16>
  return %q : tensor<4xf16>
}

// -----

// No means: another number, a transposed quotient, a group of unknown size, a use
// that is not divided, a divided result that is needed as it is.
#id = affine_map<(d0) -> (d0)>
#ij = affine_map<(i, j) -> (i, j)>
#ji = affine_map<(i, j) -> (j, i)>
// CHECK-LABEL: func.func @sums(
// CHECK-COUNT-4: ddp.all_reduce sum
// CHECK-NOT:     ddp.all_reduce
ddp.process_group @"0" size 2
ddp.process_group @"1"
func.func @sums(%g: tensor<4xf32>, %m: tensor<2x2xf32>)
    -> (tensor<4xf32>, tensor<2x2xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) {
  %two = arith.constant 2.0 : f32
  %three = arith.constant 3.0 : f32
  %e = tensor.empty() : tensor<4xf32>
  %f = tensor.empty() : tensor<2x2xf32>
  %s0 = "torch._c10d_functional.all_reduce"(%g) {reduce_op = "sum", group_name = "0"}
      : (tensor<4xf32>) -> tensor<4xf32>
  %a0 = "torch._c10d_functional.wait_tensor"(%s0) : (tensor<4xf32>) -> tensor<4xf32>
  %q0 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]}
      ins(%a0 : tensor<4xf32>) outs(%e : tensor<4xf32>) {
  ^bb0(%x: f32, %o: f32):
    %y = arith.divf %x, %three : f32
    linalg.yield %y : f32
  } -> tensor<4xf32>
  %s1 = "torch._c10d_functional.all_reduce"(%m) {reduce_op = "sum", group_name = "0"}
      : (tensor<2x2xf32>) -> tensor<2x2xf32>
  %a1 = "torch._c10d_functional.wait_tensor"(%s1) : (tensor<2x2xf32>) -> tensor<2x2xf32>
  %q1 = linalg.generic {indexing_maps = [#ji, #ij], iterator_types = ["parallel", "parallel"]}
      ins(%a1 : tensor<2x2xf32>) outs(%f : tensor<2x2xf32>) {
  ^bb0(%x: f32, %o: f32):
    %y = arith.divf %x, %two : f32
    linalg.yield %y : f32
  } -> tensor<2x2xf32>
  %s2 = "torch._c10d_functional.all_reduce"(%g) {reduce_op = "sum", group_name = "1"}
      : (tensor<4xf32>) -> tensor<4xf32>
  %a2 = "torch._c10d_functional.wait_tensor"(%s2) : (tensor<4xf32>) -> tensor<4xf32>
  %q2 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]}
      ins(%a2 : tensor<4xf32>) outs(%e : tensor<4xf32>) {
  ^bb0(%x: f32, %o: f32):
    %y = arith.divf %x, %two : f32
    linalg.yield %y : f32
  } -> tensor<4xf32>
  %s3 = "torch._c10d_functional.all_reduce"(%g) {reduce_op = "sum", group_name = "0"}
      : (tensor<4xf32>) -> tensor<4xf32>
  %a3 = "torch._c10d_functional.wait_tensor"(%s3) : (tensor<4xf32>) -> tensor<4xf32>
  %q3 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]}
      ins(%a3 : tensor<4xf32>) outs(%e : tensor<4xf32>) {
  ^bb0(%x: f32, %o: f32):
    %y = arith.divf %x, %two : f32
    linalg.yield %y : f32
  } -> tensor<4xf32>
  return %q0, %q1, %q2, %q3, %a3
      : tensor<4xf32>, tensor<2x2xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
}
