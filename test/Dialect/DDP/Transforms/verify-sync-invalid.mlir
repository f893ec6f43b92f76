// RUN: ddphook-opt %s --ddp-verify-sync -split-input-file -verify-diagnostics

ddp.process_group @dp
func.func @not_reduced(%g: tensor<4xf32>) -> (tensor<4xf32> {ddp.gradient}) {
  // expected-error @+1 {{expected result 0 marked 'ddp.gradient' to be reduced exactly once, but it is not reduced}}
  return %g : tensor<4xf32>
}

// -----

// The second of three results, and only that.
ddp.process_group @dp
func.func @names_the_value(%g: tensor<4xf32>)
    -> (tensor<4xf32> {ddp.gradient}, tensor<4xf32> {ddp.gradient},
        tensor<4xf32>) {
  %r = ddp.all_reduce mean %g on @dp : tensor<4xf32>
  // expected-error @+1 {{expected result 1 marked 'ddp.gradient' to be reduced exactly once, but it is not reduced}}
  return %r, %g, %g : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
}

// -----

ddp.process_group @dp
func.func @reduced_twice(%g: tensor<4xf32>) -> (tensor<4xf32> {ddp.gradient}) {
  %a = ddp.all_reduce mean %g on @dp : tensor<4xf32>
  // expected-note @+1 {{the reduction is here}}
  %b = ddp.all_reduce mean %a on @dp : tensor<4xf32>
  // expected-error @+1 {{expected result 0 marked 'ddp.gradient' to be reduced exactly once, but it is reduced more than once}}
  return %b : tensor<4xf32>
}

// -----

ddp.process_group @dp
func.func @reduced_twice_apart(%g: tensor<4xf32>)
    -> (tensor<4xf32> {ddp.gradient}) {
  %a = ddp.all_reduce mean %g on @dp : tensor<4xf32>
  %n = arith.negf %a : tensor<4xf32>
  %s = arith.addf %n, %g : tensor<4xf32>
  // expected-note @+1 {{the reduction is here}}
  %b = ddp.all_reduce mean %s on @dp : tensor<4xf32>
  // expected-error @+1 {{but it is reduced more than once}}
  return %b : tensor<4xf32>
}

// -----

ddp.process_group @dp
func.func @one_branch(%g: tensor<4xf32>, %c: i1 {ddp.replicated})
    -> (tensor<4xf32> {ddp.gradient}) {
  %r = scf.if %c -> tensor<4xf32> {
    // expected-note @+1 {{the reduction is here}}
    %a = ddp.all_reduce mean %g on @dp : tensor<4xf32>
    scf.yield %a : tensor<4xf32>
  } else {
    scf.yield %g : tensor<4xf32>
  }
  // expected-error @+1 {{but it is reduced on some paths only}}
  return %r : tensor<4xf32>
}

// -----

ddp.process_group @dp
func.func @twice_in_one_branch(%g: tensor<4xf32>, %c: i1 {ddp.replicated})
    -> (tensor<4xf32> {ddp.gradient}) {
  %a = ddp.all_reduce mean %g on @dp : tensor<4xf32>
  %r = scf.if %c -> tensor<4xf32> {
    // expected-note @+1 {{the reduction is here}}
    %b = ddp.all_reduce mean %a on @dp : tensor<4xf32>
    scf.yield %b : tensor<4xf32>
  } else {
    scf.yield %a : tensor<4xf32>
  }
  // expected-error @+1 {{but it is reduced more than once}}
  return %r : tensor<4xf32>
}

// -----

// Both branches reduce, but the ranks may take different ones: each waits for
// the other in another collective.
ddp.process_group @dp
func.func @divergent_branches(%g: tensor<4xf32>, %c: i1)
    -> (tensor<4xf32> {ddp.gradient}) {
  %r = scf.if %c -> tensor<4xf32> {
    // expected-note @+1 {{the reduction is here}}
    %a = ddp.all_reduce mean %g on @dp : tensor<4xf32>
    scf.yield %a : tensor<4xf32>
  } else {
    %b = ddp.all_reduce sum %g on @dp : tensor<4xf32>
    scf.yield %b : tensor<4xf32>
  }
  // expected-error @+1 {{but it is reduced under control flow that may differ between ranks}}
  return %r : tensor<4xf32>
}

// -----

// The condition is computed from one replicated value and one that is not.
ddp.process_group @dp
func.func @divergent_operand(%g: tensor<4xf32>, %a: index {ddp.replicated},
                             %b: index) -> (tensor<4xf32> {ddp.gradient}) {
  %c = arith.cmpi slt, %a, %b : index
  %r = scf.if %c -> tensor<4xf32> {
    // expected-note @+1 {{the reduction is here}}
    %x = ddp.all_reduce mean %g on @dp : tensor<4xf32>
    scf.yield %x : tensor<4xf32>
  } else {
    %y = ddp.all_reduce mean %g on @dp : tensor<4xf32>
    scf.yield %y : tensor<4xf32>
  }
  // expected-error @+1 {{but it is reduced under control flow that may differ between ranks}}
  return %r : tensor<4xf32>
}

// -----

// What a function outside returns, or memory holds, may differ.
ddp.process_group @dp
func.func private @flip_a_coin() -> i1
func.func @divergent_call(%g: tensor<4xf32>)
    -> (tensor<4xf32> {ddp.gradient}) {
  %c = func.call @flip_a_coin() : () -> i1
  %r = scf.if %c -> tensor<4xf32> {
    // expected-note @+1 {{the reduction is here}}
    %a = ddp.all_reduce mean %g on @dp : tensor<4xf32>
    scf.yield %a : tensor<4xf32>
  } else {
    %b = ddp.all_reduce mean %g on @dp : tensor<4xf32>
    scf.yield %b : tensor<4xf32>
  }
  // expected-error @+1 {{but it is reduced under control flow that may differ between ranks}}
  return %r : tensor<4xf32>
}

// -----

// A value that is the same everywhere in the first iteration only.
ddp.process_group @dp
func.func @divergent_carried_value(%g: tensor<4xf32>, %b: i1, %c: i1 {ddp.replicated})
    -> (tensor<4xf32> {ddp.gradient}) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %r:2 = scf.for %i = %c0 to %c2 step %c1 iter_args(%last = %g, %again = %c)
      -> (tensor<4xf32>, i1) {
    %x = scf.if %again -> tensor<4xf32> {
      // expected-note @+1 {{the reduction is here}}
      %y = ddp.all_reduce mean %g on @dp : tensor<4xf32>
      scf.yield %y : tensor<4xf32>
    } else {
      %y = ddp.all_reduce sum %g on @dp : tensor<4xf32>
      scf.yield %y : tensor<4xf32>
    }
    scf.yield %x, %b : tensor<4xf32>, i1
  }
  // expected-error @+1 {{but it is reduced under control flow that may differ between ranks}}
  return %r#0 : tensor<4xf32>
}

// -----

// The number of iterations differs.
ddp.process_group @dp
func.func @divergent_loop(%g: tensor<4xf32>, %n: index)
    -> (tensor<4xf32> {ddp.gradient}) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %r = scf.for %i = %c0 to %n step %c1 iter_args(%last = %g) -> tensor<4xf32> {
    // expected-note @+1 {{the reduction is here}}
    %a = ddp.all_reduce mean %g on @dp : tensor<4xf32>
    scf.yield %a : tensor<4xf32>
  }
  // expected-error @+1 {{but it is reduced under control flow that may differ between ranks}}
  return %r : tensor<4xf32>
}

// -----

// The loop may not run at all.
ddp.process_group @dp
func.func @maybe_no_iteration(%g: tensor<4xf32>, %n: index {ddp.replicated})
    -> (tensor<4xf32> {ddp.gradient}) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %r = scf.for %i = %c0 to %n step %c1 iter_args(%last = %g) -> tensor<4xf32> {
    // expected-note @+1 {{the reduction is here}}
    %a = ddp.all_reduce mean %g on @dp : tensor<4xf32>
    scf.yield %a : tensor<4xf32>
  }
  // expected-error @+1 {{but it is reduced on some paths only}}
  return %r : tensor<4xf32>
}

// -----

// Once more in every iteration.
ddp.process_group @dp
func.func @carried(%g: tensor<4xf32>) -> (tensor<4xf32> {ddp.gradient}) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c3 = arith.constant 3 : index
  %r = scf.for %i = %c0 to %c3 step %c1 iter_args(%acc = %g) -> tensor<4xf32> {
    // expected-note @+1 {{the reduction is here}}
    %a = ddp.all_reduce mean %acc on @dp : tensor<4xf32>
    scf.yield %a : tensor<4xf32>
  }
  // expected-error @+1 {{but it is reduced more than once}}
  return %r : tensor<4xf32>
}

// -----

// Inside of what is called, and again outside.
ddp.process_group @dp
func.func private @reduce(%x: tensor<4xf32>) -> tensor<4xf32> {
  %r = ddp.all_reduce mean %x on @dp : tensor<4xf32>
  return %r : tensor<4xf32>
}
func.func @called_twice(%g: tensor<4xf32>) -> (tensor<4xf32> {ddp.gradient}) {
  %a = func.call @reduce(%g) : (tensor<4xf32>) -> tensor<4xf32>
  // expected-note @+1 {{the reduction is here}}
  %b = ddp.all_reduce mean %a on @dp : tensor<4xf32>
  // expected-error @+1 {{but it is reduced more than once}}
  return %b : tensor<4xf32>
}

// -----

// A call that not all ranks make.
ddp.process_group @dp
func.func private @reduce(%x: tensor<4xf32>) -> tensor<4xf32> {
  %r = ddp.all_reduce mean %x on @dp : tensor<4xf32>
  return %r : tensor<4xf32>
}
func.func @divergent_caller(%g: tensor<4xf32>, %c: i1)
    -> (tensor<4xf32> {ddp.gradient}) {
  %r = scf.if %c -> tensor<4xf32> {
    // expected-note @+1 {{the reduction is here}}
    %a = func.call @reduce(%g) : (tensor<4xf32>) -> tensor<4xf32>
    scf.yield %a : tensor<4xf32>
  } else {
    %b = func.call @reduce(%g) : (tensor<4xf32>) -> tensor<4xf32>
    scf.yield %b : tensor<4xf32>
  }
  // expected-error @+1 {{but it is reduced under control flow that may differ between ranks}}
  return %r : tensor<4xf32>
}

// -----

ddp.process_group @dp
func.func @blocks(%g: tensor<4xf32>, %c: i1 {ddp.replicated})
    -> (tensor<4xf32> {ddp.gradient}) {
  cf.cond_br %c, ^left, ^end(%g : tensor<4xf32>)
^left:
  // expected-note @+1 {{the reduction is here}}
  %a = ddp.all_reduce mean %g on @dp : tensor<4xf32>
  cf.br ^end(%a : tensor<4xf32>)
^end(%r: tensor<4xf32>):
  // expected-error @+1 {{but it is reduced on some paths only}}
  return %r : tensor<4xf32>
}

// -----

// Two ways out: each is looked at.
ddp.process_group @dp
func.func @two_returns(%g: tensor<4xf32>, %c: i1 {ddp.replicated})
    -> (tensor<4xf32> {ddp.gradient}) {
  cf.cond_br %c, ^left, ^right
^left:
  %a = ddp.all_reduce mean %g on @dp : tensor<4xf32>
  return %a : tensor<4xf32>
^right:
  // expected-error @+1 {{but it is not reduced}}
  return %g : tensor<4xf32>
}

// -----

ddp.process_group @dp
func.func @divergent_blocks(%g: tensor<4xf32>, %c: i1)
    -> (tensor<4xf32> {ddp.gradient}) {
  cf.cond_br %c, ^left, ^right
^left:
  %a = ddp.all_reduce mean %g on @dp : tensor<4xf32>
  cf.br ^end(%a : tensor<4xf32>)
^right:
  // expected-note @+1 {{the reduction is here}}
  %b = ddp.all_reduce mean %g on @dp : tensor<4xf32>
  cf.br ^end(%b : tensor<4xf32>)
^end(%r: tensor<4xf32>):
  // expected-error @+1 {{but it is reduced under control flow that may differ between ranks}}
  return %r : tensor<4xf32>
}

// -----

ddp.process_group @dp
// expected-error @+1 {{expected argument 1 marked 'ddp.gradient' to be written by one 'bufferization.materialize_in_destination' on every path}}
func.func @out_parameter_not_written(%g: tensor<4xf32>,
                                     %out: memref<4xf32> {ddp.gradient}) {
  %r = ddp.all_reduce mean %g on @dp : tensor<4xf32>
  return
}

// -----

ddp.process_group @dp
// expected-error @+1 {{expected argument 1 marked 'ddp.gradient' to be written by one 'bufferization.materialize_in_destination' on every path}}
func.func @out_parameter_sometimes_written(
    %g: tensor<4xf32>, %out: memref<4xf32> {ddp.gradient}, %c: i1) {
  %r = ddp.all_reduce mean %g on @dp : tensor<4xf32>
  scf.if %c {
    bufferization.materialize_in_destination %r in restrict writable %out
        : (tensor<4xf32>, memref<4xf32>) -> ()
  }
  return
}

// -----

ddp.process_group @dp
// expected-error @+1 {{expected argument 1 marked 'ddp.gradient' not to change after its 'bufferization.materialize_in_destination'}}
func.func @out_parameter_overwritten(%g: tensor<4xf32>,
                                     %out: memref<4xf32> {ddp.gradient}) {
  %half = memref.subview %out[0] [2] [1] : memref<4xf32> to memref<2xf32>
  %r = ddp.all_reduce mean %g on @dp : tensor<4xf32>
  bufferization.materialize_in_destination %r in restrict writable %out
      : (tensor<4xf32>, memref<4xf32>) -> ()
  %mine = tensor.extract_slice %g[0] [2] [1] : tensor<4xf32> to tensor<2xf32>
  // expected-note @+1 {{this may write to it}}
  bufferization.materialize_in_destination %mine in writable %half
      : (tensor<2xf32>, memref<2xf32>) -> ()
  return
}

// -----

// One of two buffers, as anyone may know it.
ddp.process_group @dp
// expected-error @+1 {{expected argument 1 marked 'ddp.gradient' not to change after its 'bufferization.materialize_in_destination'}}
func.func @out_parameter_chosen(%g: tensor<4xf32>,
                                %out: memref<4xf32> {ddp.gradient},
                                %other: memref<4xf32>, %c: i1) {
  %r = ddp.all_reduce mean %g on @dp : tensor<4xf32>
  bufferization.materialize_in_destination %r in restrict writable %out
      : (tensor<4xf32>, memref<4xf32>) -> ()
  %one = scf.if %c -> memref<4xf32> {
    // expected-note @+1 {{this may write to it}}
    scf.yield %out : memref<4xf32>
  } else {
    scf.yield %other : memref<4xf32>
  }
  bufferization.materialize_in_destination %g in writable %one
      : (tensor<4xf32>, memref<4xf32>) -> ()
  return
}

// -----

func.func private @elsewhere(memref<4xf32>)
ddp.process_group @dp
// expected-error @+1 {{expected argument 1 marked 'ddp.gradient' not to change after its 'bufferization.materialize_in_destination'}}
func.func @out_parameter_passed_on(%g: tensor<4xf32>,
                                   %out: memref<4xf32> {ddp.gradient}) {
  %r = ddp.all_reduce mean %g on @dp : tensor<4xf32>
  bufferization.materialize_in_destination %r in restrict writable %out
      : (tensor<4xf32>, memref<4xf32>) -> ()
  // expected-note @+1 {{this may write to it}}
  call @elsewhere(%out) : (memref<4xf32>) -> ()
  return
}

// -----

ddp.process_group @dp
func.func @out_parameter_not_reduced(%g: tensor<4xf32>,
                                     %out: memref<4xf32> {ddp.gradient}) {
  // expected-error @+1 {{expected argument 1 marked 'ddp.gradient' to be reduced exactly once, but it is not reduced}}
  bufferization.materialize_in_destination %g in restrict writable %out
      : (tensor<4xf32>, memref<4xf32>) -> ()
  return
}

// -----

// The values of two iteration arguments change places.

ddp.process_group @dp
func.func @carried_crosswise(%g: tensor<4xf32>, %h: tensor<4xf32>)
    -> (tensor<4xf32> {ddp.gradient}) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  %r:2 = scf.for %i = %c0 to %c4 step %c1 iter_args(%a = %g, %b = %h)
      -> (tensor<4xf32>, tensor<4xf32>) {
    // expected-note @+1 {{the reduction is here}}
    %x = ddp.all_reduce mean %b on @dp : tensor<4xf32>
    scf.yield %x, %a : tensor<4xf32>, tensor<4xf32>
  }
  // expected-error @+1 {{expected result 0 marked 'ddp.gradient' to be reduced exactly once, but it is reduced more than once}}
  return %r#0 : tensor<4xf32>
}

// -----

ddp.process_group @dp
func.func @in_flight_twice(%g: tensor<4xf32>) -> (tensor<4xf32> {ddp.gradient}) {
  %f = ddp.all_reduce_start mean %g on @dp : tensor<4xf32> -> !ddp.future<tensor<4xf32>>
  %r = ddp.wait %f : !ddp.future<tensor<4xf32>>
  // expected-note @+1 {{the reduction is here}}
  %s = ddp.all_reduce mean %r on @dp : tensor<4xf32>
  // expected-error @+1 {{expected result 0 marked 'ddp.gradient' to be reduced exactly once, but it is reduced more than once}}
  return %s : tensor<4xf32>
}
