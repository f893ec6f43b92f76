// RUN: ddphook-opt %s --ddp-overlap=depth=1 -split-input-file | FileCheck %s
// RUN: ddphook-opt %s --ddp-overlap=depth=2 -split-input-file | FileCheck %s --check-prefix=TWO
// RUN: ddphook-opt %s --ddp-overlap=depth=1 -split-input-file --remarks-filter='ddp-overlap' -o /dev/null 2>&1 | FileCheck %s --check-prefix=REMARK
// RUN: ddphook-opt %s --ddp-overlap=depth=1 --ddp-verify-order -split-input-file -o /dev/null

// Sharded optimizers: each gradient is scattered while the backward pass computes
// the next one, and the updated parameters are gathered while the others are
// updated.

!t = tensor<8x8xf32>
!p = tensor<16xf32>

ddp.process_group @dp size 4

// CHECK-LABEL: func @sharded_step(
// CHECK:         linalg.matmul
// CHECK-NEXT:    %[[F1:.+]] = ddp.exchange_start reduce_scatter mean %{{.+}} on @dp wire f16 : tensor<8x8xf32> -> !ddp.future<tensor<16xf32>>
// CHECK-NEXT:    linalg.matmul
// CHECK-NEXT:    %[[S1:.+]] = ddp.wait %[[F1]]
// CHECK-NEXT:    %[[F0:.+]] = ddp.exchange_start reduce_scatter mean
// CHECK-NEXT:    %[[U1:.+]] = linalg.sub ins(%{{.+}}, %[[S1]] :
// CHECK-NEXT:    %[[S0:.+]] = ddp.wait %[[F0]]
// CHECK-NEXT:    %[[H1:.+]] = ddp.exchange_start all_gather %[[U1]] on @dp : tensor<16xf32> -> !ddp.future<tensor<8x8xf32>>
// CHECK-NEXT:    %[[U0:.+]] = linalg.sub ins(%{{.+}}, %[[S0]] :
// CHECK-NEXT:    %[[W1:.+]] = ddp.wait %[[H1]]
// CHECK-NEXT:    %[[W0:.+]] = ddp.all_gather %[[U0]]
// CHECK-NEXT:    return %[[W1]], %[[W0]]

// With two in flight the update of one layer runs beside the scatter of the other.
// TWO-LABEL: func @sharded_step(
// TWO:         linalg.matmul
// TWO-NEXT:    %[[F1:.+]] = ddp.exchange_start reduce_scatter
// TWO-NEXT:    linalg.matmul
// TWO-NEXT:    %[[F0:.+]] = ddp.exchange_start reduce_scatter
// TWO-NEXT:    ddp.wait %[[F1]]
// TWO-NEXT:    linalg.sub
// TWO-NEXT:    %[[H1:.+]] = ddp.exchange_start all_gather
// TWO-NEXT:    ddp.wait %[[F0]]
// TWO-NEXT:    linalg.sub

// REMARK: [Passed] Overlap | Category:ddp-overlap | Remark="collectives overlap with computation", in-flight=1, in-flight-bytes=256, started=3
func.func @sharded_step(%x: !t, %d: !t, %p1: !p, %p0: !p) -> (!t, !t) {
  %e = tensor.empty() : !t
  %f = tensor.empty() : !p
  %g1 = linalg.matmul ins(%x, %d : !t, !t) outs(%e : !t) -> !t
  %g0 = linalg.matmul ins(%d, %d : !t, !t) outs(%e : !t) -> !t
  %s1 = ddp.reduce_scatter mean %g1 on @dp wire f16 : !t -> !p
  %s0 = ddp.reduce_scatter mean %g0 on @dp : !t -> !p
  %u1 = linalg.sub ins(%p1, %s1 : !p, !p) outs(%f : !p) -> !p
  %u0 = linalg.sub ins(%p0, %s0 : !p, !p) outs(%f : !p) -> !p
  %w1 = ddp.all_gather %u1 on @dp : !p -> !t
  %w0 = ddp.all_gather %u0 on @dp : !p -> !t
  return %w1, %w0 : !t, !t
}

// -----

// Parameters that are gathered layer by layer: the next layer's travel while one
// computes, also with one in flight.

!t = tensor<8x8xf32>
!p = tensor<16xf32>

ddp.process_group @dp size 4

// CHECK-LABEL: func @gathered_layers(
// CHECK:         %[[W0:.+]] = ddp.all_gather %{{.+}} on @dp
// CHECK-NEXT:    %[[F1:.+]] = ddp.exchange_start all_gather
// CHECK-NEXT:    %[[Y0:.+]] = linalg.matmul ins(%{{.+}}, %[[W0]] :
// CHECK-NEXT:    %[[W1:.+]] = ddp.wait %[[F1]]
// CHECK-NEXT:    %[[F2:.+]] = ddp.exchange_start all_gather
// CHECK-NEXT:    %[[Y1:.+]] = linalg.matmul ins(%[[Y0]], %[[W1]] :
// CHECK-NEXT:    %[[W2:.+]] = ddp.wait %[[F2]]
// CHECK-NEXT:    linalg.matmul ins(%[[Y1]], %[[W2]] :

// TWO-LABEL: func @gathered_layers(
// TWO:         %[[W0:.+]] = ddp.all_gather
// TWO-NEXT:    %[[F1:.+]] = ddp.exchange_start all_gather
// TWO-NEXT:    %[[F2:.+]] = ddp.exchange_start all_gather
// TWO-NEXT:    linalg.matmul ins(%{{.+}}, %[[W0]] :
// TWO-NEXT:    ddp.wait %[[F1]]
// TWO-NEXT:    linalg.matmul
// TWO-NEXT:    ddp.wait %[[F2]]
// TWO-NEXT:    linalg.matmul
func.func @gathered_layers(%x: !t, %p0: !p, %p1: !p, %p2: !p) -> !t {
  %e = tensor.empty() : !t
  %w0 = ddp.all_gather %p0 on @dp : !p -> !t
  %y0 = linalg.matmul ins(%x, %w0 : !t, !t) outs(%e : !t) -> !t
  %w1 = ddp.all_gather %p1 on @dp : !p -> !t
  %y1 = linalg.matmul ins(%y0, %w1 : !t, !t) outs(%e : !t) -> !t
  %w2 = ddp.all_gather %p2 on @dp : !p -> !t
  %y2 = linalg.matmul ins(%y1, %w2 : !t, !t) outs(%e : !t) -> !t
  return %y2 : !t
}

// -----

// Two steps in one block: the second one's first layer computes while the
// parameters of the second are gathered.

!t = tensor<8x8xf32>
!p = tensor<16xf32>

ddp.process_group @dp size 4

// CHECK-LABEL: func @unrolled(
// CHECK:         ddp.exchange_start all_gather
// CHECK-NEXT:    linalg.sub
// CHECK-NEXT:    %[[W0:.+]] = ddp.wait
// CHECK-NEXT:    %[[F1:.+]] = ddp.exchange_start all_gather
// CHECK-NEXT:    %[[Y0:.+]] = linalg.matmul ins(%{{.+}}, %[[W0]] :
// CHECK-NEXT:    %[[W1:.+]] = ddp.wait %[[F1]]
// CHECK-NEXT:    linalg.matmul ins(%[[Y0]], %[[W1]] :
func.func @unrolled(%x: !t, %p0: !p, %p1: !p, %s0: !p, %s1: !p) -> !t {
  %e = tensor.empty() : !t
  %f = tensor.empty() : !p
  %u0 = linalg.sub ins(%p0, %s0 : !p, !p) outs(%f : !p) -> !p
  %u1 = linalg.sub ins(%p1, %s1 : !p, !p) outs(%f : !p) -> !p
  %w0 = ddp.all_gather %u0 on @dp : !p -> !t
  %w1 = ddp.all_gather %u1 on @dp : !p -> !t
  %y0 = linalg.matmul ins(%x, %w0 : !t, !t) outs(%e : !t) -> !t
  %y1 = linalg.matmul ins(%y0, %w1 : !t, !t) outs(%e : !t) -> !t
  return %y1 : !t
}

// -----

// All-to-alls and broadcasts. A reader of its operand keeps a broadcast back, in
// whose place it may be, and no all-to-all; and that is a reader, too, until it has
// arrived.

!t = tensor<8x8xf32>

ddp.process_group @dp size 4

// CHECK-LABEL: func @others(
// CHECK:         %[[X:.+]] = linalg.exp
// CHECK-NEXT:    %[[A:.+]] = ddp.exchange_start all_to_all %[[X]] on @dp : tensor<8x8xf32> -> !ddp.future<tensor<8x8xf32>>
// CHECK-NEXT:    linalg.abs ins(%[[X]] :
// CHECK-NEXT:    linalg.abs ins(%[[X]] :
// CHECK-NEXT:    linalg.exp
// CHECK-NEXT:    ddp.wait %[[A]]
// CHECK-NEXT:    %[[B:.+]] = ddp.exchange_start broadcast %[[X]] from 3 on @dp : tensor<8x8xf32> -> !ddp.future<tensor<8x8xf32>>
// CHECK-NEXT:    linalg.add
// CHECK-NEXT:    ddp.wait %[[B]]
func.func @others(%x: !t) -> (!t, !t, !t, !t) {
  %e = tensor.empty() : !t
  %g = linalg.exp ins(%x : !t) outs(%e : !t) -> !t
  %r = linalg.abs ins(%g : !t) outs(%e : !t) -> !t
  %q = linalg.abs ins(%g : !t) outs(%e : !t) -> !t
  %b = ddp.broadcast %g from 3 on @dp : !t
  %a = ddp.all_to_all %g on @dp : !t
  %z = linalg.add ins(%r, %a : !t, !t) outs(%e : !t) -> !t
  %o = linalg.exp ins(%x : !t) outs(%e : !t) -> !t
  return %z, %o, %b, %q : !t, !t, !t, !t
}

// -----

// What is stochastic keeps its step; a collective of memory that the program
// writes behind it stays in front of that.

!t = tensor<8x8xf32>
!p = tensor<16xf32>

ddp.process_group @dp size 4

// CHECK-LABEL: func @stochastic(
// CHECK:         ddp.exchange_start reduce_scatter mean %{{.+}} on @dp wire !ddp.encoded<i8, 32 stochastic 3> step %{{.+}} : tensor<8x8xf32>
// CHECK-NEXT:    linalg.exp
// CHECK-NEXT:    ddp.wait
func.func @stochastic(%x: !t, %i: i64) -> (!p, !t) {
  %e = tensor.empty() : !t
  %s = ddp.reduce_scatter mean %x on @dp wire !ddp.encoded<i8, 32 stochastic 3> step %i : !t -> !p
  %y = linalg.exp ins(%x : !t) outs(%e : !t) -> !t
  return %s, %y : !p, !t
}

// CHECK-LABEL: func @in_memory(
// CHECK:         memref.store
// CHECK-NEXT:    ddp.exchange_start all_to_all
// CHECK-NEXT:    tensor.empty
// CHECK-NEXT:    linalg.exp
// CHECK-NEXT:    ddp.wait
// CHECK-NEXT:    memref.store
func.func @in_memory(%m: memref<8x8xf32>, %v: f32, %x: !t) -> (!t, !t) {
  %0 = arith.constant 0 : index
  %t = bufferization.to_tensor %m restrict : memref<8x8xf32> to !t
  memref.store %v, %m[%0, %0] : memref<8x8xf32>
  %a = ddp.all_to_all %t on @dp : !t
  memref.store %v, %m[%0, %0] : memref<8x8xf32>
  %e = tensor.empty() : !t
  %y = linalg.exp ins(%x : !t) outs(%e : !t) -> !t
  return %a, %y : !t, !t
}

// -----

// A hook's all-gather of what it has made of a bucket is a small message: only
// `interleave` lets it be in flight.

ddp.process_group @dp size 4

// CHECK-LABEL: func @of_a_hook(
// CHECK:         ddp.all_gather
func.func @of_a_hook(%b: !ddp.bucket<f32, [64]>, %x: tensor<8xf32>) -> (tensor<32xf32>, tensor<8xf32>) {
  %k, %rest = ddp.sparsify %b keep 4 : !ddp.bucket<f32, [64]>
  %a = ddp.all_gather %k on @dp as "b0" : tensor<8xf32> -> tensor<32xf32>
  %e = tensor.empty() : tensor<8xf32>
  %y = linalg.exp ins(%x : tensor<8xf32>) outs(%e : tensor<8xf32>) -> tensor<8xf32>
  return %a, %y : tensor<32xf32>, tensor<8xf32>
}

// -----

// With error feedback the sum goes up with its scatter, and what it loses stays
// where it was; not in front of what writes the error before.

!t = tensor<8x8xf32>
!b = !ddp.bucket<f32, [8x8]>
!p = tensor<16xf32>

ddp.process_group @dp size 4
ddp.state @error : !b per_rank zero
ddp.state @other : !b per_rank zero
func.func private @unknown()

// CHECK-LABEL: func @error_fed_back(
// CHECK:         %[[G:.+]] = linalg.exp
// CHECK-NEXT:    %[[B:.+]] = ddp.pack %[[G]]
// CHECK-NEXT:    %[[E:.+]] = ddp.load @error
// CHECK-NEXT:    %[[M:.+]] = ddp.add %[[B]], %[[E]]
// CHECK-NEXT:    %[[F:.+]] = ddp.exchange_start reduce_scatter mean %[[M]]
// CHECK-NEXT:    ddp.store %{{.+}}, @other
// CHECK-NEXT:    linalg.matmul
// CHECK-NEXT:    %[[L:.+]] = ddp.encoding_error %[[M]]
// CHECK-NEXT:    ddp.store %[[L]], @error
// CHECK-NEXT:    ddp.wait %[[F]]
func.func @error_fed_back(%x: !t, %o: !b) -> (!p, !t) {
  %e = tensor.empty() : !t
  %g = linalg.exp ins(%x : !t) outs(%e : !t) -> !t
  ddp.store %o, @other : !b
  %y = linalg.matmul ins(%x, %x : !t, !t) outs(%e : !t) -> !t
  %b = ddp.pack %g : !t -> !b
  %k = ddp.load @error : !b
  %m = ddp.add %b, %k : !b, !b
  %l = ddp.encoding_error %m as !ddp.encoded<i8, 256> : !b
  ddp.store %l, @error : !b
  %s = ddp.reduce_scatter mean %m on @dp wire !ddp.encoded<i8, 256> : !b -> !p
  return %s, %y : !p, !t
}

// CHECK-LABEL: func @written_before(
// CHECK:         linalg.matmul
// CHECK-NEXT:    ddp.store %{{.+}}, @error
// CHECK-NEXT:    ddp.pack
// CHECK-NEXT:    ddp.load @error
func.func @written_before(%x: !t, %o: !b) -> (!p, !t) {
  %e = tensor.empty() : !t
  %g = linalg.exp ins(%x : !t) outs(%e : !t) -> !t
  %y = linalg.matmul ins(%x, %x : !t, !t) outs(%e : !t) -> !t
  ddp.store %o, @error : !b
  %z = linalg.sub ins(%y, %y : !t, !t) outs(%e : !t) -> !t
  %b = ddp.pack %g : !t -> !b
  %k = ddp.load @error : !b
  %m = ddp.add %b, %k : !b, !b
  ddp.store %m, @error : !b
  %s = ddp.reduce_scatter mean %m on @dp wire !ddp.encoded<i8, 256> : !b -> !p
  return %s, %z : !p, !t
}

// CHECK-LABEL: func @called_before(
// CHECK:         call @unknown
// CHECK-NEXT:    ddp.pack
// CHECK-NEXT:    ddp.load @error
func.func @called_before(%x: !t) -> (!p, !t) {
  %e = tensor.empty() : !t
  %g = linalg.exp ins(%x : !t) outs(%e : !t) -> !t
  %y = linalg.matmul ins(%x, %x : !t, !t) outs(%e : !t) -> !t
  func.call @unknown() : () -> ()
  %z = linalg.sub ins(%y, %y : !t, !t) outs(%e : !t) -> !t
  %b = ddp.pack %g : !t -> !b
  %k = ddp.load @error : !b
  %m = ddp.add %b, %k : !b, !b
  ddp.store %m, @error : !b
  %s = ddp.reduce_scatter mean %m on @dp wire !ddp.encoded<i8, 256> : !b -> !p
  return %s, %z : !p, !t
}
