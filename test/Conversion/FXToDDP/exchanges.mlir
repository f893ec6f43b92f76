// RUN: ddphook-opt %s --ddp-import-fx --allow-unregistered-dialect | FileCheck %s

// Collectives that split tensors along the first dimension, and their waits.
// CHECK-LABEL: func.func @step(
// CHECK-SAME:      %[[G:.+]]: tensor<4x3xf32>, %[[P:.+]]: tensor<2x3xf32>
// CHECK-NEXT:    %[[S:.+]] = ddp.reduce_scatter mean %[[G]] on @"0" {ddp.name = "w"} : tensor<4x3xf32> -> tensor<6xf32>
// CHECK-NEXT:    %[[T:.+]] = tensor.expand_shape %[[S]] {{\[}}[0, 1]] output_shape [2, 3]
// CHECK-NEXT:    %[[F:.+]] = tensor.collapse_shape %[[P]] {{\[}}[0, 1]]
// CHECK-NEXT:    %[[A:.+]] = ddp.all_gather %[[F]] on @"0" : tensor<6xf32> -> tensor<4x3xf32>
// CHECK-NEXT:    %[[X:.+]] = ddp.all_to_all %[[G]] on @"0" : tensor<4x3xf32>
// CHECK-NEXT:    %[[B:.+]] = ddp.broadcast %[[G]] from 1 on @"0" : tensor<4x3xf32>
// CHECK-NEXT:    return %[[T]], %[[A]], %[[X]], %[[B]]
ddp.process_group @"0" size 2
func.func private @scatter(tensor<4x3xf32>) -> tensor<2x3xf32> attributes {
    fx = {target = "_c10d_functional.reduce_scatter_tensor", reduce_op = "avg",
          group_size = 2 : i64, group_name = "0", names = ["w"]}}
func.func private @wait(tensor<2x3xf32>) -> tensor<2x3xf32> attributes {
    fx = {target = "_c10d_functional.wait_tensor"}}
func.func @step(%g: tensor<4x3xf32>, %p: tensor<2x3xf32>)
    -> (tensor<2x3xf32>, tensor<4x3xf32>, tensor<4x3xf32>, tensor<4x3xf32>) {
  %s = call @scatter(%g) : (tensor<4x3xf32>) -> tensor<2x3xf32>
  %0 = call @wait(%s) : (tensor<2x3xf32>) -> tensor<2x3xf32>
  %a = "torch._c10d_functional.all_gather_into_tensor"(%p) {group_size = 2 : i64, group_name = "0"} : (tensor<2x3xf32>) -> tensor<4x3xf32>
  %1 = "torch._c10d_functional.wait_tensor"(%a) : (tensor<4x3xf32>) -> tensor<4x3xf32>
  %t = "torch._c10d_functional.all_to_all_single"(%g) {output_split_sizes = [2, 2], input_split_sizes = [2, 2], group_name = "0"} : (tensor<4x3xf32>) -> tensor<4x3xf32>
  %2 = "torch._c10d_functional.wait_tensor"(%t) : (tensor<4x3xf32>) -> tensor<4x3xf32>
  %b = "torch._c10d_functional.broadcast"(%g) {src = 1 : i64, group_name = "0"} : (tensor<4x3xf32>) -> tensor<4x3xf32>
  %3 = "torch._c10d_functional.wait_tensor"(%b) : (tensor<4x3xf32>) -> tensor<4x3xf32>
  return %0, %1, %2, %3 : tensor<2x3xf32>, tensor<4x3xf32>, tensor<4x3xf32>, tensor<4x3xf32>
}
