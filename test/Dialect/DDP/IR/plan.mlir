// RUN: ddphook-opt %s | FileCheck %s
// RUN: ddphook-opt %s | ddphook-opt | FileCheck %s
// RUN: ddphook-opt %s --mlir-print-op-generic | ddphook-opt | FileCheck %s
// RUN: ddphook-opt %s --emit-bytecode | ddphook-opt | FileCheck %s

// Keys in the order of docs/plan.md; lists that are empty, and what has its
// default value, are left out.

// CHECK: module attributes {ddp.plan = #ddp.plan<abi = 10, memory = device,
// CHECK-SAME: kernels = ["ddphook_kernel_0", "a \22quoted\22 name"],
// CHECK-SAME: process_groups = [<name = "dp">,
// CHECK-SAME: <name = "pairs", size = 2, ranks = [array<i64: 0, 1>, array<i64: 2, 3>]>,
// CHECK-SAME: <name = "node", placement = intra_node, parent = "dp">],
// CHECK-SAME: buckets = [<name = "b0", group = "dp", reduction = mean, type = <f32, [4x8, 8]>, gradients = ["w", "b"], hook = "#ddp.wrap<bf16, #ddp.noop>", wire_type = bf16, wire_bytes = 80, state_bytes = 8>,
// CHECK-SAME: <name = "b1", group = "pairs", reduction = sum, type = <f64, []>, hook = "#ddp.allreduce", wire_type = f64>],
// CHECK-SAME: states = [<name = "iter", type = i64, placement = replicated, init = zero, offset = 0>,
// CHECK-SAME: <name = "generator", type = tensor<625xi32>, placement = replicated, init = mt19937, seed = 7, offset = 64>,
// CHECK-SAME: <name = "q", type = !ddp.bucket<f32, [4x2]>, role = "powersgd.q", gradients = {{\[\[}}"w"]], method = "mean #ddp.powersgd", placement = per_rank, init = normal, generator = "generator", draws = [4, 4], offset = 2624>],
// CHECK-SAME: matrix_lists = [<dtype = f16, layout = <0 to 11, [0, 0, 0, 2, 3, 2], [6, 0, 5]>>],
// CHECK-SAME: collectives = [<bucket = "b0", group = 0, count = 40, dtype = f32, wire_dtype = bf16, divide = true>,
// CHECK-SAME: <group = 2, count = 1, dtype = f64, divide = false>],
// CHECK-SAME: arena_bytes = 160, state_arena_bytes = 2688,
// CHECK-SAME: entries = [<name = "step", arguments = [<type = memref<4x8xf32>, inout = true>, <type = f16>],
// CHECK-SAME: results = [<type = memref<4x8xf32>, argument = 0>, <type = memref<i1>>]>,
// CHECK-SAME: <name = "nothing">]>}
module attributes {ddp.plan = #ddp.plan<abi = 10, memory = device,
    kernels = ["ddphook_kernel_0", "a \"quoted\" name"],
    process_groups = [
      <name = "dp">,
      <name = "pairs", size = 2, ranks = [array<i64: 0, 1>, array<i64: 2, 3>]>,
      <name = "node", placement = intra_node, parent = "dp">],
    buckets = [
      <name = "b0", group = "dp", reduction = mean,
       type = !ddp.bucket<f32, [4x8, 8]>, gradients = ["w", "b"],
       hook = "#ddp.wrap<bf16, #ddp.noop>", wire_type = bf16, wire_bytes = 80,
       state_bytes = 8>,
      <name = "b1", group = "pairs", reduction = sum,
       type = !ddp.bucket<f64, []>, hook = "#ddp.allreduce", wire_type = f64>],
    states = [
      <name = "iter", type = i64, placement = replicated, init = zero,
       offset = 0>,
      <name = "generator", type = tensor<625xi32>, placement = replicated,
       init = mt19937, seed = 7, offset = 64>,
      <name = "q", type = !ddp.bucket<f32, [4x2]>, role = "powersgd.q",
       gradients = [["w"]], method = "mean #ddp.powersgd", placement = per_rank,
       init = normal, generator = "generator", draws = [4, 4], offset = 2624>],
    matrix_lists = [
      <dtype = f16, layout = <0 to 11, [0, 0, 0, 2, 3, 2], [6, 0, 5]>>],
    collectives = [
      <bucket = "b0", group = 0, count = 40, dtype = f32, wire_dtype = bf16,
       divide = true>,
      <group = 2, count = 1, dtype = f64, divide = false>],
    arena_bytes = 160, state_arena_bytes = 2688,
    entries = [
      <name = "step",
       arguments = [<type = memref<4x8xf32>, inout = true>, <type = f16>],
       results = [<type = memref<4x8xf32>, argument = 0>, <type = memref<i1>>]>,
      <name = "nothing">]>} {
}
