// RUN: ddphook-opt %s --ddp-verify-sync -split-input-file | FileCheck %s

// Valid programs that a coarser analysis would refuse: what flows into the
// gradient, under which control flow, over which groups.

ddp.process_group @dp
ddp.process_group @node placement intra_node
ddp.process_group @across placement inter_node
ddp.process_group @pairs ranks [[0, 1], [2, 3]]
ddp.process_group @strides ranks [[0, 2], [1, 3]]

!t = tensor<4x8xf32>

// CHECK-LABEL: func @momentum(
func.func @momentum(%g: !t, %w: !t, %v: !t, %rate: f32) -> (!t {ddp.gradient}, !t {ddp.gradient}) {
  %momentum = arith.constant 0.9 : f32
  %r = ddp.all_reduce mean %g on @dp : !t
  %w1, %v1 = linalg.generic
      {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>],
       iterator_types = ["parallel", "parallel"]}
      ins(%r : !t) outs(%w, %v : !t, !t) {
  ^bb0(%gradient: f32, %parameter: f32, %velocity: f32):
    %kept = arith.mulf %velocity, %momentum : f32
    %velocity_new = arith.addf %kept, %gradient : f32
    %move = arith.mulf %velocity_new, %rate : f32
    %parameter_new = arith.subf %parameter, %move : f32
    linalg.yield %parameter_new, %velocity_new : f32, f32
  } -> (!t, !t)
  return %w1, %v1 : !t, !t
}

// The weight is in the gradient as well, and decays beside it.
// CHECK-LABEL: func @weight_decay(
func.func @weight_decay(%x: !t, %w: !t) -> (!t {ddp.gradient}) {
  %decay = arith.constant dense<0.99> : !t
  %g = arith.mulf %x, %w : !t
  %r = ddp.all_reduce mean %g on @dp : !t
  %d = arith.mulf %w, %decay : !t
  %u = arith.subf %d, %r : !t
  return %u : !t
}

// CHECK-LABEL: func @microbatches(
func.func @microbatches(%g: tensor<3x4x8xf32>) -> (!t {ddp.gradient}) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c3 = arith.constant 3 : index
  %zero = arith.constant dense<0.0> : !t
  %sum = scf.for %i = %c0 to %c3 step %c1 iter_args(%acc = %zero) -> !t {
    %one = tensor.extract_slice %g[%i, 0, 0] [1, 4, 8] [1, 1, 1] : tensor<3x4x8xf32> to !t
    %next = arith.addf %acc, %one : !t
    scf.yield %next : !t
  }
  %r = ddp.all_reduce mean %sum on @dp : !t
  return %r : !t
}

// Summed behind the reduction: the start, zeros, is nobody's data.
// CHECK-LABEL: func @several_means(
func.func @several_means(%g: !t, %n: index {ddp.replicated}) -> (!t {ddp.gradient}) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %zero = arith.constant dense<0.0> : !t
  %sum = scf.for %i = %c0 to %n step %c1 iter_args(%acc = %zero) -> !t {
    %r = ddp.all_reduce mean %g on @dp : !t
    %next = arith.addf %acc, %r : !t
    scf.yield %next : !t
  }
  return %sum : !t
}

// CHECK-LABEL: func @clipped_by_global_norm(
func.func @clipped_by_global_norm(%g: !t, %h: tensor<8xf32>) -> (!t {ddp.gradient}, tensor<8xf32> {ddp.gradient}) {
  %one = arith.constant 1.0 : f32
  %zero = arith.constant dense<0.0> : tensor<f32>
  %r = ddp.all_reduce mean %g on @dp : !t
  %s = ddp.all_reduce mean %h on @dp : tensor<8xf32>
  %a = linalg.dot ins(%s, %s : tensor<8xf32>, tensor<8xf32>) outs(%zero : tensor<f32>) -> tensor<f32>
  %norm = linalg.generic
      {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> ()>], iterator_types = ["reduction", "reduction"]}
      ins(%r : !t) outs(%a : tensor<f32>) {
  ^bb0(%x: f32, %acc: f32):
    %square = arith.mulf %x, %x : f32
    %next = arith.addf %acc, %square : f32
    linalg.yield %next : f32
  } -> tensor<f32>
  %n = tensor.extract %norm[] : tensor<f32>
  %f = arith.divf %one, %n : f32
  %c = arith.minimumf %f, %one : f32
  %rc = linalg.map ins(%r : !t) outs(%g : !t) (%x: f32, %o: f32) {
    %y = arith.mulf %x, %c : f32
    linalg.yield %y : f32
  }
  %sc = linalg.map ins(%s : tensor<8xf32>) outs(%h : tensor<8xf32>) (%x: f32, %o: f32) {
    %y = arith.mulf %x, %c : f32
    linalg.yield %y : f32
  }
  return %rc, %sc : !t, tensor<8xf32>
}

// A statistic of all ranks in the forward pass is no gradient.
// CHECK-LABEL: func @synchronized_statistics(
func.func @synchronized_statistics(%x: !t, %w: !t) -> (!t {ddp.gradient}) {
  %zero = arith.constant dense<0.0> : tensor<8xf32>
  %sums = linalg.reduce {arith.addf} ins(%x : !t) outs(%zero : tensor<8xf32>) dimensions = [0]
  %mean = ddp.all_reduce mean %sums on @dp : tensor<8xf32>
  %empty = tensor.empty() : !t
  %wide = linalg.broadcast ins(%mean : tensor<8xf32>) outs(%empty : !t) dimensions = [0]
  %centered = arith.subf %x, %wide : !t
  %g = arith.mulf %centered, %w : !t
  %r = ddp.all_reduce mean %g on @dp : !t
  return %r : !t
}

// A step that was not finite on any rank is left out, on all ranks.
// CHECK-LABEL: func @skipped(
func.func @skipped(%g: !t) -> (!t {ddp.gradient}) {
  %zero = arith.constant dense<0.0> : !t
  %r = ddp.all_reduce mean %g on @dp : !t
  %ok = ddp.is_finite %r : !t
  %s = scf.if %ok -> !t {
    scf.yield %r : !t
  } else {
    scf.yield %zero : !t
  }
  return %s : !t
}

// Within machines, then between them; and the like by lists of ranks.
// CHECK-LABEL: func @two_levels(
func.func @two_levels(%g: !t, %h: !t) -> (!t {ddp.gradient}, !t {ddp.gradient}) {
  %a = ddp.all_reduce mean %g on @node : !t
  %b = ddp.all_reduce mean %a on @across : !t
  %c = ddp.all_reduce mean %h on @pairs : !t
  %d = ddp.all_reduce mean %c on @strides : !t
  return %b, %d : !t, !t
}

// What pairs of ranks agree on may decide about what pairs do.
// CHECK-LABEL: func @condition_of_a_group(
func.func @condition_of_a_group(%g: !t, %norm: tensor<f32>) -> (!t {ddp.gradient}) {
  %limit = arith.constant 1.0 : f32
  %n = ddp.all_reduce sum %norm on @pairs : tensor<f32>
  %v = tensor.extract %n[] : tensor<f32>
  %c = arith.cmpf ogt, %v, %limit : f32
  %r = scf.if %c -> !t {
    %a = ddp.all_reduce mean %g on @pairs : !t
    scf.yield %a : !t
  } else {
    %b = ddp.all_reduce sum %g on @pairs : !t
    scf.yield %b : !t
  }
  return %r : !t
}

// And what all ranks agree on about what any do.
// CHECK-LABEL: func @condition_of_the_job(
func.func @condition_of_the_job(%g: !t, %norm: tensor<f32>) -> (!t {ddp.gradient}) {
  %limit = arith.constant 1.0 : f32
  %n = ddp.all_reduce sum %norm on @dp : tensor<f32>
  %v = tensor.extract %n[] : tensor<f32>
  %c = arith.cmpf ogt, %v, %limit : f32
  %r = scf.if %c -> !t {
    %a = ddp.all_reduce mean %g on @node : !t
    scf.yield %a : !t
  } else {
    %b = ddp.all_reduce sum %g on @node : !t
    scf.yield %b : !t
  }
  return %r : !t
}

// Overwritten as a whole: what was there before is gone.
// CHECK-LABEL: func @overwritten(
func.func @overwritten(%g: !t) -> (!t {ddp.gradient}, !t {ddp.gradient}, !t {ddp.gradient}) {
  %r = ddp.all_reduce mean %g on @dp : !t
  %a = linalg.copy ins(%r : !t) outs(%g : !t) -> !t
  %b = tensor.insert_slice %r into %g[0, 0] [4, 8] [1, 1] : !t into !t
  %c = linalg.exp ins(%r : !t) outs(%g : !t) -> !t
  return %a, %b, %c : !t, !t, !t
}

// A parameter that is updated piece by piece.
// CHECK-LABEL: func @tiles(
func.func @tiles(%g: !t, %w: !t) -> (!t {ddp.gradient}) {
  %c0 = arith.constant 0 : index
  %c2 = arith.constant 2 : index
  %c4 = arith.constant 4 : index
  %r = ddp.all_reduce mean %g on @dp : !t
  %u = scf.for %i = %c0 to %c4 step %c2 iter_args(%p = %w) -> !t {
    %old = tensor.extract_slice %p[%i, 0] [2, 8] [1, 1] : !t to tensor<2x8xf32>
    %move = tensor.extract_slice %r[%i, 0] [2, 8] [1, 1] : !t to tensor<2x8xf32>
    %new = arith.subf %old, %move : tensor<2x8xf32>
    %next = tensor.insert_slice %new into %p[%i, 0] [2, 8] [1, 1] : tensor<2x8xf32> into !t
    scf.yield %next : !t
  }
  return %u : !t
}

// All parameters in one array, the first half of which is not frozen.
// CHECK-LABEL: func @flat_parameters(
func.func @flat_parameters(%flat: tensor<64xf32>, %x: !t) -> (tensor<64xf32> {ddp.gradient}) {
  %zero = arith.constant dense<0.0> : tensor<64xf32>
  %half = tensor.extract_slice %flat[0] [32] [1] : tensor<64xf32> to tensor<32xf32>
  %w = tensor.expand_shape %half [[0, 1]] output_shape [4, 8] : tensor<32xf32> into !t
  %g = arith.mulf %x, %w : !t
  %r = ddp.all_reduce mean %g on @dp : !t
  %c = tensor.collapse_shape %r [[0, 1]] : !t into tensor<32xf32>
  %move = tensor.insert_slice %c into %zero[0] [32] [1] : tensor<32xf32> into tensor<64xf32>
  %u = arith.subf %flat, %move : tensor<64xf32>
  return %u : tensor<64xf32>
}

// A call gives what it makes of the argument that it uses, not of the others.
func.func private @second(%a: !t, %b: !t) -> !t {
  return %b : !t
}
func.func private @both(%a: !t, %b: !t) -> (!t, !t) {
  %r = ddp.all_reduce mean %a on @dp : !t
  return %r, %b : !t, !t
}
// CHECK-LABEL: func @calls(
func.func @calls(%g: !t, %h: !t) -> (!t {ddp.gradient}, !t {ddp.gradient}) {
  %r = ddp.all_reduce mean %g on @dp : !t
  %a = func.call @second(%h, %r) : (!t, !t) -> !t
  %b:2 = func.call @both(%h, %r) : (!t, !t) -> (!t, !t)
  return %a, %b#0 : !t, !t
}

// The condition is an argument: who calls decides whether it is the same.
func.func private @choose(%g: !t, %c: i1) -> (!t {ddp.gradient}) {
  %r = scf.if %c -> !t {
    %a = ddp.all_reduce mean %g on @dp : !t
    scf.yield %a : !t
  } else {
    %b = ddp.all_reduce sum %g on @dp : !t
    scf.yield %b : !t
  }
  return %r : !t
}
func.func private @identity(%c: i1) -> i1 {
  return %c : i1
}
// CHECK-LABEL: func @condition_through_calls(
func.func @condition_through_calls(%g: !t, %c: i1 {ddp.replicated}, %mine: i1) -> (!t {ddp.gradient}, i1) {
  %same = func.call @identity(%c) : (i1) -> i1
  %other = func.call @identity(%mine) : (i1) -> i1
  %r = func.call @choose(%g, %same) : (!t, i1) -> !t
  return %r, %other : !t, i1
}

// A function that returns in two places, and hands tensors to one of them.
func.func private @two_returns(%c: i1, %norm: tensor<f32>, %g: !t) -> tensor<f32> {
  %n = ddp.all_reduce sum %norm on @dp : tensor<f32>
  cf.cond_br %c, ^left(%g : !t), ^right
^left(%unused: !t):
  return %n : tensor<f32>
^right:
  %m = arith.negf %n : tensor<f32>
  return %m : tensor<f32>
}
// CHECK-LABEL: func @condition_of_two_returns(
func.func @condition_of_two_returns(%g: !t, %c: i1 {ddp.replicated}, %norm: tensor<f32>) -> (!t {ddp.gradient}) {
  %zero = arith.constant 0.0 : f32
  %n = func.call @two_returns(%c, %norm, %g) : (i1, tensor<f32>, !t) -> tensor<f32>
  %v = tensor.extract %n[] : tensor<f32>
  %positive = arith.cmpf ogt, %v, %zero : f32
  %r = func.call @choose(%g, %positive) : (!t, i1) -> !t
  return %r : !t
}

// Loops of blocks: the number of iterations is the same on all ranks.
// CHECK-LABEL: func @loop_of_blocks(
func.func @loop_of_blocks(%g: !t, %n: index {ddp.replicated}, %mine: i1) -> (!t {ddp.gradient}) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %zero = arith.constant dense<0.0> : !t
  // A branch that has nothing to do with it: both ways meet again.
  cf.cond_br %mine, ^left, ^right
^left:
  cf.br ^before
^right:
  cf.br ^before
^before:
  cf.br ^head(%c0, %zero : index, !t)
^head(%i: index, %acc: !t):
  %more = arith.cmpi slt, %i, %n : index
  cf.cond_br %more, ^body, ^end
^body:
  %r = ddp.all_reduce mean %g on @dp : !t
  %next = arith.addf %acc, %r : !t
  %j = arith.addi %i, %c1 : index
  cf.br ^head(%j, %next : index, !t)
^end:
  return %acc : !t
}

// CHECK-LABEL: func @while(
func.func @while(%g: !t, %n: index {ddp.replicated}) -> (!t {ddp.gradient}) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %zero = arith.constant dense<0.0> : !t
  %r:2 = scf.while (%i = %c0, %acc = %zero) : (index, !t) -> (index, !t) {
    %more = arith.cmpi slt, %i, %n : index
    scf.condition(%more) %i, %acc : index, !t
  } do {
  ^bb0(%i: index, %acc: !t):
    %a = ddp.all_reduce mean %g on @dp : !t
    %next = arith.addf %acc, %a : !t
    %j = arith.addi %i, %c1 : index
    scf.yield %j, %next : index, !t
  }
  return %r#1 : !t
}

// A gradient of stacked layers, replaced layer by layer.
// CHECK-LABEL: func.func @layers(
func.func @layers(%s: tensor<3x4x8xf32>) -> (tensor<3x4x8xf32> {ddp.gradient}) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c3 = arith.constant 3 : index
  %r = scf.for %i = %c0 to %c3 step %c1 iter_args(%a = %s) -> tensor<3x4x8xf32> {
    %p = tensor.extract_slice %s[%i, 0, 0] [1, 4, 8] [1, 1, 1]
        : tensor<3x4x8xf32> to tensor<4x8xf32>
    %q = ddp.all_reduce mean %p on @dp : tensor<4x8xf32>
    %b = tensor.insert_slice %q into %a[%i, 0, 0] [1, 4, 8] [1, 1, 1]
        : tensor<4x8xf32> into tensor<3x4x8xf32>
    scf.yield %b : tensor<3x4x8xf32>
  }
  return %r : tensor<3x4x8xf32>
}

// CHECK-LABEL: func.func @in_parallel(
func.func @in_parallel(%g: tensor<4x8xf32>) -> (tensor<4x8xf32> {ddp.gradient}) {
  %w = ddp.all_reduce mean %g on @dp : tensor<4x8xf32>
  %r = scf.forall (%i, %j) in (2, 8) shared_outs(%a = %g) -> tensor<4x8xf32> {
    %k = affine.apply affine_map<(d0) -> (d0 * 2)>(%i)
    %s = tensor.extract_slice %w[%k, %j] [2, 1] [1, 1]
        : tensor<4x8xf32> to tensor<2x1xf32>
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %s into %a[%k, %j] [2, 1] [1, 1]
          : tensor<2x1xf32> into tensor<4x8xf32>
    }
  }
  return %r : tensor<4x8xf32>
}

// What a weight becomes, element by element.
// CHECK-LABEL: func.func @generated(
func.func @generated(%g: !t, %w: !t) -> (!t {ddp.gradient}) {
  %a = ddp.all_reduce mean %g on @dp : !t
  %r = tensor.generate {
  ^bb0(%i: index, %j: index):
    %x = tensor.extract %a[%i, %j] : !t
    %y = tensor.extract %w[%i, %j] : !t
    %z = arith.subf %y, %x : f32
    tensor.yield %z : f32
  } : !t
  return %r : !t
}

// Two rows at a time.
// CHECK-LABEL: func.func @pairs_of_rows(
func.func @pairs_of_rows(%g: !t) -> (!t {ddp.gradient}) {
  %r = affine.for %i = 0 to 2 iter_args(%a = %g) -> !t {
    %k = affine.apply affine_map<(d0) -> (d0 * 2)>(%i)
    %p = tensor.extract_slice %g[%k, 0] [2, 8] [1, 1] : !t to tensor<2x8xf32>
    %q = ddp.all_reduce mean %p on @dp : tensor<2x8xf32>
    %b = tensor.insert_slice %q into %a[%k, 0] [2, 8] [1, 1]
        : tensor<2x8xf32> into !t
    affine.yield %b : !t
  }
  return %r : !t
}

// A norm over other groups scales the gradient, on one path.
// CHECK-LABEL: func.func @clipped(
func.func @clipped(%g: !t, %square: f32, %limit: f32) -> (!t {ddp.gradient}) {
  %a = ddp.all_reduce mean %g on @pairs : !t
  %t = tensor.from_elements %square : tensor<f32>
  %s = ddp.all_reduce sum %t on @strides : tensor<f32>
  %norm = tensor.extract %s[] : tensor<f32>
  %isLarge = arith.cmpf ogt, %norm, %limit : f32
  %r = scf.if %isLarge -> !t {
    %e = tensor.empty() : !t
    %n = linalg.fill ins(%norm : f32) outs(%e : !t) -> !t
    %d = arith.divf %a, %n : !t
    scf.yield %d : !t
  } else {
    scf.yield %a : !t
  }
  return %r : !t
}
