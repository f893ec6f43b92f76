// Parallel loops whose iterations read their outputs, against the same on whole
// tensors: an iteration sees what an output was before the loop. Each result was
// one of what other iterations, or other insertions, had written by then.

// RUN: rm -rf %t && mkdir %t
// RUN: ddphook-run %s --entry=rotated --ranks=2 --inputs=random:3 --outputs='%t/rotated.{rank}'
// RUN: ddphook-run %s --entry=rotated_meant --ranks=2 --inputs=random:3 --outputs='%t/rotated_meant.{rank}'
// RUN: cmp %t/rotated.0 %t/rotated_meant.0
// RUN: cmp %t/rotated.1 %t/rotated_meant.1
// RUN: ddphook-run %s --entry=exchanged --ranks=1 --inputs=random:5 --outputs=%t/exchanged
// RUN: ddphook-run %s --entry=exchanged_meant --ranks=1 --inputs=random:5 --outputs=%t/exchanged_meant
// RUN: cmp %t/exchanged %t/exchanged_meant
// RUN: ddphook-run %s --entry=swapped --ranks=1 --inputs=random:7 --outputs=%t/swapped
// RUN: ddphook-run %s --entry=swapped_meant --ranks=1 --inputs=random:7 --outputs=%t/swapped_meant
// RUN: cmp %t/swapped %t/swapped_meant
// RUN: ddphook-run %s --entry=carried --ranks=2 --inputs=random:9 --outputs='%t/carried.{rank}'
// RUN: ddphook-run %s --entry=carried_meant --ranks=2 --inputs=random:9 --outputs='%t/carried_meant.{rank}'
// RUN: cmp %t/carried.0 %t/carried_meant.0
// RUN: cmp %t/carried.1 %t/carried_meant.1
// RUN: ddphook-run %s --entry=handed_on --ranks=1 --inputs=random:11 --outputs=%t/handed_on
// RUN: ddphook-run %s --entry=handed_on_meant --ranks=1 --inputs=random:11 --outputs=%t/handed_on_meant
// RUN: cmp %t/handed_on %t/handed_on_meant
// RUN: ddphook-run %s --entry=restarted --ranks=1 --inputs=random:13 --outputs=%t/restarted
// RUN: ddphook-run %s --entry=restarted_meant --ranks=1 --inputs=random:13 --outputs=%t/restarted_meant
// RUN: cmp %t/restarted %t/restarted_meant

!t = tensor<4x2xf32>
!row = tensor<2xf32>
!rows = tensor<1x2xf32>
!column = tensor<4x1xf32>

ddp.process_group @dp

// The row before, of an average.
func.func @rotated(%a: !t, %b: !t) -> (!t, !t) {
  %c3 = arith.constant 3 : index
  %c4 = arith.constant 4 : index
  %x = ddp.all_reduce mean %a on @dp : !t
  %r = scf.forall (%i) in (4) shared_outs(%o = %x) -> !t {
    %j = arith.addi %i, %c3 : index
    %k = arith.remui %j, %c4 : index
    %s = tensor.extract_slice %o[%k, 0] [1, 2] [1, 1] : !t to !row
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %s into %o[%i, 0] [1, 2] [1, 1] : !row into !t
    }
  }
  %y = ddp.all_reduce mean %b on @dp : !t
  return %r, %y : !t, !t
}
func.func @rotated_meant(%a: !t, %b: !t) -> (!t, !t) {
  %x = ddp.all_reduce mean %a on @dp : !t
  %last = tensor.extract_slice %x[3, 0] [1, 2] [1, 1] : !t to !rows
  %others = tensor.extract_slice %x[0, 0] [3, 2] [1, 1] : !t to tensor<3x2xf32>
  %e = tensor.empty() : !t
  %0 = tensor.insert_slice %last into %e[0, 0] [1, 2] [1, 1] : !rows into !t
  %r = tensor.insert_slice %others into %0[1, 0] [3, 2] [1, 1] : tensor<3x2xf32> into !t
  %y = ddp.all_reduce mean %b on @dp : !t
  return %r, %y : !t, !t
}

// The old row goes to another output, behind the insertion of the new one, which
// is an argument.
func.func @exchanged(%a: !t, %b: !t, %k: !row) -> (!t, !t) {
  %r:2 = scf.forall (%i) in (4) shared_outs(%o = %a, %p = %b) -> (!t, !t) {
    %s = tensor.extract_slice %o[%i, 0] [1, 2] [1, 1] : !t to !row
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %k into %o[%i, 0] [1, 2] [1, 1] : !row into !t
      tensor.parallel_insert_slice %s into %p[%i, 0] [1, 2] [1, 1] : !row into !t
    }
  }
  return %r#0, %r#1 : !t, !t
}
func.func @exchanged_meant(%a: !t, %b: !t, %k: !row) -> (!t, !t) {
  %e = tensor.empty() : !t
  %r = linalg.broadcast ins(%k : !row) outs(%e : !t) dimensions = [0]
  return %r, %a : !t, !t
}

// Two insertions into one output.
func.func @swapped(%a: !t) -> !t {
  %r = scf.forall (%i) in (4) shared_outs(%o = %a) -> !t {
    %x = tensor.extract_slice %o[%i, 0] [1, 1] [1, 1] : !t to tensor<1xf32>
    %y = tensor.extract_slice %o[%i, 1] [1, 1] [1, 1] : !t to tensor<1xf32>
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %y into %o[%i, 0] [1, 1] [1, 1] : tensor<1xf32> into !t
      tensor.parallel_insert_slice %x into %o[%i, 1] [1, 1] [1, 1] : tensor<1xf32> into !t
    }
  }
  return %r : !t
}
func.func @swapped_meant(%a: !t) -> !t {
  %x = tensor.extract_slice %a[0, 0] [4, 1] [1, 1] : !t to !column
  %y = tensor.extract_slice %a[0, 1] [4, 1] [1, 1] : !t to !column
  %e = tensor.empty() : !t
  %0 = tensor.insert_slice %y into %e[0, 0] [4, 1] [1, 1] : !column into !t
  %r = tensor.insert_slice %x into %0[0, 1] [4, 1] [1, 1] : !column into !t
  return %r : !t
}

// One element of another row, in a loop that carries the output on.
func.func @carried(%a: !t) -> !t {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c3 = arith.constant 3 : index
  %r = scf.for %n = %c0 to %c3 step %c1 iter_args(%x = %a) -> !t {
    %y = ddp.all_reduce mean %x on @dp : !t
    %z = scf.forall (%i) in (4) shared_outs(%o = %y) -> !t {
      %first = tensor.extract %o[%c0, %c1] : !t
      %s = tensor.extract_slice %o[%i, 0] [1, 2] [1, 1] : !t to !row
      %f = linalg.fill ins(%first : f32) outs(%s : !row) -> !row
      %old = tensor.extract_slice %o[%i, 0] [1, 2] [1, 1] : !t to !row
      %e = tensor.empty() : !row
      %sum = linalg.add ins(%f, %old : !row, !row) outs(%e : !row) -> !row
      scf.forall.in_parallel {
        tensor.parallel_insert_slice %sum into %o[%i, 0] [1, 2] [1, 1] : !row into !t
      }
    }
    scf.yield %z : !t
  }
  return %r : !t
}
func.func @carried_meant(%a: !t) -> !t {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c3 = arith.constant 3 : index
  %r = scf.for %n = %c0 to %c3 step %c1 iter_args(%x = %a) -> !t {
    %y = ddp.all_reduce mean %x on @dp : !t
    %first = tensor.extract %y[%c0, %c1] : !t
    %e = tensor.empty() : !t
    %f = linalg.fill ins(%first : f32) outs(%e : !t) -> !t
    %e1 = tensor.empty() : !t
    %sum = linalg.add ins(%f, %y : !t, !t) outs(%e1 : !t) -> !t
    scf.yield %sum : !t
  }
  return %r : !t
}

// What a loop carries becomes another value that it carries. The output was
// refused a place.
func.func @handed_on(%a: !t, %b: !t) -> (!t, !t) {
  %f = arith.constant 1.0 : f32
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %r:2 = scf.while (%x = %a, %n = %c0) : (!t, index) -> (!t, index) {
    %more = arith.cmpi slt, %n, %c2 : index
    scf.condition(%more) %x, %n : !t, index
  } do {
  ^bb0(%x: !t, %n: index):
    %p:2 = scf.for %i = %c0 to %c2 step %c1 iter_args(%y = %b, %z = %x) -> (!t, !t) {
      %m = memref.alloc() : memref<4x2xf32>
      linalg.fill ins(%f : f32) outs(%m : memref<4x2xf32>)
      %t = bufferization.to_tensor %m restrict : memref<4x2xf32> to !t
      %u = scf.forall (%j) in (4) shared_outs(%o = %y) -> !t {
        %s = tensor.extract_slice %z[%j, 0] [1, 2] [1, 1] : !t to !row
        scf.forall.in_parallel {
          tensor.parallel_insert_slice %s into %o[%j, 0] [1, 2] [1, 1] : !row into !t
        }
      }
      scf.yield %t, %u : !t, !t
    }
    %k = arith.addi %n, %c1 : index
    scf.yield %p#1, %k : !t, index
  }
  return %r#0, %b : !t, !t
}
func.func @handed_on_meant(%a: !t, %b: !t) -> (!t, !t) {
  return %a, %b : !t, !t
}

// A loop on memory, each iteration of which begins with the same tensor.
func.func @restarted(%a: !t, %k: !row) -> !t {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  %e = tensor.empty() : !row
  %x = linalg.exp ins(%k : !row) outs(%e : !row) -> !row
  %m = memref.alloc() : memref<4x2xf32>
  scf.parallel (%i) = (%c0) to (%c4) step (%c1) {
    %s = tensor.extract_slice %a[%i, 0] [1, 2] [1, 1] : !t to !row
    %w = linalg.map { arith.subf } ins(%x, %s : !row, !row) outs(%x : !row)
    %to = memref.subview %m[%i, 0] [1, 2] [1, 1] : memref<4x2xf32> to memref<2xf32, strided<[1], offset: ?>>
    bufferization.materialize_in_destination %w in writable %to : (!row, memref<2xf32, strided<[1], offset: ?>>) -> ()
  }
  %r = bufferization.to_tensor %m restrict : memref<4x2xf32> to !t
  return %r : !t
}
func.func @restarted_meant(%a: !t, %k: !row) -> !t {
  %e = tensor.empty() : !row
  %x = linalg.exp ins(%k : !row) outs(%e : !row) -> !row
  %e1 = tensor.empty() : !t
  %all = linalg.broadcast ins(%x : !row) outs(%e1 : !t) dimensions = [0]
  %e2 = tensor.empty() : !t
  %r = linalg.sub ins(%all, %a : !t, !t) outs(%e2 : !t) -> !t
  return %r : !t
}
