// RUN: ddphook-opt %s -split-input-file -verify-diagnostics

// One case for every way in which states and the operations on them refuse what
// they are given, under the number of the constraint.

//===----------------------------------------------------------------------===//
// state
//===----------------------------------------------------------------------===//

// C1
// expected-error @+1 {{expected a bucket, i64 or tensor<625xi32>, but got 'i32'}}
ddp.state @s : i32 replicated zero

// -----

// C1
// expected-error @+1 {{expected a bucket, i64 or tensor<625xi32>, but got 'tensor<4xf32>'}}
ddp.state @s : tensor<4xf32> replicated zero

// -----

// C1
// expected-error @+1 {{expected a bucket, i64 or tensor<625xi32>, but got 'tensor<624xi32>'}}
ddp.state @s : tensor<624xi32> replicated mt19937 seed 0

// -----

// C5
// expected-error @+1 {{expected one list of gradients or 2, but got 3}}
ddp.state @s : !ddp.bucket<f32, [2, 3]> per_rank zero
    role "error" of [["a"], ["b"], ["c"]]

// -----

// C5
// expected-error @+1 {{expected one list of gradients or 1, but got 0}}
ddp.state @s : i64 per_rank zero role "iter" of []

// -----

// C5
// expected-error @+1 {{expected 'role' and 'of' together}}
"ddp.state"() <{init = #ddp<state_init zero>, sym_name = "s", type = i64,
    placement = #ddp<state_placement replicated>, role = "iter"}> : () -> ()

// -----

// C6
// expected-error @+1 {{expected errors and factors to be buckets, iterations and counters i64, and generators to start as 'mt19937', but got a state of kind 'factor'}}
ddp.state @s : i64 replicated zero kind factor

// -----

// C6
// expected-error @+1 {{but got a state of kind 'counter'}}
ddp.state @s : !ddp.bucket<f32, [2]> replicated zero kind counter

// -----

// C6
// expected-error @+1 {{but got a state of kind 'generator'}}
ddp.state @s : tensor<625xi32> replicated zero kind generator

// -----

// expected-error @+1 {{expected 'error', 'share_error', 'factor', 'iteration', 'counter' or 'generator', but got 'residual'}}
ddp.state @s : i64 replicated zero kind residual

// -----

// C2
// expected-error @+1 {{expected a 'seed' with 'mt19937'}}
ddp.state @s : tensor<625xi32> replicated mt19937

// -----

// C2
// expected-error @+1 {{expected 'seed' only with 'mt19937'}}
ddp.state @s : i64 replicated zero seed 0

// -----

// C2
// expected-error @+1 {{expected a state with 'mt19937' to be a tensor<625xi32>, but got 'i64'}}
ddp.state @s : i64 replicated mt19937 seed 0

// -----

// C2
// expected-error @+1 {{expected a seed from 0 to 4294967295, but got 4294967296}}
ddp.state @s : tensor<625xi32> replicated mt19937 seed 4294967296

// -----

// C2
// expected-error @+1 {{expected a seed from 0 to 4294967295, but got -1}}
ddp.state @s : tensor<625xi32> replicated mt19937 seed -1

// -----

ddp.state @g : tensor<625xi32> replicated mt19937 seed 0
// C3
// expected-error @+1 {{expected 'from' and 'draws' with 'normal'}}
ddp.state @s : !ddp.bucket<f32, [4]> replicated normal from @g

// -----

// C3
// expected-error @+1 {{expected 'from' and 'draws' with 'normal'}}
ddp.state @s : !ddp.bucket<f32, [4]> replicated normal draws [4]

// -----

ddp.state @g : tensor<625xi32> replicated mt19937 seed 0
// C3
// expected-error @+1 {{expected 'from' and 'draws' only with 'normal'}}
ddp.state @s : !ddp.bucket<f32, [4]> replicated zero from @g draws [4]

// -----

ddp.state @g : tensor<625xi32> replicated mt19937 seed 0
// C3
// expected-error @+1 {{expected a state with 'normal' to be a bucket, but got 'i64'}}
ddp.state @s : i64 replicated normal from @g draws [1]

// -----

ddp.state @g : tensor<625xi32> replicated mt19937 seed 0
// C3
// expected-error @+1 {{expected draws of 4 elements in total, but got more}}
ddp.state @s : !ddp.bucket<f32, [4]> replicated normal from @g draws [2, 3]

// -----

ddp.state @g : tensor<625xi32> replicated mt19937 seed 0
// C3
// expected-error @+1 {{expected draws of at least 0 elements}}
ddp.state @s : !ddp.bucket<f32, [4]> replicated normal from @g draws [3, -1]

// -----

ddp.state @g : tensor<625xi32> replicated mt19937 seed 0
// C3: the sum overflows
// expected-error @+1 {{expected draws of 4 elements in total, but got more}}
ddp.state @s : !ddp.bucket<f32, [4]> replicated normal from @g draws [9223372036854775807, 9223372036854775807, 6]

// -----

// C4
// expected-error @+1 {{expected @g to be a 'ddp.state'}}
ddp.state @s : !ddp.bucket<f32, [4]> replicated normal from @g draws [4]

// -----

ddp.process_group @g
// C4
// expected-error @+1 {{expected @g to be a 'ddp.state'}}
ddp.state @s : !ddp.bucket<f32, [4]> replicated normal from @g draws [4]

// -----

ddp.state @g : tensor<625xi32> replicated zero
// C4
// expected-error @+1 {{expected @g to be a random generator, a state with 'mt19937'}}
ddp.state @s : !ddp.bucket<f32, [4]> replicated normal from @g draws [4]

// -----

// expected-error @+1 {{expected 'replicated' or 'per_rank', but got 'sharded'}}
ddp.state @s : i64 sharded zero

// -----

// expected-error @+1 {{expected 'zero', 'normal' or 'mt19937', but got 'one'}}
ddp.state @s : i64 replicated one

// -----

// expected-note @+1 {{see existing symbol definition here}}
ddp.state @s : i64 replicated zero
// expected-error @+1 {{redefinition of symbol named 's'}}
ddp.state @s : i64 replicated zero

// -----

//===----------------------------------------------------------------------===//
// load
//===----------------------------------------------------------------------===//

func.func @load_undeclared() {
  // C1
  // expected-error @+1 {{expected @s to be a 'ddp.state'}}
  %0 = ddp.load @s : i64
  return
}

// -----

ddp.process_group @dp
func.func @load_group() {
  // C1
  // expected-error @+1 {{expected @dp to be a 'ddp.state'}}
  %0 = ddp.load @dp : i64
  return
}

// -----

ddp.state @s : !ddp.bucket<f32, [4, 2]> per_rank zero
func.func @load_other_shape() {
  // C2
  // expected-error @+1 {{expected a value of @s's type '!ddp.bucket<f32, [4, 2]>', but got '!ddp.bucket<f32, [6]>'}}
  %0 = ddp.load @s : !ddp.bucket<f32, [6]>
  return
}

// -----

ddp.state @s : !ddp.bucket<f32, [4, 2]> per_rank zero
func.func @load_other_size() {
  // C2
  // expected-error @+1 {{expected a value of @s's type '!ddp.bucket<f32, [4, 2]>', but got 'tensor<5xf32>'}}
  %0 = ddp.load @s : tensor<5xf32>
  return
}

// -----

ddp.state @s : i64 per_rank zero
func.func @load_counter_as_bucket() {
  // C2
  // expected-error @+1 {{expected a value of @s's type 'i64', but got '!ddp.bucket<f32, [6]>'}}
  %0 = ddp.load @s : !ddp.bucket<f32, [6]>
  return
}

// -----

ddp.state @s : !ddp.bucket<f32, [4]> per_rank zero
func.func @load_memory() {
  // expected-error-re @+1 {{result #0 must be {{.*}}, but got 'memref<4xf32>'}}
  %0 = ddp.load @s : memref<4xf32>
  return
}

// -----

//===----------------------------------------------------------------------===//
// store
//===----------------------------------------------------------------------===//

func.func @store_undeclared(%v: i64) {
  // C1
  // expected-error @+1 {{expected @s to be a 'ddp.state'}}
  ddp.store %v, @s : i64
  return
}

// -----

ddp.state @g : tensor<625xi32> replicated mt19937 seed 0
func.func @store_generator() {
  // C1
  %0 = ddp.load @g : tensor<625xi32>
  // expected-error @+1 {{expected a state that is not a random generator, but got @g}}
  ddp.store %0, @g : tensor<625xi32>
  return
}

// -----

ddp.state @s : !ddp.bucket<f32, [4, 2]> per_rank zero
func.func @store_other_type(%v: !ddp.bucket<f16, [4, 2]>) {
  // C2
  // expected-error @+1 {{expected a value of @s's type '!ddp.bucket<f32, [4, 2]>', but got '!ddp.bucket<f16, [4, 2]>'}}
  ddp.store %v, @s : !ddp.bucket<f16, [4, 2]>
  return
}

// -----

//===----------------------------------------------------------------------===//
// state_buffer
//===----------------------------------------------------------------------===//

func.func @buffer_undeclared() {
  // C1
  // expected-error @+1 {{expected @s to be a 'ddp.state'}}
  %0 = ddp.state_buffer @s : memref<i64>
  return
}

// -----

ddp.state @s : !ddp.bucket<f32, [4, 2]> per_rank zero
func.func @buffer_other_size() {
  // C2
  // expected-error @+1 {{expected 'memref<6xf32>', but got 'memref<3x2xf32>'}}
  %0 = ddp.state_buffer @s : memref<3x2xf32>
  return
}

// -----

ddp.state @s : i64 replicated zero
func.func @buffer_of_counter() {
  // C2
  // expected-error @+1 {{expected 'memref<i64>', but got 'memref<1xi64>'}}
  %0 = ddp.state_buffer @s : memref<1xi64>
  return
}

// -----

ddp.state @g : tensor<625xi32> replicated mt19937 seed 0
func.func @random_into_other(%t: tensor<5xf32>) {
  // C1
  // expected-error @+1 {{expected draws of 5 elements in total, but got 4}}
  %0 = ddp.flat.random_normal from @g draws [4] into %t
      : tensor<5xf32>
  return
}

// -----

func.func @random_from_nothing() {
  // C2
  // expected-error @+1 {{expected @g to be a 'ddp.state'}}
  %0 = ddp.random_normal from @g draws [4] : () -> tensor<4xf32>
  return
}

// -----

ddp.state @g : i64 replicated zero
func.func @random_from_counter() {
  // C2
  // expected-error @+1 {{expected @g to be a random generator, a state with 'mt19937'}}
  %0 = ddp.random_normal from @g draws [4] : () -> tensor<4xf32>
  return
}

// -----

ddp.state @g : tensor<625xi32> replicated mt19937 seed 0
func.func @random_too_few() {
  // C3
  // expected-error @+1 {{expected draws of 4 elements in total, but got 3}}
  %0 = ddp.random_normal from @g draws [1, 2] : () -> tensor<4xf32>
  return
}

// -----

ddp.state @g : tensor<625xi32> replicated mt19937 seed 0
func.func @random_too_few_in_memory(%m: memref<4xf32>) {
  // C3
  // expected-error @+1 {{expected draws of 4 elements in total, but got 0}}
  ddp.flat.random_normal from @g draws [] into %m : memref<4xf32>
  return
}
