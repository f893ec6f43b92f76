// Programs that go on computing in the memory of an average, or carry it around
// loops: executed on one and two ranks, and compared bit by bit with what they
// mean. Each went wrong, or was refused, when a pass took memory for free that
// another value still lay in.

// RUN: rm -rf %t && mkdir %t
// RUN: ddphook-cc %s -o %t/plain.so --shared
// RUN: %python %S/Inputs/aliased_averages.py ddphook-exec %t/plain.so %t/plain allreduce
// RUN: ddphook-cc %s -o %t/overlap.so --shared --ddp-pipeline="hook=fp16 wrapper=bf16 bucket-cap-mb=0 overlap=true"
// RUN: %python %S/Inputs/aliased_averages.py ddphook-exec %t/overlap.so %t/overlap fp16-in-bf16
// RUN: ddphook-cc %s -o %t/casts.so --shared --ddp-pipeline="hook=fp16 fuse=false bucket-cap-mb=0 overlap=true overlap-depth=4"
// RUN: %python %S/Inputs/aliased_averages.py ddphook-exec %t/casts.so %t/casts fp16
// RUN: ddphook-cc %s -o %t/apart.so --shared --ddp-pipeline="hook=fp16 fuse=false bucket-cap-mb=0 order=reverse"
// RUN: %python %S/Inputs/aliased_averages.py ddphook-exec %t/apart.so %t/apart fp16
// RUN: ddphook-cc %s -o %t/noop.so --shared --ddp-pipeline="hook=noop overlap=true bucket-cap-mb=0"
// RUN: %python %S/Inputs/aliased_averages.py ddphook-exec %t/noop.so %t/noop noop

!t = tensor<3x5xf32>
!f = tensor<15xf32>

ddp.process_group @dp

// An operation computes in an average's place, before and behind another one.
func.func @computed_in_place(%a: !t, %b: !t) -> (!t, !t) {
  %r = ddp.all_reduce mean %a on @dp : !t
  %x = linalg.map { math.absf } ins(%r : !t) outs(%r : !t)
  %s = ddp.all_reduce mean %b on @dp : !t
  return %x, %s : !t, !t
}
func.func @computed_in_place_later(%a: !t, %b: !t) -> (!t, !t) {
  %r = ddp.all_reduce mean %a on @dp : !t
  %s = ddp.all_reduce mean %b on @dp : !t
  %x = linalg.map { math.absf } ins(%r : !t) outs(%r : !t)
  return %x, %s : !t, !t
}

// An average in another shape, whole and in part.
func.func @reshaped(%a: !t, %b: !t) -> (!f, !t, tensor<5xf32>) {
  %r = ddp.all_reduce mean %a on @dp : !t
  %x = tensor.collapse_shape %r [[0, 1]] : !t into !f
  %s = ddp.all_reduce mean %b on @dp : !t
  %row = tensor.extract_slice %s[1, 0] [1, 5] [1, 1] : !t to tensor<5xf32>
  %u = ddp.all_reduce mean %s on @dp : !t
  return %x, %u, %row : !f, !t, tensor<5xf32>
}

// A slice of one average becomes part of another.
func.func @inserted(%a: !t, %b: !t, %c: !t) -> (!t, !t) {
  %r = ddp.all_reduce mean %a on @dp : !t
  %s = ddp.all_reduce mean %b on @dp : !t
  %row = tensor.extract_slice %s[0, 0] [1, 5] [1, 1] : !t to tensor<5xf32>
  %x = tensor.insert_slice %row into %r[2, 0] [1, 5] [1, 1] : tensor<5xf32> into !t
  %u = ddp.all_reduce mean %c on @dp : !t
  return %x, %u : !t, !t
}

// One of two averages, as a condition wants it.
func.func @selected(%a: !t, %b: !t, %c: i1) -> (!t, !t) {
  %r = ddp.all_reduce mean %a on @dp : !t
  %s = ddp.all_reduce mean %b on @dp : !t
  %x = scf.if %c -> (!t) {
    scf.yield %r : !t
  } else {
    %m = linalg.map { math.absf } ins(%s : !t) outs(%s : !t)
    scf.yield %m : !t
  }
  %u = ddp.all_reduce mean %b on @dp : !t
  return %x, %u : !t, !t
}

// A loop that begins with an average.
func.func @loop_from_average(%a: !t, %b: !t) -> (!t, !t) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c3 = arith.constant 3 : index
  %r = ddp.all_reduce mean %a on @dp : !t
  %x = scf.for %i = %c0 to %c3 step %c1 iter_args(%y = %r) -> (!t) {
    %n = linalg.add ins(%y, %b : !t, !t) outs(%y : !t) -> !t
    scf.yield %n : !t
  }
  %s = ddp.all_reduce mean %b on @dp : !t
  return %x, %s : !t, !t
}

// A private function computes in the average that it is given.
func.func private @absolute(%x: !t) -> !t {
  %y = linalg.map { math.absf } ins(%x : !t) outs(%x : !t)
  return %y : !t
}
func.func @called_in_place(%a: !t, %b: !t) -> (!t, !t, !t) {
  %r = ddp.all_reduce mean %a on @dp : !t
  %x = func.call @absolute(%r) : (!t) -> !t
  %s = ddp.all_reduce mean %b on @dp : !t
  %y = func.call @absolute(%s) : (!t) -> !t
  return %x, %s, %y : !t, !t, !t
}

// Two results of a private function in one memory, though one of them went through a
// copy onto itself, or is the other one in one of the returns only.
func.func private @sum_and_view(%x: !t, %y: !t) -> (!t, !f) {
  %s = linalg.add ins(%x, %y : !t, !t) outs(%x : !t) -> !t
  %c = linalg.copy ins(%s : !t) outs(%s : !t) -> !t
  %f = tensor.collapse_shape %c [[0, 1]] : !t into !f
  return %s, %f : !t, !f
}
func.func @called_for_a_view(%a: !t, %b: !t) -> (!t, !f, !t) {
  %r = ddp.all_reduce mean %a on @dp : !t
  %x:2 = func.call @sum_and_view(%r, %b) : (!t, !t) -> (!t, !f)
  %y = linalg.map { math.absf } ins(%x#1 : !f) outs(%x#1 : !f)
  return %x#0, %y, %r : !t, !f, !t
}
func.func private @sums(%x: !t, %y: !t, %c: i1) -> (!t, !t) {
  %s = linalg.add ins(%x, %y : !t, !t) outs(%x : !t) -> !t
  cf.cond_br %c, ^same, ^other
^same:
  return %s, %s : !t, !t
^other:
  return %s, %y : !t, !t
}
func.func @called_for_sums(%a: !t, %b: !t, %c: i1) -> (!t, !t, !t) {
  %r = ddp.all_reduce mean %a on @dp : !t
  %x:2 = func.call @sums(%r, %b, %c) : (!t, !t, i1) -> (!t, !t)
  %y = linalg.map { math.absf } ins(%x#0 : !t) outs(%x#0 : !t)
  %z = linalg.sub ins(%x#1, %a : !t, !t) outs(%x#1 : !t) -> !t
  return %y, %z, %r : !t, !t, !t
}

// What an iteration overwrites, another of its values still needs.
func.func @loop_reads_what_it_overwrites(%a: !t, %b: !t) -> (!t, !t, !t) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  %r = ddp.all_reduce mean %a on @dp : !t
  %x:2 = scf.for %i = %c0 to %c4 step %c1 iter_args(%y = %r, %z = %b)
      -> (!t, !t) {
    %n = linalg.sub ins(%y, %z : !t, !t) outs(%y : !t) -> !t
    scf.yield %n, %y : !t, !t
  }
  return %x#0, %x#1, %r : !t, !t, !t
}

// The same through a shape and back.
func.func @loop_swaps_views(%a: !t, %b: !t) -> (!t, !t) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c3 = arith.constant 3 : index
  %x:2 = scf.for %i = %c0 to %c3 step %c1 iter_args(%y = %a, %z = %b)
      -> (!t, !t) {
    %s = ddp.all_reduce mean %y on @dp : !t
    %f = tensor.collapse_shape %z [[0, 1]] : !t into !f
    %g = tensor.expand_shape %f [[0, 1]] output_shape [3, 5] : !f into !t
    %n = linalg.add ins(%s, %y : !t, !t) outs(%z : !t) -> !t
    scf.yield %g, %n : !t, !t
  }
  return %x#0, %x#1 : !t, !t
}

// Loops that test first: the same tensors in both regions, in turn, and others.
func.func @while_swaps(%a: !t, %b: !t, %n: index) -> (!t, !t) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %r = ddp.all_reduce mean %a on @dp : !t
  %s = ddp.all_reduce mean %b on @dp : !t
  %x:3 = scf.while (%i = %c0, %y = %r, %z = %s) : (index, !t, !t) -> (index, !t, !t) {
    %more = arith.cmpi slt, %i, %n : index
    scf.condition(%more) %i, %y, %z : index, !t, !t
  } do {
  ^bb0(%i: index, %y: !t, %z: !t):
    %next = arith.addi %i, %c1 : index
    %m = linalg.add ins(%y, %z : !t, !t) outs(%y : !t) -> !t
    scf.yield %next, %z, %m : index, !t, !t
  }
  return %x#1, %x#2 : !t, !t
}
func.func @while_of_other_values(%a: !t, %b: !t, %n: index) -> (!t, !f) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %r = ddp.all_reduce mean %a on @dp : !t
  %x:3 = scf.while (%y = %r, %i = %c0) : (!t, index) -> (!f, index, !t) {
    %more = arith.cmpi slt, %i, %n : index
    %f = tensor.collapse_shape %y [[0, 1]] : !t into !f
    %m = linalg.sub ins(%y, %b : !t, !t) outs(%y : !t) -> !t
    scf.condition(%more) %f, %i, %m : !f, index, !t
  } do {
  ^bb0(%f: !f, %i: index, %m: !t):
    %next = arith.addi %i, %c1 : index
    %g = tensor.expand_shape %f [[0, 1]] output_shape [3, 5] : !f into !t
    %s = linalg.add ins(%g, %m : !t, !t) outs(%g : !t) -> !t
    scf.yield %s, %next : !t, index
  }
  return %x#2, %x#0 : !t, !f
}

// Blocks that branch to each other carry last iteration's average along.
func.func @branches_carry(%a: !t, %b: !t, %n: index {ddp.replicated}) -> (!t, !t) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  cf.br ^head(%c0, %a, %b : index, !t, !t)
^head(%i: index, %last: !t, %sum: !t):
  %more = arith.cmpi slt, %i, %n : index
  cf.cond_br %more, ^body, ^exit
^body:
  %e = tensor.empty() : !t
  %s = linalg.add ins(%sum, %a : !t, !t) outs(%e : !t) -> !t
  %r = ddp.all_reduce mean %s on @dp : !t
  %f = tensor.empty() : !t
  %t = linalg.add ins(%r, %last : !t, !t) outs(%f : !t) -> !t
  %next = arith.addi %i, %c1 : index
  cf.br ^head(%next, %r, %t : index, !t, !t)
^exit:
  return %last, %sum : !t, !t
}
func.func @branches_swap(%a: !t, %b: !t, %n: index {ddp.replicated}) -> (!t, !t) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %r = ddp.all_reduce mean %a on @dp : !t
  %s = ddp.all_reduce mean %b on @dp : !t
  cf.br ^head(%c0, %r, %s : index, !t, !t)
^head(%i: index, %y: !t, %z: !t):
  %more = arith.cmpi slt, %i, %n : index
  %next = arith.addi %i, %c1 : index
  cf.cond_br %more, ^head(%next, %z, %y : index, !t, !t), ^exit
^exit:
  return %y, %z : !t, !t
}

// Upstream's models of these two operations do not say what they read, or whose
// memory their result is.
func.func @map_reads_its_destination(%a: !t, %b: !t) -> (!t, !t, !t) {
  %r = ddp.all_reduce mean %a on @dp : !t
  %x = linalg.map ins(%b : !t) outs(%r : !t) (%in: f32, %out: f32) {
    %s = arith.addf %out, %in : f32
    linalg.yield %s : f32
  }
  %y = linalg.map ins(%a : !t) outs(%b : !t) (%in: f32, %out: f32) {
    %s = arith.subf %out, %in : f32
    linalg.yield %s : f32
  }
  return %x, %r, %y : !t, !t, !t
}
func.func @switched(%a: !t, %b: !t, %n: index) -> (!t, !t, !t, !t) {
  %r = ddp.all_reduce mean %a on @dp : !t
  %x:2 = scf.index_switch %n -> !t, !t
  case 0 {
    scf.yield %r, %b : !t, !t
  }
  case 2 {
    scf.yield %b, %b : !t, !t
  }
  default {
    %s = linalg.add ins(%r, %b : !t, !t) outs(%r : !t) -> !t
    scf.yield %s, %b : !t, !t
  }
  %y = linalg.map { math.absf } ins(%x#0 : !t) outs(%x#0 : !t)
  %z = linalg.map { math.absf } ins(%a : !t) outs(%x#1 : !t)
  return %y, %r, %z, %b : !t, !t, !t, !t
}
func.func @only_default(%a: !t, %b: !t, %n: index) -> (!t, !t) {
  %r = ddp.all_reduce mean %a on @dp : !t
  %x = scf.index_switch %n -> !t
  default {
    scf.yield %r : !t
  }
  %y = linalg.map { math.absf } ins(%b : !t) outs(%x : !t)
  return %y, %r : !t, !t
}

// A slice of one element, whose strides mean nothing.
func.func @strided_element(%a: !t, %b: !t, %n: index) -> tensor<1xf32> {
  %r = ddp.all_reduce mean %a on @dp : !t
  %f = tensor.expand_shape %r [[0, 1], [2]] output_shape [1, 3, 5] : !t into tensor<1x3x5xf32>
  %c0 = arith.constant 0 : index
  %x = tensor.extract_slice %f[%c0, 1, 2] [1, 1, 1] [1, 2, 2]
      : tensor<1x3x5xf32> to tensor<1xf32>
  return %x : tensor<1xf32>
}

// A loop whose branches yield its own value or one from outside: memory for both
// has to be kept apart. The same by a selection.
func.func @one_or_the_other(%a: !t, %b: !t, %n: index) -> (!t, !t) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %r = ddp.all_reduce mean %a on @dp : !t
  %x:2 = scf.for %i = %c0 to %n step %c1 iter_args(%y = %r, %z = %b) -> (!t, !t) {
    %c = arith.cmpi eq, %i, %c1 : index
    %o = scf.if %c -> !t {
      scf.yield %r : !t
    } else {
      %m = linalg.add ins(%z, %y : !t, !t) outs(%z : !t) -> !t
      scf.yield %m : !t
    }
    %s = arith.select %c, %y, %o : !t
    %q = linalg.map { math.absf } ins(%s : !t) outs(%s : !t)
    scf.yield %q, %o : !t, !t
  }
  return %x#0, %x#1 : !t, !t
}

// A loop of blocks computes in the place of a tensor from outside of it.
func.func @branches_write_outside(%a: !t, %b: !t, %n: index {ddp.replicated}) -> (!t, !t) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %r = ddp.all_reduce mean %a on @dp : !t
  cf.br ^head(%c0, %b : index, !t)
^head(%i: index, %y: !t):
  %more = arith.cmpi slt, %i, %n : index
  cf.cond_br %more, ^body, ^exit
^body:
  %s = linalg.add ins(%y, %r : !t, !t) outs(%r : !t) -> !t
  %next = arith.addi %i, %c1 : index
  cf.br ^head(%next, %s : index, !t)
^exit:
  return %y, %b : !t, !t
}

// A block behind the first one computes in the place of its function's arguments,
// and reads them.
func.func private @blocks_write(%y: !t, %z: !t, %c: i1) -> (!t, !t, !t) {
  %x = scf.if %c -> !t {
    scf.yield %y : !t
  } else {
    scf.yield %z : !t
  }
  cf.br ^next
^next:
  %p = linalg.map { math.absf } ins(%y : !t) outs(%x : !t)
  %q = linalg.map { arith.negf } ins(%z : !t) outs(%y : !t)
  %s = linalg.sub ins(%y, %z : !t, !t) outs(%z : !t) -> !t
  %r = ddp.all_reduce mean %z on @dp : !t
  return %r, %q, %s : !t, !t, !t
}
func.func @branches_write_arguments(%a: !t, %b: !t, %n: index {ddp.replicated})
    -> (!t, !t, !t, !t) {
  %c0 = arith.constant 0 : index
  %c = arith.cmpi eq, %n, %c0 : index
  %r = ddp.all_reduce mean %a on @dp : !t
  %x:3 = func.call @blocks_write(%r, %b, %c) : (!t, !t, i1) -> (!t, !t, !t)
  return %x#0, %x#1, %x#2, %r : !t, !t, !t, !t
}

// Several blocks of a region yield, one of them a tensor that it has computed.
func.func @region_yields(%a: !t, %b: !t, %n: index {ddp.replicated}) -> (!t, !t) {
  %c0 = arith.constant 0 : index
  %c = arith.cmpi eq, %n, %c0 : index
  %r = ddp.all_reduce mean %a on @dp : !t
  %x = scf.execute_region -> !t {
    cf.cond_br %c, ^same, ^other
  ^same:
    scf.yield %r : !t
  ^other:
    %s = linalg.add ins(%r, %b : !t, !t) outs(%r : !t) -> !t
    scf.yield %s : !t
  }
  %y = linalg.map { math.absf } ins(%b : !t) outs(%x : !t)
  %z = linalg.sub ins(%x, %y : !t, !t) outs(%y : !t) -> !t
  return %z, %r : !t, !t
}

// A bucket that a branch reduces, while something unpacked from it is still needed;
// and the same with a start on a condition, written by hand.
func.func @reduced_in_a_branch(%a: !t, %b: !t, %c: i1 {ddp.replicated}) -> (!t, !t, !t) {
  %p = ddp.pack %a, %b : !t, !t -> !ddp.bucket<f32, [3x5, 3x5]>
  %old:2 = ddp.unpack %p : !ddp.bucket<f32, [3x5, 3x5]> -> !t, !t
  %r = scf.if %c -> (!ddp.bucket<f32, [3x5, 3x5]>) {
    %s = ddp.all_reduce mean %p on @dp as "branch" : !ddp.bucket<f32, [3x5, 3x5]>
    scf.yield %s : !ddp.bucket<f32, [3x5, 3x5]>
  } else {
    scf.yield %p : !ddp.bucket<f32, [3x5, 3x5]>
  }
  %new:2 = ddp.unpack %r : !ddp.bucket<f32, [3x5, 3x5]> -> !t, !t
  return %new#0, %new#1, %old#0 : !t, !t, !t
}
func.func @started_on_a_condition(%a: !t, %b: !t, %c: i1 {ddp.replicated}) -> (!t, !t, !t) {
  %p = ddp.pack %a, %b : !t, !t -> !ddp.bucket<f32, [3x5, 3x5]>
  %old:2 = ddp.unpack %p : !ddp.bucket<f32, [3x5, 3x5]> -> !t, !t
  %f = ddp.all_reduce_start sum %p on @dp if %c
      : !ddp.bucket<f32, [3x5, 3x5]> -> !ddp.future<!ddp.bucket<f32, [3x5, 3x5]>>
  %r = scf.if %c -> (!ddp.bucket<f32, [3x5, 3x5]>) {
    %s = ddp.wait %f : !ddp.future<!ddp.bucket<f32, [3x5, 3x5]>>
    scf.yield %s : !ddp.bucket<f32, [3x5, 3x5]>
  } else {
    %s = ddp.wait %f : !ddp.future<!ddp.bucket<f32, [3x5, 3x5]>>
    scf.yield %s : !ddp.bucket<f32, [3x5, 3x5]>
  }
  %new:2 = ddp.unpack %r : !ddp.bucket<f32, [3x5, 3x5]> -> !t, !t
  return %new#0, %new#1, %old#0 : !t, !t, !t
}
