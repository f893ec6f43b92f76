// RUN: ddphook-opt %s --ddp-verify-sync | FileCheck %s

// What is accepted; and that the pass changes nothing.

ddp.process_group @dp
ddp.process_group @other

// CHECK-LABEL: func @direct(
// CHECK-NEXT:    %[[R:.+]] = ddp.all_reduce
// CHECK-NEXT:    return %[[R]]
func.func @direct(%g: tensor<4xf32>) -> (tensor<4xf32> {ddp.gradient}) {
  %r = ddp.all_reduce mean %g on @dp : tensor<4xf32>
  return %r : tensor<4xf32>
}

// Nothing is marked, nothing is asked for.
// CHECK-LABEL: func @unmarked(
func.func @unmarked(%g: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
  %a = ddp.all_reduce mean %g on @dp : tensor<4xf32>
  %b = ddp.all_reduce mean %a on @dp : tensor<4xf32>
  return %g, %b : tensor<4xf32>, tensor<4xf32>
}

// Scaled before, updated with unreduced weights behind.
// CHECK-LABEL: func @around(
func.func @around(%g: tensor<4xf32>, %w: tensor<4xf32>)
    -> (tensor<4xf32> {ddp.gradient}) {
  %h = arith.mulf %g, %g : tensor<4xf32>
  %r = ddp.all_reduce sum %h on @dp : tensor<4xf32>
  %u = arith.subf %w, %r : tensor<4xf32>
  return %u : tensor<4xf32>
}

// Of several values each is looked at on its own.
// CHECK-LABEL: func @several(
func.func @several(%g: tensor<4xf32>, %h: tensor<4xf32>)
    -> (tensor<4xf32> {ddp.gradient}, tensor<4xf32>,
        tensor<4xf32> {ddp.gradient}) {
  %0 = ddp.all_reduce mean %g on @dp : tensor<4xf32>
  %1 = ddp.all_reduce mean %h on @other : tensor<4xf32>
  return %0, %g, %1 : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
}

// Once in every branch; the condition is the same on all ranks.
// CHECK-LABEL: func @both_branches(
func.func @both_branches(%g: tensor<4xf32>, %c: i1 {ddp.replicated})
    -> (tensor<4xf32> {ddp.gradient}) {
  %r = scf.if %c -> tensor<4xf32> {
    %a = ddp.all_reduce mean %g on @dp : tensor<4xf32>
    scf.yield %a : tensor<4xf32>
  } else {
    %b = ddp.all_reduce sum %g on @dp : tensor<4xf32>
    scf.yield %b : tensor<4xf32>
  }
  return %r : tensor<4xf32>
}

// Computed from replicated values without side effects.
// CHECK-LABEL: func @derived_condition(
func.func @derived_condition(%g: tensor<4xf32>, %step: index {ddp.replicated})
    -> (tensor<4xf32> {ddp.gradient}) {
  %c100 = arith.constant 100 : index
  %c = arith.cmpi slt, %step, %c100 : index
  %r = scf.if %c -> tensor<4xf32> {
    %a = ddp.all_reduce mean %g on @dp : tensor<4xf32>
    scf.yield %a : tensor<4xf32>
  } else {
    %b = ddp.all_reduce sum %g on @dp : tensor<4xf32>
    scf.yield %b : tensor<4xf32>
  }
  return %r : tensor<4xf32>
}

// A reduced value is the same everywhere: it may decide.
// CHECK-LABEL: func @reduced_condition(
func.func @reduced_condition(%g: tensor<4xf32>, %norm: tensor<f32>)
    -> (tensor<4xf32> {ddp.gradient}) {
  %limit = arith.constant 1.0 : f32
  %n = ddp.all_reduce sum %norm on @dp : tensor<f32>
  %v = tensor.extract %n[] : tensor<f32>
  %c = arith.cmpf ogt, %v, %limit : f32
  %r = scf.if %c -> tensor<4xf32> {
    %a = ddp.all_reduce mean %g on @dp : tensor<4xf32>
    scf.yield %a : tensor<4xf32>
  } else {
    %b = ddp.all_reduce sum %g on @dp : tensor<4xf32>
    scf.yield %b : tensor<4xf32>
  }
  return %r : tensor<4xf32>
}

// Ranks may differ in a branch that does not communicate.
// CHECK-LABEL: func @local_branch(
func.func @local_branch(%g: tensor<4xf32>, %c: i1)
    -> (tensor<4xf32> {ddp.gradient}) {
  %h = scf.if %c -> tensor<4xf32> {
    %a = arith.negf %g : tensor<4xf32>
    scf.yield %a : tensor<4xf32>
  } else {
    scf.yield %g : tensor<4xf32>
  }
  %r = ddp.all_reduce mean %h on @dp : tensor<4xf32>
  return %r : tensor<4xf32>
}

// A loop that accumulates and does not communicate.
// CHECK-LABEL: func @accumulated(
func.func @accumulated(%g: tensor<4xf32>, %n: index)
    -> (tensor<4xf32> {ddp.gradient}) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %sum = scf.for %i = %c0 to %n step %c1 iter_args(%acc = %g) -> tensor<4xf32> {
    %next = arith.addf %acc, %g : tensor<4xf32>
    scf.yield %next : tensor<4xf32>
  }
  %r = ddp.all_reduce mean %sum on @dp : tensor<4xf32>
  return %r : tensor<4xf32>
}

// Each iteration reduces a new value and drops the last one.
// CHECK-LABEL: func @replaced_in_loop(
func.func @replaced_in_loop(%g: tensor<4xf32>)
    -> (tensor<4xf32> {ddp.gradient}) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c3 = arith.constant 3 : index
  %r = scf.for %i = %c0 to %c3 step %c1 iter_args(%last = %g) -> tensor<4xf32> {
    %next = ddp.all_reduce mean %g on @dp : tensor<4xf32>
    scf.yield %next : tensor<4xf32>
  }
  return %r : tensor<4xf32>
}

// A loop that runs once reduces once.
// CHECK-LABEL: func @single_iteration(
func.func @single_iteration(%g: tensor<4xf32>)
    -> (tensor<4xf32> {ddp.gradient}) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %r = scf.for %i = %c0 to %c1 step %c1 iter_args(%acc = %g) -> tensor<4xf32> {
    %next = ddp.all_reduce mean %acc on @dp : tensor<4xf32>
    scf.yield %next : tensor<4xf32>
  }
  return %r : tensor<4xf32>
}

// Reduced values that a loop with an unknown number of iterations updates.
// CHECK-LABEL: func @loop_behind(
func.func @loop_behind(%g: tensor<4xf32>, %n: index)
    -> (tensor<4xf32> {ddp.gradient}) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %r = ddp.all_reduce mean %g on @dp : tensor<4xf32>
  %s = scf.for %i = %c0 to %n step %c1 iter_args(%acc = %r) -> tensor<4xf32> {
    %next = arith.negf %acc : tensor<4xf32>
    scf.yield %next : tensor<4xf32>
  }
  return %s : tensor<4xf32>
}

// In a function that is called; the gradient itself is an operand of the call.
func.func private @reduce(%x: tensor<4xf32>) -> tensor<4xf32> {
  %r = ddp.all_reduce mean %x on @dp : tensor<4xf32>
  return %r : tensor<4xf32>
}
// CHECK-LABEL: func @called(
func.func @called(%g: tensor<4xf32>) -> (tensor<4xf32> {ddp.gradient}) {
  %r = func.call @reduce(%g) : (tensor<4xf32>) -> tensor<4xf32>
  return %r : tensor<4xf32>
}

// Unstructured control flow: once on each way to the return.
// CHECK-LABEL: func @blocks(
func.func @blocks(%g: tensor<4xf32>, %c: i1 {ddp.replicated})
    -> (tensor<4xf32> {ddp.gradient}) {
  cf.cond_br %c, ^left, ^right
^left:
  %a = ddp.all_reduce mean %g on @dp : tensor<4xf32>
  cf.br ^end(%a : tensor<4xf32>)
^right:
  %b = ddp.all_reduce sum %g on @dp : tensor<4xf32>
  cf.br ^end(%b : tensor<4xf32>)
^end(%r: tensor<4xf32>):
  return %r : tensor<4xf32>
}

// CHECK-LABEL: func @switch(
func.func @switch(%g: tensor<4xf32>, %phase: index {ddp.replicated})
    -> (tensor<4xf32> {ddp.gradient}) {
  %r = scf.index_switch %phase -> tensor<4xf32>
  case 0 {
    %a = ddp.all_reduce mean %g on @dp : tensor<4xf32>
    scf.yield %a : tensor<4xf32>
  }
  default {
    %b = ddp.all_reduce sum %g on @dp : tensor<4xf32>
    scf.yield %b : tensor<4xf32>
  }
  return %r : tensor<4xf32>
}

// An out-parameter.
// CHECK-LABEL: func @out_parameter(
func.func @out_parameter(%g: tensor<4xf32>,
                         %out: memref<4xf32> {ddp.gradient}) {
  %r = ddp.all_reduce mean %g on @dp : tensor<4xf32>
  bufferization.materialize_in_destination %r in restrict writable %out
      : (tensor<4xf32>, memref<4xf32>) -> ()
  return
}

// What was in it before, and who reads it, is of no importance.
// CHECK-LABEL: func @out_parameter_cleared(
func.func @out_parameter_cleared(%g: tensor<4xf32>, %copy: memref<4xf32>,
                                 %out: memref<4xf32> {ddp.gradient}) {
  %zero = arith.constant 0.0 : f32
  linalg.fill ins(%zero : f32) outs(%out : memref<4xf32>)
  %r = ddp.all_reduce mean %g on @dp : tensor<4xf32>
  bufferization.materialize_in_destination %r in restrict writable %out
      : (tensor<4xf32>, memref<4xf32>) -> ()
  %half = memref.subview %out[0] [2] [1] : memref<4xf32> to memref<2xf32>
  %i0 = arith.constant 0 : index
  %first = memref.load %half[%i0] : memref<2xf32>
  memref.copy %out, %copy : memref<4xf32> to memref<4xf32>
  return
}

// A declaration promises nothing that could be checked.
// CHECK-LABEL: func private @elsewhere(
func.func private @elsewhere(tensor<4xf32>) -> (tensor<4xf32> {ddp.gradient})

// Started and awaited is reduced, once; and the same on all ranks.
// CHECK-LABEL: func @in_flight(
func.func @in_flight(%g: tensor<4xf32>, %h: tensor<4xf32>)
    -> (tensor<4xf32> {ddp.gradient}, tensor<4xf32> {ddp.gradient}) {
  %f = ddp.all_reduce_start mean %g on @dp : tensor<4xf32> -> !ddp.future<tensor<4xf32>>
  %r = ddp.wait %f : !ddp.future<tensor<4xf32>>
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0.0 : f32
  %e = tensor.extract %r[%c0] : tensor<4xf32>
  %c = arith.cmpf olt, %e, %zero : f32
  %s = scf.if %c -> tensor<4xf32> {
    %0 = ddp.all_reduce mean %h on @dp : tensor<4xf32>
    scf.yield %0 : tensor<4xf32>
  } else {
    %k = ddp.all_reduce_start sum %h on @dp : tensor<4xf32> -> !ddp.future<tensor<4xf32>>
    %0 = ddp.wait %k : !ddp.future<tensor<4xf32>>
    scf.yield %0 : tensor<4xf32>
  }
  return %r, %s : tensor<4xf32>, tensor<4xf32>
}
