// RUN: ddphook-opt %s --convert-ddp-to-runtime | FileCheck %s

// States and low-rank operations: what the runtime is called with, and what the
// plan says of them.

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

#list = #ddp.matrix_list<0 to 11, [0, 0, 0, 2, 3, 2], [6, 0, 5]>

// CHECK-LABEL: func.func @state(
// CHECK:         %[[SLOT:.+]] = llvm.mlir.addressof @__ddphook_handle
// CHECK:         %[[HANDLE:.+]] = llvm.load %[[SLOT]]
// CHECK:         %[[TWO:.+]] = llvm.mlir.constant(2 : i32) : i32
// CHECK:         %[[ERROR:.+]] = llvm.call @ddphook_rt_state(%[[HANDLE]], %[[TWO]]) : (!llvm.ptr, i32) -> !llvm.ptr
// CHECK:         %[[E:.+]] = builtin.unrealized_conversion_cast %{{.+}} to memref<11xf16>
// CHECK:         %[[ZERO:.+]] = llvm.mlir.constant(0 : i32) : i32
// CHECK:         llvm.call @ddphook_rt_state(%[[HANDLE]], %[[ZERO]])
// CHECK:         %[[N:.+]] = builtin.unrealized_conversion_cast %{{.+}} to memref<i64>
// CHECK:         memref.load %[[N]][]
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
// CHECK:         %[[COUNT:.+]] = llvm.mlir.constant(11 : i64) : i64
// CHECK:         %[[F32:.+]] = llvm.mlir.constant(2 : i32) : i32
// CHECK:         llvm.call @ddphook_rt_add(%[[H:.+]], %[[A:.+]], %[[B:.+]], %[[C:.+]], %[[COUNT]], %[[F32]]) : (!llvm.ptr, !llvm.ptr, !llvm.ptr, !llvm.ptr, i64, i32) -> ()
// CHECK:         llvm.call @ddphook_rt_subtract(
func.func @sums(%a: memref<11xf32>, %b: memref<11xf32>, %c: memref<11xf32>) {
  ddp.flat.add %a, %b into %c : memref<11xf32>, memref<11xf32>, memref<11xf32>
  ddp.flat.sub %a, %b into %a : memref<11xf32>, memref<11xf32>, memref<11xf32>
  return
}

// List, kind, then always the matrix, P and Q.
// CHECK-LABEL: func.func @products(
// CHECK:         %[[M:.+]] = llvm.inttoptr
// CHECK:         %[[P:.+]] = llvm.inttoptr
// CHECK:         %[[Q:.+]] = llvm.inttoptr
// CHECK:         %[[LIST:.+]] = llvm.mlir.constant(0 : i32) : i32
// CHECK:         %[[KIND:.+]] = llvm.mlir.constant(0 : i32) : i32
// CHECK:         llvm.call @ddphook_rt_matmul(%{{.+}}, %[[LIST]], %[[KIND]], %[[M]], %[[P]], %[[Q]]) : (!llvm.ptr, i32, i32, !llvm.ptr, !llvm.ptr, !llvm.ptr) -> ()
// CHECK:         %[[M1:.+]] = llvm.inttoptr
// CHECK:         %[[P1:.+]] = llvm.inttoptr
// CHECK:         %[[Q1:.+]] = llvm.inttoptr
// CHECK:         %[[LIST1:.+]] = llvm.mlir.constant(0 : i32) : i32
// CHECK:         %[[KIND1:.+]] = llvm.mlir.constant(1 : i32) : i32
// CHECK:         llvm.call @ddphook_rt_matmul(%{{.+}}, %[[LIST1]], %[[KIND1]], %[[M1]], %[[P1]], %[[Q1]])
// CHECK:         %[[KIND2:.+]] = llvm.mlir.constant(2 : i32) : i32
// CHECK:         llvm.call @ddphook_rt_matmul(%{{.+}}, %{{.+}}, %[[KIND2]], %{{.+}}, %{{.+}}, %{{.+}})
// CHECK:         %[[LIST3:.+]] = llvm.mlir.constant(1 : i32) : i32
// CHECK:         %[[KIND3:.+]] = llvm.mlir.constant(0 : i32) : i32
// CHECK:         llvm.call @ddphook_rt_matmul(%{{.+}}, %[[LIST3]], %[[KIND3]],
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
// CHECK:         %[[IN:.+]] = llvm.inttoptr
// CHECK:         %[[OUT:.+]] = llvm.inttoptr
// CHECK:         %[[LIST:.+]] = llvm.mlir.constant(2 : i32) : i32
// CHECK:         %[[FACTOR:.+]] = llvm.mlir.constant(1 : i32) : i32
// CHECK:         %[[EPSILON:.+]] = llvm.mlir.constant(1.000000e-08 : f64) : f64
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
// CHECK:         %[[G:.+]] = llvm.inttoptr
// CHECK:         %[[E:.+]] = llvm.inttoptr
// CHECK:         %[[Q:.+]] = llvm.inttoptr
// CHECK:         %[[M:.+]] = llvm.inttoptr
// CHECK:         %[[P:.+]] = llvm.inttoptr
// CHECK:         %[[V:.+]] = llvm.inttoptr
// CHECK:         %[[LIST:.+]] = llvm.mlir.constant(0 : i32) : i32
// CHECK:         llvm.call @ddphook_rt_project(%{{.+}}, %[[LIST]], %[[G]], %[[E]], %[[Q]], %[[M]], %[[P]], %[[V]]) : (!llvm.ptr, i32, !llvm.ptr, !llvm.ptr, !llvm.ptr, !llvm.ptr, !llvm.ptr, !llvm.ptr) -> ()
// CHECK:         %[[G1:.+]] = llvm.inttoptr
// CHECK:         %[[Q1:.+]] = llvm.inttoptr
// CHECK:         %[[P1:.+]] = llvm.inttoptr
// CHECK:         %[[E1:.+]] = llvm.mlir.zero
// CHECK:         %[[M1:.+]] = llvm.mlir.zero
// CHECK:         %[[V1:.+]] = llvm.mlir.zero
// CHECK:         llvm.call @ddphook_rt_project(%{{.+}}, %{{.+}}, %[[G1]], %[[E1]], %[[Q1]], %[[M1]], %[[P1]], %[[V1]])
// CHECK:         %[[FOUR:.+]] = llvm.mlir.constant(4 : i64) : i64
// CHECK:         memref.extract_aligned_pointer_as_index %{{.+}} : memref<9xf32>
// CHECK:         %[[P2:.+]] = llvm.inttoptr
// CHECK:         %[[V2:.+]] = llvm.getelementptr %[[P2]][%[[FOUR]]] : (!llvm.ptr, i64) -> !llvm.ptr, f32
// CHECK:         llvm.call @ddphook_rt_project(%{{.+}}, %{{.+}}, %{{.+}}, %{{.+}}, %{{.+}}, %{{.+}}, %[[P2]], %[[V2]])
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
// CHECK:         %[[P:.+]] = llvm.inttoptr
// CHECK:         %[[Q:.+]] = llvm.inttoptr
// CHECK:         %[[V:.+]] = llvm.inttoptr
// CHECK:         %[[M:.+]] = llvm.inttoptr
// CHECK:         %[[O:.+]] = llvm.inttoptr
// CHECK:         %[[E:.+]] = llvm.inttoptr
// CHECK:         %[[LIST:.+]] = llvm.mlir.constant(0 : i32) : i32
// CHECK:         %[[GROUP:.+]] = llvm.mlir.constant(1 : i32) : i32
// CHECK:         llvm.call @ddphook_rt_reconstruct(%{{.+}}, %[[LIST]], %[[P]], %[[Q]], %[[V]], %[[M]], %[[O]], %[[E]], %[[GROUP]]) : (!llvm.ptr, i32, !llvm.ptr, !llvm.ptr, !llvm.ptr, !llvm.ptr, !llvm.ptr, !llvm.ptr, i32) -> ()
// CHECK-COUNT-2: llvm.inttoptr
// CHECK:         %[[O1:.+]] = llvm.inttoptr
// CHECK:         %[[LIST1:.+]] = llvm.mlir.constant(3 : i32) : i32
// CHECK:         %[[V1:.+]] = llvm.mlir.zero
// CHECK:         %[[M1:.+]] = llvm.mlir.zero
// CHECK:         %[[E1:.+]] = llvm.mlir.zero
// CHECK:         %[[NONE:.+]] = llvm.mlir.constant(-1 : i32) : i32
// CHECK:         llvm.call @ddphook_rt_reconstruct(%{{.+}}, %[[LIST1]], %{{.+}}, %{{.+}}, %[[V1]], %[[M1]], %[[O1]], %[[E1]], %[[NONE]])
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
// CHECK:         %[[ONE:.+]] = llvm.mlir.constant(1 : i32) : i32
// CHECK:         %[[G:.+]] = llvm.call @ddphook_rt_state(%{{.+}}, %[[ONE]])
// CHECK:         %[[DRAWS:.+]] = llvm.mlir.addressof @[[SIZES:.+]] : !llvm.ptr
// CHECK:         %[[Q:.+]] = llvm.inttoptr
// CHECK:         %[[TWO:.+]] = llvm.mlir.constant(2 : i64) : i64
// CHECK:         %[[F64:.+]] = llvm.mlir.constant(3 : i32) : i32
// CHECK:         llvm.call @ddphook_rt_random_normal(%{{.+}}, %[[G]], %[[DRAWS]], %[[TWO]], %[[Q]], %[[F64]]) : (!llvm.ptr, !llvm.ptr, !llvm.ptr, i64, !llvm.ptr, i32) -> ()
// CHECK:         llvm.mlir.constant(0 : i64) : i64
// CHECK:         llvm.call @ddphook_rt_random_normal(
func.func @random_normal(%q: memref<6xf64>, %n: memref<0xf16>) {
  ddp.flat.random_normal from @powersgd.generator draws [4, 2] into %q
      : memref<6xf64>
  ddp.flat.random_normal from @powersgd.generator draws [] into %n
      : memref<0xf16>
  return
}
// CHECK-NOT: ddp.state
