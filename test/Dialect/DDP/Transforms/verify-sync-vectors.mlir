// RUN: ddphook-opt %s --ddp-verify-sync -split-input-file -verify-diagnostics

// Writing a vector of unreduced data over a reduced tensor makes it unreduced.
ddp.process_group @dp
func.func @overwritten(%g: tensor<8xf32>) -> (tensor<8xf32> {ddp.gradient}) {
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0.0 : f32
  %r = ddp.all_reduce mean %g on @dp : tensor<8xf32>
  %v = vector.transfer_read %g[%c0], %zero {in_bounds = [true]} : tensor<8xf32>, vector<8xf32>
  %w = vector.transfer_write %v, %r[%c0] {in_bounds = [true]} : vector<8xf32>, tensor<8xf32>
  // expected-error @+1 {{but it is not reduced}}
  return %w : tensor<8xf32>
}

// -----

ddp.process_group @dp
func.func @partly_overwritten(%g: tensor<8xf32>) -> (tensor<8xf32> {ddp.gradient}) {
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0.0 : f32
  // expected-note @+1 {{the reduction is here}}
  %r = ddp.all_reduce mean %g on @dp : tensor<8xf32>
  %v = vector.transfer_read %g[%c0], %zero {in_bounds = [true]} : tensor<8xf32>, vector<4xf32>
  %w = vector.transfer_write %v, %r[%c0] {in_bounds = [true]} : vector<4xf32>, tensor<8xf32>
  // expected-error @+1 {{but it is reduced in some of its elements only}}
  return %w : tensor<8xf32>
}

// -----

// It is unknown which elements a mask leaves unchanged.
ddp.process_group @dp
func.func @masked(%g: tensor<8xf32>, %m: vector<8xi1>) -> (tensor<8xf32> {ddp.gradient}) {
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0.0 : f32
  // expected-note @+1 {{the reduction is here}}
  %r = ddp.all_reduce mean %g on @dp : tensor<8xf32>
  %v = vector.transfer_read %r[%c0], %zero {in_bounds = [true]} : tensor<8xf32>, vector<8xf32>
  %w = vector.transfer_write %v, %g[%c0], %m {in_bounds = [true]} : vector<8xf32>, tensor<8xf32>
  // expected-error @+1 {{but it is reduced in some of its elements only}}
  return %w : tensor<8xf32>
}

// -----

// Insertions into vectors.
ddp.process_group @dp
func.func @inserted(%g: tensor<8xf32>, %o: tensor<8xf32>) -> (tensor<8xf32> {ddp.gradient}) {
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0.0 : f32
  // expected-note @+1 {{the reduction is here}}
  %r = ddp.all_reduce mean %g on @dp : tensor<8xf32>
  %v = vector.transfer_read %r[%c0], %zero {in_bounds = [true]} : tensor<8xf32>, vector<8xf32>
  %u = vector.transfer_read %g[%c0], %zero {in_bounds = [true]} : tensor<8xf32>, vector<4xf32>
  %i = vector.insert_strided_slice %u, %v {offsets = [0], strides = [1]}
      : vector<4xf32> into vector<8xf32>
  %w = vector.transfer_write %i, %o[%c0] {in_bounds = [true]} : vector<8xf32>, tensor<8xf32>
  // expected-error @+1 {{but it is reduced in some of its elements only}}
  return %w : tensor<8xf32>
}

// -----

// An operation without a body may leave elements of its destination unchanged.
ddp.process_group @dp
func.func @unpacked(%g: tensor<2x4xf32>, %h: tensor<8xf32>)
    -> (tensor<8xf32> {ddp.gradient}) {
  // expected-note @+1 {{the reduction is here}}
  %r = ddp.all_reduce mean %h on @dp : tensor<8xf32>
  %u = linalg.unpack %g inner_dims_pos = [0] inner_tiles = [4] into %r
      : tensor<2x4xf32> -> tensor<8xf32>
  // expected-error @+1 {{but it is reduced in some of its elements only}}
  return %u : tensor<8xf32>
}

// -----

// Correct programs: reduced data in vectors, an update in place, and an empty destination.
ddp.process_group @dp
func.func @right(%g: tensor<8xf32>, %p: tensor<8xf32>)
    -> (tensor<8xf32> {ddp.gradient}, tensor<8xf32> {ddp.gradient}) {
  %c0 = arith.constant 0 : index
  %c4 = arith.constant 4 : index
  %zero = arith.constant 0.0 : f32
  %r = ddp.all_reduce mean %g on @dp : tensor<8xf32>
  %e = tensor.empty() : tensor<8xf32>
  %a = vector.transfer_read %r[%c0], %zero {in_bounds = [true]} : tensor<8xf32>, vector<4xf32>
  %b = vector.transfer_read %r[%c4], %zero {in_bounds = [true]} : tensor<8xf32>, vector<4xf32>
  %x = vector.transfer_write %a, %e[%c0] {in_bounds = [true]} : vector<4xf32>, tensor<8xf32>
  %y = vector.transfer_write %b, %x[%c4] {in_bounds = [true]} : vector<4xf32>, tensor<8xf32>
  %old = vector.transfer_read %p[%c0], %zero {in_bounds = [true]} : tensor<8xf32>, vector<4xf32>
  %new = arith.subf %old, %a : vector<4xf32>
  %old4 = vector.transfer_read %p[%c4], %zero {in_bounds = [true]} : tensor<8xf32>, vector<4xf32>
  %new4 = arith.subf %old4, %b : vector<4xf32>
  %q = vector.transfer_write %new, %p[%c0] {in_bounds = [true]} : vector<4xf32>, tensor<8xf32>
  %s = vector.transfer_write %new4, %q[%c4] {in_bounds = [true]} : vector<4xf32>, tensor<8xf32>
  return %y, %s : tensor<8xf32>, tensor<8xf32>
}
