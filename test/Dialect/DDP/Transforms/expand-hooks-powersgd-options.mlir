// RUN: ddphook-opt %s --ddp-expand-hooks -split-input-file | FileCheck %s

// What the parameters of PowerSGD change in its expansion.

ddp.process_group @dp

// Without error feedback there is no error, and nothing is added.
// CHECK-NOT: b0.error
// CHECK: ddp.state @b0.q : !ddp.bucket<f32, [32x1]> replicated normal from @powersgd.generator draws [32]
// CHECK-NOT: b0.error
// CHECK-LABEL: func.func @no_error(
// CHECK-SAME:    %[[ARG0:[a-z0-9]+]]: !ddp.bucket<f32, [64x32, 64]>)
// CHECK-NOT:      b0.error
// CHECK-NOT:      ddp.add
// CHECK:          %[[X:.+]] = ddp.extract %[[ARG0]] [0]
// CHECK:          ddp.extract %[[ARG0]] [1]
// CHECK:          ddp.matmul transpose_lhs %[[X]],
// CHECK-NOT:      ddp.sub
// CHECK-NOT:      b0.error
// CHECK:          ddp.store %{{.+}}, @b0.q
// CHECK-NEXT:     scf.yield
func.func @no_error(%b: !ddp.bucket<f32, [64x32, 64]>)
    -> !ddp.bucket<f32, [64x32, 64]> {
  %r = ddp.all_reduce mean %b on @dp as "b0"
      {ddp.hook = #ddp.powersgd<use_error_feedback = false>}
      : !ddp.bucket<f32, [64x32, 64]>
  return %r : !ddp.bucket<f32, [64x32, 64]>
}

// -----

ddp.process_group @dp

// Without warm start Q is drawn in every compressed step, and not kept.
// CHECK-NOT: ddp.state @b0.q
// CHECK: ddp.state @powersgd.generator : tensor<625xi32> replicated mt19937 seed 42
// CHECK-NOT: ddp.state @b0.q
// CHECK-LABEL: func.func @cold(
// CHECK:        scf.if
// CHECK-NOT:      ddp.random_normal
// CHECK:        } else {
// CHECK-NOT:      @b0.q
// CHECK:          %[[Q:.+]] = ddp.random_normal from @powersgd.generator draws [32] : () -> !ddp.bucket<f32, [32x1]>
// CHECK:          %[[O:.+]] = ddp.orthogonalize %[[Q]]
// CHECK:          ddp.matmul %{{.+}}, %[[O]]
// CHECK-NOT:      @b0.q
// CHECK:          ddp.store %{{.+}}, @b0.error
// CHECK-NEXT:     scf.yield
func.func @cold(%b: !ddp.bucket<f32, [64x32, 64]>)
    -> !ddp.bucket<f32, [64x32, 64]> {
  %r = ddp.all_reduce mean %b on @dp as "b0"
      {ddp.hook = #ddp.powersgd<warm_start = false, random_seed = 42>}
      : !ddp.bucket<f32, [64x32, 64]>
  return %r : !ddp.bucket<f32, [64x32, 64]>
}

// -----

ddp.process_group @dp

// Nor where nothing is compressed: but a number is taken from the generator.
// CHECK-LABEL: func.func @cold_nothing(
// CHECK-SAME:    %[[ARG0:[a-z0-9]+]]: !ddp.bucket<f32, [3]>)
// CHECK:        } else {
// CHECK:          ddp.random_normal from @powersgd.generator draws [] : () -> !ddp.bucket<f32, []>
// CHECK-NOT:      ddp.orthogonalize
// CHECK:          %[[X:.+]] = ddp.extract %[[ARG0]] [0]
// CHECK:          ddp.all_reduce sum %[[X]]
// CHECK-NOT:      ddp.store
// CHECK:          scf.yield
func.func @cold_nothing(%b: !ddp.bucket<f32, [3]>) -> !ddp.bucket<f32, [3]> {
  %r = ddp.all_reduce mean %b on @dp as "b0"
      {ddp.hook = #ddp.powersgd<warm_start = false, use_error_feedback = false>}
      : !ddp.bucket<f32, [3]>
  return %r : !ddp.bucket<f32, [3]>
}

// -----

ddp.process_group @dp

// Compressed from the start: no branch. The counter counts on.
// CHECK-LABEL: func.func @from_the_start(
// CHECK-NOT:    scf.if
// CHECK:        %[[ITER:.+]] = ddp.load @powersgd.iter : i64
// CHECK-NOT:    scf.if
// CHECK:        ddp.count_compression "b0" before 2048 after 96 at %[[ITER]]
// CHECK-NOT:    ddp.all_reduce mean
// CHECK:        %[[C:.+]] = ddp.concat
// CHECK:        %[[NEXT:.+]] = arith.addi %[[ITER]],
// CHECK:        ddp.store %[[NEXT]], @powersgd.iter : i64
// CHECK:        return %[[C]]
func.func @from_the_start(%b: !ddp.bucket<f32, [64x32]>)
    -> !ddp.bucket<f32, [64x32]> {
  %r = ddp.all_reduce mean %b on @dp as "b0"
      {ddp.hook = #ddp.powersgd<start_powerSGD_iter = 0, warm_start = false,
                                use_error_feedback = false>}
      : !ddp.bucket<f32, [64x32]>
  return %r : !ddp.bucket<f32, [64x32]>
}

// -----

ddp.process_group @dp

// Factors of one shape are drawn together: three of 36x2, one of 64x2.
// CHECK: ddp.state @b0.q : !ddp.bucket<f32, [36x2, 36x2, 36x2, 64x2]> replicated normal from @powersgd.generator draws [216, 128]
func.func @batched_draws(
    %b: !ddp.bucket<f32, [32x36, 64x64, 32x4x9, 9, 32x36]>)
    -> !ddp.bucket<f32, [32x36, 64x64, 32x4x9, 9, 32x36]> {
  // CHECK: ddp.extract %{{.+}} [0, 2, 4, 1] :
  %r = ddp.all_reduce mean %b on @dp as "b0"
      {ddp.hook = #ddp.powersgd<matrix_approximation_rank = 2,
                                batch_tensors_with_same_shape = true>}
      : !ddp.bucket<f32, [32x36, 64x64, 32x4x9, 9, 32x36]>
  return %r : !ddp.bucket<f32, [32x36, 64x64, 32x4x9, 9, 32x36]>
}

// -----

ddp.process_group @dp

// One by one otherwise, in the order of the shapes all the same.
// CHECK: ddp.state @b0.q : !ddp.bucket<f32, [36x2, 36x2, 36x2, 64x2]> replicated normal from @powersgd.generator draws [72, 72, 72, 128]
func.func @single_draws(
    %b: !ddp.bucket<f32, [32x36, 64x64, 32x4x9, 9, 32x36]>)
    -> !ddp.bucket<f32, [32x36, 64x64, 32x4x9, 9, 32x36]> {
  %r = ddp.all_reduce mean %b on @dp as "b0"
      {ddp.hook = #ddp.powersgd<matrix_approximation_rank = 2>}
      : !ddp.bucket<f32, [32x36, 64x64, 32x4x9, 9, 32x36]>
  return %r : !ddp.bucket<f32, [32x36, 64x64, 32x4x9, 9, 32x36]>
}

// -----

ddp.process_group @dp

// (10 + 10)·1·5 = 10·10: not smaller by *more* than 5. By 4.9 it is.
// CHECK-LABEL: func @rate_not_reached(
// CHECK-NOT:     ddp.matmul
// CHECK-LABEL: func @rate_reached(
// CHECK:         ddp.matmul
func.func @rate_not_reached(%b: !ddp.bucket<f32, [10x10]>)
    -> !ddp.bucket<f32, [10x10]> {
  %r = ddp.all_reduce mean %b on @dp as "b0"
      {ddp.hook = #ddp.powersgd<min_compression_rate = 5.0 : f64>}
      : !ddp.bucket<f32, [10x10]>
  return %r : !ddp.bucket<f32, [10x10]>
}
func.func @rate_reached(%b: !ddp.bucket<f32, [10x10]>)
    -> !ddp.bucket<f32, [10x10]> {
  %r = ddp.all_reduce mean %b on @dp as "b1"
      {ddp.hook = #ddp.powersgd<min_compression_rate = 4.9 : f64>}
      : !ddp.bucket<f32, [10x10]>
  return %r : !ddp.bucket<f32, [10x10]>
}

// -----

ddp.process_group @dp

// Under a wrapper all of it happens in 16 bits, the states too.
// CHECK: ddp.state @b0.error : !ddp.bucket<f16, [64x32, 64]> per_rank zero
// CHECK: ddp.state @b0.q : !ddp.bucket<f16, [32x1]> replicated normal from @powersgd.generator draws [32]
// CHECK-LABEL: func.func @wrapped(
// CHECK-SAME:    %[[ARG0:[a-z0-9]+]]: !ddp.bucket<f32, [64x32, 64]>)
// CHECK:        %[[H:.+]] = ddp.cast %[[ARG0]] : !ddp.bucket<f32, [64x32, 64]> -> !ddp.bucket<f16, [64x32, 64]>
// CHECK-NOT:    f32
// CHECK:        %[[OUT:.+]] = scf.if %{{.+}} -> (!ddp.bucket<f16, [64x32, 64]>) {
// CHECK-NEXT:     ddp.all_reduce mean %[[H]]
// CHECK-NOT:      f32
// CHECK:          ddp.add %[[H]], %{{.+}}
// CHECK-NOT:      f32
// CHECK:        %[[R:.+]] = ddp.cast %[[OUT]] : !ddp.bucket<f16, [64x32, 64]> -> !ddp.bucket<f32, [64x32, 64]>
// CHECK:        return %[[R]]
func.func @wrapped(%b: !ddp.bucket<f32, [64x32, 64]>)
    -> !ddp.bucket<f32, [64x32, 64]> {
  %r = ddp.all_reduce mean %b on @dp as "b0"
      {ddp.hook = #ddp.wrap<f16, #ddp.powersgd>}
      : !ddp.bucket<f32, [64x32, 64]>
  return %r : !ddp.bucket<f32, [64x32, 64]>
}
// CHECK: ddp.bucket_info "b0" mean on @dp hook #ddp.wrap<f16, #ddp.powersgd> wire f16 bytes 320 state_bytes 4288 : !ddp.bucket<f32, [64x32, 64]>

// -----

ddp.process_group @dp

// The whole bucket as one square; the epsilon means nothing.
// CHECK: ddp.state @b0.error : !ddp.bucket<f32, [46x46]> per_rank zero
// CHECK: ddp.state @b0.q : !ddp.bucket<f32, [46x3]> replicated normal from @powersgd.generator draws [138]
// CHECK-LABEL: func.func @batched(
// CHECK-SAME:    %[[ARG0:[a-z0-9]+]]: !ddp.bucket<f32, [64x32, 64]>)
// CHECK:        %[[OUT:.+]] = scf.if
// CHECK-NEXT:     ddp.all_reduce mean %[[ARG0]] {{.+}} : !ddp.bucket<f32, [64x32, 64]>
// CHECK:          %[[S:.+]] = ddp.resize %[[ARG0]] : !ddp.bucket<f32, [64x32, 64]> -> !ddp.bucket<f32, [46x46]>
// CHECK:          ddp.count_compression "b0" before 2112 after 276
// CHECK:          ddp.orthogonalize %{{.+}} epsilon 0.000000e+00 unit_columns : !ddp.bucket<f32, [46x3]>
// CHECK:          %[[M:.+]] = ddp.add %[[S]], %{{.+}}
// CHECK:          %[[P:.+]] = ddp.matmul %{{.+}} : (!ddp.bucket<f32, [46x46]>, !ddp.bucket<f32, [46x3]>) -> !ddp.bucket<f32, [46x3]>
// CHECK-NEXT:     %[[R:.+]] = ddp.all_reduce sum %[[P]]
// CHECK-NEXT:     ddp.orthogonalize %[[R]] epsilon 0.000000e+00 unit_columns
// CHECK:          %[[C:.+]] = ddp.concat
// CHECK:          %[[E:.+]] = ddp.sub %[[M]], %[[C]]
// CHECK:          ddp.store %[[E]], @b0.error
// CHECK:          %[[CUT:.+]] = ddp.resize %[[C]] : !ddp.bucket<f32, [46x46]> -> !ddp.bucket<f32, [64x32, 64]>
// CHECK:          scf.yield %[[CUT]]
// CHECK:        return %[[OUT]]
func.func @batched(%b: !ddp.bucket<f32, [64x32, 64]>)
    -> !ddp.bucket<f32, [64x32, 64]> {
  %r = ddp.all_reduce mean %b on @dp as "b0"
      {ddp.hook = #ddp.batched_powersgd<matrix_approximation_rank = 3,
                                        orthogonalization_epsilon = 0.5 : f64>}
      : !ddp.bucket<f32, [64x32, 64]>
  return %r : !ddp.bucket<f32, [64x32, 64]>
}
// CHECK: ddp.bucket_info "b0" mean on @dp hook #ddp.batched_powersgd<matrix_approximation_rank = 3, orthogonalization_epsilon = 5.000000e-01 : f64> wire f32 bytes 1104 state_bytes 9016 : !ddp.bucket<f32, [64x32, 64]>

// -----

ddp.process_group @dp

// A bucket that is a square already; one without elements, which is no square.
// CHECK: ddp.state @b0.error : !ddp.bucket<f32, [2x2]> per_rank zero
// CHECK-NOT: ddp.state @b1
// CHECK-LABEL: func @square(
// CHECK:         ddp.resize %{{.+}} : !ddp.bucket<f32, [4]> -> !ddp.bucket<f32, [2x2]>
// CHECK:         ddp.resize %{{.+}} : !ddp.bucket<f32, [2x2]> -> !ddp.bucket<f32, [4]>
// CHECK-LABEL: func @no_square(
// CHECK-NEXT:    ddp.all_reduce mean %{{.+}} on @dp as "b1" {ddp.hook = #ddp.allreduce} : !ddp.bucket<f32, [0x3]>
// CHECK-NEXT:    return
func.func @square(%b: !ddp.bucket<f32, [4]>) -> !ddp.bucket<f32, [4]> {
  %r = ddp.all_reduce mean %b on @dp as "b0" {ddp.hook = #ddp.batched_powersgd}
      : !ddp.bucket<f32, [4]>
  return %r : !ddp.bucket<f32, [4]>
}
func.func @no_square(%b: !ddp.bucket<f32, [0x3]>) -> !ddp.bucket<f32, [0x3]> {
  %r = ddp.all_reduce mean %b on @dp as "b1" {ddp.hook = #ddp.batched_powersgd}
      : !ddp.bucket<f32, [0x3]>
  return %r : !ddp.bucket<f32, [0x3]>
}

// -----

ddp.process_group @dp

// In turns: odd iterations reduce Q, even ones P. On average over two, half of
// both factors is sent.
// CHECK: ddp.state @b0.q : !ddp.bucket<f32, [32x1]> replicated normal from @powersgd.generator draws [32]
// CHECK: ddp.state @b0.p : !ddp.bucket<f32, [64x1]> replicated normal from @powersgd.generator draws [64]
// CHECK-LABEL: func.func @in_turns(
// CHECK:          %[[PARITY:.+]] = arith.remsi
// CHECK:          %[[ODD:.+]] = arith.cmpi ne, %[[PARITY]],
// CHECK:          scf.if %[[ODD]]
// CHECK-NEXT:       ddp.count_compression "b0" before 2112 after 96
// CHECK:            %[[P:.+]] = ddp.load @b0.p
// CHECK:            %[[BASIS:.+]] = ddp.orthogonalize %[[P]]
// CHECK:            %[[OWN:.+]] = ddp.matmul transpose_lhs %{{.+}}, %[[BASIS]]
// CHECK:            %[[SUM:.+]] = ddp.all_reduce sum %[[OWN]]
// CHECK:            ddp.all_reduce sum
// CHECK:            %[[Q:.+]] = ddp.scale %[[SUM]] by_world_of @dp
// CHECK:            ddp.matmul transpose_rhs %[[BASIS]], %[[Q]]
// CHECK-NOT:        ddp.all_reduce
// CHECK:            ddp.store %[[Q]], @b0.q
// CHECK:            ddp.store %[[BASIS]], @b0.p
// CHECK:          } else {
// CHECK-NEXT:       ddp.count_compression "b0" before 2112 after 128
// CHECK:            %[[OLD:.+]] = ddp.load @b0.q
// CHECK:            %[[BASIS:.+]] = ddp.orthogonalize %[[OLD]]
// CHECK:            %[[OWN:.+]] = ddp.matmul %{{.+}}, %[[BASIS]]
// CHECK:            %[[SUM:.+]] = ddp.all_reduce sum %[[OWN]]
// CHECK:            ddp.all_reduce sum
// CHECK:            %[[NEW:.+]] = ddp.scale %[[SUM]] by_world_of @dp
// CHECK:            ddp.matmul transpose_rhs %[[NEW]], %[[BASIS]]
// CHECK-NOT:        ddp.all_reduce
// CHECK:            ddp.store %[[NEW]], @b0.p
// CHECK:            ddp.store %[[BASIS]], @b0.q
func.func @in_turns(%b: !ddp.bucket<f32, [64x32, 64]>)
    -> !ddp.bucket<f32, [64x32, 64]> {
  %r = ddp.all_reduce mean %b on @dp as "b0"
      {ddp.hook = #ddp.powersgd<alternate = true>}
      : !ddp.bucket<f32, [64x32, 64]>
  return %r : !ddp.bucket<f32, [64x32, 64]>
}
// CHECK: ddp.bucket_info "b0" mean on @dp hook #ddp.powersgd<alternate = true> wire f32 bytes 448 state_bytes 8832

// -----

ddp.process_group @dp

// Codes are sent only where the error has what they lose.
// CHECK-LABEL: func.func @codes(
// CHECK:          scf.if
// CHECK-NEXT:       ddp.all_reduce mean %{{.+}} on @dp as "b0" {
// CHECK:          } else {
// CHECK:            ddp.matmul
// CHECK:            ddp.all_reduce sum %{{.+}} on @dp wire !ddp.encoded<i8, 256> as "b0"
// CHECK:            ddp.all_reduce sum %{{.+}} on @dp wire !ddp.encoded<i8, 256> as "b0"
// CHECK:            %[[OWN:.+]] = ddp.matmul transpose_lhs
// CHECK:            ddp.all_reduce sum %{{.+}} on @dp wire !ddp.encoded<i8, 256> as "b0"
// CHECK:            %[[LOST:.+]] = ddp.encoding_error %[[OWN]]
// CHECK-NEXT:       %[[SENT:.+]] = ddp.sub %[[OWN]], %[[LOST]]
// CHECK:            ddp.matmul transpose_rhs %{{.+}}, %[[SENT]]
func.func @codes(%b: !ddp.bucket<f32, [64x32, 64]>)
    -> !ddp.bucket<f32, [64x32, 64]> {
  %r = ddp.all_reduce mean %b on @dp as "b0"
      {ddp.hook = #ddp.powersgd<wire_type = !ddp.encoded<i8, 256>,
                                local_error_feedback = true>}
      : !ddp.bucket<f32, [64x32, 64]>
  return %r : !ddp.bucket<f32, [64x32, 64]>
}
// Three messages of 64, 64 and 32 codes, each with the scale of a block.
// CHECK: ddp.bucket_info "b0" mean on @dp hook #ddp.powersgd<{{.+}}> wire !ddp.encoded<i8, 256> bytes 166 state_bytes 8576

// -----

ddp.process_group @dp

// Empty gradients and vectors keep their shapes, whatever the rate.
// CHECK: ddp.state @b0.q : !ddp.bucket<f32, [1x1, 64x1]> replicated normal
// CHECK-LABEL: func.func @fitted(
// CHECK-NOT:     ddp.resize
// CHECK:         ddp.extract %{{.+}} [1, 2] : !ddp.bucket<f32, [0x5x5, 255, 58x64]>
// CHECK-NOT:     ddp.resize
// CHECK:       ddp.bucket_info "b0"
func.func @fitted(%b: !ddp.bucket<f32, [0x5x5, 255, 58x64]>)
    -> !ddp.bucket<f32, [0x5x5, 255, 58x64]> {
  %r = ddp.all_reduce mean %b on @dp as "b0"
      {ddp.hook = #ddp.powersgd<matrix_view = fitted,
                                min_compression_rate = 0.1 : f64>}
      : !ddp.bucket<f32, [0x5x5, 255, 58x64]>
  return %r : !ddp.bucket<f32, [0x5x5, 255, 58x64]>
}
