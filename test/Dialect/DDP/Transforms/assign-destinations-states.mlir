// RUN: ddphook-opt %s --pass-pipeline='builtin.module(func.func(ddp-assign-destinations))' | FileCheck %s --implicit-check-not=tensor.empty --implicit-check-not=materialize_in_destination

// Every new buffer and every copy is named below; there are no others.

ddp.process_group @dp
ddp.state @s : !ddp.bucket<f32, [4]> per_rank zero
ddp.state @t : !ddp.bucket<f32, [4]> per_rank zero
ddp.state @g : tensor<625xi32> replicated mt19937 seed 0

// What becomes the state's value is made in its memory, although the bucket's is
// free as well.
// CHECK-LABEL: func.func @state_first(
// CHECK:         %[[LOAD:.+]] = ddp.load @s
// CHECK:         %[[M:.+]] = ddp.flat.add %{{.+}}, %[[LOAD]] into %[[LOAD]]
// CHECK:         %[[R:.+]] = ddp.flat.all_reduce mean %[[M]] on @dp into %[[M]]
// CHECK:         ddp.store %[[R]], @s
func.func @state_first(%g: tensor<4xf32>) -> tensor<4xf32> {
  %b = ddp.pack %g : tensor<4xf32> -> tensor<4xf32>
  %e = ddp.load @s : tensor<4xf32>
  %into0 = tensor.empty() : tensor<4xf32>
  %m = ddp.flat.add %b, %e into %into0 : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
  %into1 = tensor.empty() : tensor<4xf32>
  %r = ddp.flat.all_reduce mean %m on @dp into %into1 : tensor<4xf32>, tensor<4xf32>
  ddp.store %r, @s : tensor<4xf32>
  return %g : tensor<4xf32>
}

// So is what is not needed any more when the new value is stored.
// CHECK-LABEL: func.func @until_stored(
// CHECK:         %[[B:.+]] = ddp.pack
// CHECK:         %[[LOAD:.+]] = ddp.load @s
// CHECK:         %[[M:.+]] = ddp.flat.add %[[B]], %[[LOAD]] into %[[LOAD]]
// CHECK:         %[[R:.+]] = ddp.flat.all_reduce mean %[[M]] on @dp into %[[B]]
// CHECK:         %[[E:.+]] = ddp.flat.sub %[[M]], %[[R]] into %[[M]]
// CHECK:         ddp.store %[[E]], @s
// CHECK:         return %[[R]]
func.func @until_stored(%g: tensor<4xf32>) -> tensor<4xf32> {
  %b = ddp.pack %g : tensor<4xf32> -> tensor<4xf32>
  %e = ddp.load @s : tensor<4xf32>
  %into0 = tensor.empty() : tensor<4xf32>
  %m = ddp.flat.add %b, %e into %into0 : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
  %r = ddp.flat.all_reduce mean %m on @dp into %b : tensor<4xf32>, tensor<4xf32>
  %into1 = tensor.empty() : tensor<4xf32>
  %d = ddp.flat.sub %m, %r into %into1 : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
  ddp.store %d, @s : tensor<4xf32>
  return %r : tensor<4xf32>
}

// Not what is still needed when the new value is made: that has the memory then.
// CHECK-LABEL: func.func @until_made(
// CHECK:         %[[B:.+]] = ddp.pack
// CHECK:         %[[LOAD:.+]] = ddp.load @s
// CHECK:         %[[M:.+]] = ddp.flat.add %[[B]], %[[LOAD]] into %[[B]]
// CHECK:         %[[E:.+]] = ddp.flat.encoding_error %[[M]] as !ddp.encoded<i8, 32> into %[[LOAD]]
// CHECK:         %[[R:.+]] = ddp.flat.all_reduce mean %[[M]] on @dp wire !ddp.encoded<i8, 32> into %[[M]]
// CHECK:         ddp.store %[[E]], @s
func.func @until_made(%g: tensor<4xf32>) -> tensor<4xf32> {
  %b = ddp.pack %g : tensor<4xf32> -> tensor<4xf32>
  %e = ddp.load @s : tensor<4xf32>
  %into0 = tensor.empty() : tensor<4xf32>
  %m = ddp.flat.add %b, %e into %into0 : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
  %into1 = tensor.empty() : tensor<4xf32>
  %d = ddp.flat.encoding_error %m as !ddp.encoded<i8, 32> into %into1
      : tensor<4xf32>, tensor<4xf32>
  %into2 = tensor.empty() : tensor<4xf32>
  %r = ddp.flat.all_reduce mean %m on @dp wire !ddp.encoded<i8, 32> into %into2
      : tensor<4xf32>, tensor<4xf32>
  ddp.store %d, @s : tensor<4xf32>
  return %r : tensor<4xf32>
}

// A value that outlives the store is made elsewhere; so is one where the state
// keeps its value, and one in another block.
// CHECK-LABEL: func.func @outlives(
// CHECK:         %[[LOAD:.+]] = ddp.load @s
// CHECK:         %[[EMPTY:.+]] = tensor.empty()
// CHECK:         %[[M:.+]] = ddp.flat.add %[[LOAD]], %{{.+}} into %[[EMPTY]]
// CHECK:         %[[LOAD1:.+]] = ddp.load @t
// CHECK:         %[[EMPTY1:.+]] = tensor.empty()
// CHECK:         %[[M1:.+]] = ddp.flat.add %[[LOAD1]], %{{.+}} into %[[EMPTY1]]
// CHECK:         return %[[M]], %[[M1]]
func.func @outlives(%g: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
  %e = ddp.load @s : tensor<4xf32>
  %into0 = tensor.empty() : tensor<4xf32>
  %m = ddp.flat.add %e, %g into %into0 : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
  ddp.store %g, @s : tensor<4xf32>
  %f = ddp.load @t : tensor<4xf32>
  %into1 = tensor.empty() : tensor<4xf32>
  %n = ddp.flat.add %f, %g into %into1 : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
  return %m, %n : tensor<4xf32>, tensor<4xf32>
}
// CHECK-LABEL: func.func @other_block(
// CHECK:         %[[LOAD:.+]] = ddp.load @s
// CHECK:         scf.if
// CHECK:           %[[EMPTY:.+]] = tensor.empty()
// CHECK:           %[[M:.+]] = ddp.flat.add %[[LOAD]], %{{.+}} into %[[EMPTY]]
// CHECK:           ddp.flat.all_reduce sum %[[M]] on @dp into %[[M]]
func.func @other_block(%g: tensor<4xf32>, %c: i1) {
  %e = ddp.load @s : tensor<4xf32>
  scf.if %c {
    %into0 = tensor.empty() : tensor<4xf32>
    %m = ddp.flat.add %e, %g into %into0 : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
    %into1 = tensor.empty() : tensor<4xf32>
    %r = ddp.flat.all_reduce sum %m on @dp into %into1 : tensor<4xf32>, tensor<4xf32>
  }
  ddp.store %g, @s : tensor<4xf32>
  return
}

// CHECK-LABEL: func.func @stored_in_branch(
// CHECK:         scf.if
// CHECK:           %[[EMPTY:.+]] = tensor.empty()
// CHECK:           %[[M:.+]] = ddp.flat.add {{.+}} into %[[EMPTY]]
// CHECK:           ddp.store %[[M]], @s
func.func @stored_in_branch(%g: tensor<4xf32>, %c: i1) {
  %e = ddp.load @s : tensor<4xf32>
  scf.if %c {
    %into0 = tensor.empty() : tensor<4xf32>
    %m = ddp.flat.add %e, %g into %into0 : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
    ddp.store %m, @s : tensor<4xf32>
  }
  return
}

// The old value is still needed: not in its place.
// CHECK-LABEL: func.func @old_value(
// CHECK:         %[[LOAD:.+]] = ddp.load @s
// CHECK:         %[[EMPTY:.+]] = tensor.empty()
// CHECK:         %[[M:.+]] = ddp.flat.add %[[LOAD]], %{{.+}} into %[[EMPTY]]
// CHECK:         %[[E:.+]] = ddp.flat.sub %[[M]], %[[LOAD]] into %[[LOAD]]
// CHECK:         ddp.store %[[E]], @s
func.func @old_value(%g: tensor<4xf32>) -> tensor<4xf32> {
  %e = ddp.load @s : tensor<4xf32>
  %into0 = tensor.empty() : tensor<4xf32>
  %m = ddp.flat.add %e, %g into %into0 : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
  %into1 = tensor.empty() : tensor<4xf32>
  %n = ddp.flat.sub %m, %e into %into1 : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
  ddp.store %n, @s : tensor<4xf32>
  return %g : tensor<4xf32>
}

// Products read while they write: never in place, but in a dead buffer.
// CHECK-LABEL: func.func @dead_buffer(
// CHECK:         %[[B:.+]] = ddp.pack
// CHECK:         %[[EMPTY:.+]] = tensor.empty() : tensor<2xf32>
// CHECK:         %[[P:.+]] = ddp.flat.matmul %[[B]], {{.+}} into %[[EMPTY]]
// CHECK:         %[[MHAT:.+]] = ddp.flat.matmul transpose_rhs %[[P]], {{.+}} into %[[B]]
// CHECK:         %[[O:.+]] = ddp.flat.orthogonalize %[[P]] {{.+}} into %[[P]]
// CHECK:         %[[EMPTY1:.+]] = tensor.empty() : tensor<4xf32>
// CHECK:         %[[MHAT1:.+]] = ddp.flat.matmul transpose_rhs %[[O]], {{.+}} into %[[EMPTY1]]
// CHECK:         ddp.flat.add %[[MHAT]], %[[MHAT1]] into %[[MHAT]]
func.func @dead_buffer(%g: tensor<4xf32>, %q: tensor<2xf32>)
    -> tensor<4xf32> {
  %b = ddp.pack %g : tensor<4xf32> -> tensor<4xf32>
  %into0 = tensor.empty() : tensor<2xf32>
  %p = ddp.flat.matmul %b, %q layout <0 to 4, [0, 0, 0, 2, 2, 1], []> into %into0
      : tensor<4xf32>, tensor<2xf32>, tensor<2xf32>
  %into1 = tensor.empty() : tensor<4xf32>
  %m = ddp.flat.matmul transpose_rhs %p, %q
      layout <0 to 4, [0, 0, 0, 2, 2, 1], []> into %into1
      : tensor<2xf32>, tensor<2xf32>, tensor<4xf32>
  %into2 = tensor.empty() : tensor<2xf32>
  %o = ddp.flat.orthogonalize %p epsilon 0.0
      layout <0 to 0, [0, 0, 0, 0, 2, 1], []> into %into2 : tensor<2xf32>, tensor<2xf32>
  %into3 = tensor.empty() : tensor<4xf32>
  %n = ddp.flat.matmul transpose_rhs %o, %q
      layout <0 to 4, [0, 0, 0, 2, 2, 1], []> into %into3
      : tensor<2xf32>, tensor<2xf32>, tensor<4xf32>
  %into4 = tensor.empty() : tensor<4xf32>
  %s = ddp.flat.add %m, %n into %into4 : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
  return %s : tensor<4xf32>
}

// A state's memory that nothing needs is only for what becomes its value.
// CHECK-LABEL: func.func @reserved(
// CHECK:         %[[LOAD:.+]] = ddp.load @s
// CHECK:         %[[EMPTY:.+]] = tensor.empty() : tensor<4xf16>
// CHECK:         %[[H:.+]] = ddp.flat.cast %[[LOAD]] into %[[EMPTY]]
// CHECK:         %[[EMPTY1:.+]] = tensor.empty() : tensor<4xf32>
// CHECK:         %[[F:.+]] = ddp.flat.cast %[[H]] into %[[EMPTY1]]
// CHECK:         ddp.flat.cast %[[F]] into %[[EMPTY]]
func.func @reserved(%g: tensor<4xf32>) -> tensor<4xf16> {
  %e = ddp.load @s : tensor<4xf32>
  %into0 = tensor.empty() : tensor<4xf16>
  %h = ddp.flat.cast %e into %into0 : tensor<4xf32>, tensor<4xf16>
  %into1 = tensor.empty() : tensor<4xf32>
  %f = ddp.flat.cast %h into %into1 : tensor<4xf16>, tensor<4xf32>
  %into2 = tensor.empty() : tensor<4xf16>
  %r = ddp.flat.cast %f into %into2 : tensor<4xf32>, tensor<4xf16>
  ddp.store %g, @s : tensor<4xf32>
  return %r : tensor<4xf16>
}

// Random numbers have nothing to overwrite.
// CHECK-LABEL: func.func @draw(
// CHECK:         %[[EMPTY:.+]] = tensor.empty()
// CHECK:         %[[Q:.+]] = ddp.flat.random_normal from @g draws [4] into %[[EMPTY]]
// CHECK:         ddp.flat.scale %[[Q]] by 2.000000e+00 into %[[Q]]
func.func @draw() -> tensor<4xf32> {
  %into0 = tensor.empty() : tensor<4xf32>
  %q = ddp.flat.random_normal from @g draws [4] into %into0 : tensor<4xf32>
  %into1 = tensor.empty() : tensor<4xf32>
  %r = ddp.flat.scale %q by 2.0 into %into1 : tensor<4xf32>, tensor<4xf32>
  return %r : tensor<4xf32>
}

// M takes the error's place, the new error M's, the bucket that of the gradient:
// a PowerSGD step needs no memory of the bucket's size.
// CHECK-LABEL: func.func @low_rank(
// CHECK:         %[[B:.+]] = ddp.pack
// CHECK:         %[[LOAD:.+]] = ddp.load @u
// CHECK-DAG:     %[[EMPTY:.+]] = tensor.empty() : tensor<2xf32>
// CHECK-DAG:     %[[EMPTY1:.+]] = tensor.empty() : tensor<2xf32>
// CHECK:         %[[M:.+]]:3 = ddp.flat.project %[[B]] plus %[[LOAD]] by {{.+}} into(%[[LOAD]], %[[EMPTY]], %[[EMPTY1]])
// CHECK-DAG:     %[[R:.+]] = ddp.flat.all_reduce sum %[[M]]#1 on @dp into %[[M]]#1
// CHECK-DAG:     %[[R1:.+]] = ddp.flat.all_reduce sum %[[M]]#2 on @dp into %[[M]]#2
// CHECK:         %[[OUT:.+]]:2 = ddp.flat.reconstruct %[[R]], {{.+}} rest %[[R1]] from %[[M]]#0 {{.+}} into(%[[B]], %[[M]]#0)
// CHECK:         ddp.store %[[OUT]]#1, @u
// CHECK:         return %[[OUT]]#0
func.func @low_rank(%g: tensor<6xf32>, %q: tensor<2xf32>) -> tensor<6xf32> {
  %b = ddp.pack %g : tensor<6xf32> -> tensor<6xf32>
  %e = ddp.load @u : tensor<6xf32>
  %into0 = tensor.empty() : tensor<6xf32>
  %into1 = tensor.empty() : tensor<2xf32>
  %into2 = tensor.empty() : tensor<2xf32>
  %0:3 = ddp.flat.project %b plus %e by %q
      layout <0 to 6, [0, 0, 0, 2, 2, 1], [4, 0, 2]> into (%into0, %into1, %into2)
      : tensor<6xf32>, tensor<6xf32>, tensor<2xf32>, tensor<6xf32>, tensor<2xf32>, tensor<2xf32>
  %into3 = tensor.empty() : tensor<2xf32>
  %1 = ddp.flat.all_reduce sum %0#1 on @dp into %into3 : tensor<2xf32>, tensor<2xf32>
  %into4 = tensor.empty() : tensor<2xf32>
  %2 = ddp.flat.all_reduce sum %0#2 on @dp into %into4 : tensor<2xf32>, tensor<2xf32>
  %into5 = tensor.empty() : tensor<6xf32>
  %into6 = tensor.empty() : tensor<6xf32>
  %3:2 = ddp.flat.reconstruct %1, %q rest %2 from %0#0
      layout <0 to 6, [0, 0, 0, 2, 2, 1], [4, 0, 2]> into (%into5, %into6)
      : tensor<2xf32>, tensor<2xf32>, tensor<2xf32>, tensor<6xf32>, tensor<6xf32>, tensor<6xf32>
  ddp.store %3#1, @u : tensor<6xf32>
  return %3#0 : tensor<6xf32>
}
ddp.state @u : !ddp.bucket<f32, [2x2, 2]> per_rank zero

//===----------------------------------------------------------------------===//
// Branches
//===----------------------------------------------------------------------===//

// Both leave the result in the bucket, which nothing needs any more.
// CHECK-LABEL: func.func @branches(
// CHECK:         %[[B:.+]] = ddp.pack
// CHECK:         %[[OUT:.+]] = scf.if
// CHECK:           %[[R:.+]] = ddp.flat.all_reduce mean %[[B]] on @dp into %[[B]]
// CHECK:           scf.yield %[[R]]
// CHECK:         } else {
// CHECK:           %[[D:.+]] = ddp.flat.scale %[[B]] by 2.000000e+00 into %[[B]]
// CHECK:           %[[R1:.+]] = ddp.flat.all_reduce sum %[[D]] on @dp into %[[D]]
// CHECK:           scf.yield %[[R1]]
// CHECK:         ddp.flat.scale %[[OUT]] by 3.000000e+00 into %[[OUT]]
func.func @branches(%g: tensor<4xf32>, %c: i1) -> tensor<4xf32> {
  %b = ddp.pack %g : tensor<4xf32> -> tensor<4xf32>
  %r = scf.if %c -> tensor<4xf32> {
    %into0 = tensor.empty() : tensor<4xf32>
    %0 = ddp.flat.all_reduce mean %b on @dp into %into0 : tensor<4xf32>, tensor<4xf32>
    scf.yield %0 : tensor<4xf32>
  } else {
    %into1 = tensor.empty() : tensor<4xf32>
    %1 = ddp.flat.scale %b by 2.0 into %into1 : tensor<4xf32>, tensor<4xf32>
    %into2 = tensor.empty() : tensor<4xf32>
    %2 = ddp.flat.all_reduce sum %1 on @dp into %into2 : tensor<4xf32>, tensor<4xf32>
    scf.yield %2 : tensor<4xf32>
  }
  %into3 = tensor.empty() : tensor<4xf32>
  %s = ddp.flat.scale %r by 3.0 into %into3 : tensor<4xf32>, tensor<4xf32>
  return %s : tensor<4xf32>
}

// One branch yields what was made inside of it: it goes to the other's buffer.
// CHECK-LABEL: func.func @made_inside(
// CHECK:         %[[B:.+]] = ddp.pack
// CHECK:         scf.if
// CHECK:           ddp.flat.all_reduce mean %[[B]] on @dp into %[[B]]
// CHECK:         } else {
// CHECK:           %[[B1:.+]] = ddp.pack
// CHECK:           %[[COPY:.+]] = bufferization.materialize_in_destination %[[B1]] in %[[B]]
// CHECK:           scf.yield %[[COPY]]
func.func @made_inside(%g: tensor<4xf32>, %h: tensor<4xf32>, %c: i1)
    -> tensor<4xf32> {
  %b = ddp.pack %g : tensor<4xf32> -> tensor<4xf32>
  %r = scf.if %c -> tensor<4xf32> {
    %into = tensor.empty() : tensor<4xf32>
    %0 = ddp.flat.all_reduce mean %b on @dp into %into : tensor<4xf32>, tensor<4xf32>
    scf.yield %0 : tensor<4xf32>
  } else {
    %1 = ddp.pack %h : tensor<4xf32> -> tensor<4xf32>
    scf.yield %1 : tensor<4xf32>
  }
  return %r : tensor<4xf32>
}

// Buffers that are needed afterwards, or a state's memory: a new one.
// CHECK-LABEL: func.func @new_buffer(
// CHECK:         %[[B:.+]] = ddp.pack
// CHECK:         %[[EMPTY:.+]] = tensor.empty()
// CHECK:         %[[OUT:.+]] = scf.if
// CHECK:           %[[COPY:.+]] = bufferization.materialize_in_destination %[[B]] in %[[EMPTY]]
// CHECK:           scf.yield %[[COPY]]
// CHECK:         } else {
// CHECK:           %[[LOAD:.+]] = ddp.load @s
// CHECK:           %[[COPY1:.+]] = bufferization.materialize_in_destination %[[LOAD]] in %[[EMPTY]]
// CHECK:           scf.yield %[[COPY1]]
// CHECK:         return %[[OUT]], %[[B]]
func.func @new_buffer(%g: tensor<4xf32>, %c: i1)
    -> (tensor<4xf32>, tensor<4xf32>) {
  %b = ddp.pack %g : tensor<4xf32> -> tensor<4xf32>
  %r = scf.if %c -> tensor<4xf32> {
    scf.yield %b : tensor<4xf32>
  } else {
    %e = ddp.load @s : tensor<4xf32>
    scf.yield %e : tensor<4xf32>
  }
  return %r, %b : tensor<4xf32>, tensor<4xf32>
}

// Nothing of ours: left as it is.
// CHECK-LABEL: func.func @not_ours(
// CHECK:         return
func.func @not_ours(%g: tensor<4xf32>, %h: tensor<4xf32>, %k: i64, %c: i1)
    -> (tensor<4xf32>, i64) {
  %r:2 = scf.if %c -> (tensor<4xf32>, i64) {
    scf.yield %g, %k : tensor<4xf32>, i64
  } else {
    scf.yield %h, %k : tensor<4xf32>, i64
  }
  return %r#0, %r#1 : tensor<4xf32>, i64
}

// A start on a condition has no destination but its operand: a copy, where anything
// else needs that memory.
// CHECK-LABEL: func.func @condition(
// CHECK:         %[[B:.+]] = ddp.pack
// CHECK-NEXT:    ddp.flat.all_reduce_start mean %[[B]] on @dp into %[[B]] if
func.func @condition(%g: tensor<4xf32>, %c: i1) -> tensor<4xf32> {
  %b = ddp.pack %g : tensor<4xf32> -> tensor<4xf32>
  %x, %t = ddp.flat.all_reduce_start mean %b on @dp into %b if %c : tensor<4xf32>, tensor<4xf32>
  %r = scf.if %c -> tensor<4xf32> {
    %w = ddp.flat.wait %x, %t : tensor<4xf32>
    scf.yield %w : tensor<4xf32>
  } else {
    %w = ddp.flat.wait %x, %t : tensor<4xf32>
    scf.yield %w : tensor<4xf32>
  }
  return %r : tensor<4xf32>
}

// CHECK-LABEL: func.func @condition_and_part(
// CHECK:         %[[B:.+]] = ddp.pack
// CHECK-NEXT:    ddp.unpack %[[B]]
// CHECK-NEXT:    %[[COPY:.+]] = bufferization.alloc_tensor() copy(%[[B]])
// CHECK-NEXT:    ddp.flat.all_reduce_start mean %[[COPY]] on @dp into %[[COPY]] if
func.func @condition_and_part(%g: tensor<4xf32>, %c: i1) -> (tensor<4xf32>, tensor<2x2xf32>) {
  %b = ddp.pack %g : tensor<4xf32> -> tensor<4xf32>
  %part = ddp.unpack %b : tensor<4xf32> -> tensor<2x2xf32>
  %x, %t = ddp.flat.all_reduce_start mean %b on @dp into %b if %c : tensor<4xf32>, tensor<4xf32>
  %r = scf.if %c -> tensor<4xf32> {
    %w = ddp.flat.wait %x, %t : tensor<4xf32>
    scf.yield %w : tensor<4xf32>
  } else {
    %w = ddp.flat.wait %x, %t : tensor<4xf32>
    scf.yield %w : tensor<4xf32>
  }
  return %r, %part : tensor<4xf32>, tensor<2x2xf32>
}

// The waits may name the operand.
// CHECK-LABEL: func.func @condition_and_reading(
// CHECK:         %[[COPY:.+]] = bufferization.alloc_tensor() copy(%{{.+}})
// CHECK-NEXT:    %[[X:.+]], %[[T:.+]] = ddp.flat.all_reduce_start mean %[[COPY]] on @dp into %[[COPY]] if
// CHECK-COUNT-2: ddp.flat.wait %[[X]], %[[T]] reading %[[COPY]]
func.func @condition_and_reading(%g: tensor<4xf32>, %c: i1) -> tensor<4xf32> {
  %x, %t = ddp.flat.all_reduce_start mean %g on @dp into %g if %c : tensor<4xf32>, tensor<4xf32>
  %r = scf.if %c -> tensor<4xf32> {
    %w = ddp.flat.wait %x, %t reading %g : tensor<4xf32>, tensor<4xf32>
    scf.yield %w : tensor<4xf32>
  } else {
    %w = ddp.flat.wait %x, %t reading %g : tensor<4xf32>, tensor<4xf32>
    scf.yield %w : tensor<4xf32>
  }
  return %r : tensor<4xf32>
}

// CHECK-LABEL: func.func @condition_and_state(
// CHECK:         %[[LOAD:.+]] = ddp.load @s
// CHECK-NEXT:    %[[COPY:.+]] = bufferization.alloc_tensor() copy(%[[LOAD]])
// CHECK-NEXT:    ddp.flat.all_reduce_start mean %[[COPY]] on @dp into %[[COPY]] if
func.func @condition_and_state(%c: i1) -> tensor<4xf32> {
  %e = ddp.load @s : tensor<4xf32>
  %x, %t = ddp.flat.all_reduce_start mean %e on @dp into %e if %c : tensor<4xf32>, tensor<4xf32>
  %r = scf.if %c -> tensor<4xf32> {
    %w = ddp.flat.wait %x, %t : tensor<4xf32>
    scf.yield %w : tensor<4xf32>
  } else {
    %w = ddp.flat.wait %x, %t : tensor<4xf32>
    scf.yield %w : tensor<4xf32>
  }
  return %r : tensor<4xf32>
}
