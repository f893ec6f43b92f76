// RUN: ddphook-opt %s --ddp-flatten -split-input-file -verify-diagnostics

// What was not started would be what `into` held.
ddp.process_group @dp
func.func @condition_into_another(%x: tensor<4xf32>, %d: tensor<4xf32>, %c: i1) {
  // expected-error @+1 {{expected 'into' to be the operand, as there is a condition}}
  %a, %s = ddp.flat.all_reduce_start mean %x on @dp into %d if %c : tensor<4xf32>, tensor<4xf32>
  scf.if %c {
    %0 = ddp.flat.wait %a, %s : tensor<4xf32>
  } else {
    %0 = ddp.flat.wait %a, %s : tensor<4xf32>
  }
  return
}
