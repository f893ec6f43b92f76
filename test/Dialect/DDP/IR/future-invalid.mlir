// RUN: ddphook-opt %s -split-input-file -verify-diagnostics

// expected-error@+1 {{expected a future of a bucket or a statically shaped tensor of f16, bf16, f32 or f64, but got 'i32'}}
func.func private @type(!ddp.future<i32>)

// -----

// expected-error@+1 {{expected a future of a bucket or a statically shaped tensor of f16, bf16, f32 or f64, but got 'tensor<?xf32>'}}
func.func private @dynamic(!ddp.future<tensor<?xf32>>)

// -----

// expected-error@+1 {{expected a future of a bucket or a statically shaped tensor of f16, bf16, f32 or f64, but got 'tensor<4xi32>'}}
func.func private @element(!ddp.future<tensor<4xi32>>)

// -----

ddp.process_group @dp
func.func @never(%x: tensor<4xf32>) {
  // expected-error@+1 {{'ddp.all_reduce_start' op expected to be awaited exactly once, but its result has 0 uses}}
  %f = ddp.all_reduce_start mean %x on @dp : tensor<4xf32> -> !ddp.future<tensor<4xf32>>
  return
}

// -----

ddp.process_group @dp
func.func @twice(%x: tensor<4xf32>) {
  // expected-error@+1 {{'ddp.all_reduce_start' op expected to be awaited exactly once, but its result has 2 uses}}
  %f = ddp.all_reduce_start mean %x on @dp : tensor<4xf32> -> !ddp.future<tensor<4xf32>>
  %a = ddp.wait %f : !ddp.future<tensor<4xf32>>
  %b = ddp.wait %f : !ddp.future<tensor<4xf32>>
  return
}

// -----

ddp.process_group @dp
func.func @in_branch(%x: tensor<4xf32>, %c: i1) {
  // expected-error@+1 {{'ddp.all_reduce_start' op expected to be awaited by one 'ddp.wait' in the same block, but its result is used by 'ddp.wait' elsewhere}}
  %f = ddp.all_reduce_start mean %x on @dp : tensor<4xf32> -> !ddp.future<tensor<4xf32>>
  scf.if %c {
    // expected-note@+1 {{this is the use}}
    %a = ddp.wait %f : !ddp.future<tensor<4xf32>>
  }
  return
}

// -----

ddp.process_group @dp
func.func @returned(%x: tensor<4xf32>) -> !ddp.future<tensor<4xf32>> {
  // expected-error@+1 {{'ddp.all_reduce_start' op expected to be awaited by one 'ddp.wait' in the same block, but its result is used by 'func.return'}}
  %f = ddp.all_reduce_start mean %x on @dp : tensor<4xf32> -> !ddp.future<tensor<4xf32>>
  // expected-note@+1 {{this is the use}}
  return %f : !ddp.future<tensor<4xf32>>
}

// -----

ddp.process_group @dp
func.func private @other(!ddp.future<tensor<4xf32>>)
func.func @called(%x: tensor<4xf32>) {
  // expected-error@+1 {{'ddp.all_reduce_start' op expected to be awaited by one 'ddp.wait' in the same block, but its result is used by 'func.call'}}
  %f = ddp.all_reduce_start mean %x on @dp : tensor<4xf32> -> !ddp.future<tensor<4xf32>>
  // expected-note@+1 {{this is the use}}
  call @other(%f) : (!ddp.future<tensor<4xf32>>) -> ()
  return
}

// -----

ddp.process_group @dp
func.func @branched(%x: tensor<4xf32>) {
  // expected-error@+1 {{'ddp.all_reduce_start' op expected to be awaited by one 'ddp.wait' in the same block, but its result is used by 'cf.br'}}
  %f = ddp.all_reduce_start mean %x on @dp : tensor<4xf32> -> !ddp.future<tensor<4xf32>>
  // expected-note@+1 {{this is the use}}
  cf.br ^next(%f : !ddp.future<tensor<4xf32>>)
^next(%g: !ddp.future<tensor<4xf32>>):
  return
}

// -----

func.func @passed_on(%f: !ddp.future<tensor<4xf32>>) {
  // expected-error@+1 {{'ddp.wait' op expected the future of the operation that starts the collective, not one that was passed on}}
  %r = ddp.wait %f : !ddp.future<tensor<4xf32>>
  return
}

// -----

func.func @foreign_ticket(%x: tensor<4xf32>, %t: i64) {
  // expected-error@+1 {{expected the ticket of the operation that starts the collective, not one that was passed on}}
  %r = ddp.flat.wait %x, %t : tensor<4xf32>
  return
}

// -----

func.func @no_ticket(%x: tensor<4xf32>) {
  // expected-error@+1 {{expected a future to wait for}}
  %r = ddp.wait %x : tensor<4xf32>
  return
}

// -----

ddp.process_group @dp
func.func @other_future(%x: tensor<4xf32>) {
  // expected-error@+1 {{expected the result to be '!ddp.future<tensor<4xf32>>'}}
  %f = ddp.all_reduce_start mean %x on @dp : tensor<4xf32> -> !ddp.future<tensor<5xf32>>
  %a = ddp.wait %f : !ddp.future<tensor<5xf32>>
  return
}

// -----

ddp.process_group @dp
func.func @bucket_in_flight(%b: !ddp.bucket<f32, [4]>) {
  // expected-error@+1 {{result #0 must be future, but got 'i64'}}
  %t = ddp.all_reduce_start mean %b on @dp : !ddp.bucket<f32, [4]> -> i64
  return
}

// -----

ddp.process_group @dp
func.func @into_other_type(%x: memref<4xf32>, %d: memref<5xf32>) {
  // expected-error@+1 {{expected arrays of one type, but got 'memref<4xf32>' and 'memref<5xf32>'}}
  %t = ddp.flat.all_reduce_start mean %x on @dp into %d : memref<4xf32>, memref<5xf32>
  ddp.flat.wait %d, %t : memref<5xf32>
  return
}

// -----

ddp.process_group @dp
func.func @wire(%x: tensor<4xf32>) {
  // expected-error@+1 {{'ddp.all_reduce_start' op expected wire type f16 or bf16 or an encoding, but got 'f32'}}
  %f = ddp.all_reduce_start mean %x on @dp wire f32 : tensor<4xf32> -> !ddp.future<tensor<4xf32>>
  %a = ddp.wait %f : !ddp.future<tensor<4xf32>>
  return
}

// -----

func.func @group(%x: tensor<4xf32>) {
  // expected-error@+1 {{'ddp.all_reduce_start' op expected process group @dp to be declared}}
  %f = ddp.all_reduce_start mean %x on @dp : tensor<4xf32> -> !ddp.future<tensor<4xf32>>
  %a = ddp.wait %f : !ddp.future<tensor<4xf32>>
  return
}

// -----

ddp.process_group @dp
func.func @condition_in_one_branch(%x: tensor<4xf32>, %c: i1) {
  // expected-error@+1 {{'ddp.all_reduce_start' op expected to be awaited exactly once in each branch, but its result has 1 uses}}
  %f = ddp.all_reduce_start mean %x on @dp if %c : tensor<4xf32> -> !ddp.future<tensor<4xf32>>
  scf.if %c {
    %a = ddp.wait %f : !ddp.future<tensor<4xf32>>
  }
  return
}

// -----

ddp.process_group @dp
func.func @condition_twice_in_one_branch(%x: tensor<4xf32>, %c: i1) {
  // expected-error@+1 {{'ddp.all_reduce_start' op expected to be awaited by one 'ddp.wait' in each branch of an 'scf.if' on its condition, in the same block, but its result is used by 'ddp.wait' elsewhere}}
  %f = ddp.all_reduce_start mean %x on @dp if %c : tensor<4xf32> -> !ddp.future<tensor<4xf32>>
  scf.if %c {
    // expected-note@+1 {{this is the use}}
    %a = ddp.wait %f : !ddp.future<tensor<4xf32>>
    %b = ddp.wait %f : !ddp.future<tensor<4xf32>>
  }
  return
}

// -----

ddp.process_group @dp
func.func @another_condition(%x: tensor<4xf32>, %c: i1, %d: i1) {
  // expected-error@+1 {{'ddp.all_reduce_start' op expected to be awaited by one 'ddp.wait' in each branch of an 'scf.if' on its condition, in the same block, but its result is used by 'ddp.wait' elsewhere}}
  %f = ddp.all_reduce_start mean %x on @dp if %c : tensor<4xf32> -> !ddp.future<tensor<4xf32>>
  scf.if %d {
    %a = ddp.wait %f : !ddp.future<tensor<4xf32>>
  } else {
    // expected-note@+1 {{this is the use}}
    %b = ddp.wait %f : !ddp.future<tensor<4xf32>>
  }
  return
}

// -----

ddp.process_group @dp
func.func @two_choices(%x: tensor<4xf32>, %c: i1) {
  // expected-error@+1 {{'ddp.all_reduce_start' op expected to be awaited by one 'ddp.wait' in each branch of an 'scf.if' on its condition, in the same block, but its result is used by 'ddp.wait' elsewhere}}
  %f = ddp.all_reduce_start mean %x on @dp if %c : tensor<4xf32> -> !ddp.future<tensor<4xf32>>
  scf.if %c {
    // expected-note@+1 {{this is the use}}
    %a = ddp.wait %f : !ddp.future<tensor<4xf32>>
  }
  scf.if %c {
  } else {
    %b = ddp.wait %f : !ddp.future<tensor<4xf32>>
  }
  return
}

// -----

ddp.process_group @dp
func.func @condition_not_in_a_branch(%x: tensor<4xf32>, %c: i1) {
  // expected-error@+1 {{'ddp.all_reduce_start' op expected to be awaited exactly once in each branch, but its result has 1 uses}}
  %f = ddp.all_reduce_start mean %x on @dp if %c : tensor<4xf32> -> !ddp.future<tensor<4xf32>>
  %a = ddp.wait %f : !ddp.future<tensor<4xf32>>
  return
}
