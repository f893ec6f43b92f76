// RUN: ddphook-test-opt %s --test-break-collectives="how=nothing" -o /dev/null
// RUN: ddphook-test-opt %s --test-break-collectives="how=swap kept=elements" -o /dev/null
// RUN: ddphook-test-opt %s --test-break-collectives="how=swap kept=members" -o /dev/null
// RUN: ddphook-test-opt %s --test-break-collectives="how=drop kept=nothing" -o /dev/null
// RUN: not ddphook-test-opt %s --test-break-collectives="how=swap" 2>&1 | FileCheck %s --check-prefix=SWAP
// RUN: not ddphook-test-opt %s --test-break-collectives="how=drop" 2>&1 | FileCheck %s --check-prefix=DROP
// RUN: not ddphook-test-opt %s --test-break-collectives="how=drop kept=elements" 2>&1 | FileCheck %s --check-prefix=ELEMENTS
// RUN: not ddphook-test-opt %s --test-break-collectives="how=drop kept=members" 2>&1 | FileCheck %s --check-prefix=MEMBERS

// What ddp-verify-order says of a pass that changes more than it may. The module
// is a correct one afterwards as well: only the comparison tells.

// SWAP:     error: test-break-collectives changed the collectives of @step: expected 'reduce 32 mean on @dp in f32 as ''', but got 'reduce 8 mean on @dp in f32 as '''
// DROP:     error: test-break-collectives changed the collectives of @step: expected 'reduce 32 mean on @dp in f32 as ''', but got 'reduce 8 mean on @dp in f32 as '''
// ELEMENTS: error: test-break-collectives changed the collectives of @step: expected 40 times 'mean on @dp in f32', but got 8
// MEMBERS:  error: test-break-collectives changed the collectives of @step: expected 1 times 'mean on @dp in f32 of 4x8', but got 0

ddp.process_group @dp
func.func @step(%g: tensor<4x8xf32>, %h: tensor<8xf32>) -> (tensor<4x8xf32>, tensor<8xf32>) {
  %a = ddp.all_reduce mean %g on @dp : tensor<4x8xf32>
  %b = ddp.all_reduce mean %h on @dp : tensor<8xf32>
  return %a, %b : tensor<4x8xf32>, tensor<8xf32>
}
