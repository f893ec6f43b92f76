// RUN: ddphook-opt %s --ddp-verify-sync -split-input-file -verify-diagnostics

// Programs that look right to an analysis that only counts.

!t = tensor<4x8xf32>
ddp.process_group @dp
ddp.process_group @alone ranks [[0], [1]]

// Ranks that reduce alone agree on nothing.
func.func @condition_of_each_rank(%g: !t, %norm: tensor<f32>) -> (!t {ddp.gradient}) {
  %limit = arith.constant 1.0 : f32
  %n = ddp.all_reduce sum %norm on @alone : tensor<f32>
  %v = tensor.extract %n[] : tensor<f32>
  %c = arith.cmpf ogt, %v, %limit : f32
  %r = scf.if %c -> !t {
    // expected-note @+1 {{the reduction is here}}
    %a = ddp.all_reduce mean %g on @dp : !t
    scf.yield %a : !t
  } else {
    %b = ddp.all_reduce sum %g on @dp : !t
    scf.yield %b : !t
  }
  // expected-error @+1 {{but it is reduced under control flow that may differ between ranks}}
  return %r : !t
}

// -----

!t = tensor<4x8xf32>
ddp.process_group @pairs ranks [[0, 1], [2, 3]]
ddp.process_group @others ranks [[0, 2], [1, 3]]

// Pairs of ranks agree, but others reduce together.
func.func @condition_of_another_group(%g: !t, %norm: tensor<f32>) -> (!t {ddp.gradient}) {
  %limit = arith.constant 1.0 : f32
  %n = ddp.all_reduce sum %norm on @pairs : tensor<f32>
  %v = tensor.extract %n[] : tensor<f32>
  %c = arith.cmpf ogt, %v, %limit : f32
  %r = scf.if %c -> !t {
    // expected-note @+1 {{the reduction is here}}
    %a = ddp.all_reduce mean %g on @others : !t
    scf.yield %a : !t
  } else {
    %b = ddp.all_reduce sum %g on @others : !t
    scf.yield %b : !t
  }
  // expected-error @+1 {{but it is reduced under control flow that may differ between ranks}}
  return %r : !t
}

// -----

!t = tensor<4x8xf32>
ddp.process_group @dp
ddp.process_group @node placement intra_node

// One machine agrees, the job does not.
func.func @condition_of_a_machine(%g: !t, %norm: tensor<f32>) -> (!t {ddp.gradient}) {
  %limit = arith.constant 1.0 : f32
  %n = ddp.all_reduce sum %norm on @node : tensor<f32>
  %v = tensor.extract %n[] : tensor<f32>
  %c = arith.cmpf ogt, %v, %limit : f32
  %r = scf.if %c -> !t {
    // expected-note @+1 {{the reduction is here}}
    %a = ddp.all_reduce mean %g on @dp : !t
    scf.yield %a : !t
  } else {
    %b = ddp.all_reduce sum %g on @dp : !t
    scf.yield %b : !t
  }
  // expected-error @+1 {{but it is reduced under control flow that may differ between ranks}}
  return %r : !t
}

// -----

!t = tensor<4x8xf32>
ddp.process_group @alone ranks [[0], [1]]

// A group of one rank reduces nothing.
func.func @reduced_alone(%g: !t) -> (!t {ddp.gradient}) {
  %r = ddp.all_reduce mean %g on @alone : !t
  // expected-error @+1 {{but it is not reduced}}
  return %r : !t
}

// -----

!t = tensor<4x8xf32>
ddp.process_group @dp
ddp.process_group @pairs ranks [[0, 1], [2, 3]]

// The pairs are counted twice.
func.func @overlapping_groups(%g: !t) -> (!t {ddp.gradient}) {
  %a = ddp.all_reduce sum %g on @pairs : !t
  // expected-note @+1 {{the reduction is here}}
  %b = ddp.all_reduce sum %a on @dp : !t
  // expected-error @+1 {{but it is reduced more than once}}
  return %b : !t
}

// -----

!t = tensor<4x8xf32>
ddp.process_group @dp

func.func private @first(%a: !t, %b: !t) -> !t {
  return %a : !t
}
func.func @call_drops_the_sum(%g: !t) -> (!t {ddp.gradient}) {
  %r = ddp.all_reduce mean %g on @dp : !t
  %a = func.call @first(%g, %r) : (!t, !t) -> !t
  // expected-error @+1 {{but it is not reduced}}
  return %a : !t
}

// -----

!t = tensor<4x8xf32>
ddp.process_group @dp

func.func @copied_over(%g: !t) -> (!t {ddp.gradient}) {
  %r = ddp.all_reduce mean %g on @dp : !t
  %a = linalg.copy ins(%g : !t) outs(%r : !t) -> !t
  // expected-error @+1 {{but it is not reduced}}
  return %a : !t
}

// -----

!t = tensor<4x8xf32>
ddp.process_group @dp

func.func @inserted_over(%g: !t) -> (!t {ddp.gradient}) {
  %r = ddp.all_reduce mean %g on @dp : !t
  %a = tensor.insert_slice %g into %r[0, 0] [4, 8] [1, 1] : !t into !t
  // expected-error @+1 {{but it is not reduced}}
  return %a : !t
}

// -----

!t = tensor<4x8xf32>
ddp.process_group @dp

func.func @filled_over(%g: !t, %x: f32) -> (!t {ddp.gradient}) {
  %r = ddp.all_reduce mean %g on @dp : !t
  %a = linalg.fill ins(%x : f32) outs(%r : !t) -> !t
  // expected-error @+1 {{but it is not reduced}}
  return %a : !t
}

// -----

!t = tensor<4x8xf32>
ddp.process_group @dp

func.func @partly_over(%g: !t, %h: tensor<2x8xf32>) -> (!t {ddp.gradient}) {
  // expected-note @+1 {{the reduction is here}}
  %r = ddp.all_reduce mean %g on @dp : !t
  %a = tensor.insert_slice %h into %r[0, 0] [2, 8] [1, 1] : tensor<2x8xf32> into !t
  // expected-error @+1 {{but it is reduced in some of its elements only}}
  return %a : !t
}

// -----

!t = tensor<4x8xf32>
ddp.process_group @dp

func.func @added_again(%g: !t) -> (!t {ddp.gradient}) {
  // expected-note @+1 {{the reduction is here}}
  %r = ddp.all_reduce mean %g on @dp : !t
  %a = arith.addf %r, %g : !t
  // expected-error @+1 {{but it is mixed with data that is not reduced}}
  return %a : !t
}

// -----

!t = tensor<4x8xf32>
ddp.process_group @dp

// One of the batch and the labels differs between ranks; both are in what is
// added.
func.func @local_term(%x: !t, %y: !t) -> (!t {ddp.gradient}) {
  %g = arith.mulf %x, %y : !t
  // expected-note @+1 {{the reduction is here}}
  %r = ddp.all_reduce mean %g on @dp : !t
  %l = arith.subf %y, %x : !t
  %a = arith.addf %r, %l : !t
  // expected-error @+1 {{but it is mixed with data that is not reduced}}
  return %a : !t
}

// -----

!t = tensor<4x8xf32>
ddp.process_group @dp

// The norm is reduced, what it scales is not.
func.func @scaled_only(%g: !t, %h: !t) -> (!t {ddp.gradient}) {
  %zero = arith.constant dense<0.0> : tensor<f32>
  // expected-note @+1 {{the reduction is here}}
  %r = ddp.all_reduce mean %h on @dp : !t
  %norm = linalg.generic
      {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> ()>], iterator_types = ["reduction", "reduction"]}
      ins(%r : !t) outs(%zero : tensor<f32>) {
  ^bb0(%x: f32, %acc: f32):
    %next = arith.addf %acc, %x : f32
    linalg.yield %next : f32
  } -> tensor<f32>
  %n = tensor.extract %norm[] : tensor<f32>
  %a = linalg.map ins(%g : !t) outs(%r : !t) (%x: f32, %o: f32) {
    %y = arith.mulf %x, %n : f32
    linalg.yield %y : f32
  }
  // expected-error @+1 {{but it is not reduced}}
  return %a : !t
}

// -----

!t = tensor<4x8xf32>
ddp.process_group @dp

// Ranks leave the loop after different numbers of iterations.
func.func @divergent_exit(%g: !t, %n: index) -> (!t {ddp.gradient}) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %zero = arith.constant dense<0.0> : !t
  cf.br ^head(%c0, %zero : index, !t)
^head(%i: index, %acc: !t):
  // expected-note @+1 {{the reduction is here}}
  %r = ddp.all_reduce mean %g on @dp : !t
  %j = arith.addi %i, %c1 : index
  %more = arith.cmpi slt, %j, %n : index
  cf.cond_br %more, ^head(%j, %r : index, !t), ^end
^end:
  // expected-error @+1 {{but it is reduced under control flow that may differ between ranks}}
  return %r : !t
}

// -----

!t = tensor<4x8xf32>
ddp.process_group @dp

// How often the loop ran differs, and decides later.
func.func @decided_by_an_exit(%g: !t, %n: index) -> (!t {ddp.gradient}) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c9 = arith.constant 9 : index
  cf.br ^head(%c0 : index)
^head(%i: index):
  %j = arith.addi %i, %c1 : index
  %more = arith.cmpi slt, %j, %n : index
  cf.cond_br %more, ^head(%j : index), ^end
^end:
  %few = arith.cmpi slt, %j, %c9 : index
  %r = scf.if %few -> !t {
    // expected-note @+1 {{the reduction is here}}
    %a = ddp.all_reduce mean %g on @dp : !t
    scf.yield %a : !t
  } else {
    %b = ddp.all_reduce sum %g on @dp : !t
    scf.yield %b : !t
  }
  // expected-error @+1 {{but it is reduced under control flow that may differ between ranks}}
  return %r : !t
}

// -----

!t = tensor<4x8xf32>
ddp.process_group @dp

// Both ways meet, with another value each.
func.func @decided_by_a_way(%g: !t, %mine: i1) -> (!t {ddp.gradient}) {
  %yes = arith.constant true
  %no = arith.constant false
  cf.cond_br %mine, ^meet(%yes : i1), ^meet(%no : i1)
^meet(%c: i1):
  cf.cond_br %c, ^left, ^right
^left:
  %a = ddp.all_reduce mean %g on @dp : !t
  cf.br ^end(%a : !t)
^right:
  // expected-note @+1 {{the reduction is here}}
  %b = ddp.all_reduce sum %g on @dp : !t
  cf.br ^end(%b : !t)
^end(%r: !t):
  // expected-error @+1 {{but it is reduced under control flow that may differ between ranks}}
  return %r : !t
}

// -----

!t = tensor<4x8xf32>
ddp.process_group @dp

func.func private @choose(%g: !t, %c: i1) -> !t {
  %r = scf.if %c -> !t {
    // expected-note @+1 {{the reduction is here}}
    %a = ddp.all_reduce mean %g on @dp : !t
    scf.yield %a : !t
  } else {
    %b = ddp.all_reduce sum %g on @dp : !t
    scf.yield %b : !t
  }
  return %r : !t
}
func.func @condition_of_the_caller(%g: !t, %c: i1) -> (!t {ddp.gradient}) {
  %r = func.call @choose(%g, %c) : (!t, i1) -> !t
  // expected-error @+1 {{but it is reduced under control flow that may differ between ranks}}
  return %r : !t
}

// -----

!t = tensor<4x8xf32>
ddp.process_group @dp

func.func private @again(%g: !t, %c: i1) -> !t {
  %r = scf.if %c -> !t {
    %a = ddp.all_reduce mean %g on @dp : !t
    // expected-error @+1 {{expected no collectives in recursive functions, because it is not known how often they run}}
    %b = func.call @again(%a, %c) : (!t, i1) -> !t
    scf.yield %b : !t
  } else {
    scf.yield %g : !t
  }
  return %r : !t
}
func.func @recursive(%g: !t, %c: i1 {ddp.replicated}) -> (!t {ddp.gradient}) {
  %r = func.call @again(%g, %c) : (!t, i1) -> !t
  // expected-note @-11 {{the reduction is here}}
  // expected-error @+1 {{but it is reduced on some paths only}}
  return %r : !t
}

// -----

// Loops that replace a gradient slice by slice, but not all of it.
ddp.process_group @dp
func.func @a_layer_is_left(%s: tensor<4x8xf32>) -> (tensor<4x8xf32> {ddp.gradient}) {
  %begin = arith.constant 0 : index
  %step = arith.constant 1 : index
  %end = arith.constant 3 : index
  %r = scf.for %i = %begin to %end step %step iter_args(%a = %s) -> tensor<4x8xf32> {
    %p = tensor.extract_slice %s[%i, 0] [1, 8] [1, 1]
        : tensor<4x8xf32> to tensor<1x8xf32>
    // expected-note @+1 {{the reduction is here}}
    %q = ddp.all_reduce mean %p on @dp : tensor<1x8xf32>
    %b = tensor.insert_slice %q into %a[%i, 0] [1, 8] [1, 1]
        : tensor<1x8xf32> into tensor<4x8xf32>
    scf.yield %b : tensor<4x8xf32>
  }
  // expected-error @+1 {{but it is reduced in some of its elements only}}
  return %r : tensor<4x8xf32>
}

// -----

// Gaps between the slices.
ddp.process_group @dp
func.func @every_other_layer(%s: tensor<4x8xf32>) -> (tensor<4x8xf32> {ddp.gradient}) {
  %begin = arith.constant 0 : index
  %step = arith.constant 2 : index
  %end = arith.constant 4 : index
  %r = scf.for %i = %begin to %end step %step iter_args(%a = %s) -> tensor<4x8xf32> {
    %p = tensor.extract_slice %s[%i, 0] [1, 8] [1, 1]
        : tensor<4x8xf32> to tensor<1x8xf32>
    // expected-note @+1 {{the reduction is here}}
    %q = ddp.all_reduce mean %p on @dp : tensor<1x8xf32>
    %b = tensor.insert_slice %q into %a[%i, 0] [1, 8] [1, 1]
        : tensor<1x8xf32> into tensor<4x8xf32>
    scf.yield %b : tensor<4x8xf32>
  }
  // expected-error @+1 {{but it is reduced in some of its elements only}}
  return %r : tensor<4x8xf32>
}

// -----

// Slices that are not whole in the other dimension.
ddp.process_group @dp
func.func @half_a_layer(%s: tensor<4x8xf32>) -> (tensor<4x8xf32> {ddp.gradient}) {
  %begin = arith.constant 0 : index
  %step = arith.constant 1 : index
  %end = arith.constant 4 : index
  %r = scf.for %i = %begin to %end step %step iter_args(%a = %s) -> tensor<4x8xf32> {
    %p = tensor.extract_slice %s[%i, 0] [1, 4] [1, 1]
        : tensor<4x8xf32> to tensor<1x4xf32>
    // expected-note @+1 {{the reduction is here}}
    %q = ddp.all_reduce mean %p on @dp : tensor<1x4xf32>
    %b = tensor.insert_slice %q into %a[%i, 0] [1, 4] [1, 1]
        : tensor<1x4xf32> into tensor<4x8xf32>
    scf.yield %b : tensor<4x8xf32>
  }
  // expected-error @+1 {{but it is reduced in some of its elements only}}
  return %r : tensor<4x8xf32>
}

// -----

// Along two dimensions at once.
ddp.process_group @dp
func.func @diagonal(%s: tensor<4x8xf32>) -> (tensor<4x8xf32> {ddp.gradient}) {
  %begin = arith.constant 0 : index
  %step = arith.constant 1 : index
  %end = arith.constant 4 : index
  %r = scf.for %i = %begin to %end step %step iter_args(%a = %s) -> tensor<4x8xf32> {
    %p = tensor.extract_slice %s[%i, %i] [1, 1] [1, 1]
        : tensor<4x8xf32> to tensor<1x1xf32>
    // expected-note @+1 {{the reduction is here}}
    %q = ddp.all_reduce mean %p on @dp : tensor<1x1xf32>
    %b = tensor.insert_slice %q into %a[%i, %i] [1, 1] [1, 1]
        : tensor<1x1xf32> into tensor<4x8xf32>
    scf.yield %b : tensor<4x8xf32>
  }
  // expected-error @+1 {{but it is reduced in some of its elements only}}
  return %r : tensor<4x8xf32>
}

// -----

// A parallel loop that replaces half of what it begins with.
ddp.process_group @dp
func.func @half_in_parallel(%g: tensor<4xf32>, %h: tensor<4xf32>)
    -> (tensor<4xf32> {ddp.gradient}) {
  // expected-note @+1 {{the reduction is here}}
  %w = ddp.all_reduce mean %g on @dp : tensor<4xf32>
  %r = scf.forall (%i) in (2) shared_outs(%a = %h) -> tensor<4xf32> {
    %s = tensor.extract_slice %w[%i] [1] [1] : tensor<4xf32> to tensor<1xf32>
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %s into %a[%i] [1] [1]
          : tensor<1xf32> into tensor<4xf32>
    }
  }
  // expected-error @+1 {{but it is reduced in some of its elements only}}
  return %r : tensor<4xf32>
}

// -----

// A parallel loop that may have no iterations.
ddp.process_group @dp
func.func @perhaps_in_parallel(%g: tensor<4xf32>, %n: index {ddp.replicated})
    -> (tensor<4xf32> {ddp.gradient}) {
  // expected-note @+1 {{the reduction is here}}
  %w = ddp.all_reduce mean %g on @dp : tensor<4xf32>
  %r = scf.forall (%i) in (%n) shared_outs(%a = %g) -> tensor<4xf32> {
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %w into %a[0] [4] [1]
          : tensor<4xf32> into tensor<4xf32>
    }
  }
  // expected-error @+1 {{but it is reduced in some of its elements only}}
  return %r : tensor<4xf32>
}

// -----

// Elements of one tensor or the other, by their place.
ddp.process_group @dp
func.func @chosen_by_place(%g: tensor<4xf32>, %h: tensor<4xf32>)
    -> (tensor<4xf32> {ddp.gradient}) {
  %c2 = arith.constant 2 : index
  // expected-note @+1 {{the reduction is here}}
  %w = ddp.all_reduce mean %g on @dp : tensor<4xf32>
  %r = tensor.generate {
  ^bb0(%i: index):
    %isFirst = arith.cmpi ult, %i, %c2 : index
    %x = tensor.extract %w[%i] : tensor<4xf32>
    %y = tensor.extract %h[%i] : tensor<4xf32>
    %z = arith.select %isFirst, %x, %y : f32
    tensor.yield %z : f32
  } : tensor<4xf32>
  // expected-error @+1 {{but it is reduced on some paths only}}
  return %r : tensor<4xf32>
}

// -----

ddp.process_group @dp
func.func @scattered(%g: tensor<2x1xf32>, %h: tensor<4xf32>,
                     %places: tensor<2x1xindex>)
    -> (tensor<4xf32> {ddp.gradient}) {
  // expected-note @+1 {{the reduction is here}}
  %w = ddp.all_reduce mean %g on @dp : tensor<2x1xf32>
  %r = tensor.scatter %w into %h[%places] scatter_dims([0]) unique
      : (tensor<2x1xf32>, tensor<4xf32>, tensor<2x1xindex>) -> tensor<4xf32>
  // expected-error @+1 {{but it is reduced in some of its elements only}}
  return %r : tensor<4xf32>
}

// -----

// Slices at multiples of two that are one long.
ddp.process_group @dp
func.func @gaps(%s: tensor<4xf32>) -> (tensor<4xf32> {ddp.gradient}) {
  %r = affine.for %i = 0 to 2 iter_args(%a = %s) -> tensor<4xf32> {
    %k = affine.apply affine_map<(d0) -> (d0 * 2)>(%i)
    %p = tensor.extract_slice %s[%k] [1] [1] : tensor<4xf32> to tensor<1xf32>
    // expected-note @+1 {{the reduction is here}}
    %q = ddp.all_reduce mean %p on @dp : tensor<1xf32>
    %b = tensor.insert_slice %q into %a[%k] [1] [1]
        : tensor<1xf32> into tensor<4xf32>
    affine.yield %b : tensor<4xf32>
  }
  // expected-error @+1 {{but it is reduced in some of its elements only}}
  return %r : tensor<4xf32>
}

// -----

// Two elements that miss the second of two steps.
ddp.process_group @pairs ranks [[0, 1], [2, 3]]
ddp.process_group @strides ranks [[0, 2], [1, 3]]
func.func @half_in_one_step(%g: tensor<4xf32>) -> (tensor<4xf32> {ddp.gradient}) {
  // expected-note @+1 {{the reduction is here}}
  %a = ddp.all_reduce mean %g on @pairs : tensor<4xf32>
  %b = ddp.all_reduce mean %a on @strides : tensor<4xf32>
  %x = tensor.extract_slice %a[0] [2] [1] : tensor<4xf32> to tensor<2xf32>
  %r = tensor.insert_slice %x into %b[0] [2] [1]
      : tensor<2xf32> into tensor<4xf32>
  // expected-error @+1 {{but it is reduced over different process groups}}
  return %r : tensor<4xf32>
}

// -----

ddp.process_group @pairs ranks [[0, 1], [2, 3]]
ddp.process_group @strides ranks [[0, 2], [1, 3]]
func.func @one_step_on_a_path(%g: tensor<4xf32>, %c: i1 {ddp.replicated})
    -> (tensor<4xf32> {ddp.gradient}) {
  %a = ddp.all_reduce mean %g on @pairs : tensor<4xf32>
  %r = scf.if %c -> tensor<4xf32> {
    // expected-note @+1 {{the reduction is here}}
    %b = ddp.all_reduce mean %a on @strides : tensor<4xf32>
    scf.yield %b : tensor<4xf32>
  } else {
    scf.yield %a : tensor<4xf32>
  }
  // expected-error @+1 {{but it is reduced over different process groups}}
  return %r : tensor<4xf32>
}
