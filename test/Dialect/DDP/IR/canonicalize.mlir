// RUN: ddphook-opt %s --canonicalize | FileCheck %s

ddp.process_group @dp

//===----------------------------------------------------------------------===//
// pack, unpack
//===----------------------------------------------------------------------===//

// CHECK-LABEL: func @pack_of_unpack(
// CHECK-SAME:    %[[B:.+]]: !ddp.bucket<f32, [4, 5]>
// CHECK-NEXT:  return %[[B]]
func.func @pack_of_unpack(%b: !ddp.bucket<f32, [4, 5]>)
    -> !ddp.bucket<f32, [4, 5]> {
  %0:2 = ddp.unpack %b : !ddp.bucket<f32, [4, 5]> -> tensor<4xf32>, tensor<5xf32>
  %1 = ddp.pack %0#0, %0#1 : tensor<4xf32>, tensor<5xf32>
      -> !ddp.bucket<f32, [4, 5]>
  return %1 : !ddp.bucket<f32, [4, 5]>
}

// Another order, fewer members, two buckets or another type: not the bucket.
// CHECK-LABEL: func @pack_of_unpack_differs(
// CHECK-SAME:    %[[B:[a-z0-9]+]]: !ddp.bucket<f32, [4, 4]>, %[[C:[a-z0-9]+]]: !ddp.bucket<f32, [4, 4]>
// CHECK:       %[[T:.+]]:2 = ddp.unpack %[[B]]
// CHECK:       %[[U:.+]]:2 = ddp.unpack %[[C]]
// CHECK:       %[[SWAPPED:.+]] = ddp.pack %[[T]]#1, %[[T]]#0
// CHECK:       %[[FEWER:.+]] = ddp.pack %[[T]]#0 :
// CHECK:       %[[MIXED:.+]] = ddp.pack %[[T]]#0, %[[U]]#1
// CHECK:       %[[FLAT:.+]] = ddp.pack %[[T]]#0, %[[T]]#1 {{.+}} -> tensor<8xf32>
// CHECK:       return %[[SWAPPED]], %[[FEWER]], %[[MIXED]], %[[FLAT]]
func.func @pack_of_unpack_differs(%b: !ddp.bucket<f32, [4, 4]>,
                                  %c: !ddp.bucket<f32, [4, 4]>)
    -> (!ddp.bucket<f32, [4, 4]>, !ddp.bucket<f32, [4]>,
        !ddp.bucket<f32, [4, 4]>, tensor<8xf32>) {
  %0:2 = ddp.unpack %b : !ddp.bucket<f32, [4, 4]> -> tensor<4xf32>, tensor<4xf32>
  %1:2 = ddp.unpack %c : !ddp.bucket<f32, [4, 4]> -> tensor<4xf32>, tensor<4xf32>
  %2 = ddp.pack %0#1, %0#0 : tensor<4xf32>, tensor<4xf32>
      -> !ddp.bucket<f32, [4, 4]>
  %3 = ddp.pack %0#0 : tensor<4xf32> -> !ddp.bucket<f32, [4]>
  %4 = ddp.pack %0#0, %1#1 : tensor<4xf32>, tensor<4xf32>
      -> !ddp.bucket<f32, [4, 4]>
  %5 = ddp.pack %0#0, %0#1 : tensor<4xf32>, tensor<4xf32> -> tensor<8xf32>
  return %2, %3, %4, %5 : !ddp.bucket<f32, [4, 4]>, !ddp.bucket<f32, [4]>,
      !ddp.bucket<f32, [4, 4]>, tensor<8xf32>
}

// CHECK-LABEL: func @unpack_of_pack(
// CHECK-SAME:    %[[X:[a-z0-9]+]]: tensor<4xf32>, %[[Y:[a-z0-9]+]]: tensor<f32>
// CHECK-NEXT:  return %[[X]], %[[Y]]
func.func @unpack_of_pack(%x: tensor<4xf32>, %y: tensor<f32>)
    -> (tensor<4xf32>, tensor<f32>) {
  %0 = ddp.pack %x, %y : tensor<4xf32>, tensor<f32>
      -> !ddp.bucket<f32, [4, scalar]>
  %1:2 = ddp.unpack %0 : !ddp.bucket<f32, [4, scalar]>
      -> tensor<4xf32>, tensor<f32>
  return %1#0, %1#1 : tensor<4xf32>, tensor<f32>
}

// The same elements in other shapes (possible once buckets are flat).
// CHECK-LABEL: func @unpack_of_pack_differs(
// CHECK:         %[[P:.+]] = ddp.pack
// CHECK:         %[[U:.+]] = ddp.unpack %[[P]]
// CHECK:         return %[[U]]
func.func @unpack_of_pack_differs(%x: tensor<4xf32>, %y: tensor<2xf32>)
    -> tensor<6xf32> {
  %0 = ddp.pack %x, %y : tensor<4xf32>, tensor<2xf32> -> tensor<6xf32>
  %1 = ddp.unpack %0 : tensor<6xf32> -> tensor<6xf32>
  return %1 : tensor<6xf32>
}

//===----------------------------------------------------------------------===//
// extract, concat
//===----------------------------------------------------------------------===//

// CHECK-LABEL: func @extract_all(
// CHECK-SAME:    %[[B:.+]]: !ddp.bucket<f32, [4, 5]>
// CHECK-NEXT:  return %[[B]]
func.func @extract_all(%b: !ddp.bucket<f32, [4, 5]>)
    -> !ddp.bucket<f32, [4, 5]> {
  %0 = ddp.extract %b [0, 1] : !ddp.bucket<f32, [4, 5]>
  return %0 : !ddp.bucket<f32, [4, 5]>
}

// CHECK-LABEL: func @extract_of_extract(
// CHECK-SAME:    %[[B:.+]]: !ddp.bucket<f32, [1, 2, 3, 4, 5]>
// CHECK-NEXT:  %[[R:.+]] = ddp.extract %[[B]] [2, 3] : !ddp.bucket<f32, [1, 2, 3, 4, 5]>
// CHECK-NEXT:  return %[[R]] : !ddp.bucket<f32, [3, 4]>
func.func @extract_of_extract(%b: !ddp.bucket<f32, [1, 2, 3, 4, 5]>)
    -> !ddp.bucket<f32, [3, 4]> {
  %0 = ddp.extract %b [1, 2, 3] : !ddp.bucket<f32, [1, 2, 3, 4, 5]>
  %1 = ddp.extract %0 [1, 2] : !ddp.bucket<f32, [2, 3, 4]>
  return %1 : !ddp.bucket<f32, [3, 4]>
}

// CHECK-LABEL: func @extract_of_concat(
// CHECK-SAME:    %[[X:[a-z0-9]+]]: !ddp.bucket<f32, [4]>, %[[Y:[a-z0-9]+]]: !ddp.bucket<f32, [5, 6]>
// CHECK-NEXT:  return %[[Y]]
func.func @extract_of_concat(%x: !ddp.bucket<f32, [4]>,
                             %y: !ddp.bucket<f32, [5, 6]>)
    -> !ddp.bucket<f32, [5, 6]> {
  %0 = ddp.concat %x, %y : !ddp.bucket<f32, [4]>, !ddp.bucket<f32, [5, 6]>
      -> !ddp.bucket<f32, [4, 5, 6]>
  %1 = ddp.extract %0 [1, 2] : !ddp.bucket<f32, [4, 5, 6]>
  return %1 : !ddp.bucket<f32, [5, 6]>
}

// A part of a part, or parts of two: stays.
// CHECK-LABEL: func @extract_of_concat_differs(
// CHECK:         %[[C:.+]] = ddp.concat
// CHECK:         %[[PART:.+]] = ddp.extract %[[C]] [1]
// CHECK:         %[[BOTH:.+]] = ddp.extract %[[C]] [0, 1]
// CHECK:         return %[[PART]], %[[BOTH]]
func.func @extract_of_concat_differs(%x: !ddp.bucket<f32, [4]>,
                                     %y: !ddp.bucket<f32, [5, 6]>)
    -> (!ddp.bucket<f32, [5]>, !ddp.bucket<f32, [4, 5]>) {
  %0 = ddp.concat %x, %y : !ddp.bucket<f32, [4]>, !ddp.bucket<f32, [5, 6]>
      -> !ddp.bucket<f32, [4, 5, 6]>
  %1 = ddp.extract %0 [1] : !ddp.bucket<f32, [4, 5, 6]>
  %2 = ddp.extract %0 [0, 1] : !ddp.bucket<f32, [4, 5, 6]>
  return %1, %2 : !ddp.bucket<f32, [5]>, !ddp.bucket<f32, [4, 5]>
}

// Where a part has no members, several parts begin at the same one.
// CHECK-LABEL: func @extract_behind_empty_part(
// CHECK-SAME:    %[[E:[a-z0-9]+]]: !ddp.bucket<f32, []>, %[[X:[a-z0-9]+]]: !ddp.bucket<f32, [4]>, %[[Y:[a-z0-9]+]]: !ddp.bucket<f32, [5]>
// CHECK-NEXT:  return %[[X]], %[[Y]]
func.func @extract_behind_empty_part(%e: !ddp.bucket<f32, []>,
                                     %x: !ddp.bucket<f32, [4]>,
                                     %y: !ddp.bucket<f32, [5]>)
    -> (!ddp.bucket<f32, [4]>, !ddp.bucket<f32, [5]>) {
  %0 = ddp.concat %e, %x, %y
      : !ddp.bucket<f32, []>, !ddp.bucket<f32, [4]>, !ddp.bucket<f32, [5]>
      -> !ddp.bucket<f32, [4, 5]>
  %1 = ddp.extract %0 [0] : !ddp.bucket<f32, [4, 5]>
  %2 = ddp.extract %0 [1] : !ddp.bucket<f32, [4, 5]>
  return %1, %2 : !ddp.bucket<f32, [4]>, !ddp.bucket<f32, [5]>
}

// Nothing of something: no bucket to forward.
// CHECK-LABEL: func @extract_nothing(
// CHECK:         %[[R:.+]] = ddp.extract %{{.+}} []
// CHECK:         return %[[R]]
func.func @extract_nothing(%b: !ddp.bucket<f32, [4, 5]>)
    -> !ddp.bucket<f32, []> {
  %0 = ddp.extract %b [1] : !ddp.bucket<f32, [4, 5]>
  %1 = ddp.extract %0 [] : !ddp.bucket<f32, [5]>
  return %1 : !ddp.bucket<f32, []>
}

// CHECK-LABEL: func @concat_of_one(
// CHECK-SAME:    %[[B:[a-z0-9]+]]: !ddp.bucket<f32, [4]>, %[[T:[a-z0-9]+]]: tensor<4xf32>
// CHECK-NEXT:  return %[[B]], %[[T]]
func.func @concat_of_one(%b: !ddp.bucket<f32, [4]>, %t: tensor<4xf32>)
    -> (!ddp.bucket<f32, [4]>, tensor<4xf32>) {
  %0 = ddp.concat %b : !ddp.bucket<f32, [4]> -> !ddp.bucket<f32, [4]>
  %1 = ddp.concat %t : tensor<4xf32> -> tensor<4xf32>
  return %0, %1 : !ddp.bucket<f32, [4]>, tensor<4xf32>
}

// CHECK-LABEL: func @concat_of_extracts(
// CHECK-SAME:    %[[B:.+]]: !ddp.bucket<f32, [4, 5, 6]>
// CHECK-NEXT:  return %[[B]]
func.func @concat_of_extracts(%b: !ddp.bucket<f32, [4, 5, 6]>)
    -> !ddp.bucket<f32, [4, 5, 6]> {
  %0 = ddp.extract %b [0] : !ddp.bucket<f32, [4, 5, 6]>
  %1 = ddp.extract %b [1, 2] : !ddp.bucket<f32, [4, 5, 6]>
  %2 = ddp.concat %0, %1 : !ddp.bucket<f32, [4]>, !ddp.bucket<f32, [5, 6]>
      -> !ddp.bucket<f32, [4, 5, 6]>
  return %2 : !ddp.bucket<f32, [4, 5, 6]>
}

// Another order; not all of it; two buckets.
// CHECK-LABEL: func @concat_of_extracts_differs(
// CHECK:         %[[SWAPPED:.+]] = ddp.concat
// CHECK:         %[[LESS:.+]] = ddp.concat
// CHECK:         %[[MIXED:.+]] = ddp.concat
// CHECK:         return %[[SWAPPED]], %[[LESS]], %[[MIXED]]
func.func @concat_of_extracts_differs(%b: !ddp.bucket<f32, [4, 4, 4]>,
                                      %c: !ddp.bucket<f32, [4, 4, 4]>)
    -> (!ddp.bucket<f32, [4, 4, 4]>, !ddp.bucket<f32, [4, 4]>,
        !ddp.bucket<f32, [4, 4, 4]>) {
  %0 = ddp.extract %b [0] : !ddp.bucket<f32, [4, 4, 4]>
  %1 = ddp.extract %b [1] : !ddp.bucket<f32, [4, 4, 4]>
  %2 = ddp.extract %b [2] : !ddp.bucket<f32, [4, 4, 4]>
  %3 = ddp.extract %c [1, 2] : !ddp.bucket<f32, [4, 4, 4]>
  %4 = ddp.concat %1, %0, %2
      : !ddp.bucket<f32, [4]>, !ddp.bucket<f32, [4]>, !ddp.bucket<f32, [4]>
      -> !ddp.bucket<f32, [4, 4, 4]>
  %5 = ddp.concat %0, %1 : !ddp.bucket<f32, [4]>, !ddp.bucket<f32, [4]>
      -> !ddp.bucket<f32, [4, 4]>
  %6 = ddp.concat %0, %3 : !ddp.bucket<f32, [4]>, !ddp.bucket<f32, [4, 4]>
      -> !ddp.bucket<f32, [4, 4, 4]>
  return %4, %5, %6 : !ddp.bucket<f32, [4, 4, 4]>, !ddp.bucket<f32, [4, 4]>,
      !ddp.bucket<f32, [4, 4, 4]>
}

//===----------------------------------------------------------------------===//
// cast, scale
//===----------------------------------------------------------------------===//

// CHECK-LABEL: func @cast_to_itself(
// CHECK-SAME:    %[[T:.+]]: tensor<4xf16>
// CHECK-NEXT:  return %[[T]]
func.func @cast_to_itself(%t: tensor<4xf16>) -> tensor<4xf16> {
  %0 = ddp.cast %t : tensor<4xf16> -> tensor<4xf16>
  return %0 : tensor<4xf16>
}

// f16 → f32 → f16 and bf16 → f64 → bf16 lose nothing on the way.
// CHECK-LABEL: func @cast_there_and_back(
// CHECK-SAME:    %[[X:[a-z0-9]+]]: !ddp.bucket<f16, [4]>, %[[Y:[a-z0-9]+]]: tensor<4xbf16>, %[[Z:[a-z0-9]+]]: tensor<4xf32>
// CHECK-NEXT:  return %[[X]], %[[Y]], %[[Z]]
func.func @cast_there_and_back(%x: !ddp.bucket<f16, [4]>, %y: tensor<4xbf16>,
                               %z: tensor<4xf32>)
    -> (!ddp.bucket<f16, [4]>, tensor<4xbf16>, tensor<4xf32>) {
  %0 = ddp.cast %x : !ddp.bucket<f16, [4]> -> !ddp.bucket<f32, [4]>
  %1 = ddp.cast %0 : !ddp.bucket<f32, [4]> -> !ddp.bucket<f16, [4]>
  %2 = ddp.cast %y : tensor<4xbf16> -> tensor<4xf64>
  %3 = ddp.cast %2 : tensor<4xf64> -> tensor<4xbf16>
  %4 = ddp.cast %z : tensor<4xf32> -> tensor<4xf64>
  %5 = ddp.cast %4 : tensor<4xf64> -> tensor<4xf32>
  return %1, %3, %5 : !ddp.bucket<f16, [4]>, tensor<4xbf16>, tensor<4xf32>
}

// f16 → f32 → bf16 is one cast; the first lost nothing.
// CHECK-LABEL: func @cast_skips_lossless(
// CHECK-SAME:    %[[X:.+]]: tensor<4xf16>
// CHECK-NEXT:  %[[R:.+]] = ddp.cast %[[X]] : tensor<4xf16> -> tensor<4xbf16>
// CHECK-NEXT:  return %[[R]]
func.func @cast_skips_lossless(%x: tensor<4xf16>) -> tensor<4xbf16> {
  %0 = ddp.cast %x : tensor<4xf16> -> tensor<4xf32>
  %1 = ddp.cast %0 : tensor<4xf32> -> tensor<4xbf16>
  return %1 : tensor<4xbf16>
}

// A cast that rounds stays: to half and back, to bfloat16 through half, from
// double through float.
// CHECK-LABEL: func @cast_that_rounds(
// CHECK-SAME:    %[[X:[a-z0-9]+]]: tensor<4xf32>, %[[Y:[a-z0-9]+]]: tensor<4xf64>, %[[Z:[a-z0-9]+]]: tensor<4xbf16>
// CHECK:         %[[A:.+]] = ddp.cast %[[X]] : tensor<4xf32> -> tensor<4xf16>
// CHECK:         %[[B:.+]] = ddp.cast %[[A]] : tensor<4xf16> -> tensor<4xf32>
// CHECK:         %[[C:.+]] = ddp.cast %[[Y]] : tensor<4xf64> -> tensor<4xf32>
// CHECK:         %[[D:.+]] = ddp.cast %[[C]] : tensor<4xf32> -> tensor<4xf16>
// CHECK:         %[[E:.+]] = ddp.cast %[[Z]] : tensor<4xbf16> -> tensor<4xf16>
// CHECK:         %[[F:.+]] = ddp.cast %[[E]] : tensor<4xf16> -> tensor<4xbf16>
// CHECK:         return %[[B]], %[[D]], %[[F]]
func.func @cast_that_rounds(%x: tensor<4xf32>, %y: tensor<4xf64>,
                            %z: tensor<4xbf16>)
    -> (tensor<4xf32>, tensor<4xf16>, tensor<4xbf16>) {
  %0 = ddp.cast %x : tensor<4xf32> -> tensor<4xf16>
  %1 = ddp.cast %0 : tensor<4xf16> -> tensor<4xf32>
  %2 = ddp.cast %y : tensor<4xf64> -> tensor<4xf32>
  %3 = ddp.cast %2 : tensor<4xf32> -> tensor<4xf16>
  %4 = ddp.cast %z : tensor<4xbf16> -> tensor<4xf16>
  %5 = ddp.cast %4 : tensor<4xf16> -> tensor<4xbf16>
  return %1, %3, %5 : tensor<4xf32>, tensor<4xf16>, tensor<4xbf16>
}

// With a place to write to, and on memory, a cast is not only its value.
// CHECK-LABEL: func @cast_into(
// CHECK:         %[[T:.+]] = ddp.flat.cast %{{.+}} into
// CHECK:         ddp.flat.cast %{{.+}} into %{{.+}} : memref<4xf32>, memref<4xf32>
// CHECK:         return %[[T]]
func.func @cast_into(%x: tensor<4xf32>, %d: tensor<4xf32>, %m: memref<4xf32>,
                     %n: memref<4xf32>) -> tensor<4xf32> {
  %0 = ddp.flat.cast %x into %d : tensor<4xf32>, tensor<4xf32>
  ddp.flat.cast %m into %n : memref<4xf32>, memref<4xf32>
  return %0 : tensor<4xf32>
}

// CHECK-LABEL: func @scale_by_one(
// CHECK-SAME:    %[[T:.+]]: tensor<4xf16>
// CHECK-NEXT:  return %[[T]]
func.func @scale_by_one(%t: tensor<4xf16>) -> tensor<4xf16> {
  %0 = ddp.scale %t by 1.0 : tensor<4xf16>
  return %0 : tensor<4xf16>
}

// A group's size is not known to be one; two is not one; memory is written.
// CHECK-LABEL: func @scale_differs(
// CHECK-SAME:    %[[T:[a-z0-9]+]]: tensor<4xf16>, %[[M:[a-z0-9]+]]: memref<4xf16>, %[[N:[a-z0-9]+]]: memref<4xf16>
// CHECK:         %[[A:.+]] = ddp.scale %[[T]] by_world_of @dp
// CHECK:         %[[B:.+]] = ddp.scale %[[A]] by 2.0
// CHECK:         ddp.flat.scale %[[M]] by 1.0{{.+}} into %[[N]]
// CHECK:         return %[[B]]
func.func @scale_differs(%t: tensor<4xf16>, %m: memref<4xf16>,
                         %n: memref<4xf16>) -> tensor<4xf16> {
  %0 = ddp.scale %t by_world_of @dp : tensor<4xf16>
  %1 = ddp.scale %0 by 2.0 : tensor<4xf16>
  ddp.flat.scale %m by 1.0 into %n : memref<4xf16>, memref<4xf16>
  return %1 : tensor<4xf16>
}

//===----------------------------------------------------------------------===//
// view
//===----------------------------------------------------------------------===//

// CHECK-LABEL: func @view_of_all(
// CHECK-SAME:    %[[M:.+]]: memref<8xf32>
// CHECK-NEXT:  return %[[M]]
func.func @view_of_all(%m: memref<8xf32>) -> memref<8xf32> {
  %0 = ddp.view %m[0] : memref<8xf32> to memref<8xf32>
  return %0 : memref<8xf32>
}

// CHECK-LABEL: func @view_of_view(
// CHECK-SAME:    %[[M:.+]]: memref<8xf32>
// CHECK-NEXT:  %[[V:.+]] = ddp.view %[[M]][5] : memref<8xf32> to memref<1x2xf32>
// CHECK-NEXT:  return %[[V]]
func.func @view_of_view(%m: memref<8xf32>) -> memref<1x2xf32> {
  %0 = ddp.view %m[3] : memref<8xf32> to memref<5xf32>
  %1 = ddp.view %0[2] : memref<5xf32> to memref<1x2xf32>
  return %1 : memref<1x2xf32>
}

// CHECK-LABEL: func @view_with_another_shape(
// CHECK:         %[[V:.+]] = ddp.view %{{.+}}[0] : memref<8xf32> to memref<2x4xf32>
// CHECK:         return %[[V]]
func.func @view_with_another_shape(%m: memref<8xf32>) -> memref<2x4xf32> {
  %0 = ddp.view %m[0] : memref<8xf32> to memref<2x4xf32>
  return %0 : memref<2x4xf32>
}

//===----------------------------------------------------------------------===//
// Effects
//===----------------------------------------------------------------------===//

// A collective that nobody looks at stays (other ranks take part in it), and
// two equal ones stay two; computations without users go.
// CHECK-LABEL: func @effects(
// CHECK-SAME:    %[[T:.+]]: tensor<4xf32>
// CHECK-NEXT:  ddp.all_reduce mean %[[T]]
// CHECK-NEXT:  ddp.all_reduce mean %[[T]]
// CHECK-NEXT:  return
func.func @effects(%t: tensor<4xf32>) {
  %0 = ddp.all_reduce mean %t on @dp : tensor<4xf32>
  %1 = ddp.all_reduce mean %t on @dp : tensor<4xf32>
  %2 = ddp.scale %t by 2.0 : tensor<4xf32>
  %3 = ddp.cast %2 : tensor<4xf32> -> tensor<4xf16>
  %4 = ddp.pack %t : tensor<4xf32> -> !ddp.bucket<f32, [4]>
  return
}
