// What a report tells: sources of gradients, where hooks come from, what is in
// flight, memory, and remarks.
//
// RUN: ddphook-opt %s --ddp-pipeline="hook=int8 exempt=bias first-bucket-mb=0 bucket-cap-mb=0" \
// RUN:   --ddp-plan-report=- | FileCheck %s
//
// CHECK: plan of plan-report.mlir: 4 buckets, 4 gradients, 4 collectives
// CHECK-NEXT: gradients 1.20 kB, on the wire 538 B per rank and step, compression 2.23
// CHECK-NEXT: states 0 B, arena 1.15 kB, memory of the host
// CHECK-NEXT: @dp: 2 ranks
//
// CHECK: bucket b0: mean over @dp, f32 as f16 on the wire
// CHECK-NEXT: hook #ddp.fp16, from the operation
// CHECK-NEXT: 512 B of gradients, 256 B on the wire, compression 2.00, states 0 B
// CHECK-NEXT: gradients
// CHECK-NEXT: own 16 × 8 512 B {{.*}}plan-report.mlir:[[#OWN:]]:
// CHECK-NEXT: collectives
// CHECK-NEXT: 0 all_reduce of 128 f32 as f16; the step waits for it
// CHECK: bucket b1: mean over @dp, f32 as i8 in blocks of 256 on the wire
// CHECK-NEXT: hook #ddp.int8, from option hook
// CHECK: weight 16 × 8 512 B {{.*}}plan-report.mlir:[[#OWN+1]]:
// CHECK: bucket b2:
// CHECK-NEXT: hook #ddp.allreduce, from option exempt='bias'
// CHECK: bias 32 128 B {{.*}}plan-report.mlir:[[#OWN+2]]:
// CHECK: bucket b3:
// CHECK-NEXT: hook #ddp.bf16, from function 'other'
// CHECK: other 12 48 B {{.*}}plan-report.mlir:[[#OWN+8]]:
//
// Buffers of functions that do not call each other share the arena.
// CHECK: arena
// CHECK-NEXT: at 0: 12xf32, 48 B, bucket b3, in 'other'
// CHECK-NEXT: at 0: 128xf32, 512 B, bucket b0, in 'step' {{.*}}plan-report.mlir:[[#OWN]]:
// CHECK-NEXT: at 512: 128xf32, 512 B, bucket b1, in 'step'
// CHECK-NEXT: at 1024: 32xf32, 128 B, bucket b2, in 'step'
//
// CHECK: remaining copies
// CHECK-NEXT: 16x8xf32, 512 B, in 'step' {{.*}}plan-report.mlir:[[#OWN]]:
//
// CHECK: remarks
// CHECK: ddp-exempt-gradients, passed: bias: hook=#ddp.allreduce
// CHECK: ddp-materialize-buckets, missed: gradients are copied into their bucket: copied=1, gradients=1 {{.*}}plan-report.mlir:[[#OWN]]:

// What the step computes while a collective is in flight.
//
// RUN: ddphook-opt %digits --ddp-pipeline="hook=fp16 first-bucket-mb=0.01 bucket-cap-mb=0.01" \
// RUN:   --ddp-plan-report=- | FileCheck %s --check-prefix=FLYING
// FLYING: bucket b0
// FLYING: all_reduce of 8842 f32 as f16; in flight alongside {{.*}}linalg.matmul

// PowerSGD's phases are branches: what no step runs together is not beside it.
//
// RUN: ddphook-opt %digits --ddp-plan-report=- \
// RUN:   --ddp-pipeline="hook=powersgd start_powerSGD_iter=2 first-bucket-mb=0.01 bucket-cap-mb=1" \
// RUN:   | FileCheck %s --check-prefix=PHASES
// PHASES: bucket b0
// PHASES: within if; in flight alongside
// PHASES-NOT: orthogonalize
// PHASES: bucket b1

ddp.process_group @dp size 2

func.func @step(%a: tensor<16x8xf32>, %b: tensor<16x8xf32>, %c: tensor<32xf32>,
                %d: tensor<4x4xf32>)
    -> (tensor<16x8xf32>, tensor<16x8xf32>, tensor<32xf32>) {
  %0 = ddp.all_reduce mean %a on @dp {ddp.name = "own", ddp.hook = #ddp.fp16} : tensor<16x8xf32>
  %1 = ddp.all_reduce mean %b on @dp {ddp.name = "weight"} : tensor<16x8xf32>
  %2 = ddp.all_reduce mean %c on @dp {ddp.name = "bias"} : tensor<32xf32>
  return %0, %1, %2 : tensor<16x8xf32>, tensor<16x8xf32>, tensor<32xf32>
}

func.func @other(%a: tensor<12xf32>) -> tensor<12xf32>
    attributes {ddp.hook = #ddp.bf16} {
  %0 = ddp.all_reduce mean %a on @dp {ddp.name = "other"} : tensor<12xf32>
  return %0 : tensor<12xf32>
}
