// RUN: ddphook-opt %s --ddp-bucketize -split-input-file | FileCheck %s

// With the defaults: ready order, 1 MiB for the first bucket of a kind, 25 for
// the others. Limits and orders have files of their own.

// CHECK: ddp.process_group @dp
ddp.process_group @dp

// CHECK-LABEL: func @one_bucket(
// CHECK-SAME:    %[[G0:[a-z0-9]+]]: tensor<4x8xf32>, %[[G1:[a-z0-9]+]]: tensor<f32>, %[[G2:[a-z0-9]+]]: tensor<0x3xf32>
// CHECK-NEXT:    %[[B:.+]] = ddp.pack %[[G0]], %[[G1]], %[[G2]] : tensor<4x8xf32>, tensor<f32>, tensor<0x3xf32> -> !ddp.bucket<f32, [4x8, scalar, 0x3]>
// CHECK-NEXT:    %[[R:.+]] = ddp.all_reduce mean %[[B]] on @dp as "b0" : !ddp.bucket<f32, [4x8, scalar, 0x3]>
// CHECK-NEXT:    %[[U:.+]]:3 = ddp.unpack %[[R]] : !ddp.bucket<f32, [4x8, scalar, 0x3]> -> tensor<4x8xf32>, tensor<f32>, tensor<0x3xf32>
// CHECK-NEXT:    return %[[U]]#1, %[[U]]#0, %[[U]]#2
func.func @one_bucket(%g0: tensor<4x8xf32>, %g1: tensor<f32>,
                      %g2: tensor<0x3xf32>)
    -> (tensor<f32>, tensor<4x8xf32>, tensor<0x3xf32>) {
  %0 = ddp.all_reduce mean %g0 on @dp : tensor<4x8xf32>
  %1 = ddp.all_reduce mean %g1 on @dp : tensor<f32>
  %2 = ddp.all_reduce mean %g2 on @dp : tensor<0x3xf32>
  return %1, %0, %2 : tensor<f32>, tensor<4x8xf32>, tensor<0x3xf32>
}

// -----

// Kinds: process group, element type, reduction, hook. Buckets are numbered by
// their first gradients, and each stands where its last gradient stood.

ddp.process_group @dp
ddp.process_group @other

// CHECK-LABEL: func @kinds(
// CHECK-SAME:    %[[A:[a-z0-9]+]]: tensor<4xf32>, %[[B:[a-z0-9]+]]: tensor<4xf16>
// CHECK-DAG:     %[[P0:.+]] = ddp.pack %[[A]], %[[A]] : tensor<4xf32>, tensor<4xf32>
// CHECK-DAG:     ddp.all_reduce mean %[[P0]] on @dp as "b0" : !ddp.bucket<f32, [4, 4]>
// CHECK-DAG:     %[[P1:.+]] = ddp.pack %[[B]] : tensor<4xf16>
// CHECK-DAG:     ddp.all_reduce mean %[[P1]] on @dp as "b1" : !ddp.bucket<f16, [4]>
// CHECK-DAG:     ddp.all_reduce sum %{{.+}} on @dp as "b2" : !ddp.bucket<f32, [4]>
// CHECK-DAG:     ddp.all_reduce mean %{{.+}} on @other as "b3" : !ddp.bucket<f32, [4]>
// CHECK-DAG:     ddp.all_reduce mean %{{.+}} on @dp as "b4" {ddp.hook = #ddp.fp16} : !ddp.bucket<f32, [4, 4]>
// CHECK-NOT:     ddp.all_reduce
// CHECK:         return
func.func @kinds(%a: tensor<4xf32>, %b: tensor<4xf16>) {
  %0 = ddp.all_reduce mean %a on @dp : tensor<4xf32>
  %1 = ddp.all_reduce mean %b on @dp : tensor<4xf16>
  %2 = ddp.all_reduce sum %a on @dp : tensor<4xf32>
  %3 = ddp.all_reduce mean %a on @other : tensor<4xf32>
  %4 = ddp.all_reduce mean %a on @dp {ddp.hook = #ddp.fp16} : tensor<4xf32>
  %5 = ddp.all_reduce mean %a on @dp : tensor<4xf32>
  %6 = ddp.all_reduce mean %a on @dp {ddp.hook = #ddp.fp16} : tensor<4xf32>
  return
}

// -----

// The hook that counts is the effective one: on the operation, on the function,
// or on the module.

// CHECK-LABEL: module attributes {ddp.hook = #ddp.bf16}
module attributes {ddp.hook = #ddp.bf16} {
  ddp.process_group @dp
  // CHECK-LABEL: func @inherited(
  // CHECK:         ddp.all_reduce mean %{{.+}} on @dp as "b0" : !ddp.bucket<f32, [4]>
  // CHECK-NOT:     ddp.all_reduce
  func.func @inherited(%a: tensor<4xf32>) {
    %0 = ddp.all_reduce mean %a on @dp : tensor<4xf32>
    return
  }
  // CHECK-LABEL: func @own(
  // CHECK:         ddp.all_reduce mean %{{.+}} on @dp as "b1"{{.*}} : !ddp.bucket<f32, [4, 4]>
  // CHECK-NOT:     ddp.all_reduce
  func.func @own(%a: tensor<4xf32>) attributes {ddp.hook = #ddp.fp16} {
    %0 = ddp.all_reduce mean %a on @dp : tensor<4xf32>
    %1 = ddp.all_reduce mean %a on @dp {ddp.hook = #ddp.fp16} : tensor<4xf32>
    return
  }
}

// -----

// What uses a reduced gradient before the bucket is full moves behind it.

ddp.process_group @dp

// CHECK-LABEL: func @users_between(
// CHECK-SAME:    %[[G0:[a-z0-9]+]]: tensor<4xf32>, %[[G1:[a-z0-9]+]]: tensor<4xf32>
// CHECK-NEXT:    %[[S:.+]] = arith.negf %[[G1]]
// CHECK-NEXT:    %[[B:.+]] = ddp.pack %[[G0]], %[[G1]]
// CHECK-NEXT:    %[[R:.+]] = ddp.all_reduce mean %[[B]] on @dp as "b0"
// CHECK-NEXT:    %[[U:.+]]:2 = ddp.unpack %[[R]]
// CHECK-NEXT:    %[[N:.+]] = arith.negf %[[U]]#0
// CHECK-NEXT:    %[[M:.+]] = arith.mulf %[[N]], %[[S]]
// CHECK-NEXT:    return %[[M]], %[[U]]#1
func.func @users_between(%g0: tensor<4xf32>, %g1: tensor<4xf32>)
    -> (tensor<4xf32>, tensor<4xf32>) {
  %0 = ddp.all_reduce mean %g0 on @dp : tensor<4xf32>
  %n = arith.negf %0 : tensor<4xf32>
  %s = arith.negf %g1 : tensor<4xf32>
  %m = arith.mulf %n, %s : tensor<4xf32>
  %1 = ddp.all_reduce mean %g1 on @dp : tensor<4xf32>
  return %m, %1 : tensor<4xf32>, tensor<4xf32>
}

// -----

// A gradient that depends on a reduced one cannot travel with it: the bucket is
// split; members that are free stay in the first part.

ddp.process_group @dp

// CHECK-LABEL: func @dependent(
// CHECK-SAME:    %[[G0:[a-z0-9]+]]: tensor<4xf32>, %[[G1:[a-z0-9]+]]: tensor<5xf32>
// CHECK-NEXT:    %[[B0:.+]] = ddp.pack %[[G0]], %[[G1]] : tensor<4xf32>, tensor<5xf32>
// CHECK-NEXT:    %[[R0:.+]] = ddp.all_reduce mean %[[B0]] on @dp as "b0" : !ddp.bucket<f32, [4, 5]>
// CHECK-NEXT:    %[[U0:.+]]:2 = ddp.unpack %[[R0]]
// CHECK-NEXT:    %[[D:.+]] = arith.negf %[[U0]]#0
// CHECK-NEXT:    %[[B1:.+]] = ddp.pack %[[D]] : tensor<4xf32>
// CHECK-NEXT:    %[[R1:.+]] = ddp.all_reduce mean %[[B1]] on @dp as "b1" : !ddp.bucket<f32, [4]>
// CHECK-NEXT:    %[[U1:.+]] = ddp.unpack %[[R1]]
// CHECK-NEXT:    return %[[U1]], %[[U0]]#1
func.func @dependent(%g0: tensor<4xf32>, %g1: tensor<5xf32>)
    -> (tensor<4xf32>, tensor<5xf32>) {
  %0 = ddp.all_reduce mean %g0 on @dp : tensor<4xf32>
  %d = arith.negf %0 : tensor<4xf32>
  %1 = ddp.all_reduce mean %d on @dp : tensor<4xf32>
  %2 = ddp.all_reduce mean %g1 on @dp : tensor<5xf32>
  return %1, %2 : tensor<4xf32>, tensor<5xf32>
}

// -----

// A chain: every link its own bucket.

ddp.process_group @dp

// CHECK-LABEL: func @chain(
// CHECK:         ddp.all_reduce mean %{{.+}} on @dp as "b0" : !ddp.bucket<f32, [4]>
// CHECK:         ddp.all_reduce mean %{{.+}} on @dp as "b1" : !ddp.bucket<f32, [4]>
// CHECK:         ddp.all_reduce mean %{{.+}} on @dp as "b2" : !ddp.bucket<f32, [4]>
// CHECK-NOT:     ddp.all_reduce
// CHECK:         return
func.func @chain(%g: tensor<4xf32>) -> tensor<4xf32> {
  %0 = ddp.all_reduce mean %g on @dp : tensor<4xf32>
  %1 = ddp.all_reduce mean %0 on @dp : tensor<4xf32>
  %2 = ddp.all_reduce mean %1 on @dp : tensor<4xf32>
  return %2 : tensor<4xf32>
}

// -----

// Two kinds whose gradients depend on each other crosswise.

ddp.process_group @dp

// CHECK-LABEL: func @crosswise(
// CHECK-SAME:    %[[F:[a-z0-9]+]]: tensor<4xf32>, %[[H:[a-z0-9]+]]: tensor<4xf16>
// CHECK:         %[[P0:.+]] = ddp.pack %[[F]] : tensor<4xf32>
// CHECK-NEXT:    %[[R0:.+]] = ddp.all_reduce mean %[[P0]]
// CHECK:         %[[D0:.+]] = arith.truncf
// CHECK:         %[[P1:.+]] = ddp.pack %[[H]], %[[D0]] : tensor<4xf16>, tensor<4xf16>
// CHECK-NEXT:    %[[R1:.+]] = ddp.all_reduce mean %[[P1]]
// CHECK:         %[[D1:.+]] = arith.extf
// CHECK:         %[[P2:.+]] = ddp.pack %[[D1]] : tensor<4xf32>
// CHECK-NEXT:    ddp.all_reduce mean %[[P2]]
// CHECK-NOT:     ddp.all_reduce
func.func @crosswise(%f: tensor<4xf32>, %h: tensor<4xf16>)
    -> (tensor<4xf32>, tensor<4xf16>) {
  %0 = ddp.all_reduce mean %f on @dp : tensor<4xf32>
  %t = arith.truncf %0 : tensor<4xf32> to tensor<4xf16>
  %1 = ddp.all_reduce mean %t on @dp : tensor<4xf16>
  %2 = ddp.all_reduce mean %h on @dp : tensor<4xf16>
  %e = arith.extf %2 : tensor<4xf16> to tensor<4xf32>
  %3 = ddp.all_reduce mean %e on @dp : tensor<4xf32>
  return %3, %1 : tensor<4xf32>, tensor<4xf16>
}

// -----

// What touches memory or the outside keeps its order.

ddp.process_group @dp
func.func private @print(tensor<4xf32>)

// CHECK-LABEL: func @side_effects(
// CHECK-SAME:    %[[G0:[a-z0-9]+]]: tensor<4xf32>, %[[G1:[a-z0-9]+]]: tensor<4xf32>, %[[M:[a-z0-9]+]]: memref<f32>
// CHECK:         ddp.pack %[[G0]], %[[G1]]
// CHECK:         %[[U:.+]]:2 = ddp.unpack
// CHECK:         call @print(%[[U]]#0)
// CHECK:         memref.store %{{.+}}, %[[M]][]
// CHECK:         call @print(%[[U]]#1)
// CHECK:         memref.load %[[M]][]
func.func @side_effects(%g0: tensor<4xf32>, %g1: tensor<4xf32>,
                        %m: memref<f32>) -> f32 {
  %c = arith.constant 1.0 : f32
  %0 = ddp.all_reduce mean %g0 on @dp : tensor<4xf32>
  func.call @print(%0) : (tensor<4xf32>) -> ()
  memref.store %c, %m[] : memref<f32>
  %1 = ddp.all_reduce mean %g1 on @dp : tensor<4xf32>
  func.call @print(%1) : (tensor<4xf32>) -> ()
  %x = memref.load %m[] : memref<f32>
  return %x : f32
}

// -----

// Blocks of their own: the body of a loop, the branches of an if. Buckets do not
// reach across, and the outer one holds what stands around.

ddp.process_group @dp

// CHECK-LABEL: func @regions(
// CHECK:         scf.for
// CHECK:           ddp.pack {{.+}} : tensor<4xf32>, tensor<4xf32>
// CHECK-NEXT:      ddp.all_reduce
// CHECK:         scf.if
// CHECK:           ddp.pack {{.+}} : tensor<4xf32> ->
// CHECK-NEXT:      ddp.all_reduce
// CHECK:         else
// CHECK:           ddp.pack {{.+}} : tensor<4xf32> ->
// CHECK-NEXT:      ddp.all_reduce sum
// CHECK:         ddp.pack {{.+}} : tensor<4xf32>, tensor<4xf32> ->
// CHECK-NEXT:    ddp.all_reduce
// CHECK-NOT:     ddp.all_reduce
func.func @regions(%g: tensor<4xf32>, %h: tensor<4xf32>, %c: i1)
    -> (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c3 = arith.constant 3 : index
  %first = ddp.all_reduce mean %g on @dp : tensor<4xf32>
  %l = scf.for %i = %c0 to %c3 step %c1 iter_args(%acc = %h) -> tensor<4xf32> {
    %0 = ddp.all_reduce mean %acc on @dp : tensor<4xf32>
    %1 = ddp.all_reduce mean %h on @dp : tensor<4xf32>
    %2 = arith.addf %0, %1 : tensor<4xf32>
    scf.yield %2 : tensor<4xf32>
  }
  %b = scf.if %c -> tensor<4xf32> {
    %3 = ddp.all_reduce mean %g on @dp : tensor<4xf32>
    scf.yield %3 : tensor<4xf32>
  } else {
    %4 = ddp.all_reduce sum %g on @dp : tensor<4xf32>
    scf.yield %4 : tensor<4xf32>
  }
  %last = ddp.all_reduce mean %h on @dp : tensor<4xf32>
  return %first, %last, %l, %b
      : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
}

// -----

// Several functions: one sequence of numbers.

ddp.process_group @dp

// CHECK-LABEL: func @first(
// CHECK:         ddp.all_reduce mean %{{.+}} on @dp as "b0"
func.func @first(%g: tensor<4xf32>) -> tensor<4xf32> {
  %0 = ddp.all_reduce mean %g on @dp : tensor<4xf32>
  return %0 : tensor<4xf32>
}
// CHECK-LABEL: func @second(
// CHECK:         ddp.all_reduce mean %{{.+}} on @dp as "b1"
func.func @second(%g: tensor<4xf32>) -> tensor<4xf32> {
  %0 = ddp.all_reduce mean %g on @dp : tensor<4xf32>
  return %0 : tensor<4xf32>
}

// -----

// Buckets that exist stay as they are, and keep their numbers.

ddp.process_group @dp

// CHECK-LABEL: func @buckets_before(
// CHECK:         ddp.all_reduce mean %{{.+}} on @dp as "b3" : !ddp.bucket<f32, [4]>
// CHECK:         ddp.all_reduce mean %{{.+}} on @dp as "b4" : !ddp.bucket<f32, [4]>
// CHECK-NOT:     ddp.all_reduce
func.func @buckets_before(%b: !ddp.bucket<f32, [4]>, %g: tensor<4xf32>)
    -> (!ddp.bucket<f32, [4]>, tensor<4xf32>) {
  %0 = ddp.all_reduce mean %b on @dp as "b3" : !ddp.bucket<f32, [4]>
  %1 = ddp.all_reduce mean %g on @dp : tensor<4xf32>
  return %0, %1 : !ddp.bucket<f32, [4]>, tensor<4xf32>
}

// -----

// The same gradient twice, and none at all.

ddp.process_group @dp

// CHECK-LABEL: func @same_twice(
// CHECK-SAME:    %[[G:.+]]: tensor<4xf32>
// CHECK-NEXT:    ddp.pack %[[G]], %[[G]]
func.func @same_twice(%g: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
  %0 = ddp.all_reduce mean %g on @dp : tensor<4xf32>
  %1 = ddp.all_reduce mean %g on @dp : tensor<4xf32>
  return %0, %1 : tensor<4xf32>, tensor<4xf32>
}

// CHECK-LABEL: func @nothing(
// CHECK-NEXT:    return
func.func @nothing() {
  return
}
