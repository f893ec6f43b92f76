// RUN: ddphook-opt %s --ddp-expand-hooks -split-input-file | FileCheck %s

// Which counter, generator and states several buckets have.

ddp.process_group @dp

// Buckets of one block share the counter, which counts once, and all of a module
// share a generator. States stand in the order in which they are initialised.
// CHECK:      ddp.state @powersgd.iter : i64 replicated zero
// CHECK-NEXT: ddp.state @powersgd.generator : tensor<625xi32> replicated mt19937 seed 0
// CHECK-NEXT: ddp.state @b0.error : !ddp.bucket<f32, [64x32]> per_rank zero
// CHECK-NEXT: ddp.state @b0.q : !ddp.bucket<f32, [32x1]> replicated normal from @powersgd.generator draws [32]
// CHECK-NEXT: ddp.state @b1.error : !ddp.bucket<f32, [16x16]> per_rank zero
// CHECK-NEXT: ddp.state @b1.q : !ddp.bucket<f32, [16x1]> replicated normal from @powersgd.generator draws [16]
// CHECK-LABEL: func @two_buckets(
// CHECK-NEXT:    %[[ITER:.+]] = ddp.load @powersgd.iter : i64
// CHECK-NEXT:    %[[START0:.+]] = arith.constant 5 : i64
// CHECK-NEXT:    %[[IS0:.+]] = arith.cmpi slt, %[[ITER]], %[[START0]] : i64
// CHECK-NEXT:    %[[R0:.+]] = scf.if %[[IS0]]
// CHECK:         %[[START1:.+]] = arith.constant 7 : i64
// CHECK-NEXT:    %[[IS1:.+]] = arith.cmpi slt, %[[ITER]], %[[START1]] : i64
// CHECK-NEXT:    %[[R1:.+]] = scf.if %[[IS1]]
// CHECK:         %[[ONE:.+]] = arith.constant 1 : i64
// CHECK-NEXT:    %[[NEXT:.+]] = arith.addi %[[ITER]], %[[ONE]] : i64
// CHECK-NEXT:    ddp.store %[[NEXT]], @powersgd.iter : i64
// CHECK-NEXT:    return %[[R0]], %[[R1]]
func.func @two_buckets(%b: !ddp.bucket<f32, [64x32]>,
                       %c: !ddp.bucket<f32, [16x16]>)
    -> (!ddp.bucket<f32, [64x32]>, !ddp.bucket<f32, [16x16]>) {
  %r = ddp.all_reduce mean %b on @dp as "b0"
      {ddp.hook = #ddp.powersgd<start_powerSGD_iter = 5>}
      : !ddp.bucket<f32, [64x32]>
  %s = ddp.all_reduce mean %c on @dp as "b1"
      {ddp.hook = #ddp.powersgd<start_powerSGD_iter = 7>}
      : !ddp.bucket<f32, [16x16]>
  return %r, %s : !ddp.bucket<f32, [64x32]>, !ddp.bucket<f32, [16x16]>
}

// -----

ddp.process_group @dp

// Another block may run at another rate: it has a counter of its own, but the
// same generator. The batched hook has no other.
// CHECK:      ddp.state @powersgd.iter : i64 replicated zero
// CHECK-NEXT: ddp.state @powersgd.generator : tensor<625xi32> replicated mt19937 seed 0
// CHECK-NEXT: ddp.state @b0.error
// CHECK-NEXT: ddp.state @b0.q
// CHECK-NEXT: ddp.state @powersgd.iter.1 : i64 replicated zero
// CHECK-NEXT: ddp.state @b1.error
// CHECK-NEXT: ddp.state @b1.q
// CHECK-NEXT: ddp.state @powersgd.iter.2 : i64 replicated zero
// CHECK-NEXT: ddp.state @b2.error
// CHECK-NEXT: ddp.state @b2.q
// CHECK-LABEL: func @two_blocks(
// CHECK-SAME:    %[[N:[a-z0-9]+]]: index
// CHECK:         %[[OUTER:.+]] = ddp.load @powersgd.iter : i64
// CHECK:         arith.cmpi slt, %[[OUTER]],
// CHECK:         scf.for
// CHECK-NEXT:      %[[INNER:.+]] = ddp.load @powersgd.iter.1 : i64
// CHECK:           arith.cmpi slt, %[[INNER]],
// CHECK:           %[[NEXT1:.+]] = arith.addi %[[INNER]],
// CHECK-NEXT:      ddp.store %[[NEXT1]], @powersgd.iter.1 : i64
// CHECK-NEXT:      scf.yield
// CHECK:         %[[NEXT:.+]] = arith.addi %[[OUTER]],
// CHECK-NEXT:    ddp.store %[[NEXT]], @powersgd.iter : i64
// CHECK-NEXT:    return
// CHECK-LABEL: func @another_function(
// CHECK-NEXT:    ddp.load @powersgd.iter.2 : i64
// CHECK:         ddp.store %{{.+}}, @powersgd.iter.2 : i64
func.func @two_blocks(%n: index, %b: !ddp.bucket<f32, [64x32]>)
    -> !ddp.bucket<f32, [64x32]> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %r = ddp.all_reduce mean %b on @dp as "b0" {ddp.hook = #ddp.powersgd}
      : !ddp.bucket<f32, [64x32]>
  %s = scf.for %i = %c0 to %n step %c1 iter_args(%a = %r)
      -> !ddp.bucket<f32, [64x32]> {
    %t = ddp.all_reduce mean %a on @dp as "b1" {ddp.hook = #ddp.powersgd}
        : !ddp.bucket<f32, [64x32]>
    scf.yield %t : !ddp.bucket<f32, [64x32]>
  }
  return %s : !ddp.bucket<f32, [64x32]>
}
func.func @another_function(%b: !ddp.bucket<f32, [9]>)
    -> !ddp.bucket<f32, [9]> {
  %r = ddp.all_reduce mean %b on @dp as "b2" {ddp.hook = #ddp.batched_powersgd}
      : !ddp.bucket<f32, [9]>
  return %r : !ddp.bucket<f32, [9]>
}

// -----

ddp.process_group @dp

// Another seed is another generator; a third bucket finds the second one.
// CHECK:      ddp.state @powersgd.generator : tensor<625xi32> replicated mt19937 seed 4
// CHECK:      ddp.state @b0.q {{.+}} from @powersgd.generator draws [32]
// CHECK:      ddp.state @powersgd.generator.5 : tensor<625xi32> replicated mt19937 seed 5
// CHECK:      ddp.state @b1.q {{.+}} from @powersgd.generator.5 draws [32]
// CHECK:      ddp.state @b2.q {{.+}} from @powersgd.generator.5 draws [32]
// CHECK:      ddp.state @b3.q {{.+}} from @powersgd.generator draws [32]
func.func @seeds(%b: !ddp.bucket<f32, [64x32]>) -> !ddp.bucket<f32, [64x32]> {
  %0 = ddp.all_reduce mean %b on @dp as "b0"
      {ddp.hook = #ddp.powersgd<random_seed = 4>} : !ddp.bucket<f32, [64x32]>
  %1 = ddp.all_reduce mean %0 on @dp as "b1"
      {ddp.hook = #ddp.powersgd<random_seed = 5>} : !ddp.bucket<f32, [64x32]>
  %2 = ddp.all_reduce mean %1 on @dp as "b2"
      {ddp.hook = #ddp.powersgd<random_seed = 5>} : !ddp.bucket<f32, [64x32]>
  %3 = ddp.all_reduce mean %2 on @dp as "b3"
      {ddp.hook = #ddp.powersgd<random_seed = 4>} : !ddp.bucket<f32, [64x32]>
  return %3 : !ddp.bucket<f32, [64x32]>
}

// -----

// The hook of the module, of a function, of a reduction: the innermost wins.
module attributes {ddp.hook = #ddp.powersgd<matrix_approximation_rank = 3>} {
  ddp.process_group @dp

  // CHECK-LABEL: func.func @hook_of_module(
  // CHECK:         ddp.load @b0.q : !ddp.bucket<f32, [32x3]>
  func.func @hook_of_module(%b: !ddp.bucket<f32, [64x32]>)
      -> !ddp.bucket<f32, [64x32]> {
    %r = ddp.all_reduce mean %b on @dp as "b0" : !ddp.bucket<f32, [64x32]>
    return %r : !ddp.bucket<f32, [64x32]>
  }
  // CHECK-LABEL: func.func @hook_of_function(
  // CHECK:         ddp.load @b1.q : !ddp.bucket<f32, [32x2]>
  // CHECK:         ddp.cast %{{.+}} : !ddp.bucket<f32, [64x32]> -> !ddp.bucket<bf16, [64x32]>
  // CHECK:         ddp.load @b2.error : !ddp.bucket<bf16, [46x46]>
  func.func @hook_of_function(%b: !ddp.bucket<f32, [64x32]>)
      -> !ddp.bucket<f32, [64x32]>
      attributes {ddp.hook = #ddp.powersgd<matrix_approximation_rank = 2>} {
    %r = ddp.all_reduce mean %b on @dp as "b1" : !ddp.bucket<f32, [64x32]>
    %s = ddp.all_reduce mean %r on @dp as "b2"
        {ddp.hook = #ddp.wrap<bf16, #ddp.batched_powersgd>}
        : !ddp.bucket<f32, [64x32]>
    return %s : !ddp.bucket<f32, [64x32]>
  }
}

// -----

// The states stand behind process groups and other states, which stay first.
// CHECK:      ddp.state @mine : i64 replicated zero
// CHECK-NEXT: ddp.state @powersgd.iter
// CHECK-NEXT: ddp.state @powersgd.generator
// CHECK-NEXT: ddp.state @b0.error
// CHECK-NEXT: ddp.state @b0.q
// CHECK-NEXT: func.func @behind(
func.func private @before()
ddp.process_group @dp
ddp.state @mine : i64 replicated zero
func.func @behind(%b: !ddp.bucket<f32, [64x32]>) -> !ddp.bucket<f32, [64x32]> {
  %r = ddp.all_reduce mean %b on @dp as "b0" {ddp.hook = #ddp.powersgd}
      : !ddp.bucket<f32, [64x32]>
  return %r : !ddp.bucket<f32, [64x32]>
}
