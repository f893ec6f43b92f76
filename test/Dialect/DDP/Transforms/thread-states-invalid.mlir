// RUN: ddphook-opt %s --ddp-thread-states -split-input-file -verify-diagnostics

ddp.state @s : !ddp.bucket<f32, [4]> per_rank zero
func.func @stored_before_branch(%g: tensor<4xf32>, %c: i1) -> tensor<4xf32> {
  // expected-error @+1 {{expected all uses of state @s in one block}}
  ddp.store %g, @s : tensor<4xf32>
  %0 = scf.if %c -> tensor<4xf32> {
    // expected-note @+1 {{this use is in another}}
    %1 = ddp.load @s : tensor<4xf32>
    scf.yield %1 : tensor<4xf32>
  } else {
    scf.yield %g : tensor<4xf32>
  }
  return %0 : tensor<4xf32>
}

// -----

// In a loop it would be stored many times for one load.
ddp.state @s : !ddp.bucket<f32, [4]> per_rank zero
func.func @stored_in_loop(%n: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  // expected-error @+1 {{expected all uses of state @s in one block}}
  %0 = ddp.load @s : tensor<4xf32>
  scf.for %i = %c0 to %n step %c1 {
    %1 = ddp.add %0, %0 : tensor<4xf32>, tensor<4xf32>
    // expected-note @+1 {{this use is in another}}
    ddp.store %1, @s : tensor<4xf32>
  }
  return
}

// -----

ddp.state @s : !ddp.bucket<f32, [4]> per_rank zero
func.func @stored_twice(%g: tensor<4xf32>, %n: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  scf.for %i = %c0 to %n step %c1 {
    // expected-error @+1 {{expected all uses of state @s in one block}}
    ddp.store %g, @s : tensor<4xf32>
  }
  // expected-note @+1 {{this use is in another}}
  ddp.store %g, @s : tensor<4xf32>
  return
}

// -----

ddp.state @s : !ddp.bucket<f32, [4]> per_rank zero
func.func @basic_blocks(%g: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error @+1 {{expected all uses of state @s in one block}}
  %0 = ddp.load @s : tensor<4xf32>
  cf.br ^next
^next:
  // expected-note @+1 {{this use is in another}}
  ddp.store %g, @s : tensor<4xf32>
  return %0 : tensor<4xf32>
}

// -----

// Through a call, and through a call of a call.
ddp.state @s : !ddp.bucket<f32, [4]> per_rank zero
func.func private @inner(%g: tensor<4xf32>) {
  // expected-note @+1 {{this use is in another}}
  ddp.store %g, @s : tensor<4xf32>
  return
}
func.func private @outer(%g: tensor<4xf32>) {
  call @inner(%g) : (tensor<4xf32>) -> ()
  return
}
func.func @caller(%g: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error @+1 {{expected all uses of state @s in one function}}
  %0 = ddp.load @s : tensor<4xf32>
  call @outer(%g) : (tensor<4xf32>) -> ()
  return %0 : tensor<4xf32>
}
