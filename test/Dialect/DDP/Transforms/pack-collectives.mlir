// RUN: ddphook-opt %s --ddp-pack-collectives | FileCheck %s

ddp.process_group @dp
ddp.process_group @other

// In the place of the first: all operands are there already.
// CHECK-LABEL: func @two(
// CHECK-SAME:    %[[P:[a-z0-9]+]]: !ddp.bucket<f32, [64x2, 7x2]>, %[[V:[a-z0-9]+]]: !ddp.bucket<f32, [64]>
// CHECK-NEXT:    %[[C:.+]] = ddp.concat %[[P]], %[[V]] : !ddp.bucket<f32, [64x2, 7x2]>, !ddp.bucket<f32, [64]> -> !ddp.bucket<f32, [64x2, 7x2, 64]>
// CHECK-NEXT:    %[[S:.+]] = ddp.all_reduce sum %[[C]] on @dp as "b0" {ddp.hook = #ddp.allreduce} : !ddp.bucket<f32, [64x2, 7x2, 64]>
// CHECK-NEXT:    %[[PS:.+]] = ddp.extract %[[S]] [0, 1] : !ddp.bucket<f32, [64x2, 7x2, 64]>
// CHECK-NEXT:    %[[VS:.+]] = ddp.extract %[[S]] [2] : !ddp.bucket<f32, [64x2, 7x2, 64]>
// CHECK-NEXT:    %[[D:.+]] = ddp.scale %[[VS]] by_world_of @dp
// CHECK-NEXT:    return %[[PS]], %[[D]]
func.func @two(%p: !ddp.bucket<f32, [64x2, 7x2]>, %v: !ddp.bucket<f32, [64]>)
    -> (!ddp.bucket<f32, [64x2, 7x2]>, !ddp.bucket<f32, [64]>) {
  %0 = ddp.all_reduce sum %p on @dp as "b0" {ddp.hook = #ddp.allreduce}
      : !ddp.bucket<f32, [64x2, 7x2]>
  %1 = ddp.all_reduce sum %v on @dp as "b0" {ddp.hook = #ddp.allreduce}
      : !ddp.bucket<f32, [64]>
  %2 = ddp.scale %1 by_world_of @dp : !ddp.bucket<f32, [64]>
  return %0, %2 : !ddp.bucket<f32, [64x2, 7x2]>, !ddp.bucket<f32, [64]>
}

// Three, one of them without members; a wire type stays.
// CHECK-LABEL: func @three(
// CHECK-NEXT:    %[[C:.+]] = ddp.concat %{{.+}}, %{{.+}}, %{{.+}} : !ddp.bucket<f32, [4]>, !ddp.bucket<f32, []>, !ddp.bucket<f32, [5, 6]> -> !ddp.bucket<f32, [4, 5, 6]>
// CHECK-NEXT:    %[[S:.+]] = ddp.all_reduce mean %[[C]] on @dp wire bf16 as "b0" : !ddp.bucket<f32, [4, 5, 6]>
// CHECK-NEXT:    %[[X:.+]] = ddp.extract %[[S]] [0] :
// CHECK-NEXT:    %[[Y:.+]] = ddp.extract %[[S]] [] :
// CHECK-NEXT:    %[[Z:.+]] = ddp.extract %[[S]] [1, 2] :
// CHECK-NEXT:    return %[[X]], %[[Y]], %[[Z]]
func.func @three(%a: !ddp.bucket<f32, [4]>, %b: !ddp.bucket<f32, []>,
                 %c: !ddp.bucket<f32, [5, 6]>)
    -> (!ddp.bucket<f32, [4]>, !ddp.bucket<f32, []>,
        !ddp.bucket<f32, [5, 6]>) {
  %0 = ddp.all_reduce mean %a on @dp wire bf16 as "b0" : !ddp.bucket<f32, [4]>
  %1 = ddp.all_reduce mean %b on @dp wire bf16 as "b0" : !ddp.bucket<f32, []>
  %2 = ddp.all_reduce mean %c on @dp wire bf16 as "b0"
      : !ddp.bucket<f32, [5, 6]>
  return %0, %1, %2 : !ddp.bucket<f32, [4]>, !ddp.bucket<f32, []>,
      !ddp.bucket<f32, [5, 6]>
}

// One that needs the first one's result waits; the next two, whose operands
// stand before it, go together.
// CHECK-LABEL: func @dependent(
// CHECK-SAME:    %[[A:[a-z0-9]+]]: !ddp.bucket<f32, [4]>, %[[B:[a-z0-9]+]]: !ddp.bucket<f32, [5]>
// CHECK-NEXT:    %[[S:.+]] = ddp.all_reduce sum %[[A]] on @dp as "b0"
// CHECK-NEXT:    %[[D:.+]] = ddp.scale %[[S]] by 2.0
// CHECK-NEXT:    %[[C:.+]] = ddp.concat %[[D]], %[[B]]
// CHECK-NEXT:    %[[T:.+]] = ddp.all_reduce sum %[[C]] on @dp as "b0"
// CHECK-NEXT:    ddp.extract %[[T]] [0]
// CHECK-NEXT:    ddp.extract %[[T]] [1]
// CHECK-NEXT:    return
func.func @dependent(%a: !ddp.bucket<f32, [4]>, %b: !ddp.bucket<f32, [5]>)
    -> (!ddp.bucket<f32, [4]>, !ddp.bucket<f32, [5]>) {
  %0 = ddp.all_reduce sum %a on @dp as "b0" : !ddp.bucket<f32, [4]>
  %1 = ddp.scale %0 by 2.0 : !ddp.bucket<f32, [4]>
  %2 = ddp.all_reduce sum %1 on @dp as "b0" : !ddp.bucket<f32, [4]>
  %3 = ddp.all_reduce sum %b on @dp as "b0" : !ddp.bucket<f32, [5]>
  return %2, %3 : !ddp.bucket<f32, [4]>, !ddp.bucket<f32, [5]>
}

// Computed between the two, from something else: the second one cannot move up.
// CHECK-LABEL: func @late_operand(
// CHECK-NOT:     ddp.concat
// CHECK:         return
func.func @late_operand(%a: !ddp.bucket<f32, [4]>, %b: !ddp.bucket<f32, [5]>)
    -> (!ddp.bucket<f32, [4]>, !ddp.bucket<f32, [5]>) {
  %0 = ddp.all_reduce sum %a on @dp as "b0" : !ddp.bucket<f32, [4]>
  %1 = ddp.scale %b by 2.0 : !ddp.bucket<f32, [5]>
  %2 = ddp.all_reduce sum %1 on @dp as "b0" : !ddp.bucket<f32, [5]>
  return %0, %2 : !ddp.bucket<f32, [4]>, !ddp.bucket<f32, [5]>
}

// Others may stand in between; their order among themselves stays.
// CHECK-LABEL: func @interleaved(
// CHECK:         ddp.all_reduce sum %{{.+}} on @dp as "b0" : !ddp.bucket<f32, [4, 5]>
// CHECK:         ddp.all_reduce sum %{{.+}} on @dp as "b1" : !ddp.bucket<f32, [4, 5]>
// CHECK-NOT:     ddp.all_reduce
// CHECK:         return
func.func @interleaved(%a: !ddp.bucket<f32, [4]>, %b: !ddp.bucket<f32, [5]>) {
  %0 = ddp.all_reduce sum %a on @dp as "b0" : !ddp.bucket<f32, [4]>
  %1 = ddp.all_reduce sum %a on @dp as "b1" : !ddp.bucket<f32, [4]>
  %2 = ddp.all_reduce sum %b on @dp as "b0" : !ddp.bucket<f32, [5]>
  %3 = ddp.all_reduce sum %b on @dp as "b1" : !ddp.bucket<f32, [5]>
  return
}

// Another bucket, group, reduction, wire type, element type or hook; no name;
// a tensor.
// CHECK-LABEL: func @different(
// CHECK-NOT:     ddp.concat
// CHECK:         return
func.func @different(%a: !ddp.bucket<f32, [4]>, %h: !ddp.bucket<f16, [4]>,
                     %t: tensor<4xf32>) {
  %0 = ddp.all_reduce sum %a on @dp as "b0" : !ddp.bucket<f32, [4]>
  %1 = ddp.all_reduce sum %a on @dp as "b1" : !ddp.bucket<f32, [4]>
  %2 = ddp.all_reduce sum %a on @other as "b0" : !ddp.bucket<f32, [4]>
  %3 = ddp.all_reduce mean %a on @other as "b0" : !ddp.bucket<f32, [4]>
  %4 = ddp.all_reduce mean %a on @other wire f16 as "b0"
      : !ddp.bucket<f32, [4]>
  %5 = ddp.all_reduce mean %h on @other as "b0" : !ddp.bucket<f16, [4]>
  %6 = ddp.all_reduce mean %h on @other as "b0" {ddp.hook = #ddp.allreduce}
      : !ddp.bucket<f16, [4]>
  %7 = ddp.all_reduce sum %a on @dp : !ddp.bucket<f32, [4]>
  %8 = ddp.all_reduce sum %a on @dp : !ddp.bucket<f32, [4]>
  %9 = ddp.all_reduce sum %t on @dp as "b2" : tensor<4xf32>
  %10 = ddp.all_reduce sum %t on @dp as "b2" : tensor<4xf32>
  return
}

// Not across blocks; inside of one, and where an operand comes from outside.
// CHECK-LABEL: func @blocks(
// CHECK-SAME:    %[[A:[a-z0-9]+]]: !ddp.bucket<f32, [4]>
// CHECK-NEXT:    %[[S:.+]] = ddp.all_reduce sum %[[A]] on @dp as "b0" : !ddp.bucket<f32, [4]>
// CHECK-NEXT:    scf.if
// CHECK-NEXT:      %[[X:.+]] = ddp.scale %[[S]]
// CHECK-NEXT:      %[[C:.+]] = ddp.concat %[[X]], %[[S]]
// CHECK-NEXT:      ddp.all_reduce sum %[[C]] on @dp as "b0" : !ddp.bucket<f32, [4, 4]>
// CHECK:         } else {
// CHECK-NEXT:      ddp.all_reduce sum %[[A]] on @dp as "b0" : !ddp.bucket<f32, [4]>
func.func @blocks(%a: !ddp.bucket<f32, [4]>, %c: i1) {
  %0 = ddp.all_reduce sum %a on @dp as "b0" : !ddp.bucket<f32, [4]>
  scf.if %c {
    %1 = ddp.scale %0 by 2.0 : !ddp.bucket<f32, [4]>
    %2 = ddp.all_reduce sum %1 on @dp as "b0" : !ddp.bucket<f32, [4]>
    %3 = ddp.all_reduce sum %0 on @dp as "b0" : !ddp.bucket<f32, [4]>
  } else {
    %1 = ddp.all_reduce sum %a on @dp as "b0" : !ddp.bucket<f32, [4]>
  }
  return
}

// A set that is full of what it can take is followed by another one.
// CHECK-LABEL: func @chain(
// CHECK:         ddp.all_reduce sum %{{.+}} on @dp as "b0" : !ddp.bucket<f32, [4, 5]>
// CHECK:         ddp.all_reduce mean %{{.+}} on @dp as "b0" : !ddp.bucket<f32, [4, 5]>
// CHECK-NOT:     ddp.all_reduce
// CHECK:         return
func.func @chain(%a: !ddp.bucket<f32, [4]>, %b: !ddp.bucket<f32, [5]>) {
  %0 = ddp.all_reduce sum %a on @dp as "b0" : !ddp.bucket<f32, [4]>
  %1 = ddp.all_reduce sum %b on @dp as "b0" : !ddp.bucket<f32, [5]>
  %2 = ddp.all_reduce mean %0 on @dp as "b0" : !ddp.bucket<f32, [4]>
  %3 = ddp.all_reduce mean %1 on @dp as "b0" : !ddp.bucket<f32, [5]>
  return
}

ddp.process_group @nodes topology hierarchical

// Encoded values that end with a block are followed by others, whose blocks
// then begin where they began: not if the first has half a block, if a rank's
// share may begin anywhere, or if random numbers belong to elements.
// CHECK-LABEL: func @encoded(
// CHECK:         ddp.all_reduce sum %{{.+}} on @dp wire !ddp.encoded<i8, 32> as "b0" : !ddp.bucket<f32, [8x8, 16]>
// CHECK-COUNT-2: ddp.all_reduce sum %{{.+}} on @dp wire !ddp.encoded<i8, 32> as "b1"
// CHECK-COUNT-2: ddp.all_reduce sum %{{.+}} on @nodes wire !ddp.encoded<i8, 32> as "b2"
// CHECK-COUNT-2: ddp.all_reduce sum %{{.+}} on @dp wire !ddp.encoded<i8, 32 stochastic 3> as "b3"
func.func @encoded(%a: !ddp.bucket<f32, [8x8]>, %b: !ddp.bucket<f32, [16]>,
                   %step: i64) {
  %0 = ddp.all_reduce sum %a on @dp wire !ddp.encoded<i8, 32> as "b0"
      : !ddp.bucket<f32, [8x8]>
  %1 = ddp.all_reduce sum %b on @dp wire !ddp.encoded<i8, 32> as "b0"
      : !ddp.bucket<f32, [16]>
  %2 = ddp.all_reduce sum %b on @dp wire !ddp.encoded<i8, 32> as "b1"
      : !ddp.bucket<f32, [16]>
  %3 = ddp.all_reduce sum %a on @dp wire !ddp.encoded<i8, 32> as "b1"
      : !ddp.bucket<f32, [8x8]>
  %4 = ddp.all_reduce sum %a on @nodes wire !ddp.encoded<i8, 32> as "b2"
      : !ddp.bucket<f32, [8x8]>
  %5 = ddp.all_reduce sum %b on @nodes wire !ddp.encoded<i8, 32> as "b2"
      : !ddp.bucket<f32, [16]>
  %6 = ddp.all_reduce sum %a on @dp wire !ddp.encoded<i8, 32 stochastic 3>
      as "b3" step %step : !ddp.bucket<f32, [8x8]>
  %7 = ddp.all_reduce sum %b on @dp wire !ddp.encoded<i8, 32 stochastic 3>
      as "b3" step %step : !ddp.bucket<f32, [16]>
  return
}
