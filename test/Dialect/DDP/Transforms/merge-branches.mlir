// RUN: ddphook-opt %s --ddp-merge-branches -split-input-file | FileCheck %s

// Conditions are equal: made of the same counter and equal constants. What uses the
// first result moves behind; the backward pass in between stays in front. States
// that both touch, here the generator, keep their order.

!b = !ddp.bucket<f32, [8]>
ddp.process_group @dp
ddp.state @n : i64 replicated zero
ddp.state @g : tensor<625xi32> replicated mt19937 seed 1

// CHECK-LABEL: func @merged(
// CHECK-SAME:      %[[X:[^:]+]]: tensor<8xf32>
// CHECK:         %[[N:.+]] = ddp.load @n
// CHECK:         %[[C:.+]] = arith.cmpi slt, %[[N]],
// CHECK:         %[[B0:.+]] = ddp.pack %[[X]]
// CHECK:         %[[Y:.+]] = linalg.exp ins(%[[X]] :
// CHECK:         %[[B1:.+]] = ddp.pack %[[Y]]
// CHECK:         %[[R:.+]]:2 = scf.if %[[C]] -> (!ddp.bucket<f32, [8]>, !ddp.bucket<f32, [8]>) {
// CHECK-NEXT:      %[[T0:.+]] = ddp.all_reduce mean %[[B0]] on @dp as "b0"
// CHECK-NEXT:      %[[T1:.+]] = ddp.all_reduce mean %[[B1]] on @dp as "b1"
// CHECK-NEXT:      scf.yield %[[T0]], %[[T1]]
// CHECK-NEXT:    } else {
// CHECK-NEXT:      %[[E0:.+]] = ddp.random_normal from @g
// CHECK-NEXT:      %[[E1:.+]] = ddp.random_normal from @g
// CHECK-NEXT:      %[[E2:.+]] = ddp.add %[[E1]], %[[B1]]
// CHECK-NEXT:      scf.yield %[[E0]], %[[E2]]
// CHECK-NEXT:    }
// CHECK-NEXT:    %[[U0:.+]] = ddp.unpack %[[R]]#0
// CHECK-NEXT:    %[[O0:.+]] = linalg.abs ins(%[[U0]] :
// CHECK-NEXT:    %[[U1:.+]] = ddp.unpack %[[R]]#1
// CHECK-NEXT:    return %[[O0]], %[[U1]]
func.func @merged(%x: tensor<8xf32>) -> (tensor<8xf32>, tensor<8xf32>) {
  %e = tensor.empty() : tensor<8xf32>
  %n = ddp.load @n : i64
  %k0 = arith.constant 2 : i64
  %c0 = arith.cmpi slt, %n, %k0 : i64
  %b0 = ddp.pack %x : tensor<8xf32> -> !b
  %r0 = scf.if %c0 -> !b {
    %0 = ddp.all_reduce mean %b0 on @dp as "b0" : !b
    scf.yield %0 : !b
  } else {
    %0 = ddp.random_normal from @g draws [8] : () -> !b
    scf.yield %0 : !b
  }
  %u0 = ddp.unpack %r0 : !b -> tensor<8xf32>
  %o0 = linalg.abs ins(%u0 : tensor<8xf32>) outs(%e : tensor<8xf32>) -> tensor<8xf32>
  %y = linalg.exp ins(%x : tensor<8xf32>) outs(%e : tensor<8xf32>) -> tensor<8xf32>
  %b1 = ddp.pack %y : tensor<8xf32> -> !b
  %k1 = arith.constant 2 : i64
  %c1 = arith.cmpi slt, %n, %k1 : i64
  %r1 = scf.if %c1 -> !b {
    %0 = ddp.all_reduce mean %b1 on @dp as "b1" : !b
    scf.yield %0 : !b
  } else {
    %0 = ddp.random_normal from @g draws [8] : () -> !b
    %1 = ddp.add %0, %b1 : !b, !b
    scf.yield %1 : !b
  }
  %u1 = ddp.unpack %r1 : !b -> tensor<8xf32>
  return %o0, %u1 : tensor<8xf32>, tensor<8xf32>
}

// -----

// Another limit, another load of the counter: not certainly the same.

// CHECK-LABEL: func @other_conditions(
// CHECK-COUNT-3: scf.if
!b = !ddp.bucket<f32, [8]>
ddp.process_group @dp
ddp.state @n : i64 replicated zero
func.func @other_conditions(%b: !b) -> (!b, !b, !b) {
  %n0 = ddp.load @n : i64
  %k2 = arith.constant 2 : i64
  %k3 = arith.constant 3 : i64
  %c0 = arith.cmpi slt, %n0, %k2 : i64
  %r0 = scf.if %c0 -> !b {
    %0 = ddp.all_reduce mean %b on @dp : !b
    scf.yield %0 : !b
  } else {
    scf.yield %b : !b
  }
  %c1 = arith.cmpi slt, %n0, %k3 : i64
  %r1 = scf.if %c1 -> !b {
    %0 = ddp.all_reduce mean %b on @dp : !b
    scf.yield %0 : !b
  } else {
    scf.yield %b : !b
  }
  ddp.store %k2, @n : i64
  %n1 = ddp.load @n : i64
  %c2 = arith.cmpi slt, %n1, %k3 : i64
  %r2 = scf.if %c2 -> !b {
    %0 = ddp.all_reduce mean %b on @dp : !b
    scf.yield %0 : !b
  } else {
    scf.yield %b : !b
  }
  return %r0, %r1, %r2 : !b, !b, !b
}

// -----

// The second needs the first; the fourth reads a state that was written behind the
// third; between the fifth and the sixth nobody knows what happens. The last has no
// collective.

// CHECK-LABEL: func @dependent(
// CHECK-COUNT-7: scf.if
!b = !ddp.bucket<f32, [8]>
ddp.process_group @dp
ddp.state @s : !ddp.bucket<f32, [8]> replicated zero
func.func private @other()
func.func @dependent(%b: !b, %c: i1) -> (!b, !b, !b, !b, !b, !b, !b) {
  %r0 = scf.if %c -> !b {
    %0 = ddp.all_reduce mean %b on @dp : !b
    scf.yield %0 : !b
  } else {
    scf.yield %b : !b
  }
  %r1 = scf.if %c -> !b {
    %0 = ddp.all_reduce mean %r0 on @dp : !b
    scf.yield %0 : !b
  } else {
    scf.yield %r0 : !b
  }
  %d = arith.xori %c, %c : i1
  %r2 = scf.if %d -> !b {
    %0 = ddp.all_reduce mean %b on @dp : !b
    scf.yield %0 : !b
  } else {
    scf.yield %b : !b
  }
  ddp.store %r2, @s : !b
  %r3 = scf.if %d -> !b {
    %0 = ddp.load @s : !b
    %1 = ddp.all_reduce mean %0 on @dp : !b
    scf.yield %1 : !b
  } else {
    scf.yield %b : !b
  }
  %f = arith.ori %c, %c : i1
  %r4 = scf.if %f -> !b {
    %0 = ddp.all_reduce mean %b on @dp : !b
    ddp.store %0, @s : !b
    scf.yield %0 : !b
  } else {
    scf.yield %b : !b
  }
  func.call @other() : () -> ()
  %r5 = scf.if %f -> !b {
    %0 = ddp.all_reduce mean %b on @dp : !b
    ddp.store %0, @s : !b
    scf.yield %0 : !b
  } else {
    scf.yield %b : !b
  }
  %r6 = scf.if %f -> !b {
    %0 = ddp.scale %b by 2.0 : !b
    scf.yield %0 : !b
  } else {
    scf.yield %b : !b
  }
  return %r0, %r1, %r2, %r3, %r4, %r5, %r6 : !b, !b, !b, !b, !b, !b, !b
}

// Branches in branches meet once the outer ones are one.
// CHECK-LABEL: func.func @nested(
// CHECK:         %{{.+}}:2 = scf.if %{{.+}} -> (!ddp.bucket<f32, [8]>, !ddp.bucket<f32, [8]>) {
// CHECK-NEXT:      %{{.+}}:2 = scf.if %{{.+}} -> (!ddp.bucket<f32, [8]>, !ddp.bucket<f32, [8]>) {
// CHECK-NOT:     scf.if
// CHECK:         return
func.func @nested(%a: !b, %b: !b, %c: i1, %d: i1) -> (!b, !b) {
  %r0 = scf.if %c -> !b {
    %0 = scf.if %d -> !b {
      %1 = ddp.all_reduce mean %a on @dp : !b
      scf.yield %1 : !b
    } else {
      scf.yield %a : !b
    }
    %2 = ddp.all_reduce mean %0 on @dp : !b
    scf.yield %2 : !b
  } else {
    scf.yield %a : !b
  }
  %r1 = scf.if %c -> !b {
    %0 = scf.if %d -> !b {
      %1 = ddp.all_reduce mean %b on @dp : !b
      scf.yield %1 : !b
    } else {
      scf.yield %b : !b
    }
    %2 = ddp.all_reduce mean %0 on @dp : !b
    scf.yield %2 : !b
  } else {
    scf.yield %b : !b
  }
  return %r0, %r1 : !b, !b
}

// -----

// What was started on a condition is awaited in branches on the same value: only the
// first one's stays.
!b = !ddp.bucket<f32, [8]>
ddp.process_group @dp

// CHECK-LABEL: func @started(
// CHECK:         %[[C:.+]] = arith.cmpi slt
// CHECK:         ddp.all_reduce_start mean {{.+}} if %[[C]]
// CHECK:         scf.if %[[C]]
// CHECK-COUNT-2:   ddp.all_reduce mean
// CHECK:         %[[D:.+]] = arith.cmpi slt
// CHECK:         ddp.all_reduce_start mean {{.+}} if %[[D]]
// CHECK:         scf.if %[[D]]
// CHECK-NOT:     scf.if
// CHECK:         return
func.func @started(%a: !b, %b: !b, %c: !b, %d: !b, %e: !b, %n: i64 {ddp.replicated})
    -> (!b, !b, !b, !b, !b) {
  %two = arith.constant 2 : i64
  %c0 = arith.cmpi slt, %n, %two : i64
  %f0 = ddp.all_reduce_start mean %a on @dp if %c0 : !b -> !ddp.future<!b>
  %r0:2 = scf.if %c0 -> (!b, !b) {
    %s = ddp.wait %f0 : !ddp.future<!b>
    %t = ddp.all_reduce mean %b on @dp : !b
    scf.yield %s, %t : !b, !b
  } else {
    %s = ddp.wait %f0 : !ddp.future<!b>
    scf.yield %s, %b : !b, !b
  }
  %c1 = arith.cmpi slt, %n, %two : i64
  %r1 = scf.if %c1 -> !b {
    %t = ddp.all_reduce mean %c on @dp : !b
    scf.yield %t : !b
  } else {
    scf.yield %c : !b
  }
  %c2 = arith.cmpi slt, %n, %two : i64
  %f2 = ddp.all_reduce_start mean %d on @dp if %c2 : !b -> !ddp.future<!b>
  %r2:2 = scf.if %c2 -> (!b, !b) {
    %s = ddp.wait %f2 : !ddp.future<!b>
    %t = ddp.all_reduce mean %e on @dp : !b
    scf.yield %s, %t : !b, !b
  } else {
    %s = ddp.wait %f2 : !ddp.future<!b>
    scf.yield %s, %e : !b, !b
  }
  return %r0#0, %r0#1, %r1, %r2#0, %r2#1 : !b, !b, !b, !b, !b
}
