// RUN: ddphook-opt %s --ddp-thread-states | FileCheck %s

ddp.state @s : !ddp.bucket<f32, [4]> per_rank zero
ddp.state @t : !ddp.bucket<f32, [4]> per_rank zero
ddp.state @n : i64 replicated zero
ddp.state @g : tensor<625xi32> replicated mt19937 seed 0

// A load gets what was stored, or loaded, before.
// CHECK-LABEL: func @forward(
// CHECK:         %[[A:.+]] = ddp.load @s : tensor<4xf32>
// CHECK-NOT:     ddp.load
// CHECK:         %[[B:.+]] = ddp.flat.add %[[A]], %[[A]]
// CHECK:         ddp.store %[[B]], @s : tensor<4xf32>
// CHECK-NEXT:    return %[[B]]
func.func @forward(%g: tensor<4xf32>) -> tensor<4xf32> {
  %0 = ddp.load @s : tensor<4xf32>
  %1 = ddp.load @s : tensor<4xf32>
  %into = tensor.empty() : tensor<4xf32>
  %2 = ddp.flat.add %0, %1 into %into : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
  ddp.store %2, @s : tensor<4xf32>
  %3 = ddp.load @s : tensor<4xf32>
  return %3 : tensor<4xf32>
}

// A store that another one follows is gone; of other states too: nothing reads
// in between.
// CHECK-LABEL: func @dead_store(
// CHECK-SAME:    %[[G:[a-z0-9]+]]: tensor<4xf32>, %[[H:[a-z0-9]+]]: tensor<4xf32>
// CHECK-NEXT:    ddp.store %[[G]], @t
// CHECK-NEXT:    ddp.store %[[H]], @s
// CHECK-NEXT:    return %[[G]]
func.func @dead_store(%g: tensor<4xf32>, %h: tensor<4xf32>) -> tensor<4xf32> {
  ddp.store %g, @s : tensor<4xf32>
  ddp.store %g, @t : tensor<4xf32>
  %0 = ddp.load @s : tensor<4xf32>
  ddp.store %h, @s : tensor<4xf32>
  return %0 : tensor<4xf32>
}

// Numbers, too.
// CHECK-LABEL: func @counter(
// CHECK:         %[[N:.+]] = ddp.load @n : i64
// CHECK-NEXT:    %[[M:.+]] = arith.addi %[[N]],
// CHECK-NEXT:    %[[L:.+]] = arith.addi %[[M]],
// CHECK-NEXT:    ddp.store %[[L]], @n : i64
func.func @counter() {
  %one = arith.constant 1 : i64
  %0 = ddp.load @n : i64
  %1 = arith.addi %0, %one : i64
  ddp.store %1, @n : i64
  %2 = ddp.load @n : i64
  %3 = arith.addi %2, %one : i64
  ddp.store %3, @n : i64
  return
}

// A draw changes the generator: it is loaded anew.
// CHECK-LABEL: func @draw(
// CHECK:         %[[A:.+]] = ddp.load @g
// CHECK:         ddp.flat.random_normal
// CHECK:         %[[B:.+]] = ddp.load @g
// CHECK-NEXT:    return %[[A]], %{{.+}}, %[[B]], %[[B]]
func.func @draw() -> (tensor<625xi32>, tensor<4xf32>, tensor<625xi32>,
                      tensor<625xi32>) {
  %0 = ddp.load @g : tensor<625xi32>
  %into = tensor.empty() : tensor<4xf32>
  %1 = ddp.flat.random_normal from @g draws [4] into %into : tensor<4xf32>
  %2 = ddp.load @g : tensor<625xi32>
  %3 = ddp.load @g : tensor<625xi32>
  return %0, %1, %2, %3 : tensor<625xi32>, tensor<4xf32>, tensor<625xi32>,
      tensor<625xi32>
}

// What is needed behind the store is saved before it; what is over by then is
// not.
// CHECK-LABEL: func @old_value(
// CHECK-SAME:    %[[G:.+]]: tensor<4xf32>
// CHECK:         %[[A:.+]] = ddp.load @s
// CHECK-NEXT:    %[[COPY:.+]] = bufferization.alloc_tensor() copy(%[[A]]) : tensor<4xf32>
// CHECK:         %[[B:.+]] = ddp.flat.add %[[A]], %[[G]]
// CHECK:         ddp.store %[[B]], @s
// CHECK:         return %[[COPY]]
func.func @old_value(%g: tensor<4xf32>) -> tensor<4xf32> {
  %0 = ddp.load @s : tensor<4xf32>
  %into = tensor.empty() : tensor<4xf32>
  %1 = ddp.flat.add %0, %g into %into : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
  ddp.store %1, @s : tensor<4xf32>
  return %0 : tensor<4xf32>
}

// The value itself, stored again, needs none.
// CHECK-LABEL: func @stored_again(
// CHECK:         %[[A:.+]] = ddp.load @s
// CHECK-NOT:     copy
// CHECK-DAG:     ddp.store %[[A]], @t
// CHECK-DAG:     ddp.store %[[A]], @s
// CHECK-NOT:     copy
// CHECK:         return
func.func @stored_again() {
  %0 = ddp.load @s : tensor<4xf32>
  ddp.store %0, @t : tensor<4xf32>
  ddp.store %0, @s : tensor<4xf32>
  return
}

// Two states change places: both wait.
// CHECK-LABEL: func @swap(
// CHECK:         %[[A:.+]] = ddp.load @s
// CHECK-NEXT:    %[[COPY:.+]] = bufferization.alloc_tensor() copy(%[[A]])
// CHECK:         %[[B:.+]] = ddp.load @t
// CHECK:         ddp.store %[[B]], @s
// CHECK:         ddp.store %[[COPY]], @t
func.func @swap() {
  %0 = ddp.load @s : tensor<4xf32>
  %1 = ddp.load @t : tensor<4xf32>
  ddp.store %1, @s : tensor<4xf32>
  ddp.store %0, @t : tensor<4xf32>
  return
}

// What shares the value's memory counts as the value: slices, members, what
// another operation writes in its place, what a loop begins with, a reshape, a
// choice. Whether it is needed behind the store or not is found out where
// that can be known.
// CHECK-LABEL: func @slice(
// CHECK-NOT:     copy
// CHECK-LABEL: func @late_slice(
// CHECK:         copy
// CHECK-LABEL: func @members(
// CHECK-NOT:     copy
// CHECK-LABEL: func @late_members(
// CHECK:         copy
// CHECK-LABEL: func @in_place(
// CHECK-NOT:     copy
// CHECK-LABEL: func @late_in_place(
// CHECK:         copy
// CHECK-LABEL: func @loop(
// CHECK:         copy
// CHECK-LABEL: func @reshape(
// CHECK:         copy
// CHECK-LABEL: func @choice(
// CHECK:         copy
// CHECK-LABEL: func @read(
// CHECK-NOT:     copy
// CHECK-LABEL: func @only_loaded(
// CHECK-NOT:     copy
func.func @slice(%h: tensor<2xf32>) -> tensor<2xf32> {
  %0 = ddp.load @s : tensor<4xf32>
  %1 = tensor.extract_slice %0[0] [2] [1] : tensor<4xf32> to tensor<2xf32>
  %into = tensor.empty() : tensor<2xf32>
  %2 = ddp.flat.add %1, %h into %into : tensor<2xf32>, tensor<2xf32>, tensor<2xf32>
  %3 = ddp.concat %2, %h : tensor<2xf32>, tensor<2xf32> -> tensor<4xf32>
  ddp.store %3, @s : tensor<4xf32>
  return %2 : tensor<2xf32>
}
func.func @late_slice(%g: tensor<4xf32>) -> tensor<2xf32> {
  %0 = ddp.load @s : tensor<4xf32>
  %1 = tensor.extract_slice %0[0] [2] [1] : tensor<4xf32> to tensor<2xf32>
  ddp.store %g, @s : tensor<4xf32>
  return %1 : tensor<2xf32>
}
func.func @members(%g: tensor<4xf32>) -> tensor<2xf32> {
  %0 = ddp.load @s : tensor<4xf32>
  %1:2 = ddp.unpack %0 : tensor<4xf32> -> tensor<2xf32>, tensor<2xf32>
  %into = tensor.empty() : tensor<2xf32>
  %2 = ddp.flat.add %1#0, %1#1 into %into : tensor<2xf32>, tensor<2xf32>, tensor<2xf32>
  ddp.store %g, @s : tensor<4xf32>
  return %2 : tensor<2xf32>
}
func.func @late_members(%g: tensor<4xf32>) -> tensor<2xf32> {
  %0 = ddp.load @s : tensor<4xf32>
  %1:2 = ddp.unpack %0 : tensor<4xf32> -> tensor<2xf32>, tensor<2xf32>
  ddp.store %g, @s : tensor<4xf32>
  return %1#1 : tensor<2xf32>
}
func.func @in_place(%g: tensor<4xf32>) {
  %0 = ddp.load @s : tensor<4xf32>
  %1 = linalg.add ins(%g, %0 : tensor<4xf32>, tensor<4xf32>)
      outs(%0 : tensor<4xf32>) -> tensor<4xf32>
  ddp.store %1, @s : tensor<4xf32>
  return
}
func.func @late_in_place(%g: tensor<4xf32>) -> tensor<4xf32> {
  %0 = ddp.load @s : tensor<4xf32>
  %1 = linalg.add ins(%g, %g : tensor<4xf32>, tensor<4xf32>)
      outs(%0 : tensor<4xf32>) -> tensor<4xf32>
  ddp.store %g, @s : tensor<4xf32>
  return %1 : tensor<4xf32>
}
func.func @loop(%g: tensor<4xf32>, %n: index) -> tensor<4xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %0 = ddp.load @s : tensor<4xf32>
  %1 = scf.for %i = %c0 to %n step %c1 iter_args(%a = %0) -> tensor<4xf32> {
    %2 = linalg.add ins(%a, %g : tensor<4xf32>, tensor<4xf32>)
        outs(%a : tensor<4xf32>) -> tensor<4xf32>
    scf.yield %2 : tensor<4xf32>
  }
  ddp.store %g, @s : tensor<4xf32>
  return %1 : tensor<4xf32>
}
func.func @reshape(%g: tensor<4xf32>) -> tensor<2x2xf32> {
  %0 = ddp.load @s : tensor<4xf32>
  %1 = tensor.expand_shape %0 [[0, 1]] output_shape [2, 2]
      : tensor<4xf32> into tensor<2x2xf32>
  ddp.store %g, @s : tensor<4xf32>
  return %1 : tensor<2x2xf32>
}
func.func @choice(%g: tensor<4xf32>, %c: i1) -> tensor<4xf32> {
  %0 = ddp.load @s : tensor<4xf32>
  %1 = arith.select %c, %0, %g : tensor<4xf32>
  ddp.store %g, @s : tensor<4xf32>
  return %1 : tensor<4xf32>
}
func.func @read(%g: tensor<4xf32>, %i: index) -> f32 {
  %0 = ddp.load @s : tensor<4xf32>
  %1 = tensor.extract %0[%i] : tensor<4xf32>
  ddp.store %g, @s : tensor<4xf32>
  return %1 : f32
}
func.func @only_loaded() -> tensor<4xf32> {
  %0 = ddp.load @s : tensor<4xf32>
  return %0 : tensor<4xf32>
}

// Blocks inside of blocks: each threads its own. In branches that exclude each
// other there may be one state; what is only read may be read anywhere.
// CHECK-LABEL: func @branches(
// CHECK:         scf.if
// CHECK-NEXT:      %[[A:.+]] = ddp.load @s
// CHECK:           %[[B:.+]] = ddp.flat.add %[[A]], %[[A]]
// CHECK:           ddp.store %[[B]], @s
// CHECK-NEXT:    } else {
// CHECK-NEXT:      ddp.store %{{.+}}, @s
func.func @branches(%g: tensor<4xf32>, %c: i1) {
  scf.if %c {
    %0 = ddp.load @s : tensor<4xf32>
    %1 = ddp.load @s : tensor<4xf32>
    %into = tensor.empty() : tensor<4xf32>
    %2 = ddp.flat.add %0, %1 into %into : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
    ddp.store %2, @s : tensor<4xf32>
  } else {
    ddp.store %g, @s : tensor<4xf32>
  }
  return
}
// Loaded, and stored in a branch behind the load: what is over by then is not
// saved, what is needed behind the branch is.
// CHECK-LABEL: func @stored_in_branch(
// CHECK:         %[[A:.+]] = ddp.load @s
// CHECK-NOT:     copy
// CHECK:         %[[B:.+]] = ddp.flat.add %[[A]]
// CHECK:         scf.if
// CHECK:           ddp.store %[[B]], @s
// CHECK-LABEL: func @needed_behind_branch(
// CHECK:         %[[C:.+]] = ddp.load @s
// CHECK-NEXT:    %[[COPY:.+]] = bufferization.alloc_tensor() copy(%[[C]])
// CHECK:         return %[[COPY]]
func.func @stored_in_branch(%g: tensor<4xf32>, %c: i1) {
  %0 = ddp.load @s : tensor<4xf32>
  %into = tensor.empty() : tensor<4xf32>
  %1 = ddp.flat.add %0, %g into %into : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
  scf.if %c {
    ddp.store %1, @s : tensor<4xf32>
  }
  return
}
func.func @needed_behind_branch(%g: tensor<4xf32>, %c: i1) -> tensor<4xf32> {
  %0 = ddp.load @s : tensor<4xf32>
  scf.if %c {
    ddp.store %g, @s : tensor<4xf32>
  }
  return %0 : tensor<4xf32>
}
// CHECK-LABEL: func @read_anywhere(
// CHECK-COUNT-2: ddp.load @s
func.func @read_anywhere(%c: i1) -> tensor<4xf32> {
  %0 = ddp.load @s : tensor<4xf32>
  %1 = scf.if %c -> tensor<4xf32> {
    %2 = ddp.load @s : tensor<4xf32>
    %into = tensor.empty() : tensor<4xf32>
    %3 = ddp.flat.add %2, %2 into %into : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
    scf.yield %3 : tensor<4xf32>
  } else {
    scf.yield %0 : tensor<4xf32>
  }
  return %1 : tensor<4xf32>
}

// A number may be used everywhere: it has no memory to share. What a branch or
// a call may store is loaded anew, what it may load is stored before.
// CHECK-LABEL: func @counter_in_branch(
// CHECK-SAME:    %[[C:[a-z0-9]+]]: i1, %[[K:[a-z0-9]+]]: i64
// CHECK:         ddp.store %[[K]], @n
// CHECK:         scf.if
// CHECK:           %[[N:.+]] = ddp.load @n
// CHECK:           %[[M:.+]] = arith.addi %[[N]], %[[K]]
// CHECK:           ddp.store %[[M]], @n
// CHECK-NEXT:    }
// CHECK:         %[[L:.+]] = ddp.load @n
// CHECK:         ddp.store %[[K]], @n
// CHECK:         call @callee()
// CHECK:         %[[J:.+]] = ddp.load @n
// CHECK:         return %[[L]], %[[J]]
func.func @counter_in_branch(%c: i1, %k: i64) -> (i64, i64) {
  ddp.store %k, @n : i64
  scf.if %c {
    %0 = ddp.load @n : i64
    %1 = arith.addi %0, %k : i64
    ddp.store %1, @n : i64
  }
  %2 = ddp.load @n : i64
  ddp.store %k, @n : i64
  func.call @callee() : () -> ()
  %3 = ddp.load @n : i64
  return %2, %3 : i64, i64
}
func.func private @callee()

// What is in flight on a condition lies where its operand does: if that is needed
// behind the store, the collective reduces the copy.
ddp.process_group @dp
// CHECK-LABEL: func @conditional_start(
// CHECK:         %[[COPY:.+]] = bufferization.alloc_tensor() copy(%{{.+}})
// CHECK-NEXT:    ddp.flat.all_reduce_start mean %[[COPY]] on @dp into %[[COPY]] if
func.func @conditional_start(%x: tensor<4xf32>, %c: i1) -> tensor<4xf32> {
  %a = ddp.load @s : tensor<4xf32>
  %f, %t = ddp.flat.all_reduce_start mean %a on @dp into %a if %c
      : tensor<4xf32>, tensor<4xf32>
  %w = scf.if %c -> tensor<4xf32> {
    %r = ddp.flat.wait %f, %t : tensor<4xf32>
    scf.yield %r : tensor<4xf32>
  } else {
    %r = ddp.flat.wait %f, %t : tensor<4xf32>
    scf.yield %r : tensor<4xf32>
  }
  ddp.store %x, @s : tensor<4xf32>
  return %w : tensor<4xf32>
}
