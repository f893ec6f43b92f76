// RUN: ddphook-opt %s --ddp-import-fx --allow-unregistered-dialect -split-input-file -verify-diagnostics
// RUN: ddphook-opt %s --ddp-import-fx="allow-repeated=true keep-others=true" --allow-unregistered-dialect -split-input-file | FileCheck %s
// RUN: ddphook-opt %s --ddp-import-fx="allow-repeated=true keep-others=true" --allow-unregistered-dialect -split-input-file --remarks-filter=ddp-import-fx 2>&1 >/dev/null | FileCheck %s --check-prefix=REMARK

// What is computed from a mean, a number and memory that is filled is equal on all
// ranks.
#id = affine_map<(d0) -> (d0)>
// CHECK-LABEL: func.func @repeated(
// CHECK:         ddp.all_reduce mean
// CHECK:         linalg.generic
// CHECK:         ddp.all_reduce sum
// CHECK:         "torch.aten.mul.Scalar"
// CHECK:         ddp.all_reduce sum
ddp.process_group @"0" size 2
func.func @repeated(%g: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
  %rate = arith.constant 0.1 : f32
  %e = tensor.empty() : tensor<4xf32>
  // expected-note@+1 {{this '_c10d_functional.all_reduce' has reduced it}}
  %s = "torch._c10d_functional.all_reduce"(%g) {reduce_op = "avg", group_name = "0"} : (tensor<4xf32>) -> tensor<4xf32>
  %a = "torch._c10d_functional.wait_tensor"(%s) : (tensor<4xf32>) -> tensor<4xf32>
  %zero = linalg.fill ins(%rate : f32) outs(%e : tensor<4xf32>) -> tensor<4xf32>
  %q = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]}
      ins(%a : tensor<4xf32>) outs(%zero : tensor<4xf32>) {
  ^bb0(%x: f32, %o: f32):
    %y = arith.mulf %x, %rate : f32
    %z = arith.addf %y, %o : f32
    linalg.yield %z : f32
  } -> tensor<4xf32>
  // expected-error@+1 {{'_c10d_functional.all_reduce' expected a value that is not reduced over group '0' yet; allow-repeated=true reduces it again}}
  %t = "torch._c10d_functional.all_reduce"(%q) {reduce_op = "sum", group_name = "0"} : (tensor<4xf32>) -> tensor<4xf32>
  %b = "torch._c10d_functional.wait_tensor"(%t) : (tensor<4xf32>) -> tensor<4xf32>
  %m = "torch.aten.mul.Scalar"(%a) {other = 0.5} : (tensor<4xf32>) -> tensor<4xf32>
  // expected-error@+1 {{'_c10d_functional.all_reduce' expected a value that is not reduced over group '0' yet}}
  %u = "torch._c10d_functional.all_reduce"(%m) {reduce_op = "sum", group_name = "0"} : (tensor<4xf32>) -> tensor<4xf32>
  %c = "torch._c10d_functional.wait_tensor"(%u) : (tensor<4xf32>) -> tensor<4xf32>
  return %b, %c : tensor<4xf32>, tensor<4xf32>
}

// -----

// What others reduce stays, with its wait and its function.
// REMARK: [Missed] Kept {{.+}}_c10d_functional.all_reduce: expected reduce_op 'sum' or 'avg', but got 'max'
// CHECK:       func.func private @start(tensor<4xf32>) -> tensor<4xf32> attributes {fx =
// CHECK-LABEL: func.func @kept(
// CHECK-NEXT:    %[[S:.+]] = call @start(
// CHECK-NEXT:    %[[A:.+]] = "torch._c10d_functional.wait_tensor"(%[[S]])
// CHECK-NEXT:    %[[B:.+]] = ddp.all_reduce sum %[[A]] on @"0"
// CHECK-NEXT:    return %[[B]]
ddp.process_group @"0" size 2
func.func private @start(tensor<4xf32>) -> tensor<4xf32> attributes {
    fx = {target = "_c10d_functional.all_reduce", reduce_op = "max", group_name = "0"}}
func.func @kept(%g: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error@+1 {{'_c10d_functional.all_reduce' expected reduce_op 'sum' or 'avg', but got 'max'}}
  %s = call @start(%g) : (tensor<4xf32>) -> tensor<4xf32>
  %a = "torch._c10d_functional.wait_tensor"(%s) : (tensor<4xf32>) -> tensor<4xf32>
  %t = "torch._c10d_functional.all_reduce"(%a) {reduce_op = "sum", group_name = "0"} : (tensor<4xf32>) -> tensor<4xf32>
  %b = "torch._c10d_functional.wait_tensor"(%t) : (tensor<4xf32>) -> tensor<4xf32>
  return %b : tensor<4xf32>
}

// -----

// Another group's sums are no repetition.
// CHECK-LABEL: func.func @two_groups(
// CHECK-COUNT-2: ddp.all_reduce sum
ddp.process_group @a ranks [[0, 1], [2, 3]]
ddp.process_group @b ranks [[0, 2], [1, 3]]
func.func @two_groups(%g: tensor<4xf32>) -> tensor<4xf32> {
  %s = "torch._c10d_functional.all_reduce"(%g) {reduce_op = "sum", group_name = "a"} : (tensor<4xf32>) -> tensor<4xf32>
  %a = "torch._c10d_functional.wait_tensor"(%s) : (tensor<4xf32>) -> tensor<4xf32>
  %t = "torch._c10d_functional.all_reduce"(%a) {reduce_op = "sum", group_name = "b"} : (tensor<4xf32>) -> tensor<4xf32>
  %b = "torch._c10d_functional.wait_tensor"(%t) : (tensor<4xf32>) -> tensor<4xf32>
  return %b : tensor<4xf32>
}
