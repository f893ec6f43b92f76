// RUN: ddphook-opt %s --ddp-overlap -split-input-file | FileCheck %s
// RUN: ddphook-opt %s --ddp-overlap="depth=1" -split-input-file | FileCheck %s --check-prefix=ONE
// RUN: ddphook-opt %s --ddp-overlap="depth=4" -split-input-file | FileCheck %s --check-prefix=FOUR
// RUN: ddphook-opt %s --ddp-overlap -split-input-file --remarks-filter='ddp-overlap' -o /dev/null 2>&1 | FileCheck %s --check-prefix=REMARK --implicit-check-not=@nothing

// Three buckets, reduced at the end of a backward pass: each all-reduce begins when
// its gradient is there, two are in flight at most, and what uses a sum comes
// behind the wait.

!b = !ddp.bucket<f32, [8x8]>
!t = tensor<8x8xf32>

ddp.process_group @dp

// CHECK-LABEL: func @backward(
// CHECK-SAME:      %[[X:[^:]+]]: tensor<8x8xf32>, %[[W:[^:]+]]: tensor<8x8xf32>
// CHECK:         %[[G0:.+]] = linalg.matmul ins(%[[X]], %[[W]] :
// CHECK-NEXT:    %[[P0:.+]] = ddp.pack %[[G0]]
// CHECK-NEXT:    %[[F0:.+]] = ddp.all_reduce_start mean %[[P0]] on @dp wire f16 as "b0" : !ddp.bucket<f32, [8x8]> -> !ddp.future<!ddp.bucket<f32, [8x8]>>
// CHECK-NEXT:    %[[G1:.+]] = linalg.matmul ins(%[[X]], %[[X]] :
// CHECK-NEXT:    %[[P1:.+]] = ddp.pack %[[G1]]
// CHECK-NEXT:    %[[F1:.+]] = ddp.all_reduce_start mean %[[P1]] on @dp as "b1"
// CHECK-NEXT:    %[[G2:.+]] = linalg.matmul ins(%[[W]], %[[W]] :
// CHECK-NEXT:    %[[P2:.+]] = ddp.pack %[[G2]]
// CHECK-NEXT:    %[[R0:.+]] = ddp.wait %[[F0]] : !ddp.future<!ddp.bucket<f32, [8x8]>>
// CHECK-NEXT:    %[[F2:.+]] = ddp.all_reduce_start sum %[[P2]] on @dp as "b2"
// CHECK-DAG:     %[[U0:.+]] = ddp.unpack %[[R0]]
// CHECK-DAG:     %[[O0:.+]] = linalg.exp ins(%[[U0]] :
// CHECK-DAG:     %[[OTHER:.+]] = linalg.sub ins(%[[X]], %[[W]] :
// CHECK:         %[[R1:.+]] = ddp.wait %[[F1]]
// CHECK:         %[[U1:.+]] = ddp.unpack %[[R1]]
// CHECK:         %[[O1:.+]] = linalg.exp ins(%[[U1]] :
// CHECK:         %[[R2:.+]] = ddp.wait %[[F2]]
// CHECK:         %[[U2:.+]] = ddp.unpack %[[R2]]
// CHECK:         %[[O2:.+]] = linalg.exp ins(%[[U2]] :
// CHECK:         return %[[O0]], %[[O1]], %[[O2]], %[[OTHER]]

// REMARK: [Passed] Overlap | Category:ddp-overlap | Remark="collectives overlap with computation", in-flight=2, in-flight-bytes=512, started=3

// ONE-LABEL: func @backward(
// ONE:         ddp.all_reduce_start mean {{.+}} as "b0"
// ONE-NEXT:    linalg.matmul
// ONE-NOT:     linalg
// ONE:         ddp.wait
// ONE-NEXT:    ddp.all_reduce_start mean {{.+}} as "b1"
// ONE-NEXT:    linalg.matmul
// ONE-NOT:     linalg
// ONE:         ddp.wait
// ONE-NEXT:    ddp.all_reduce_start sum {{.+}} as "b2"
// ONE-NOT:     ddp.wait
// ONE:         linalg.sub
// ONE-NEXT:    ddp.wait

// FOUR-LABEL: func @backward(
// FOUR:         ddp.all_reduce_start mean {{.+}} as "b0"
// FOUR:         ddp.all_reduce_start mean {{.+}} as "b1"
// FOUR-NOT:     ddp.wait
// FOUR:         ddp.all_reduce_start sum {{.+}} as "b2"
// FOUR-NEXT:    linalg.sub
// FOUR-NOT:     linalg
// FOUR-NEXT:    ddp.wait
func.func @backward(%x: !t, %w: !t) -> (!t, !t, !t, !t) {
  %e = tensor.empty() : !t
  %g0 = linalg.matmul ins(%x, %w : !t, !t) outs(%e : !t) -> !t
  %g1 = linalg.matmul ins(%x, %x : !t, !t) outs(%e : !t) -> !t
  %g2 = linalg.matmul ins(%w, %w : !t, !t) outs(%e : !t) -> !t
  %b0 = ddp.pack %g0 : !t -> !b
  %r0 = ddp.all_reduce mean %b0 on @dp wire f16 as "b0" : !b
  %u0 = ddp.unpack %r0 : !b -> !t
  %b1 = ddp.pack %g1 : !t -> !b
  %r1 = ddp.all_reduce mean %b1 on @dp as "b1" : !b
  %u1 = ddp.unpack %r1 : !b -> !t
  %b2 = ddp.pack %g2 : !t -> !b
  %r2 = ddp.all_reduce sum %b2 on @dp as "b2" : !b
  %u2 = ddp.unpack %r2 : !b -> !t
  %o0 = linalg.exp ins(%u0 : !t) outs(%e : !t) -> !t
  %o1 = linalg.exp ins(%u1 : !t) outs(%e : !t) -> !t
  %o2 = linalg.exp ins(%u2 : !t) outs(%e : !t) -> !t
  %other = linalg.sub ins(%x, %w : !t, !t) outs(%e : !t) -> !t
  return %o0, %o1, %o2, %other : !t, !t, !t, !t
}

// -----

// A bucket with the error of earlier steps is still a bucket, and what is left of its
// error is stored before something is computed.

// CHECK-LABEL: func @with_error(
// CHECK:         %[[SUM:.+]] = ddp.add
// CHECK:         %[[ERROR:.+]] = ddp.encoding_error %[[SUM]]
// CHECK:         %[[FUTURE:.+]] = ddp.all_reduce_start mean %[[SUM]]
// CHECK:         ddp.store %[[ERROR]], @e
// CHECK:         linalg.exp
// CHECK:         ddp.wait %[[FUTURE]]
ddp.process_group @dp
ddp.state @e : !ddp.bucket<f32, [8]> per_rank zero
func.func @with_error(%x: tensor<8xf32>, %y: tensor<8xf32>)
    -> (tensor<8xf32>, tensor<8xf32>) {
  %b = ddp.pack %x : tensor<8xf32> -> !ddp.bucket<f32, [8]>
  %e = ddp.load @e : !ddp.bucket<f32, [8]>
  %s = ddp.add %e, %b : !ddp.bucket<f32, [8]>, !ddp.bucket<f32, [8]>
  %n = ddp.encoding_error %s as !ddp.encoded<i4, 64> : !ddp.bucket<f32, [8]>
  ddp.store %n, @e : !ddp.bucket<f32, [8]>
  %r = ddp.all_reduce mean %s on @dp wire !ddp.encoded<i4, 64> as "b0" : !ddp.bucket<f32, [8]>
  %u = ddp.unpack %r : !ddp.bucket<f32, [8]> -> tensor<8xf32>
  %t = tensor.empty() : tensor<8xf32>
  %o = linalg.exp ins(%y : tensor<8xf32>) outs(%t : tensor<8xf32>) -> tensor<8xf32>
  return %u, %o : tensor<8xf32>, tensor<8xf32>
}

// -----

// A state that a chain of sums multiplies: there are 2^40 ways through it.

// CHECK-LABEL: func @doubled(
// CHECK-NOT:     ddp.all_reduce_start
// CHECK:         return
ddp.process_group @dp
ddp.state @s : !ddp.bucket<f32, [8]> per_rank zero
func.func @doubled(%y: tensor<8xf32>) -> (tensor<8xf32>, tensor<8xf32>) {
  %b0 = ddp.load @s : !ddp.bucket<f32, [8]>
  %b1 = ddp.add %b0, %b0 : !ddp.bucket<f32, [8]>, !ddp.bucket<f32, [8]>
  %b2 = ddp.add %b1, %b1 : !ddp.bucket<f32, [8]>, !ddp.bucket<f32, [8]>
  %b3 = ddp.add %b2, %b2 : !ddp.bucket<f32, [8]>, !ddp.bucket<f32, [8]>
  %b4 = ddp.add %b3, %b3 : !ddp.bucket<f32, [8]>, !ddp.bucket<f32, [8]>
  %b5 = ddp.add %b4, %b4 : !ddp.bucket<f32, [8]>, !ddp.bucket<f32, [8]>
  %b6 = ddp.add %b5, %b5 : !ddp.bucket<f32, [8]>, !ddp.bucket<f32, [8]>
  %b7 = ddp.add %b6, %b6 : !ddp.bucket<f32, [8]>, !ddp.bucket<f32, [8]>
  %b8 = ddp.add %b7, %b7 : !ddp.bucket<f32, [8]>, !ddp.bucket<f32, [8]>
  %b9 = ddp.add %b8, %b8 : !ddp.bucket<f32, [8]>, !ddp.bucket<f32, [8]>
  %b10 = ddp.add %b9, %b9 : !ddp.bucket<f32, [8]>, !ddp.bucket<f32, [8]>
  %b11 = ddp.add %b10, %b10 : !ddp.bucket<f32, [8]>, !ddp.bucket<f32, [8]>
  %b12 = ddp.add %b11, %b11 : !ddp.bucket<f32, [8]>, !ddp.bucket<f32, [8]>
  %b13 = ddp.add %b12, %b12 : !ddp.bucket<f32, [8]>, !ddp.bucket<f32, [8]>
  %b14 = ddp.add %b13, %b13 : !ddp.bucket<f32, [8]>, !ddp.bucket<f32, [8]>
  %b15 = ddp.add %b14, %b14 : !ddp.bucket<f32, [8]>, !ddp.bucket<f32, [8]>
  %b16 = ddp.add %b15, %b15 : !ddp.bucket<f32, [8]>, !ddp.bucket<f32, [8]>
  %b17 = ddp.add %b16, %b16 : !ddp.bucket<f32, [8]>, !ddp.bucket<f32, [8]>
  %b18 = ddp.add %b17, %b17 : !ddp.bucket<f32, [8]>, !ddp.bucket<f32, [8]>
  %b19 = ddp.add %b18, %b18 : !ddp.bucket<f32, [8]>, !ddp.bucket<f32, [8]>
  %b20 = ddp.add %b19, %b19 : !ddp.bucket<f32, [8]>, !ddp.bucket<f32, [8]>
  %b21 = ddp.add %b20, %b20 : !ddp.bucket<f32, [8]>, !ddp.bucket<f32, [8]>
  %b22 = ddp.add %b21, %b21 : !ddp.bucket<f32, [8]>, !ddp.bucket<f32, [8]>
  %b23 = ddp.add %b22, %b22 : !ddp.bucket<f32, [8]>, !ddp.bucket<f32, [8]>
  %b24 = ddp.add %b23, %b23 : !ddp.bucket<f32, [8]>, !ddp.bucket<f32, [8]>
  %b25 = ddp.add %b24, %b24 : !ddp.bucket<f32, [8]>, !ddp.bucket<f32, [8]>
  %b26 = ddp.add %b25, %b25 : !ddp.bucket<f32, [8]>, !ddp.bucket<f32, [8]>
  %b27 = ddp.add %b26, %b26 : !ddp.bucket<f32, [8]>, !ddp.bucket<f32, [8]>
  %b28 = ddp.add %b27, %b27 : !ddp.bucket<f32, [8]>, !ddp.bucket<f32, [8]>
  %b29 = ddp.add %b28, %b28 : !ddp.bucket<f32, [8]>, !ddp.bucket<f32, [8]>
  %b30 = ddp.add %b29, %b29 : !ddp.bucket<f32, [8]>, !ddp.bucket<f32, [8]>
  %b31 = ddp.add %b30, %b30 : !ddp.bucket<f32, [8]>, !ddp.bucket<f32, [8]>
  %b32 = ddp.add %b31, %b31 : !ddp.bucket<f32, [8]>, !ddp.bucket<f32, [8]>
  %b33 = ddp.add %b32, %b32 : !ddp.bucket<f32, [8]>, !ddp.bucket<f32, [8]>
  %b34 = ddp.add %b33, %b33 : !ddp.bucket<f32, [8]>, !ddp.bucket<f32, [8]>
  %b35 = ddp.add %b34, %b34 : !ddp.bucket<f32, [8]>, !ddp.bucket<f32, [8]>
  %b36 = ddp.add %b35, %b35 : !ddp.bucket<f32, [8]>, !ddp.bucket<f32, [8]>
  %b37 = ddp.add %b36, %b36 : !ddp.bucket<f32, [8]>, !ddp.bucket<f32, [8]>
  %b38 = ddp.add %b37, %b37 : !ddp.bucket<f32, [8]>, !ddp.bucket<f32, [8]>
  %b39 = ddp.add %b38, %b38 : !ddp.bucket<f32, [8]>, !ddp.bucket<f32, [8]>
  %b40 = ddp.add %b39, %b39 : !ddp.bucket<f32, [8]>, !ddp.bucket<f32, [8]>
  %r = ddp.all_reduce mean %b40 on @dp as "b0" : !ddp.bucket<f32, [8]>
  %u = ddp.unpack %r : !ddp.bucket<f32, [8]> -> tensor<8xf32>
  %t = tensor.empty() : tensor<8xf32>
  %o = linalg.exp ins(%y : tensor<8xf32>) outs(%t : tensor<8xf32>) -> tensor<8xf32>
  return %u, %o : tensor<8xf32>, tensor<8xf32>
}

// -----

// Nothing to compute meanwhile, or numbers and packing only: in one piece.

// CHECK-LABEL: func @nothing(
// CHECK-NOT:     ddp.all_reduce_start
// CHECK:         return
ddp.process_group @dp
func.func @nothing(%x: tensor<8xf32>, %y: tensor<8xf32>, %i: i32)
    -> (!ddp.bucket<f32, [8]>, i32) {
  %a = ddp.pack %x : tensor<8xf32> -> !ddp.bucket<f32, [8]>
  %r = ddp.all_reduce mean %a on @dp : !ddp.bucket<f32, [8]>
  %j = arith.addi %i, %i : i32
  %b = ddp.pack %y : tensor<8xf32> -> !ddp.bucket<f32, [8]>
  %s = ddp.all_reduce mean %b on @dp : !ddp.bucket<f32, [8]>
  %t = ddp.add %r, %s : !ddp.bucket<f32, [8]>, !ddp.bucket<f32, [8]>
  return %t, %j : !ddp.bucket<f32, [8]>, i32
}

// -----

// A gradient that the layer below reads is reduced behind that reader: in front
// of it, it would have to be copied.

// CHECK-LABEL: func @read_before(
// CHECK:         %[[G:.+]] = linalg.exp
// CHECK:         %[[D:.+]] = linalg.exp ins(%[[G]] :
// CHECK-NEXT:    ddp.pack %[[G]]
// CHECK-NEXT:    ddp.all_reduce_start
// CHECK-NEXT:    linalg.exp ins(%[[D]] :
// CHECK-NEXT:    ddp.wait
ddp.process_group @dp
func.func @read_before(%x: tensor<8xf32>) -> (tensor<8xf32>, !ddp.bucket<f32, [8]>) {
  %e = tensor.empty() : tensor<8xf32>
  %g = linalg.exp ins(%x : tensor<8xf32>) outs(%e : tensor<8xf32>) -> tensor<8xf32>
  %d = linalg.exp ins(%g : tensor<8xf32>) outs(%e : tensor<8xf32>) -> tensor<8xf32>
  %h = linalg.exp ins(%d : tensor<8xf32>) outs(%e : tensor<8xf32>) -> tensor<8xf32>
  %b = ddp.pack %g : tensor<8xf32> -> !ddp.bucket<f32, [8]>
  %r = ddp.all_reduce mean %b on @dp : !ddp.bucket<f32, [8]>
  return %h, %r : tensor<8xf32>, !ddp.bucket<f32, [8]>
}

// -----

// States keep their order: the load stays behind the store, which waits for the
// sum; a load of another state does not.

// CHECK-LABEL: func @states(
// CHECK:         %[[F:.+]] = ddp.all_reduce_start
// CHECK:         %[[T:.+]] = ddp.load @t
// CHECK:         %[[A:.+]] = ddp.scale %[[T]] by 2
// CHECK:         %[[R:.+]] = ddp.wait %[[F]]
// CHECK:         ddp.store %[[R]], @s
// CHECK:         %[[S:.+]] = ddp.load @s
// CHECK:         %[[B:.+]] = ddp.scale %[[S]] by 3
// CHECK:         return %[[A]], %[[B]]
ddp.process_group @dp
ddp.state @s : !ddp.bucket<f32, [8]> replicated zero
ddp.state @t : !ddp.bucket<f32, [8]> replicated zero
func.func @states(%x: !ddp.bucket<f32, [8]>)
    -> (!ddp.bucket<f32, [8]>, !ddp.bucket<f32, [8]>) {
  %r = ddp.all_reduce mean %x on @dp : !ddp.bucket<f32, [8]>
  ddp.store %r, @s : !ddp.bucket<f32, [8]>
  %s = ddp.load @s : !ddp.bucket<f32, [8]>
  %t = ddp.load @t : !ddp.bucket<f32, [8]>
  %a = ddp.scale %t by 2.0 : !ddp.bucket<f32, [8]>
  %b = ddp.scale %s by 3.0 : !ddp.bucket<f32, [8]>
  return %a, %b : !ddp.bucket<f32, [8]>, !ddp.bucket<f32, [8]>
}

// -----

// Nobody knows what a call does: it stays behind the store, and the draw behind
// it. What has no effects goes on.

// CHECK-LABEL: func @calls(
// CHECK:         ddp.all_reduce_start
// CHECK-NEXT:    ddp.scale %{{.+}} by 2
// CHECK-NEXT:    ddp.wait
// CHECK:         ddp.store
// CHECK:         call @other
// CHECK:         ddp.random_normal
ddp.process_group @dp
ddp.state @s : !ddp.bucket<f32, [8]> replicated zero
ddp.state @g : tensor<625xi32> replicated mt19937 seed 1
func.func private @other()
func.func @calls(%x: !ddp.bucket<f32, [8]>)
    -> (!ddp.bucket<f32, [8]>, !ddp.bucket<f32, [8]>) {
  %r = ddp.all_reduce mean %x on @dp : !ddp.bucket<f32, [8]>
  ddp.store %r, @s : !ddp.bucket<f32, [8]>
  call @other() : () -> ()
  %d = ddp.random_normal from @g draws [8] : () -> !ddp.bucket<f32, [8]>
  %a = ddp.scale %x by 2.0 : !ddp.bucket<f32, [8]>
  return %a, %d : !ddp.bucket<f32, [8]>, !ddp.bucket<f32, [8]>
}

// -----

// What may overwrite %w stays behind the reader of a part of it, and what may
// overwrite the operand of the collective behind the wait: no copies.

// CHECK-LABEL: func @overwritten(
// CHECK-SAME:      %[[W:[^:]+]]: tensor<8xf32>, %[[X:[^:]+]]: tensor<8xf32>
// CHECK:         %[[F:.+]] = ddp.all_reduce_start mean %[[X]]
// CHECK:         %[[P:.+]] = tensor.extract_slice %[[W]]
// CHECK:         linalg.abs
// CHECK-NEXT:    %[[R:.+]] = ddp.wait %[[F]]
// CHECK:         linalg.add ins(%[[R]], %[[P]] :
// CHECK-DAG:     linalg.exp ins(%{{.+}} outs(%[[W]] :
// CHECK-DAG:     linalg.exp ins(%{{.+}} outs(%[[X]] :
ddp.process_group @dp
func.func @overwritten(%w: tensor<8xf32>, %x: tensor<8xf32>, %y: tensor<8xf32>)
    -> (tensor<8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<8xf32>) {
  %e = tensor.empty() : tensor<8xf32>
  %r = ddp.all_reduce mean %x on @dp : tensor<8xf32>
  %p = tensor.extract_slice %w[0] [8] [1] : tensor<8xf32> to tensor<8xf32>
  %a = linalg.add ins(%r, %p : tensor<8xf32>, tensor<8xf32>) outs(%e : tensor<8xf32>) -> tensor<8xf32>
  %b = linalg.exp ins(%y : tensor<8xf32>) outs(%w : tensor<8xf32>) -> tensor<8xf32>
  %c = linalg.exp ins(%y : tensor<8xf32>) outs(%x : tensor<8xf32>) -> tensor<8xf32>
  %d = linalg.abs ins(%y : tensor<8xf32>) outs(%e : tensor<8xf32>) -> tensor<8xf32>
  return %a, %b, %c, %d : tensor<8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<8xf32>
}

// -----

// In a loop and in a branch as well; a wait is never outside of the block.

// CHECK-LABEL: func @nested(
// CHECK:         scf.for
// CHECK:           %[[F:.+]] = ddp.all_reduce_start
// CHECK-NEXT:      linalg.exp
// CHECK-NEXT:      ddp.wait %[[F]]
// CHECK:           scf.yield
// CHECK:         scf.if
// CHECK:           %[[G:.+]] = ddp.all_reduce_start
// CHECK-NEXT:      linalg.exp
// CHECK-NEXT:      ddp.wait %[[G]]
// CHECK:         } else {
// CHECK-NOT:       ddp.all_reduce_start
// CHECK:         return
ddp.process_group @dp
func.func @nested(%x: tensor<8xf32>, %n: index, %c: i1) -> (tensor<8xf32>, tensor<8xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %e = tensor.empty() : tensor<8xf32>
  %a = scf.for %i = %c0 to %n step %c1 iter_args(%acc = %x) -> tensor<8xf32> {
    %r = ddp.all_reduce mean %acc on @dp : tensor<8xf32>
    %y = linalg.exp ins(%x : tensor<8xf32>) outs(%e : tensor<8xf32>) -> tensor<8xf32>
    %s = linalg.add ins(%r, %y : tensor<8xf32>, tensor<8xf32>) outs(%e : tensor<8xf32>) -> tensor<8xf32>
    scf.yield %s : tensor<8xf32>
  }
  %b = scf.if %c -> tensor<8xf32> {
    %r = ddp.all_reduce mean %a on @dp : tensor<8xf32>
    %y = linalg.exp ins(%x : tensor<8xf32>) outs(%e : tensor<8xf32>) -> tensor<8xf32>
    %s = linalg.add ins(%r, %y : tensor<8xf32>, tensor<8xf32>) outs(%e : tensor<8xf32>) -> tensor<8xf32>
    scf.yield %s : tensor<8xf32>
  } else {
    %r = ddp.all_reduce sum %a on @dp : tensor<8xf32>
    scf.yield %r : tensor<8xf32>
  }
  return %a, %b : tensor<8xf32>, tensor<8xf32>
}

// -----

// One value in three buckets, packed long before they are reduced, in another order:
// whatever moves, operands come first.

// CHECK-LABEL: func @packed_early(
// CHECK:         %[[V:.+]] = linalg.exp
// CHECK:         %[[U:.+]] = linalg.abs
// CHECK:         %[[P:.+]] = ddp.pack %[[V]], %[[U]]
// CHECK:         ddp.all_reduce mean %[[P]]
// CHECK:         return
ddp.process_group @dp
func.func @packed_early(%x: tensor<8xf32>)
    -> (!ddp.bucket<f32, [8]>, !ddp.bucket<f32, [8, 8]>, !ddp.bucket<f32, [8]>) {
  %e = tensor.empty() : tensor<8xf32>
  %v = linalg.exp ins(%x : tensor<8xf32>) outs(%e : tensor<8xf32>) -> tensor<8xf32>
  %p0 = ddp.pack %v : tensor<8xf32> -> !ddp.bucket<f32, [8]>
  %p2 = ddp.pack %v : tensor<8xf32> -> !ddp.bucket<f32, [8]>
  %r0 = ddp.all_reduce mean %p0 on @dp : !ddp.bucket<f32, [8]>
  %u = linalg.abs ins(%x : tensor<8xf32>) outs(%e : tensor<8xf32>) -> tensor<8xf32>
  %p1 = ddp.pack %v, %u : tensor<8xf32>, tensor<8xf32> -> !ddp.bucket<f32, [8, 8]>
  %r1 = ddp.all_reduce mean %p1 on @dp : !ddp.bucket<f32, [8, 8]>
  %r2 = ddp.all_reduce mean %p2 on @dp : !ddp.bucket<f32, [8]>
  return %r0, %r1, %r2 : !ddp.bucket<f32, [8]>, !ddp.bucket<f32, [8, 8]>, !ddp.bucket<f32, [8]>
}
