// RUN: ddphook-opt %s --pass-pipeline="builtin.module(func.func(ddp-yield-in-place),ddp-bufferize)" --remarks-filter=ddp-bufferize 2>%t | FileCheck %s
// RUN: FileCheck %s --check-prefix=REMARK < %t
// RUN: not ddphook-opt %s --pass-pipeline="builtin.module(func.func(ddp-yield-in-place),one-shot-bufferize{bufferize-function-boundaries})" 2>&1 | FileCheck %s --check-prefix=UPSTREAM

// A branch yields the loop's own value or one from outside, which the next
// iteration needs as it was. Upstream takes all three for one memory.
// UPSTREAM: error: {{.+}} not bufferizable under the given constraints
// REMARK: remark: [Missed] Copies {{.+}} copies=5
// REMARK-NOT: remark:
// CHECK-LABEL: func.func @one_or_the_other(
// CHECK-COUNT-2: memref.alloc()
// CHECK:         scf.for
// CHECK:           scf.if
// CHECK:             memref.alloc()
// CHECK:           } else {
// CHECK:             memref.alloc()
func.func @one_or_the_other(%x: tensor<4xf32>, %y: tensor<4xf32>, %n: index,
                            %c: i1) -> (tensor<4xf32>, tensor<4xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %e = tensor.empty() : tensor<4xf32>
  %s = linalg.exp ins(%x : tensor<4xf32>) outs(%e : tensor<4xf32>) -> tensor<4xf32>
  %r:2 = scf.for %i = %c0 to %n step %c1 iter_args(%a = %s, %b = %y)
      -> (tensor<4xf32>, tensor<4xf32>) {
    %o = scf.if %c -> tensor<4xf32> {
      scf.yield %s : tensor<4xf32>
    } else {
      scf.yield %b : tensor<4xf32>
    }
    scf.yield %a, %o : tensor<4xf32>, tensor<4xf32>
  }
  return %r#0, %r#1 : tensor<4xf32>, tensor<4xf32>
}

// What upstream takes stays as it is.
// CHECK-LABEL: func.func @in_place(
// CHECK-NOT:     memref.alloc
// CHECK:         return
func.func @in_place(%x: tensor<4xf32> {bufferization.writable = true}, %n: index)
    -> tensor<4xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %r = scf.for %i = %c0 to %n step %c1 iter_args(%a = %x) -> tensor<4xf32> {
    %s = linalg.exp ins(%a : tensor<4xf32>) outs(%a : tensor<4xf32>) -> tensor<4xf32>
    scf.yield %s : tensor<4xf32>
  }
  return %r : tensor<4xf32>
}
