// RUN: ddphook-opt %s -split-input-file -verify-diagnostics

// Parameters of PowerSGD and matrix lists that make no sense, under the number
// of the constraint.

//===----------------------------------------------------------------------===//
// #ddp.powersgd
//===----------------------------------------------------------------------===//

// C1
// expected-error @+1 {{expected a matrix_approximation_rank of at least 1, but got 0}}
module attributes {ddp.hook = #ddp.powersgd<matrix_approximation_rank = 0>} {}

// -----

// C2
// expected-error @+1 {{expected a min_compression_rate above 0, but got 0}}
module attributes {ddp.hook = #ddp.powersgd<min_compression_rate = 0.0 : f64>} {}

// -----

// C2
// expected-error @+1 {{expected a min_compression_rate above 0, but got -1}}
module attributes {ddp.hook = #ddp.powersgd<min_compression_rate = -1.0 : f64>} {}

// -----

// C2
// expected-error @+1 {{expected a min_compression_rate above 0, but got inf}}
module attributes {ddp.hook = #ddp.powersgd<min_compression_rate = 0x7FF0000000000000 : f64>} {}

// -----

// C3: either of them
// expected-error @+1 {{expected a start_powerSGD_iter of at least 2 with use_error_feedback or warm_start, but got 1}}
module attributes {ddp.hook = #ddp.powersgd<start_powerSGD_iter = 1, warm_start = false>} {}

// -----

// C3
// expected-error @+1 {{expected a start_powerSGD_iter of at least 2 with use_error_feedback or warm_start, but got 0}}
module attributes {ddp.hook = #ddp.powersgd<start_powerSGD_iter = 0, use_error_feedback = false>} {}

// -----

// C4
// expected-error @+1 {{expected an orthogonalization_epsilon of at least 0, but got -1e-08}}
module attributes {ddp.hook = #ddp.powersgd<orthogonalization_epsilon = -1.0e-8 : f64>} {}

// -----

// C4
// expected-error @+1 {{expected an orthogonalization_epsilon of at least 0, but got nan}}
module attributes {ddp.hook = #ddp.powersgd<orthogonalization_epsilon = 0x7FF8000000000000 : f64>} {}

// -----

// C5
// expected-error @+1 {{expected a random_seed from 0 to 4294967295, but got -1}}
module attributes {ddp.hook = #ddp.powersgd<random_seed = -1>} {}

// -----

// C5
// expected-error @+1 {{expected a random_seed from 0 to 4294967295, but got 4294967296}}
module attributes {ddp.hook = #ddp.powersgd<random_seed = 4294967296>} {}

// -----

//===----------------------------------------------------------------------===//
// #ddp.batched_powersgd
//===----------------------------------------------------------------------===//

// C1
// expected-error @+1 {{expected a matrix_approximation_rank of at least 1, but got -4}}
module attributes {ddp.hook = #ddp.batched_powersgd<matrix_approximation_rank = -4>} {}

// -----

// C2
// expected-error @+1 {{expected a min_compression_rate above 0, but got 0}}
module attributes {ddp.hook = #ddp.batched_powersgd<min_compression_rate = 0.0 : f64>} {}

// -----

// C3
// expected-error @+1 {{expected a start_powerSGD_iter of at least 2 with use_error_feedback or warm_start, but got 1}}
module attributes {ddp.hook = #ddp.batched_powersgd<start_powerSGD_iter = 1>} {}

// -----

// C4
// expected-error @+1 {{expected an orthogonalization_epsilon of at least 0, but got -1}}
module attributes {ddp.hook = #ddp.batched_powersgd<orthogonalization_epsilon = -1.0 : f64>} {}

// -----

// C5
// expected-error @+1 {{expected a random_seed from 0 to 4294967295, but got -1}}
module attributes {ddp.hook = #ddp.batched_powersgd<random_seed = -1>} {}

// -----

//===----------------------------------------------------------------------===//
// #ddp.matrix_list
//===----------------------------------------------------------------------===//

// expected-error @+1 {{expected 6 numbers each, but got 5 numbers}}
module attributes {list = #ddp.matrix_list<0 to 12, [0, 0, 0, 4, 3], []>} {}

// -----

// expected-error @+1 {{expected 3 numbers each, but got 2 numbers}}
module attributes {list = #ddp.matrix_list<0 to 12, [], [0, 0]>} {}

// -----

// C1
// expected-error @+1 {{expected offsets and sizes of at least 0}}
module attributes {list = #ddp.matrix_list<0 to 12, [0, 0, 0, 4, 3, -2], []>} {}

// -----

// C1
// expected-error @+1 {{expected offsets and sizes of at least 0}}
module attributes {list = #ddp.matrix_list<0 to 12, [], [0, -1, 2]>} {}

// -----

// C1
// expected-error @+1 {{expected offsets and sizes of at least 0}}
module attributes {list = #ddp.matrix_list<5 to 4, [], []>} {}

// -----

// C1
// expected-error @+1 {{expected offsets and sizes of at least 0}}
module attributes {list = #ddp.matrix_list<-1 to 4, [], []>} {}
