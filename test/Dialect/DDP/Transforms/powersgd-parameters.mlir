// PowerSGD's parameters as options of ddp-expand-hooks and of ddp-pipeline, whose
// names may be PyTorch's.

// RUN: ddphook-opt %s --ddp-expand-hooks="hook=powersgd" | FileCheck %s --check-prefix=DEFAULT
// DEFAULT: ddp.bucket_info "b0" mean on @dp hook #ddp.powersgd wire f32
// RUN: ddphook-opt %s --ddp-expand-hooks="hook=powersgd matrix-approximation-rank=1 start-powersgd-iter=1000 min-compression-rate=2 use-error-feedback=true warm-start=1 orthogonalization-epsilon=0 random-seed=0 compression-stats-logging-frequency=10000 batch-tensors-with-same-shape=false" | FileCheck %s --check-prefix=DEFAULT
// RUN: ddphook-opt %s --ddp-expand-hooks="hook=powersgd matrix-approximation-rank=2 start-powersgd-iter=-1 min-compression-rate=1.5 use-error-feedback=false warm-start=False orthogonalization-epsilon=1e-8 random-seed=4294967295 compression-stats-logging-frequency=7 batch-tensors-with-same-shape=TRUE" | FileCheck %s --check-prefix=ALL
// ALL: ddp.bucket_info "b0" mean on @dp hook #ddp.powersgd<matrix_approximation_rank = 2, start_powerSGD_iter = -1, min_compression_rate = 1.500000e+00 : f64, use_error_feedback = false, warm_start = false, orthogonalization_epsilon = 1.000000e-08 : f64, random_seed = 4294967295, compression_stats_logging_frequency = 7, batch_tensors_with_same_shape = true> wire f32
// RUN: ddphook-opt %s --ddp-expand-hooks="hook=batched_powersgd matrix-approximation-rank=3 wrapper=bf16" | FileCheck %s --check-prefix=BATCHED
// RUN: ddphook-opt %s --ddp-expand-hooks="hook=batched-powersgd matrix-approximation-rank=3 wrapper=bf16" | FileCheck %s --check-prefix=BATCHED
// BATCHED: ddp.bucket_info "b0" mean on @dp hook #ddp.wrap<bf16, #ddp.batched_powersgd<matrix_approximation_rank = 3>> wire bf16
// RUN: ddphook-opt %s --ddp-expand-hooks="HOOK=powersgd Matrix_Approximation_Rank=2 start_powerSGD_iter=2 use_error_feedback=0" | FileCheck %s --check-prefix=SPELLING
// SPELLING: hook #ddp.powersgd<matrix_approximation_rank = 2, start_powerSGD_iter = 2, use_error_feedback = false> wire f32

// RUN: ddphook-opt %s --ddp-pipeline="hook=powersgd matrix_approximation_rank=2 start_powerSGD_iter=5 random_seed=3" | FileCheck %s --check-prefix=PLAN
// PLAN: hook = "#ddp.powersgd<matrix_approximation_rank = 2, start_powerSGD_iter = 5, random_seed = 3>"

// What makes no sense: one line, and no output.
// RUN: not ddphook-opt %s --ddp-expand-hooks="hook=powersgd matrix-approximation-rank=two" 2>&1 | FileCheck %s --check-prefix=INTEGER
// INTEGER: error: expected matrix-approximation-rank to be a whole number, but got 'two'
// INTEGER-NOT: func.func
// RUN: not ddphook-opt %s --ddp-expand-hooks="hook=powersgd start-powersgd-iter=2.5" 2>&1 | FileCheck %s --check-prefix=FRACTION
// FRACTION: error: expected start-powersgd-iter to be a whole number, but got '2.5'
// RUN: not ddphook-opt %s --ddp-expand-hooks="hook=powersgd min-compression-rate=twice" 2>&1 | FileCheck %s --check-prefix=NUMBER
// NUMBER: error: expected min-compression-rate to be a number, but got 'twice'
// RUN: not ddphook-opt %s --ddp-expand-hooks="hook=powersgd warm-start=maybe" 2>&1 | FileCheck %s --check-prefix=FLAG
// FLAG: error: expected warm-start to be true or false, but got 'maybe'
// RUN: not ddphook-opt %s --ddp-expand-hooks="hook=powersgd random-seed=99999999999999999999" 2>&1 | FileCheck %s --check-prefix=HUGE
// HUGE: error: expected random-seed to be a whole number, but got '99999999999999999999'
// RUN: not ddphook-opt %s --ddp-expand-hooks="hook=powersgd matrix-approximation-rank=0" 2>&1 | FileCheck %s --check-prefix=RANK
// RANK: error: expected a matrix_approximation_rank of at least 1, but got 0
// RUN: not ddphook-opt %s --ddp-expand-hooks="hook=batched_powersgd start-powersgd-iter=1" 2>&1 | FileCheck %s --check-prefix=START
// START: error: expected a start_powerSGD_iter of at least 2 with use_error_feedback or warm_start, but got 1
// RUN: not ddphook-opt %s --ddp-expand-hooks="hook=powersgd min-compression-rate=nan" 2>&1 | FileCheck %s --check-prefix=NAN
// NAN: error: expected a min_compression_rate above 0, but got nan
// RUN: not ddphook-opt %s --ddp-expand-hooks="hook=fp16 warm-start=false" 2>&1 | FileCheck %s --check-prefix=OTHER
// OTHER: error: expected warm-start only with hook=powersgd or batched_powersgd, but got hook=fp16
// RUN: not ddphook-opt %s --ddp-pipeline="hook=powersgd random_seed=-1" 2>&1 | FileCheck %s --check-prefix=SEED
// SEED: error: expected a random_seed from 0 to 4294967295, but got -1
// RUN: not ddphook-opt %s --ddp-pipeline="hook=powersgd pack_collectives=maybe" 2>&1 | FileCheck %s --check-prefix=PACK
// PACK: error: in the options of ddp-pipeline: expected pack-collectives to be true or false, but got 'maybe'

// Encodings of what PowerSGD sends.
// RUN: ddphook-opt %s --ddp-expand-hooks="hook=powersgd wrapper=int8 alternate=true" | FileCheck %s --check-prefix=INT8
// RUN: ddphook-opt %s --ddp-expand-hooks="hook=powersgd wrapper=int8 alternate numerics=eager fp32-error=1" | FileCheck %s --check-prefix=INT8
// INT8: hook #ddp.powersgd<wire_type = !ddp.encoded<i8, 256>, alternate = true> wire !ddp.encoded<i8, 256>
// RUN: ddphook-opt %s --ddp-expand-hooks="hook=batched_powersgd wrapper=int4" | FileCheck %s --check-prefix=INT4
// INT4: hook #ddp.batched_powersgd<wire_type = !ddp.encoded<i4, 64>> wire !ddp.encoded<i4, 64>
// RUN: not ddphook-opt %s --ddp-expand-hooks="hook=fp16 wrapper=fp8" 2>&1 | FileCheck %s --check-prefix=CODES
// RUN: not ddphook-opt %s --ddp-expand-hooks="hook=powersgd wrapper=fp8 fp32-error=false" 2>&1 | FileCheck %s --check-prefix=CODES
// CODES: error: expected wrapper=fp8 only with fp32-error and hook=powersgd or batched_powersgd, which send factors, but got hook={{.+}}; hook=fp8 encodes gradients
// RUN: not ddphook-opt %s --ddp-expand-hooks="hook=#ddp.powersgd wrapper=int8" 2>&1 | FileCheck %s --check-prefix=ATTRIBUTE
// ATTRIBUTE: error: expected wrapper=int8 only with {{.+}} but got hook=#ddp.powersgd; an attribute has wire_type = '!ddp.encoded<i8, 256>'
// RUN: not ddphook-opt %s --ddp-expand-hooks="hook=#ddp.powersgd<wire_type=!ddp.encoded<ui8,512>>" 2>&1 | FileCheck %s --check-prefix=AFFINE
// AFFINE: error: in hook={{.*}}: expected a wire_type of f16 or bf16, or an encoding in blocks with a scale, rounded to nearest, but got '!ddp.encoded<ui8, 512>'
// RUN: not ddphook-opt %s --ddp-expand-hooks="hook=powersgd alternate=true warm-start=false" 2>&1 | FileCheck %s --check-prefix=COLD
// COLD: error: expected alternate only with warm_start, since a step needs the previous one's factor

ddp.process_group @dp
func.func @step(%b: !ddp.bucket<f32, [64x32, 64]>)
    -> !ddp.bucket<f32, [64x32, 64]> {
  %r = ddp.all_reduce mean %b on @dp as "b0" : !ddp.bucket<f32, [64x32, 64]>
  return %r : !ddp.bucket<f32, [64x32, 64]>
}
