// RUN: ddphook-opt %s | FileCheck %s
// RUN: ddphook-opt %s | ddphook-opt | FileCheck %s
// RUN: ddphook-opt %s --mlir-print-op-generic | ddphook-opt | FileCheck %s
// RUN: ddphook-opt %s --emit-bytecode | ddphook-opt | FileCheck %s
// RUN: ddphook-opt %s --mlir-print-op-generic | FileCheck %s --check-prefix=GENERIC

// CHECK: ddp.state @iter : i64 replicated zero{{$}}
// GENERIC: "ddp.state"() <{init = #ddp<state_init zero>, placement = #ddp<state_placement replicated>, sym_name = "iter", type = i64}> : () -> ()
ddp.state @iter : i64 replicated zero
// CHECK: ddp.state @generator : tensor<625xi32> replicated mt19937 seed 4294967295{{$}}
// GENERIC: init = #ddp<state_init mt19937>, {{.+}} seed = 4294967295 : i64, sym_name = "generator", type = tensor<625xi32>
ddp.state @generator : tensor<625xi32> replicated mt19937 seed 4294967295
// CHECK: ddp.state @b0.error : !ddp.bucket<bf16, [64x32, 64, scalar]> per_rank zero{{$}}
// GENERIC: placement = #ddp<state_placement per_rank>
ddp.state @b0.error : !ddp.bucket<bf16, [64x32, 64, scalar]> per_rank zero
// A state may stand before its generator.
// CHECK: ddp.state @b0.q : !ddp.bucket<f32, [32x2, 7x2]> replicated normal from @late draws [64, 14]{{$}}
// GENERIC: draws = array<i64: 64, 14>, generator = @late, init = #ddp<state_init normal>
ddp.state @b0.q : !ddp.bucket<f32, [32x2, 7x2]> replicated normal
    from @late draws [64, 14]
ddp.state @late : tensor<625xi32> per_rank mt19937 seed 0
// CHECK: ddp.state @nothing : !ddp.bucket<f64, []> replicated normal from @late draws []{{$}}
ddp.state @nothing : !ddp.bucket<f64, []> replicated normal from @late draws []
// CHECK: ddp.state @words : tensor<625xi32> replicated zero {note = "kept"}
ddp.state @words : tensor<625xi32> replicated zero {note = "kept"}

// CHECK: ddp.state @mine : !ddp.bucket<f32, [2, 3]> per_rank zero role "error" of {{\[}}["w"], ["b"]] under "mean #ddp.powersgd"{{$}}
// GENERIC: gradients = {{\[}}["w"], ["b"]], {{.+}} method = "mean #ddp.powersgd", {{.+}} role = "error"
ddp.state @mine : !ddp.bucket<f32, [2, 3]> per_rank zero
    role "error" of [["w"], ["b"]] under "mean #ddp.powersgd"
// CHECK: ddp.state @square : !ddp.bucket<f32, [2, 3]> per_rank zero role "square" of {{\[}}["w", "b"]]{{$}}
ddp.state @square : !ddp.bucket<f32, [2, 3]> per_rank zero
    role "square" of [["w", "b"]]
// CHECK: ddp.state @none : !ddp.bucket<f32, []> per_rank zero role "error" of []{{$}}
ddp.state @none : !ddp.bucket<f32, []> per_rank zero role "error" of []

// CHECK: ddp.state @lost : !ddp.bucket<f32, [2]> per_rank zero kind error role "lost" of {{\[}}["w"]]{{$}}
// GENERIC: kind = #ddp<state_kind error>
ddp.state @lost : !ddp.bucket<f32, [2]> per_rank zero
    kind error role "lost" of [["w"]]
// CHECK: ddp.state @lost_here : !ddp.bucket<f32, [2]> per_rank zero kind share_error{{$}}
ddp.state @lost_here : !ddp.bucket<f32, [2]> per_rank zero kind share_error
// CHECK: ddp.state @drawn : !ddp.bucket<f32, [2]> replicated normal from @late draws [2] kind factor{{$}}
ddp.state @drawn : !ddp.bucket<f32, [2]> replicated normal from @late draws [2]
    kind factor
// CHECK: ddp.state @steps : i64 replicated zero kind iteration{{$}}
ddp.state @steps : i64 replicated zero kind iteration
// CHECK: ddp.state @events : i64 replicated zero kind counter{{$}}
ddp.state @events : i64 replicated zero kind counter
// CHECK: ddp.state @twister : tensor<625xi32> replicated mt19937 seed 1 kind generator{{$}}
ddp.state @twister : tensor<625xi32> replicated mt19937 seed 1 kind generator

// CHECK-LABEL: func @access(
func.func @access() {
  // CHECK: %[[I:.+]] = ddp.load @iter : i64
  // GENERIC: "ddp.load"() <{state = @iter}> : () -> i64
  %0 = ddp.load @iter : i64
  // CHECK: ddp.store %[[I]], @iter : i64
  // GENERIC: "ddp.store"(%{{.+}}) <{state = @iter}> : (i64) -> ()
  ddp.store %0, @iter : i64
  // CHECK: %[[E:.+]] = ddp.load @b0.error : !ddp.bucket<bf16, [64x32, 64, scalar]>
  %1 = ddp.load @b0.error : !ddp.bucket<bf16, [64x32, 64, scalar]>
  // CHECK: ddp.store %[[E]], @b0.error : !ddp.bucket<bf16, [64x32, 64, scalar]>
  ddp.store %1, @b0.error : !ddp.bucket<bf16, [64x32, 64, scalar]>
  // Flattened.
  // CHECK: %[[F:.+]] = ddp.load @b0.error {note} : tensor<2113xbf16>
  %2 = ddp.load @b0.error {note} : tensor<2113xbf16>
  // CHECK: ddp.store %[[F]], @b0.error {note} : tensor<2113xbf16>
  ddp.store %2, @b0.error {note} : tensor<2113xbf16>
  return
}

// CHECK-LABEL: func @memory(
func.func @memory() {
  // CHECK: ddp.state_buffer @iter : memref<i64>
  // GENERIC: "ddp.state_buffer"() <{state = @iter}> : () -> memref<i64>
  %0 = ddp.state_buffer @iter : memref<i64>
  // CHECK: ddp.state_buffer @generator : memref<625xi32>
  %1 = ddp.state_buffer @generator : memref<625xi32>
  // CHECK: ddp.state_buffer @b0.error : memref<2113xbf16>
  %2 = ddp.state_buffer @b0.error : memref<2113xbf16>
  // CHECK: ddp.state_buffer @nothing : memref<0xf64>
  %3 = ddp.state_buffer @nothing : memref<0xf64>
  return
}

// CHECK-LABEL: func @random_normal(
// CHECK-SAME:    %[[T:[a-z0-9]+]]: tensor<78xf32>, %[[M:[a-z0-9]+]]: memref<78xf32>
func.func @random_normal(%t: tensor<78xf32>, %m: memref<78xf32>) {
  // CHECK: ddp.random_normal from @generator draws [64, 14] : () -> !ddp.bucket<f32, [32x2, 7x2]>
  // GENERIC: "ddp.random_normal"() <{draws = array<i64: 64, 14>, generator = @generator}> : () -> !ddp.bucket<f32, [32x2, 7x2]>
  %0 = ddp.random_normal from @generator draws [64, 14]
      : () -> !ddp.bucket<f32, [32x2, 7x2]>
  // CHECK: ddp.random_normal from @generator draws [78] : () -> tensor<78xf32>
  %1 = ddp.random_normal from @generator draws [78] : () -> tensor<78xf32>
  // CHECK: ddp.flat.random_normal from @generator draws [78] into %[[T]] : tensor<78xf32>
  %2 = ddp.flat.random_normal from @generator draws [78] into %t
      : tensor<78xf32>
  // CHECK: ddp.flat.random_normal from @generator draws [0, 78] into %[[M]] {note} : memref<78xf32>
  ddp.flat.random_normal from @generator draws [0, 78] into %m {note}
      : memref<78xf32>
  return
}
