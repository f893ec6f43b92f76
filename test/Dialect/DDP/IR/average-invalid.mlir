// RUN: ddphook-opt %s -split-input-file -verify-diagnostics

// What ddp.average and the hooks' newer parameters refuse, under the number of
// the constraint.

//===----------------------------------------------------------------------===//
// average
//===----------------------------------------------------------------------===//

// C1
func.func @no_group(%w: tensor<4xf32>) {
  // expected-error @+1 {{expected process group @dp to be declared}}
  %0 = ddp.average %w on @dp every 4 : tensor<4xf32>
  return
}

// -----

// C1
// expected-note @+1 {{the name refers to this}}
func.func private @dp()
func.func @other_symbol(%w: tensor<4xf32>) {
  // expected-error @+1 {{expected @dp to be a process group}}
  %0 = ddp.average %w on @dp every 4 : tensor<4xf32>
  return
}

// -----

// C2
ddp.process_group @dp
func.func @no_period(%w: tensor<4xf32>) {
  // expected-error @+1 {{expected a period of at least 1, but got 0}}
  %0 = ddp.average %w on @dp every 0 : tensor<4xf32>
  return
}

// -----

// C2
ddp.process_group @dp
func.func @negative_period(%w: tensor<4xf32>) {
  // expected-error @+1 {{expected a period of at least 1, but got -4}}
  %0 = ddp.average %w on @dp every -4 : tensor<4xf32>
  return
}

// -----

// C2
ddp.process_group @dp
func.func @negative_warmup(%w: tensor<4xf32>) {
  // expected-error @+1 {{expected a warmup of at least 0, but got -1}}
  %0 = ddp.average %w on @dp every 4 warmup -1 : tensor<4xf32>
  return
}

// -----

// The operand's type.
ddp.process_group @dp
func.func @integers(%w: tensor<4xi32>) {
  // expected-error @+1 {{operand #0 must be}}
  %0 = ddp.average %w on @dp every 4 : tensor<4xi32>
  return
}

// -----

ddp.process_group @dp
func.func @dynamic(%w: tensor<?xf32>) {
  // expected-error @+1 {{operand #0 must be}}
  %0 = ddp.average %w on @dp every 4 : tensor<?xf32>
  return
}

// -----

ddp.process_group @dp
func.func @bucket(%w: !ddp.bucket<f32, [4]>) {
  // expected-error @+1 {{invalid kind of type specified: expected builtin.tensor, but found '!ddp.bucket<f32, [4]>'}}
  %0 = ddp.average %w on @dp every 4 : !ddp.bucket<f32, [4]>
  return
}

// -----

// The result has the operand's type.
ddp.process_group @dp
func.func @other_type(%w: tensor<4xf32>) {
  // expected-error @+2 {{failed to infer returned types}}
  // expected-error @+1 {{inferred type(s) 'tensor<4xf32>' are incompatible with return type(s) of operation 'tensor<4xf16>'}}
  %0 = "ddp.average"(%w) <{group = @dp, period = 4 : i64}> : (tensor<4xf32>) -> tensor<4xf16>
  return
}

// -----

//===----------------------------------------------------------------------===//
// #ddp.powersgd, #ddp.batched_powersgd
//===----------------------------------------------------------------------===//

// C6
// expected-error @+1 {{expected a wire_type of f16 or bf16, or an encoding in blocks with a scale, rounded to nearest, but got 'f32'}}
module attributes {ddp.hook = #ddp.powersgd<wire_type = f32>} {}

// -----

// C6
// expected-error @+1 {{expected a wire_type of f16 or bf16, or an encoding in blocks with a scale, rounded to nearest, but got 'i16'}}
module attributes {ddp.hook = #ddp.batched_powersgd<wire_type = i16>} {}

// -----

// C7
// expected-error @+1 {{expected local_error_feedback only with use_error_feedback}}
module attributes {ddp.hook = #ddp.powersgd<use_error_feedback = false, local_error_feedback = true>} {}

// -----

// C7
// expected-error @+1 {{expected local_error_feedback only with use_error_feedback}}
module attributes {ddp.hook = #ddp.batched_powersgd<use_error_feedback = false, local_error_feedback = true>} {}
