// RUN: ddphook-opt %s -split-input-file -verify-diagnostics --ddp-bucketize

ddp.process_group @dp
func.func @two_operations(%a: tensor<2xf32>, %b: tensor<2xf32>)
    -> (tensor<2xf32>, tensor<2xf32>) {
  // expected-note@below {{the name is first used here}}
  %0 = ddp.all_reduce mean %a on @dp {ddp.name = "w"} : tensor<2xf32>
  // expected-error@below {{expected unique gradient names, but got "w" twice}}
  %1 = ddp.all_reduce mean %b on @dp {ddp.name = "w"} : tensor<2xf32>
  return %0, %1 : tensor<2xf32>, tensor<2xf32>
}

// -----

ddp.process_group @dp
// expected-note@below {{the name is first used here}}
func.func @operation_and_argument(%a: tensor<2xf32> {ddp.name = "w"}, %b: tensor<2xf32>)
    -> (tensor<2xf32>, tensor<2xf32>) {
  %0 = ddp.all_reduce mean %a on @dp : tensor<2xf32>
  // expected-error@below {{expected unique gradient names, but got "w" twice}}
  %1 = ddp.all_reduce mean %b on @dp {ddp.name = "w"} : tensor<2xf32>
  return %0, %1 : tensor<2xf32>, tensor<2xf32>
}

// -----

ddp.process_group @dp
// expected-error@below {{expected unique gradient names, but got "w" twice}}
// expected-note@below {{the name is first used here}}
func.func @two_arguments(%a: tensor<2xf32> {ddp.name = "w"},
                         %b: tensor<2xf32> {ddp.name = "w"}) {
  return
}

// -----

ddp.process_group @dp
// expected-note@below {{the name is first used here}}
func.func @twice(%a: tensor<2xf32> {ddp.name = "w"})
    -> (tensor<2xf32>, tensor<2xf32>) {
  %0 = ddp.all_reduce mean %a on @dp {ddp.name = "w"} : tensor<2xf32>
  // expected-error@below {{expected unique gradient names, but got "w" twice}}
  %1 = ddp.all_reduce mean %a on @dp {ddp.name = "w"} : tensor<2xf32>
  return %0, %1 : tensor<2xf32>, tensor<2xf32>
}

// -----

ddp.process_group @dp
func.func @bucket(%a: !ddp.bucket<f32, [2, 3]>, %b: tensor<2xf32>)
    -> (!ddp.bucket<f32, [2, 3]>, tensor<2xf32>) {
  // expected-note@below {{the name is first used here}}
  %0 = ddp.all_reduce mean %a on @dp as "x" : !ddp.bucket<f32, [2, 3]> of ["v", "w"]
  // expected-error@below {{expected unique gradient names, but got "w" twice}}
  %1 = ddp.all_reduce mean %b on @dp {ddp.name = "w"} : tensor<2xf32>
  return %0, %1 : !ddp.bucket<f32, [2, 3]>, tensor<2xf32>
}
