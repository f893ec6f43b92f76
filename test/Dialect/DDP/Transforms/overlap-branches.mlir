// Reductions with which a branch begins are started in front of it.

// RUN: ddphook-opt %s --ddp-overlap --split-input-file | FileCheck %s
// RUN: ddphook-opt %s --ddp-overlap=depth=1 --split-input-file --remarks-filter=ddp-overlap -o /dev/null 2>&1 | FileCheck %s --check-prefix=REMARK
// RUN: ddphook-opt %s --ddp-overlap --ddp-verify-order --split-input-file -o /dev/null

// As PowerSGD's vanilla phase, if a front end puts the reductions at the end: the
// condition is known first, each bucket is in flight as soon as it is complete, and
// the other branch has what was not reduced. Without `interleave` the collectives
// inside of it stay in one piece.

// Both are in flight where the first branch begins, whatever the depth is.
// REMARK: in-flight=2, in-flight-bytes=64, started=2

// CHECK-LABEL: func @vanilla(
// CHECK:         %[[N:.+]] = ddp.load @iter
// CHECK:         %[[C:.+]] = arith.cmpi slt, %[[N]]
// CHECK:         %[[G0:.+]] = linalg.add
// CHECK-NEXT:    %[[B0:.+]] = ddp.pack %[[G0]]
// CHECK-NEXT:    %[[F0:.+]] = ddp.all_reduce_start mean %[[B0]] on @dp wire f16 as "b0" if %[[C]] : !ddp.bucket<f32, [8]> -> !ddp.future<!ddp.bucket<f32, [8]>>
// CHECK:         %[[G1:.+]] = linalg.add
// CHECK-NEXT:    %[[B1:.+]] = ddp.pack %[[G1]]
// CHECK-NEXT:    %[[F1:.+]] = ddp.all_reduce_start mean %[[B1]] on @dp as "b1" if %[[C]]
// CHECK:         linalg.mul
// CHECK:         ddp.store
// CHECK:         %[[R0:.+]] = scf.if %[[C]]
// CHECK-NEXT:      %[[W0:.+]] = ddp.wait %[[F0]]
// CHECK-NEXT:      scf.yield %[[W0]]
// CHECK-NEXT:    } else {
// CHECK-NEXT:      %[[S0:.+]] = ddp.wait %[[F0]]
// CHECK-NEXT:      %[[D:.+]] = ddp.scale %[[S0]] by 2.000000e+00
// CHECK:           %[[P:.+]] = ddp.matmul
// CHECK-NEXT:      ddp.all_reduce sum %[[P]]
// CHECK:         %[[R1:.+]] = scf.if %[[C]]
// CHECK-NEXT:      ddp.wait %[[F1]]
// CHECK:         } else {
// CHECK-NEXT:      %[[S1:.+]] = ddp.wait %[[F1]]
// CHECK-NEXT:      scf.yield %[[S1]]
ddp.process_group @dp
ddp.state @iter : i64 replicated zero
func.func @vanilla(%x: tensor<8xf32>, %y: tensor<8xf32>, %q: !ddp.bucket<f32, [1x1]>)
    -> (tensor<8xf32>, tensor<8xf32>, tensor<8xf32>) {
  %e0 = tensor.empty() : tensor<8xf32>
  %e1 = tensor.empty() : tensor<8xf32>
  %e2 = tensor.empty() : tensor<8xf32>
  %g0 = linalg.add ins(%x, %y : tensor<8xf32>, tensor<8xf32>) outs(%e0 : tensor<8xf32>) -> tensor<8xf32>
  %g1 = linalg.add ins(%y, %y : tensor<8xf32>, tensor<8xf32>) outs(%e1 : tensor<8xf32>) -> tensor<8xf32>
  %z = linalg.mul ins(%x, %y : tensor<8xf32>, tensor<8xf32>) outs(%e2 : tensor<8xf32>) -> tensor<8xf32>
  %n = ddp.load @iter : i64
  %two = arith.constant 2 : i64
  %c = arith.cmpi slt, %n, %two : i64
  %b0 = ddp.pack %g0 : tensor<8xf32> -> !ddp.bucket<f32, [8]>
  %r0 = scf.if %c -> (!ddp.bucket<f32, [8]>) {
    %s0 = ddp.all_reduce mean %b0 on @dp wire f16 as "b0" : !ddp.bucket<f32, [8]>
    scf.yield %s0 : !ddp.bucket<f32, [8]>
  } else {
    %d = ddp.scale %b0 by 2.0 : !ddp.bucket<f32, [8]>
    %m = ddp.resize %d : !ddp.bucket<f32, [8]> -> !ddp.bucket<f32, [1x1]>
    %p = ddp.matmul %m, %q : (!ddp.bucket<f32, [1x1]>, !ddp.bucket<f32, [1x1]>) -> !ddp.bucket<f32, [1x1]>
    %sp = ddp.all_reduce sum %p on @dp as "b0" : !ddp.bucket<f32, [1x1]>
    %o = ddp.resize %sp : !ddp.bucket<f32, [1x1]> -> !ddp.bucket<f32, [8]>
    scf.yield %o : !ddp.bucket<f32, [8]>
  }
  %u0 = ddp.unpack %r0 : !ddp.bucket<f32, [8]> -> tensor<8xf32>
  %one = arith.constant 1 : i64
  %next = arith.addi %n, %one : i64
  ddp.store %next, @iter : i64
  %b1 = ddp.pack %g1 : tensor<8xf32> -> !ddp.bucket<f32, [8]>
  %r1 = scf.if %c -> (!ddp.bucket<f32, [8]>) {
    %s1 = ddp.all_reduce mean %b1 on @dp as "b1" : !ddp.bucket<f32, [8]>
    scf.yield %s1 : !ddp.bucket<f32, [8]>
  } else {
    scf.yield %b1 : !ddp.bucket<f32, [8]>
  }
  %u1 = ddp.unpack %r1 : !ddp.bucket<f32, [8]> -> tensor<8xf32>
  return %u0, %u1, %z : tensor<8xf32>, tensor<8xf32>, tensor<8xf32>
}

// -----

// Not where the operand is needed afterwards, or a part of it; where it is made in
// the branch, or read there by something else; nor from an else branch. A counter
// that was stored before is not loaded earlier.

// CHECK-LABEL: func @kept(
// CHECK-NOT:     all_reduce_start
// CHECK:         return
ddp.process_group @dp
func.func @kept(%c: i1 {ddp.replicated}, %b0: !ddp.bucket<f32, [8]>, %b1: !ddp.bucket<f32, [8]>,
                %b2: !ddp.bucket<f32, [8]>, %b4: !ddp.bucket<f32, [8]>, %x: tensor<8xf32>)
    -> (!ddp.bucket<f32, [8]>, !ddp.bucket<f32, [8]>, !ddp.bucket<f32, [8]>,
        !ddp.bucket<f32, [8]>, !ddp.bucket<f32, [8]>, !ddp.bucket<f32, [8]>, tensor<4xf32>) {
  %r0 = scf.if %c -> (!ddp.bucket<f32, [8]>) {
    %s = ddp.all_reduce mean %b0 on @dp : !ddp.bucket<f32, [8]>
    scf.yield %s : !ddp.bucket<f32, [8]>
  } else {
    scf.yield %b0 : !ddp.bucket<f32, [8]>
  }
  %after = ddp.scale %b0 by 2.0 : !ddp.bucket<f32, [8]>
  %r1 = scf.if %c -> (!ddp.bucket<f32, [8]>) {
    %s = ddp.all_reduce mean %b1 on @dp : !ddp.bucket<f32, [8]>
    %t = ddp.add %s, %b1 : !ddp.bucket<f32, [8]>, !ddp.bucket<f32, [8]>
    scf.yield %t : !ddp.bucket<f32, [8]>
  } else {
    scf.yield %b1 : !ddp.bucket<f32, [8]>
  }
  %r2 = scf.if %c -> (!ddp.bucket<f32, [8]>) {
    scf.yield %b2 : !ddp.bucket<f32, [8]>
  } else {
    %s = ddp.all_reduce mean %b2 on @dp : !ddp.bucket<f32, [8]>
    scf.yield %s : !ddp.bucket<f32, [8]>
  }
  %r3 = scf.if %c -> (!ddp.bucket<f32, [8]>) {
    %b = ddp.pack %x : tensor<8xf32> -> !ddp.bucket<f32, [8]>
    %s = ddp.all_reduce mean %b on @dp : !ddp.bucket<f32, [8]>
    scf.yield %s : !ddp.bucket<f32, [8]>
  } else {
    scf.yield %r2 : !ddp.bucket<f32, [8]>
  }
  %u4 = ddp.unpack %b4 : !ddp.bucket<f32, [8]> -> tensor<8xf32>
  %part = tensor.extract_slice %u4[2] [4] [1] : tensor<8xf32> to tensor<4xf32>
  %r4 = scf.if %c -> (!ddp.bucket<f32, [8]>) {
    %s = ddp.all_reduce mean %b4 on @dp : !ddp.bucket<f32, [8]>
    scf.yield %s : !ddp.bucket<f32, [8]>
  } else {
    scf.yield %b4 : !ddp.bucket<f32, [8]>
  }
  return %r0, %r1, %r2, %r3, %after, %r4, %part : !ddp.bucket<f32, [8]>,
      !ddp.bucket<f32, [8]>, !ddp.bucket<f32, [8]>, !ddp.bucket<f32, [8]>,
      !ddp.bucket<f32, [8]>, !ddp.bucket<f32, [8]>, tensor<4xf32>
}

// -----

// It stays behind whoever reads a part.

// CHECK-LABEL: func @part_is_read(
// CHECK:         %[[B:.+]] = ddp.pack
// CHECK:         %[[U:.+]] = ddp.unpack %[[B]]
// CHECK:         linalg.add ins(%[[U]], %[[U]]
// CHECK:         ddp.all_reduce_start mean %[[B]]
// CHECK:         linalg.mul
// CHECK:         scf.if
ddp.process_group @dp
func.func @part_is_read(%c: i1 {ddp.replicated}, %x: tensor<8xf32>)
    -> (tensor<8xf32>, tensor<8xf32>, !ddp.bucket<f32, [8]>) {
  %e0 = tensor.empty() : tensor<8xf32>
  %e1 = tensor.empty() : tensor<8xf32>
  %b = ddp.pack %x : tensor<8xf32> -> !ddp.bucket<f32, [8]>
  %u = ddp.unpack %b : !ddp.bucket<f32, [8]> -> tensor<8xf32>
  %y = linalg.add ins(%u, %u : tensor<8xf32>, tensor<8xf32>) outs(%e0 : tensor<8xf32>) -> tensor<8xf32>
  %z = linalg.mul ins(%x, %x : tensor<8xf32>, tensor<8xf32>) outs(%e1 : tensor<8xf32>) -> tensor<8xf32>
  %r = scf.if %c -> (!ddp.bucket<f32, [8]>) {
    %s = ddp.all_reduce mean %b on @dp : !ddp.bucket<f32, [8]>
    scf.yield %s : !ddp.bucket<f32, [8]>
  } else {
    scf.yield %b : !ddp.bucket<f32, [8]>
  }
  return %y, %z, %r : tensor<8xf32>, tensor<8xf32>, !ddp.bucket<f32, [8]>
}

// -----

// CHECK-LABEL: func @stored_before(
// CHECK:         %[[G:.+]] = linalg.add
// CHECK:         linalg.mul
// CHECK:         ddp.store
// CHECK:         %[[N:.+]] = ddp.load
// CHECK:         %[[C:.+]] = arith.cmpi slt, %[[N]]
// CHECK:         ddp.all_reduce_start mean {{.+}} if %[[C]]
ddp.process_group @dp
ddp.state @iter : i64 replicated zero
func.func @stored_before(%k: i64 {ddp.replicated}, %x: tensor<8xf32>)
    -> (tensor<8xf32>, tensor<8xf32>) {
  %e = tensor.empty() : tensor<8xf32>
  %e1 = tensor.empty() : tensor<8xf32>
  %g = linalg.add ins(%x, %x : tensor<8xf32>, tensor<8xf32>) outs(%e : tensor<8xf32>) -> tensor<8xf32>
  %z = linalg.mul ins(%x, %x : tensor<8xf32>, tensor<8xf32>) outs(%e1 : tensor<8xf32>) -> tensor<8xf32>
  ddp.store %k, @iter : i64
  %n = ddp.load @iter : i64
  %two = arith.constant 2 : i64
  %c = arith.cmpi slt, %n, %two : i64
  %b = ddp.pack %g : tensor<8xf32> -> !ddp.bucket<f32, [8]>
  %r = scf.if %c -> (!ddp.bucket<f32, [8]>) {
    %s = ddp.all_reduce mean %b on @dp as "b" : !ddp.bucket<f32, [8]>
    scf.yield %s : !ddp.bucket<f32, [8]>
  } else {
    scf.yield %b : !ddp.bucket<f32, [8]>
  }
  %u = ddp.unpack %r : !ddp.bucket<f32, [8]> -> tensor<8xf32>
  ddp.store %n, @iter : i64
  return %u, %z : tensor<8xf32>, tensor<8xf32>
}

// -----

// A bucket that is complete only where the branch stands: what the other branch
// does stays there, where the bucket is in the cache, and the start comes behind
// it. Where nothing is started the result of that branch is what is awaited. The
// last bucket has nothing that could run beside it.

// CHECK-LABEL: func @just_complete(
// CHECK:         %[[C:.+]] = arith.cmpi
// CHECK:         %[[B0:.+]] = ddp.pack
// CHECK-NEXT:    %[[M0:.+]] = scf.if %[[C]]
// CHECK-NEXT:      scf.yield %[[B0]]
// CHECK-NEXT:    } else {
// CHECK-NEXT:      %[[S:.+]] = ddp.all_reduce sum %[[B0]]
// CHECK-NEXT:      scf.yield %[[S]]
// CHECK-NEXT:    }
// CHECK-NEXT:    %[[F0:.+]] = ddp.all_reduce_start mean %[[M0]] on @dp as "b0" if %[[C]]
// CHECK:         linalg.mul
// CHECK:         %[[R0:.+]] = scf.if %[[C]]
// CHECK-NEXT:      %[[W:.+]] = ddp.wait %[[F0]]
// CHECK-NEXT:      scf.yield %[[W]]
// CHECK-NEXT:    } else {
// CHECK-NEXT:      %[[SAME:.+]] = ddp.wait %[[F0]]
// CHECK-NEXT:      scf.yield %[[SAME]]
// CHECK-NEXT:    }
// CHECK-NEXT:    ddp.unpack %[[R0]]
// CHECK-NOT:     all_reduce_start
// CHECK:         return
ddp.process_group @dp
func.func @just_complete(%n: i64 {ddp.replicated}, %x: tensor<8xf32>) -> tensor<8xf32> {
  %two = arith.constant 2 : i64
  %c = arith.cmpi slt, %n, %two : i64
  %zero = arith.constant 0.0 : f32
  %e0 = tensor.empty() : tensor<8xf32>
  %g0 = linalg.add ins(%x, %x : tensor<8xf32>, tensor<8xf32>) outs(%e0 : tensor<8xf32>) -> tensor<8xf32>
  %b0 = ddp.pack %g0 : tensor<8xf32> -> !ddp.bucket<f32, [8]>
  %r0 = scf.if %c -> (!ddp.bucket<f32, [8]>) {
    %s = ddp.all_reduce mean %b0 on @dp as "b0" {ddp.hook = #ddp.allreduce} : !ddp.bucket<f32, [8]>
    scf.yield %s : !ddp.bucket<f32, [8]>
  } else {
    %s = ddp.all_reduce sum %b0 on @dp as "b0" {ddp.hook = #ddp.allreduce} : !ddp.bucket<f32, [8]>
    scf.yield %s : !ddp.bucket<f32, [8]>
  }
  %u0 = ddp.unpack %r0 : !ddp.bucket<f32, [8]> -> tensor<8xf32>
  %i = arith.constant 0 : index
  %first = tensor.extract %u0[%i] : tensor<8xf32>
  %isLarge = arith.cmpf ogt, %first, %zero : f32
  %e1 = tensor.empty() : tensor<8xf32>
  %g1 = linalg.mul ins(%x, %x : tensor<8xf32>, tensor<8xf32>) outs(%e1 : tensor<8xf32>) -> tensor<8xf32>
  %b1 = ddp.pack %g1 : tensor<8xf32> -> !ddp.bucket<f32, [8]>
  %r1 = scf.if %c -> (!ddp.bucket<f32, [8]>) {
    %s = ddp.all_reduce mean %b1 on @dp as "b1" {ddp.hook = #ddp.allreduce} : !ddp.bucket<f32, [8]>
    scf.yield %s : !ddp.bucket<f32, [8]>
  } else {
    %s = ddp.all_reduce sum %b1 on @dp as "b1" {ddp.hook = #ddp.allreduce} : !ddp.bucket<f32, [8]>
    scf.yield %s : !ddp.bucket<f32, [8]>
  }
  %u1 = ddp.unpack %r1 : !ddp.bucket<f32, [8]> -> tensor<8xf32>

  // All ranks have the same averages, so that these may decide what is reduced.
  %r = scf.if %isLarge -> (tensor<8xf32>) {
    %again = ddp.all_reduce sum %u1 on @dp {ddp.hook = #ddp.allreduce} : tensor<8xf32>
    scf.yield %again : tensor<8xf32>
  } else {
    scf.yield %u1 : tensor<8xf32>
  }
  return %r : tensor<8xf32>
}

// -----

// What is assigned to the ranks of a node is not started: the assignment would be lost.

// CHECK-LABEL: func @assigned(
// CHECK-NOT:     ddp.all_reduce_start
// CHECK:         ddp.all_reduce sum %{{.+}} on @dp as "b0" {ddp.assignment = #ddp.assignment<"b0" groups[0] members[0, 1] counts[8, 8]>
// CHECK-NOT:     ddp.all_reduce_start
// CHECK:         return
ddp.process_group @dp topology hierarchical
func.func @assigned(%n: i64 {ddp.replicated}, %b: !ddp.bucket<f32, [8, 8]>, %x: tensor<64xf32>) -> (!ddp.bucket<f32, [8, 8]>, tensor<64xf32>) {
  %two = arith.constant 2 : i64
  %c = arith.cmpi slt, %n, %two : i64
  %e = tensor.empty() : tensor<64xf32>
  %w = linalg.add ins(%x, %x : tensor<64xf32>, tensor<64xf32>) outs(%e : tensor<64xf32>) -> tensor<64xf32>
  %r = scf.if %c -> (!ddp.bucket<f32, [8, 8]>) {
    %s = ddp.all_reduce sum %b on @dp as "b0" {ddp.assignment = #ddp.assignment<"b0" groups [0] members [0, 1] counts [8, 8]>, ddp.hook = #ddp.allreduce} : !ddp.bucket<f32, [8, 8]>
    %scaled = ddp.scale %s by 2.0 : !ddp.bucket<f32, [8, 8]>
    scf.yield %scaled : !ddp.bucket<f32, [8, 8]>
  } else {
    scf.yield %b : !ddp.bucket<f32, [8, 8]>
  }
  return %r, %w : !ddp.bucket<f32, [8, 8]>, tensor<64xf32>
}
