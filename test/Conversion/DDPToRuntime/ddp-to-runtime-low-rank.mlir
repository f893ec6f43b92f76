// RUN: ddphook-opt %s --convert-ddp-to-runtime --canonicalize --cse | FileCheck %s

// States and low-rank operations: what the runtime is called with, and what the
// plan says of them. Simplified, a function has one pointer for each memory and
// one constant for each number.

ddp.process_group @dp
ddp.process_group @other
ddp.state @powersgd.iter : i64 replicated zero
ddp.state @powersgd.generator : tensor<625xi32> replicated mt19937 seed 4294967295
ddp.state @b0.error : !ddp.bucket<f16, [2x3, 5]> per_rank zero
ddp.state @b0.q : !ddp.bucket<f16, [3x2]> replicated normal
    from @powersgd.generator draws [4, 2]
ddp.state @nothing : !ddp.bucket<f64, []> replicated normal
    from @powersgd.generator draws []

// Each state at a multiple of 64 bytes.
// CHECK:      ddp.plan
// CHECK-SAME: states = [
// CHECK-SAME: <name = "powersgd.iter", type = i64, placement = replicated, init = zero, offset = 0>,
// CHECK-SAME: <name = "powersgd.generator", type = tensor<625xi32>, placement = replicated, init = mt19937, seed = 4294967295, offset = 64>,
// CHECK-SAME: <name = "b0.error", type = !ddp.bucket<f16, [2x3, 5]>, placement = per_rank, init = zero, offset = 2624>,
// CHECK-SAME: <name = "b0.q", type = !ddp.bucket<f16, [3x2]>, placement = replicated, init = normal, generator = "powersgd.generator", draws = [4, 2], offset = 2688>,
// CHECK-SAME: <name = "nothing", type = !ddp.bucket<f64, []>, placement = replicated, init = normal, generator = "powersgd.generator", draws = [], offset = 2752>],
// One list for a layout and an element type.
// CHECK-SAME: matrix_lists = [
// CHECK-SAME: <dtype = f32, layout = <0 to 11, [0, 0, 0, 2, 3, 2], [6, 0, 5]>>,
// CHECK-SAME: <dtype = f16, layout = <0 to 11, [0, 0, 0, 2, 3, 2], [6, 0, 5]>>,
// CHECK-SAME: <dtype = f32, layout = <0 to 0, [0, 0, 0, 0, 3, 2, 0, 0, 6, 0, 1, 1], []>>,
// CHECK-SAME: <dtype = f32, layout = <0 to 6, [0, 0, 0, 2, 3, 2], []>>],
// CHECK-SAME: state_arena_bytes = 2752,
// CHECK-DAG:  llvm.mlir.global internal constant @[[SIZES:.+]](dense<[4, 2]> : tensor<2xi64>)
// CHECK-DAG:  llvm.mlir.global internal constant @[[NO_SIZES:.+]](dense<> : tensor<0xi64>)

#list = #ddp.matrix_list<0 to 11, [0, 0, 0, 2, 3, 2], [6, 0, 5]>

// CHECK-LABEL: func.func @state(
// CHECK-SAME:      %[[F:[a-z0-9]+]]: memref<11xf16>
// CHECK-DAG:     %[[ZERO:.+]] = llvm.mlir.constant(0 : i32) : i32
// CHECK-DAG:     %[[TWO:.+]] = llvm.mlir.constant(2 : i32) : i32
// CHECK-DAG:     %[[SLOT:.+]] = llvm.mlir.addressof @__ddphook_handle
// CHECK:         %[[HANDLE:.+]] = llvm.load %[[SLOT]]
// CHECK:         llvm.call @ddphook_rt_state(%[[HANDLE]], %[[TWO]]) : (!llvm.ptr, i32) -> !llvm.ptr
// CHECK:         %[[ERROR:.+]] = builtin.unrealized_conversion_cast %{{.+}} to memref<11xf16>
// CHECK:         llvm.call @ddphook_rt_state(%[[HANDLE]], %[[ZERO]])
// CHECK:         %[[N:.+]] = builtin.unrealized_conversion_cast %{{.+}} to memref<i64>
// CHECK:         memref.load %[[N]][]
// CHECK:         memref.extract_aligned_pointer_as_index %[[ERROR]]
// CHECK:         %[[E:.+]] = llvm.inttoptr
// CHECK:         llvm.call @ddphook_rt_subtract(%[[HANDLE]], %{{.+}}, %[[E]], %[[E]],
func.func @state(%f: memref<11xf16>) {
  %e = ddp.state_buffer @b0.error : memref<11xf16>
  %n = ddp.state_buffer @powersgd.iter : memref<i64>
  %i = memref.load %n[] : memref<i64>
  memref.store %i, %n[] : memref<i64>
  ddp.flat.sub %f, %e into %e : memref<11xf16>, memref<11xf16>, memref<11xf16>
  return
}

// Two pointers, the destination, the count, the element type.
// CHECK-LABEL: func.func @sums(
// CHECK-SAME:      %[[ARG0:[a-z0-9]+]]: memref<11xf32>, %[[ARG1:[a-z0-9]+]]: memref<11xf32>, %[[ARG2:[a-z0-9]+]]: memref<11xf32>)
// CHECK-DAG:     %[[COUNT:.+]] = llvm.mlir.constant(11 : i64) : i64
// CHECK-DAG:     %[[F32:.+]] = llvm.mlir.constant(2 : i32) : i32
// CHECK:         memref.extract_aligned_pointer_as_index %[[ARG0]]
// CHECK:         %[[A:.+]] = llvm.inttoptr
// CHECK:         memref.extract_aligned_pointer_as_index %[[ARG1]]
// CHECK:         %[[B:.+]] = llvm.inttoptr
// CHECK:         memref.extract_aligned_pointer_as_index %[[ARG2]]
// CHECK:         %[[C:.+]] = llvm.inttoptr
// CHECK:         llvm.call @ddphook_rt_add(%{{.+}}, %[[A]], %[[B]], %[[C]], %[[COUNT]], %[[F32]]) : (!llvm.ptr, !llvm.ptr, !llvm.ptr, !llvm.ptr, i64, i32) -> ()
// CHECK:         llvm.call @ddphook_rt_subtract(%{{.+}}, %[[A]], %[[B]], %[[A]], %[[COUNT]], %[[F32]])
func.func @sums(%a: memref<11xf32>, %b: memref<11xf32>, %c: memref<11xf32>) {
  ddp.flat.add %a, %b into %c : memref<11xf32>, memref<11xf32>, memref<11xf32>
  ddp.flat.sub %a, %b into %a : memref<11xf32>, memref<11xf32>, memref<11xf32>
  return
}

// List, kind, then always the matrix, P and Q.
// CHECK-LABEL: func.func @products(
// CHECK-SAME:      %[[ARG0:[a-z0-9]+]]: memref<11xf32>, %[[ARG1:[a-z0-9]+]]: memref<4xf32>, %[[ARG2:[a-z0-9]+]]: memref<6xf32>, %[[ARG3:[a-z0-9]+]]: memref<11xf16>
// CHECK-DAG:     %[[ZERO:.+]] = llvm.mlir.constant(0 : i32) : i32
// CHECK-DAG:     %[[ONE:.+]] = llvm.mlir.constant(1 : i32) : i32
// CHECK-DAG:     %[[TWO:.+]] = llvm.mlir.constant(2 : i32) : i32
// CHECK:         memref.extract_aligned_pointer_as_index %[[ARG0]]
// CHECK:         %[[M:.+]] = llvm.inttoptr
// CHECK:         memref.extract_aligned_pointer_as_index %[[ARG1]]
// CHECK:         %[[P:.+]] = llvm.inttoptr
// CHECK:         memref.extract_aligned_pointer_as_index %[[ARG2]]
// CHECK:         %[[Q:.+]] = llvm.inttoptr
// CHECK:         llvm.call @ddphook_rt_matmul(%{{.+}}, %[[ZERO]], %[[ZERO]], %[[M]], %[[P]], %[[Q]]) : (!llvm.ptr, i32, i32, !llvm.ptr, !llvm.ptr, !llvm.ptr) -> ()
// CHECK:         llvm.call @ddphook_rt_matmul(%{{.+}}, %[[ZERO]], %[[ONE]], %[[M]], %[[P]], %[[Q]])
// CHECK:         llvm.call @ddphook_rt_matmul(%{{.+}}, %[[ZERO]], %[[TWO]], %[[M]], %[[P]], %[[Q]])
// CHECK:         memref.extract_aligned_pointer_as_index %[[ARG3]]
// CHECK:         %[[H:.+]] = llvm.inttoptr
// CHECK:         llvm.call @ddphook_rt_matmul(%{{.+}}, %[[ONE]], %[[ZERO]], %[[H]],
func.func @products(%m: memref<11xf32>, %p: memref<4xf32>, %q: memref<6xf32>,
                    %h: memref<11xf16>, %hp: memref<4xf16>,
                    %hq: memref<6xf16>) {
  ddp.flat.matmul %m, %q layout #list into %p
      : memref<11xf32>, memref<6xf32>, memref<4xf32>
  ddp.flat.matmul transpose_lhs %m, %p layout #list into %q
      : memref<11xf32>, memref<4xf32>, memref<6xf32>
  ddp.flat.matmul transpose_rhs %p, %q layout #list into %m
      : memref<4xf32>, memref<6xf32>, memref<11xf32>
  ddp.flat.matmul %h, %hq layout #list into %hp
      : memref<11xf16>, memref<6xf16>, memref<4xf16>
  return
}

// CHECK-LABEL: func.func @orthogonalize(
// CHECK-SAME:      %[[ARG0:[a-z0-9]+]]: memref<7xf32>, %[[ARG1:[a-z0-9]+]]: memref<7xf32>)
// CHECK-DAG:     %[[LIST:.+]] = llvm.mlir.constant(2 : i32) : i32
// CHECK-DAG:     %[[FACTOR:.+]] = llvm.mlir.constant(1 : i32) : i32
// CHECK-DAG:     %[[EPSILON:.+]] = llvm.mlir.constant(1.000000e-08 : f64) : f64
// CHECK:         memref.extract_aligned_pointer_as_index %[[ARG0]]
// CHECK:         %[[IN:.+]] = llvm.inttoptr
// CHECK:         memref.extract_aligned_pointer_as_index %[[ARG1]]
// CHECK:         %[[OUT:.+]] = llvm.inttoptr
// CHECK:         llvm.call @ddphook_rt_orthogonalize(%{{.+}}, %[[LIST]], %[[FACTOR]], %[[IN]], %[[OUT]], %[[EPSILON]]) : (!llvm.ptr, i32, i32, !llvm.ptr, !llvm.ptr, f64) -> ()
func.func @orthogonalize(%p: memref<7xf32>, %o: memref<7xf32>) {
  ddp.flat.orthogonalize %p epsilon 1.0e-8
      layout #ddp.matrix_list<0 to 0, [0, 0, 0, 0, 3, 2, 0, 0, 6, 0, 1, 1], []>
      into %o : memref<7xf32>, memref<7xf32>
  return
}

// List, G, E, Q, M, P, rest; null where there is none. Packed, the rest lies
// behind P.
// CHECK-LABEL: func.func @project(
// CHECK-SAME:      %[[ARG0:[a-z0-9]+]]: memref<11xf32>, %[[ARG1:[a-z0-9]+]]: memref<11xf32>, %[[ARG2:[a-z0-9]+]]: memref<6xf32>, %[[ARG3:[a-z0-9]+]]: memref<4xf32>, %[[ARG4:[a-z0-9]+]]: memref<5xf32>, %[[ARG5:[a-z0-9]+]]: memref<6xf32>, %[[ARG6:[a-z0-9]+]]: memref<9xf32>)
// CHECK-DAG:     %[[LIST0:.+]] = llvm.mlir.constant(0 : i32) : i32
// CHECK-DAG:     %[[LIST3:.+]] = llvm.mlir.constant(3 : i32) : i32
// CHECK-DAG:     %[[NULL:.+]] = llvm.mlir.zero
// CHECK:         memref.extract_aligned_pointer_as_index %[[ARG0]]
// CHECK:         %[[G:.+]] = llvm.inttoptr
// CHECK:         memref.extract_aligned_pointer_as_index %[[ARG1]]
// CHECK:         %[[E:.+]] = llvm.inttoptr
// CHECK:         memref.extract_aligned_pointer_as_index %[[ARG2]]
// CHECK:         %[[Q:.+]] = llvm.inttoptr
// CHECK:         memref.extract_aligned_pointer_as_index %[[ARG3]]
// CHECK:         %[[P:.+]] = llvm.inttoptr
// CHECK:         memref.extract_aligned_pointer_as_index %[[ARG4]]
// CHECK:         %[[V:.+]] = llvm.inttoptr
// CHECK:         llvm.call @ddphook_rt_project(%{{.+}}, %[[LIST0]], %[[G]], %[[E]], %[[Q]], %[[E]], %[[P]], %[[V]]) : (!llvm.ptr, i32, !llvm.ptr, !llvm.ptr, !llvm.ptr, !llvm.ptr, !llvm.ptr, !llvm.ptr) -> ()
// CHECK:         memref.extract_aligned_pointer_as_index %[[ARG5]]
// CHECK:         %[[G1:.+]] = llvm.inttoptr
// CHECK:         llvm.call @ddphook_rt_project(%{{.+}}, %[[LIST3]], %[[G1]], %[[NULL]], %[[Q]], %[[NULL]], %[[P]], %[[NULL]])
// CHECK:         memref.extract_aligned_pointer_as_index %[[ARG6]]
// CHECK:         %[[P1:.+]] = llvm.inttoptr
// CHECK:         %[[V1:.+]] = llvm.getelementptr %[[P1]][4] : (!llvm.ptr) -> !llvm.ptr, f32
// CHECK:         llvm.call @ddphook_rt_project(%{{.+}}, %[[LIST0]], %[[G]], %[[NULL]], %[[Q]], %[[NULL]], %[[P1]], %[[V1]])
func.func @project(%g: memref<11xf32>, %e: memref<11xf32>, %q: memref<6xf32>,
                   %p: memref<4xf32>, %v: memref<5xf32>, %w: memref<6xf32>,
                   %c: memref<9xf32>) {
  ddp.flat.project %g plus %e by %q layout #list into (%e, %p, %v)
      : memref<11xf32>, memref<11xf32>, memref<6xf32>, memref<11xf32>,
         memref<4xf32>, memref<5xf32>
  ddp.flat.project %w by %q
      layout #ddp.matrix_list<0 to 6, [0, 0, 0, 2, 3, 2], []> into (%p)
      : memref<6xf32>, memref<6xf32>, memref<4xf32>
  ddp.flat.project %g by %q packed layout #list into (%c)
      : memref<11xf32>, memref<6xf32>, memref<9xf32>
  return
}

// List, P, Q, rest, M, the result, the error, and the group by whose size the
// result is divided before it is subtracted, or -1.
// CHECK-LABEL: func.func @reconstruct(
// CHECK-SAME:      %[[ARG0:[a-z0-9]+]]: memref<4xf32>, %[[ARG1:[a-z0-9]+]]: memref<6xf32>, %[[ARG2:[a-z0-9]+]]: memref<5xf32>, %[[ARG3:[a-z0-9]+]]: memref<11xf32>, %[[ARG4:[a-z0-9]+]]: memref<11xf32>, %[[ARG5:[a-z0-9]+]]: memref<6xf32>)
// CHECK-DAG:     %[[LIST0:.+]] = llvm.mlir.constant(0 : i32) : i32
// CHECK-DAG:     %[[LIST3:.+]] = llvm.mlir.constant(3 : i32) : i32
// CHECK-DAG:     %[[GROUP:.+]] = llvm.mlir.constant(1 : i32) : i32
// CHECK-DAG:     %[[NONE:.+]] = llvm.mlir.constant(-1 : i32) : i32
// CHECK-DAG:     %[[NULL:.+]] = llvm.mlir.zero
// CHECK:         memref.extract_aligned_pointer_as_index %[[ARG0]]
// CHECK:         %[[P:.+]] = llvm.inttoptr
// CHECK:         memref.extract_aligned_pointer_as_index %[[ARG1]]
// CHECK:         %[[Q:.+]] = llvm.inttoptr
// CHECK:         memref.extract_aligned_pointer_as_index %[[ARG2]]
// CHECK:         %[[V:.+]] = llvm.inttoptr
// CHECK:         memref.extract_aligned_pointer_as_index %[[ARG3]]
// CHECK:         %[[M:.+]] = llvm.inttoptr
// CHECK:         memref.extract_aligned_pointer_as_index %[[ARG4]]
// CHECK:         %[[O:.+]] = llvm.inttoptr
// CHECK:         llvm.call @ddphook_rt_reconstruct(%{{.+}}, %[[LIST0]], %[[P]], %[[Q]], %[[V]], %[[M]], %[[O]], %[[M]], %[[GROUP]]) : (!llvm.ptr, i32, !llvm.ptr, !llvm.ptr, !llvm.ptr, !llvm.ptr, !llvm.ptr, !llvm.ptr, i32) -> ()
// CHECK:         memref.extract_aligned_pointer_as_index %[[ARG5]]
// CHECK:         %[[O1:.+]] = llvm.inttoptr
// CHECK:         llvm.call @ddphook_rt_reconstruct(%{{.+}}, %[[LIST3]], %[[P]], %[[Q]], %[[NULL]], %[[NULL]], %[[O1]], %[[NULL]], %[[NONE]])
func.func @reconstruct(%p: memref<4xf32>, %q: memref<6xf32>,
                       %v: memref<5xf32>, %m: memref<11xf32>,
                       %o: memref<11xf32>, %w: memref<6xf32>) {
  ddp.flat.reconstruct %p, %q rest %v from %m by_world_of @other
      layout #list into (%o, %m)
      : memref<4xf32>, memref<6xf32>, memref<5xf32>, memref<11xf32>,
         memref<11xf32>, memref<11xf32>
  ddp.flat.reconstruct %p, %q
      layout #ddp.matrix_list<0 to 6, [0, 0, 0, 2, 3, 2], []> into (%w)
      : memref<4xf32>, memref<6xf32>, memref<6xf32>
  return
}

// The generator's memory, the sizes of the draws and their number.
// CHECK-LABEL: func.func @random_normal(
// CHECK-SAME:      %[[ARG0:[a-z0-9]+]]: memref<6xf64>
// CHECK-DAG:     %[[GENERATOR:.+]] = llvm.mlir.constant(1 : i32) : i32
// CHECK-DAG:     %[[NUMBER:.+]] = llvm.mlir.constant(2 : i64) : i64
// CHECK-DAG:     %[[NONE:.+]] = llvm.mlir.constant(0 : i64) : i64
// CHECK-DAG:     %[[F64:.+]] = llvm.mlir.constant(3 : i32) : i32
// CHECK-DAG:     %[[DRAWS:.+]] = llvm.mlir.addressof @[[SIZES]] : !llvm.ptr
// CHECK-DAG:     %[[NO_DRAWS:.+]] = llvm.mlir.addressof @[[NO_SIZES]] : !llvm.ptr
// CHECK:         %[[G:.+]] = llvm.call @ddphook_rt_state(%{{.+}}, %[[GENERATOR]])
// CHECK:         memref.extract_aligned_pointer_as_index %[[ARG0]]
// CHECK:         %[[Q:.+]] = llvm.inttoptr
// CHECK:         llvm.call @ddphook_rt_random_normal(%{{.+}}, %[[G]], %[[DRAWS]], %[[NUMBER]], %[[Q]], %[[F64]]) : (!llvm.ptr, !llvm.ptr, !llvm.ptr, i64, !llvm.ptr, i32) -> ()
// CHECK:         llvm.call @ddphook_rt_random_normal(%{{.+}}, %{{.+}}, %[[NO_DRAWS]], %[[NONE]],
func.func @random_normal(%q: memref<6xf64>, %n: memref<0xf16>) {
  ddp.flat.random_normal from @powersgd.generator draws [4, 2] into %q
      : memref<6xf64>
  ddp.flat.random_normal from @powersgd.generator draws [] into %n
      : memref<0xf16>
  return
}
// CHECK-NOT: ddp.state
