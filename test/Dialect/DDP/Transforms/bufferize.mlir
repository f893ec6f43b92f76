// RUN: ddphook-opt %s --pass-pipeline="builtin.module(func.func(ddp-yield-in-place),ddp-bufferize)" --remarks-filter=ddp-bufferize 2>%t | FileCheck %s
// RUN: FileCheck %s --check-prefix=REMARK < %t
// RUN: not ddphook-opt %s --pass-pipeline="builtin.module(func.func(ddp-yield-in-place),one-shot-bufferize{bufferize-function-boundaries})" 2>&1 | FileCheck %s --check-prefix=UPSTREAM

// A branch yields the loop's own value or one from outside, which the next
// iteration needs as it was. Upstream takes all three for one memory.
// UPSTREAM: error: {{.+}} not bufferizable under the given constraints
// REMARK-DAG: remark: [Missed] Copies {{.+}} copies=5
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

// Where such a loop needs copies, branches yield copies as well, of what they had
// moved to their places: nothing writes to these places before it is copied.
// REMARK-DAG: remark: [Missed] Copies {{.+}} copies=9
// CHECK-LABEL: func.func @moves_of_a_branch(
// CHECK:         scf.if
// CHECK:         } else {
// CHECK-NEXT:      linalg.exp ins(%{{.+}}) outs(%[[B:.+]] : memref<4xf32>)
// CHECK-NEXT:      linalg.exp ins(%{{.+}}) outs(%[[Q:.+]] : memref<4xf32>)
// CHECK-NOT:       outs(%[[B]]
// CHECK:           memref.copy %[[B]], %{{.+}}
// CHECK:           memref.copy %[[Q]], %{{.+}}
// CHECK:           scf.yield
func.func @moves_of_a_branch(%x: tensor<4xf32>, %y: tensor<4xf32>, %n: index,
                             %c: i1)
    -> (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) {
  %e0 = tensor.empty() : tensor<4xf32>
  %e1 = tensor.empty() : tensor<4xf32>
  %e2 = tensor.empty() : tensor<4xf32>
  %e3 = tensor.empty() : tensor<4xf32>
  %a = linalg.exp ins(%x : tensor<4xf32>) outs(%e0 : tensor<4xf32>) -> tensor<4xf32>
  %b = linalg.exp ins(%y : tensor<4xf32>) outs(%e1 : tensor<4xf32>) -> tensor<4xf32>
  %i:2 = scf.if %c -> (tensor<4xf32>, tensor<4xf32>) {
    %m = bufferization.materialize_in_destination %a in %e2
        : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
    scf.yield %m, %b : tensor<4xf32>, tensor<4xf32>
  } else {
    %p = linalg.exp ins(%a : tensor<4xf32>) outs(%e1 : tensor<4xf32>) -> tensor<4xf32>
    %q = linalg.exp ins(%a : tensor<4xf32>) outs(%e3 : tensor<4xf32>) -> tensor<4xf32>
    %m0 = bufferization.materialize_in_destination %p in %e2
        : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
    %m1 = bufferization.materialize_in_destination %q in %e1
        : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
    scf.yield %m0, %m1 : tensor<4xf32>, tensor<4xf32>
  }
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %r:2 = scf.for %j = %c0 to %n step %c1 iter_args(%s = %a, %t = %y)
      -> (tensor<4xf32>, tensor<4xf32>) {
    %o = scf.if %c -> tensor<4xf32> {
      scf.yield %a : tensor<4xf32>
    } else {
      scf.yield %t : tensor<4xf32>
    }
    scf.yield %s, %o : tensor<4xf32>, tensor<4xf32>
  }
  return %i#0, %i#1, %r#0, %r#1
      : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
}
// REMARK-NOT: remark:
