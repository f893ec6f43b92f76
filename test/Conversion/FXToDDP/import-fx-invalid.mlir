// RUN: ddphook-opt %s --ddp-import-fx --allow-unregistered-dialect -split-input-file -verify-diagnostics

ddp.process_group @"0" size 2
func.func @starts(%g: tensor<4xf32>, %n: tensor<4xi32>, %d: tensor<?xf32>) {
  // expected-error@+1 {{'_c10d_functional.all_reduce' expected reduce_op 'sum' or 'avg', but got 'max'}}
  %0 = "torch._c10d_functional.all_reduce"(%g) {reduce_op = "max", group_name = "0"} : (tensor<4xf32>) -> tensor<4xf32>
  // expected-error@+1 {{'_c10d_functional.all_reduce' expected reduce_op 'sum' or 'avg', but got none}}
  %1 = "torch._c10d_functional.all_reduce"(%g) {group_name = "0"} : (tensor<4xf32>) -> tensor<4xf32>
  // expected-error@+1 {{'_c10d_functional.all_reduce' expected reduce_op 'sum' or 'avg', but got 3 : i32}}
  %number = "torch._c10d_functional.all_reduce"(%g) {reduce_op = 3 : i32, group_name = "0"} : (tensor<4xf32>) -> tensor<4xf32>
  // expected-error@+1 {{expected statically shaped tensors of f16, bf16, f32 or f64, but got 'tensor<4xi32>'}}
  %2 = "torch._c10d_functional.all_reduce"(%n) {reduce_op = "sum", group_name = "0"} : (tensor<4xi32>) -> tensor<4xi32>
  // expected-error@+1 {{expected statically shaped tensors of f16, bf16, f32 or f64, but got 'tensor<?xf32>'}}
  %3 = "torch._c10d_functional.all_reduce"(%d) {reduce_op = "sum", group_name = "0"} : (tensor<?xf32>) -> tensor<?xf32>
  // expected-error@+1 {{expected operands, and results of the same types}}
  %4 = "torch._c10d_functional.all_reduce"(%g) {reduce_op = "sum", group_name = "0"} : (tensor<4xf32>) -> tensor<4xf64>
  // expected-error@+1 {{expected a 'ddp.process_group' of the module, but got '1'}}
  %5 = "torch._c10d_functional.all_reduce"(%g) {reduce_op = "sum", group_name = "1"} : (tensor<4xf32>) -> tensor<4xf32>
  // expected-error@+1 {{expected a 'ddp.process_group' of the module, but got 'starts'}}
  %6 = "torch._c10d_functional.all_reduce"(%g) {reduce_op = "sum", group_name = "starts"} : (tensor<4xf32>) -> tensor<4xf32>
  // expected-error@+1 {{expected names to be a string for each operand}}
  %7 = "torch._c10d_functional.all_reduce"(%g) {reduce_op = "sum", group_name = "0", names = ["a", "b"]} : (tensor<4xf32>) -> tensor<4xf32>
  // expected-error@+1 {{'_c10d_functional.all_gather_into_tensor' expected equal parts of a tensor, one for each rank}}
  %8 = "torch._c10d_functional.all_gather_into_tensor"(%g) {group_size = 2, group_name = "0"} : (tensor<4xf32>) -> tensor<12xf32>
  // expected-error@+1 {{'_c10d_functional.all_to_all_single' expected equal parts of a tensor, one for each rank}}
  %a = "torch._c10d_functional.all_to_all_single"(%g) {output_split_sizes = [1, 3], input_split_sizes = [3, 1], group_name = "0"} : (tensor<4xf32>) -> tensor<4xf32>
  // expected-error@+1 {{'_c10d_functional.broadcast' expected src to be a rank of the group}}
  %b = "torch._c10d_functional.broadcast"(%g) {src = 2, group_name = "0"} : (tensor<4xf32>) -> tensor<4xf32>
  // expected-error@+1 {{'_c10d_functional.reduce_scatter_tensor' expected reduce_op 'sum' or 'avg', but got 'max'}}
  %c = "torch._c10d_functional.reduce_scatter_tensor"(%g) {reduce_op = "max", group_size = 2, group_name = "0"} : (tensor<4xf32>) -> tensor<2xf32>
  // Writes to its operand.
  // expected-error@+1 {{'_c10d_functional.all_reduce_' expected all-reduces, reduce-scatters, all-gathers, all-to-alls and broadcasts only}}
  %9 = "torch._c10d_functional.all_reduce_"(%g) {reduce_op = "sum", group_name = "0"} : (tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

// The line of the Python program is the error's.
ddp.process_group @"0" size 2
func.func private @product(tensor<4xf32>) -> tensor<4xf32> attributes {
    fx = {target = "torch._c10d_functional.all_reduce.default", reduce_op = "product", group_name = "0"}}
func.func @calls(%g: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error@+1 {{'_c10d_functional.all_reduce' expected reduce_op 'sum' or 'avg', but got 'product'}}
  %0 = call @product(%g) : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// -----

ddp.process_group @"0" size 2
func.func @waits(%g: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
  // expected-error@+1 {{'_c10d_functional.wait_tensor' expected the result of a collective that was started}}
  %0 = "torch._c10d_functional.wait_tensor"(%g) : (tensor<4xf32>) -> tensor<4xf32>
  // expected-error@+1 {{'_c10d_functional.all_reduce' expected a wait for its result}}
  %1 = "torch._c10d_functional.all_reduce"(%g) {reduce_op = "sum", group_name = "0"} : (tensor<4xf32>) -> tensor<4xf32>
  // expected-error@+1 {{'_c10d_functional.all_reduce' expected its result to be used by waits only}}
  %2 = "torch._c10d_functional.all_reduce"(%g) {reduce_op = "sum", group_name = "0"} : (tensor<4xf32>) -> tensor<4xf32>
  %3 = "torch._c10d_functional.wait_tensor"(%2) : (tensor<4xf32>) -> tensor<4xf32>
  // expected-note@+1 {{'torch.aten.relu' uses it}}
  %4 = "torch.aten.relu"(%2) : (tensor<4xf32>) -> tensor<4xf32>
  // expected-error@+1 {{'_c10d_functional.wait_tensor' expected the result of a collective that was started}}
  %5 = "torch._c10d_functional.wait_tensor"(%3) : (tensor<4xf32>) -> tensor<4xf32>
  %6 = "torch._c10d_functional.all_reduce"(%g) {reduce_op = "sum", group_name = "0"} : (tensor<4xf32>) -> tensor<4xf32>
  // expected-error@+1 {{'_c10d_functional.wait_tensor' expected an operand, and a result of its type}}
  %7 = "torch._c10d_functional.wait_tensor"(%6) : (tensor<4xf32>) -> tensor<4xf16>
  return %4, %5 : tensor<4xf32>, tensor<4xf32>
}

// -----

ddp.process_group @"0" size 2
func.func @inside(%g: tensor<4xf32>) -> tensor<4xf32> {
  %e = tensor.empty() : tensor<4xf32>
  %0 = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>], iterator_types = ["parallel"]} outs(%e : tensor<4xf32>) {
  ^bb0(%x: f32):
    // expected-error@+1 {{expected it in a function, a loop or a branch, but it is in 'linalg.generic'}}
    %s = "torch._c10d_functional.all_reduce"(%g) {reduce_op = "sum", group_name = "0"} : (tensor<4xf32>) -> tensor<4xf32>
    linalg.yield %x : f32
  } -> tensor<4xf32>
  return %0 : tensor<4xf32>
}
