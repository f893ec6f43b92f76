// RUN: ddphook-opt %s --ddp-verify-order | FileCheck %s
// RUN: ddphook-opt %s --ddp-pipeline="verify-order=true" -o /dev/null
// RUN: ddphook-opt %s --ddp-pipeline="hook=fp16 overlap=true verify-order=true" -o /dev/null

// What is accepted, and that the pass changes nothing.

ddp.process_group @dp
ddp.process_group @alone ranks [[0], [1]]

// Ranks may differ in what they do without each other, and in what a group of
// one rank does.
// CHECK-LABEL: func @local_branch(
func.func @local_branch(%g: tensor<4x8xf32>, %mine: i1) -> tensor<4x8xf32> {
  %h = scf.if %mine -> tensor<4x8xf32> {
    %a = ddp.all_reduce mean %g on @alone : tensor<4x8xf32>
    scf.yield %a : tensor<4x8xf32>
  } else {
    scf.yield %g : tensor<4x8xf32>
  }
  %r = ddp.all_reduce mean %h on @dp : tensor<4x8xf32>
  return %r : tensor<4x8xf32>
}

// A condition on what was reduced: after bufferization it is read from memory.
// CHECK-LABEL: func @reduced_condition(
// CHECK:         scf.if
// CHECK-NEXT:      ddp.all_reduce mean
func.func @reduced_condition(%g: tensor<4x8xf32>, %norm: tensor<f32>) -> tensor<4x8xf32> {
  %limit = arith.constant 1.0 : f32
  %n = ddp.all_reduce sum %norm on @dp : tensor<f32>
  %v = tensor.extract %n[] : tensor<f32>
  %c = arith.cmpf ogt, %v, %limit : f32
  %r = scf.if %c -> tensor<4x8xf32> {
    %a = ddp.all_reduce mean %g on @dp : tensor<4x8xf32>
    scf.yield %a : tensor<4x8xf32>
  } else {
    %b = ddp.all_reduce sum %g on @dp : tensor<4x8xf32>
    scf.yield %b : tensor<4x8xf32>
  }
  return %r : tensor<4x8xf32>
}

// Reduced again, as the program says: in buckets of their own, whatever a hook does
// with them.
// CHECK-LABEL: func @again(
func.func @again(%g: tensor<16x8xf32>) -> tensor<16x8xf32> {
  %a = ddp.all_reduce mean %g on @dp : tensor<16x8xf32>
  %b = ddp.all_reduce mean %a on @dp {ddp.hook = #ddp.powersgd<start_powerSGD_iter = 2>} : tensor<16x8xf32>
  return %b : tensor<16x8xf32>
}

// CHECK-LABEL: func @average(
func.func @average(%w: tensor<4x8xf32> {bufferization.writable = true}) -> tensor<4x8xf32> {
  %w1 = ddp.average %w on @dp every 4 : tensor<4x8xf32>
  return %w1 : tensor<4x8xf32>
}

// A switch becomes branches on its way.
// CHECK-LABEL: func @switch(
func.func @switch(%g: tensor<4x8xf32>, %n: index {ddp.replicated}) -> tensor<4x8xf32> {
  %r = scf.index_switch %n -> tensor<4x8xf32>
  case 0 {
    %a = ddp.all_reduce mean %g on @dp : tensor<4x8xf32>
    scf.yield %a : tensor<4x8xf32>
  }
  case 2 {
    %b = ddp.all_reduce sum %g on @dp : tensor<4x8xf32>
    scf.yield %b : tensor<4x8xf32>
  }
  default {
    %s = ddp.scale %g by 2.0 : tensor<4x8xf32>
    %c = ddp.all_reduce mean %s on @dp : tensor<4x8xf32>
    scf.yield %c : tensor<4x8xf32>
  }
  return %r : tensor<4x8xf32>
}

// In memory: what all ranks write, one of two places after a replicated choice,
// and what each writes elsewhere.
// CHECK-LABEL: func @memory(
func.func @memory(%g: tensor<4x8xf32>, %mine: i1, %all: i1 {ddp.replicated}) -> tensor<4x8xf32> {
  %true = arith.constant true
  %m = memref.alloc() : memref<i1>
  %other = memref.alloc() : memref<i1>
  %own = memref.alloc() : memref<i1>
  memref.store %true, %m[] : memref<i1>
  memref.store %true, %other[] : memref<i1>
  memref.store %mine, %own[] : memref<i1>
  %place = scf.if %all -> memref<i1> {
    scf.yield %m : memref<i1>
  } else {
    scf.yield %other : memref<i1>
  }
  memref.store %all, %place[] : memref<i1>
  %x = memref.load %m[] : memref<i1>
  %r = scf.if %x -> tensor<4x8xf32> {
    %a = ddp.all_reduce mean %g on @dp : tensor<4x8xf32>
    scf.yield %a : tensor<4x8xf32>
  } else {
    scf.yield %g : tensor<4x8xf32>
  }
  return %r : tensor<4x8xf32>
}

// A state that stays as it is: nothing is left of the store in memory, and the
// unpacked value is that of a copy.
ddp.state @constant : !ddp.bucket<f32, [8]> replicated zero
// CHECK-LABEL: func @unchanged_state(
func.func @unchanged_state() -> tensor<8xf32> {
  %s = ddp.load @constant : !ddp.bucket<f32, [8]>
  %u = ddp.unpack %s : !ddp.bucket<f32, [8]> -> tensor<8xf32>
  ddp.store %s, @constant : !ddp.bucket<f32, [8]>
  return %u : tensor<8xf32>
}

// A function that is called with what it gave.
// CHECK-LABEL: func private @reduced(
func.func private @reduced(%g: tensor<8xf32>) -> tensor<8xf32> {
  %r = ddp.all_reduce mean %g on @dp : tensor<8xf32>
  return %r : tensor<8xf32>
}
// CHECK-LABEL: func @reduced_twice(
func.func @reduced_twice(%g: tensor<8xf32>) -> tensor<8xf32> {
  %0 = func.call @reduced(%g) : (tensor<8xf32>) -> tensor<8xf32>
  %1 = func.call @reduced(%0) : (tensor<8xf32>) -> tensor<8xf32>
  return %1 : tensor<8xf32>
}

// The same with something to compute while the reduction is in flight: what is
// read is of the call before.
// CHECK-LABEL: func private @reduced_beside(
func.func private @reduced_beside(%g: tensor<8xf32>) -> (tensor<8xf32>, tensor<8xf32>) {
  %r = ddp.all_reduce mean %g on @dp : tensor<8xf32>
  %e = tensor.empty() : tensor<8xf32>
  %x = linalg.exp ins(%g : tensor<8xf32>) outs(%e : tensor<8xf32>) -> tensor<8xf32>
  return %r, %x : tensor<8xf32>, tensor<8xf32>
}
// CHECK-LABEL: func @reduced_beside_twice(
func.func @reduced_beside_twice(%g: tensor<8xf32>) -> (tensor<8xf32>, tensor<8xf32>) {
  %0:2 = func.call @reduced_beside(%g) : (tensor<8xf32>) -> (tensor<8xf32>, tensor<8xf32>)
  %1:2 = func.call @reduced_beside(%0#0) : (tensor<8xf32>) -> (tensor<8xf32>, tensor<8xf32>)
  return %1#0, %1#1 : tensor<8xf32>, tensor<8xf32>
}

// A reduction of memory, which a hook makes a bucket of.
// CHECK-LABEL: func @reduced_memory(
func.func @reduced_memory(%g: memref<8xf32>) {
  ddp.all_reduce mean %g on @dp into %g : memref<8xf32>, : memref<8xf32>
  return
}

// What is copied onto itself while it is reduced stays as it is.
// CHECK-LABEL: func @copy_onto_itself(
func.func @copy_onto_itself(%a: tensor<8xf32>) -> (tensor<8xf32>, tensor<8xf32>) {
  %e = tensor.empty() : tensor<8xf32>
  %x = linalg.exp ins(%a : tensor<8xf32>) outs(%e : tensor<8xf32>) -> tensor<8xf32>
  %f, %t = ddp.flat.all_reduce_start mean %x on @dp into %x : tensor<8xf32>, tensor<8xf32>
  %c = linalg.copy ins(%x : tensor<8xf32>) outs(%x : tensor<8xf32>) -> tensor<8xf32>
  %w = ddp.flat.wait %f, %t reading %x : tensor<8xf32>, tensor<8xf32>
  return %c, %w : tensor<8xf32>, tensor<8xf32>
}

// Independent iterations, with memory of their own, beside a reduction in flight.
// CHECK-LABEL: func @beside_forall(
func.func @beside_forall(%g: tensor<8xf32>, %x: tensor<4x2xf32>) -> (tensor<8xf32>, tensor<4x2xf32>) {
  %r = ddp.all_reduce mean %g on @dp : tensor<8xf32>
  %y = scf.forall (%i) in (4) shared_outs(%o = %x) -> (tensor<4x2xf32>) {
    %a = tensor.extract_slice %x[%i, 0] [1, 2] [1, 1] : tensor<4x2xf32> to tensor<1x2xf32>
    %e = tensor.empty() : tensor<1x2xf32>
    %c = linalg.exp ins(%a : tensor<1x2xf32>) outs(%e : tensor<1x2xf32>) -> tensor<1x2xf32>
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %c into %o[%i, 0] [1, 2] [1, 1] : tensor<1x2xf32> into tensor<4x2xf32>
    }
  }
  return %r, %y : tensor<8xf32>, tensor<4x2xf32>
}

// Iterations on memory, which leave there what is the same on all ranks, and
// only read the average.
// CHECK-LABEL: func @beside_parallel(
func.func @beside_parallel(%g: tensor<4x2xf32>, %h: tensor<8xf32>) -> tensor<8xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  %limit = arith.constant 0.5 : f32
  %mean = ddp.all_reduce mean %g on @dp : tensor<4x2xf32>
  %m = memref.alloc() : memref<4x2xf32>
  scf.parallel (%i) = (%c0) to (%c4) step (%c1) {
    %row = tensor.extract_slice %mean[%i, 0] [1, 2] [1, 1] : tensor<4x2xf32> to tensor<2xf32>
    %e = tensor.empty() : tensor<2xf32>
    %x = linalg.exp ins(%row : tensor<2xf32>) outs(%e : tensor<2xf32>) -> tensor<2xf32>
    %to = memref.subview %m[%i, 0] [1, 2] [1, 1] : memref<4x2xf32> to memref<2xf32, strided<[1], offset: ?>>
    bufferization.materialize_in_destination %x in writable %to : (tensor<2xf32>, memref<2xf32, strided<[1], offset: ?>>) -> ()
  }
  %t = bufferization.to_tensor %m restrict : memref<4x2xf32> to tensor<4x2xf32>
  %a = tensor.extract %t[%c0, %c1] : tensor<4x2xf32>
  %b = tensor.extract %mean[%c0, %c1] : tensor<4x2xf32>
  %d = arith.subf %a, %b : f32
  %is = arith.cmpf ogt, %d, %limit : f32
  %r = scf.if %is -> tensor<8xf32> {
    %s = ddp.all_reduce mean %h on @dp : tensor<8xf32>
    scf.yield %s : tensor<8xf32>
  } else {
    scf.yield %h : tensor<8xf32>
  }
  return %r : tensor<8xf32>
}

// All of a buffer is overwritten, part by part.
// CHECK-LABEL: func @overwritten_in_parts(
func.func @overwritten_in_parts(%g: memref<3x2xf32>, %h: memref<8xf32>) {
  %c2 = arith.constant 2 : index
  %c1 = arith.constant 1 : index
  %one = arith.constant 1.0 : f32
  %limit = arith.constant 0.5 : f32
  %m = memref.alloc() : memref<3x2xf32>
  memref.copy %g, %m : memref<3x2xf32> to memref<3x2xf32>
  %first = memref.subview %m[0, 0] [2, 2] [1, 1] : memref<3x2xf32> to memref<2x2xf32, strided<[2, 1]>>
  linalg.fill ins(%one : f32) outs(%first : memref<2x2xf32, strided<[2, 1]>>)
  %last = memref.subview %m[2, 0] [1, 2] [1, 1] : memref<3x2xf32> to memref<2xf32, strided<[1], offset: 4>>
  linalg.fill ins(%one : f32) outs(%last : memref<2xf32, strided<[1], offset: 4>>)
  %a = memref.load %m[%c2, %c1] : memref<3x2xf32>
  %is = arith.cmpf ogt, %a, %limit : f32
  scf.if %is {
    ddp.all_reduce mean %h on @dp into %h : memref<8xf32>, : memref<8xf32>
  }
  return
}
