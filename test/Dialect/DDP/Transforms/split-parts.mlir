// RUN: ddphook-opt %s --pass-pipeline='builtin.module(ddp-flatten,ddp-thread-states,func.func(ddp-assign-destinations))' -split-input-file | FileCheck %s --check-prefix=DEST
// RUN: ddphook-opt %s --pass-pipeline='builtin.module(ddp-flatten,ddp-thread-states,func.func(ddp-assign-destinations,ddp-materialize-buckets))' -split-input-file | FileCheck %s --check-prefix=VIEWS

// Parts of a bucket that are computed where they lie, and what was split is whole
// again without a copy.

// DEST-LABEL: func @in_place(
// DEST:         %[[B:.+]] = ddp.pack
// DEST:         %[[P:.+]]:2 = ddp.split %[[B]]
// DEST:         %[[X:.+]] = ddp.flat.scale %[[P]]#0 {{.+}} into %[[P]]#0
// DEST:         %[[Y:.+]] = ddp.flat.cast %{{.+}} into %[[P]]#1
// DEST:         ddp.concat %[[X]], %[[Y]] into %[[B]]
// VIEWS-LABEL: func @in_place(
// VIEWS:         %[[MEM:.+]] = bufferization.to_buffer %{{.+}} : tensor<9xf32> to memref<9xf32>
// VIEWS:         %[[V0:.+]] = ddp.view %[[MEM]][0] : memref<9xf32> to memref<4xf32>
// VIEWS:         bufferization.to_tensor %[[V0]] restrict writable
// VIEWS:         %[[V1:.+]] = ddp.view %[[MEM]][4] : memref<9xf32> to memref<5xf32>
// VIEWS:         bufferization.to_tensor %[[V1]] restrict writable
// VIEWS:         %[[W0:.+]] = ddp.view %[[MEM]][0]
// VIEWS:         bufferization.materialize_in_destination %{{.+}} in writable %[[W0]]
// VIEWS:         %[[W1:.+]] = ddp.view %[[MEM]][4]
// VIEWS:         bufferization.materialize_in_destination %{{.+}} in writable %[[W1]]
// VIEWS:         bufferization.to_tensor %[[MEM]] restrict writable
func.func @in_place(%s: tensor<4xf32>, %t: tensor<5xf32>)
    -> (tensor<4xf32>, tensor<5xf32>) {
  %b = ddp.pack %s, %t : tensor<4xf32>, tensor<5xf32>
      -> !ddp.bucket<f32, [4, 5]>
  %x, %y = ddp.split %b : !ddp.bucket<f32, [4, 5]>
      -> !ddp.bucket<f32, [4]>, !ddp.bucket<f32, [5]>
  %x1 = ddp.scale %x by 2.0 : !ddp.bucket<f32, [4]>
  %h = ddp.cast %y : !ddp.bucket<f32, [5]> -> !ddp.bucket<f16, [5]>
  %y1 = ddp.cast %h : !ddp.bucket<f16, [5]> -> !ddp.bucket<f32, [5]>
  %c = ddp.concat %x1, %y1 : !ddp.bucket<f32, [4]>, !ddp.bucket<f32, [5]>
      -> !ddp.bucket<f32, [4, 5]>
  %r:2 = ddp.unpack %c : !ddp.bucket<f32, [4, 5]>
      -> tensor<4xf32>, tensor<5xf32>
  return %r#0, %r#1 : tensor<4xf32>, tensor<5xf32>
}

// -----

// The bucket is needed behind the split: its parts are only read, and the result
// lies elsewhere.

// DEST-LABEL: func @bucket_needed(
// DEST:         %[[B:.+]] = ddp.pack
// DEST:         %[[P:.+]]:2 = ddp.split %[[B]]
// DEST-NOT:     into %[[P]]
// DEST-NOT:     into %[[B]]
// DEST:         return
// VIEWS-LABEL: func @bucket_needed(
// VIEWS:         bufferization.to_buffer %{{.+}} read_only : tensor<9xf32> to memref<9xf32>
func.func @bucket_needed(%s: tensor<4xf32>, %t: tensor<5xf32>)
    -> (tensor<4xf32>, tensor<5xf32>, tensor<4xf32>, tensor<5xf32>) {
  %b = ddp.pack %s, %t : tensor<4xf32>, tensor<5xf32>
      -> !ddp.bucket<f32, [4, 5]>
  %x, %y = ddp.split %b : !ddp.bucket<f32, [4, 5]>
      -> !ddp.bucket<f32, [4]>, !ddp.bucket<f32, [5]>
  %x1 = ddp.scale %x by 2.0 : !ddp.bucket<f32, [4]>
  %y1 = ddp.scale %y by 2.0 : !ddp.bucket<f32, [5]>
  %c = ddp.concat %x1, %y1 : !ddp.bucket<f32, [4]>, !ddp.bucket<f32, [5]>
      -> !ddp.bucket<f32, [4, 5]>
  %q:2 = ddp.unpack %b : !ddp.bucket<f32, [4, 5]>
      -> tensor<4xf32>, tensor<5xf32>
  %r:2 = ddp.unpack %c : !ddp.bucket<f32, [4, 5]>
      -> tensor<4xf32>, tensor<5xf32>
  return %q#0, %q#1, %r#0, %r#1
      : tensor<4xf32>, tensor<5xf32>, tensor<4xf32>, tensor<5xf32>
}

// -----

// Parts that change places are no bucket that was split.

// DEST-LABEL: func @swapped(
// DEST:         %[[B:.+]] = ddp.pack
// DEST-NOT:     ddp.concat
// DEST:         return
func.func @swapped(%s: tensor<4xf32>, %t: tensor<4xf32>)
    -> (tensor<4xf32>, tensor<4xf32>) {
  %b = ddp.pack %s, %t : tensor<4xf32>, tensor<4xf32>
      -> !ddp.bucket<f32, [4, 4]>
  %x, %y = ddp.split %b : !ddp.bucket<f32, [4, 4]>
      -> !ddp.bucket<f32, [4]>, !ddp.bucket<f32, [4]>
  %c = ddp.concat %y, %x : !ddp.bucket<f32, [4]>, !ddp.bucket<f32, [4]>
      -> !ddp.bucket<f32, [4, 4]>
  %r:2 = ddp.unpack %c : !ddp.bucket<f32, [4, 4]>
      -> tensor<4xf32>, tensor<4xf32>
  return %r#0, %r#1 : tensor<4xf32>, tensor<4xf32>
}

// -----

// A state's parts: the new ones are where the old ones were.

ddp.state @s : !ddp.bucket<f32, [4, 5]> per_rank zero

// DEST-LABEL: func @state(
// DEST:         %[[OLD:.+]] = ddp.load @s
// DEST:         %[[P:.+]]:2 = ddp.split %[[OLD]]
// DEST:         %[[X:.+]] = ddp.flat.add {{.+}} into %[[P]]#0
// DEST:         %[[Y:.+]] = ddp.flat.add {{.+}} into %[[P]]#1
// DEST:         %[[NEW:.+]] = ddp.concat %[[X]], %[[Y]] into %[[OLD]]
// DEST:         ddp.store %[[NEW]], @s
func.func @state(%b: !ddp.bucket<f32, [4, 5]>) {
  %old = ddp.load @s : !ddp.bucket<f32, [4, 5]>
  %g:2 = ddp.split %b : !ddp.bucket<f32, [4, 5]>
      -> !ddp.bucket<f32, [4]>, !ddp.bucket<f32, [5]>
  %e:2 = ddp.split %old : !ddp.bucket<f32, [4, 5]>
      -> !ddp.bucket<f32, [4]>, !ddp.bucket<f32, [5]>
  %x = ddp.add %g#0, %e#0 : !ddp.bucket<f32, [4]>, !ddp.bucket<f32, [4]>
  %y = ddp.add %g#1, %e#1 : !ddp.bucket<f32, [5]>, !ddp.bucket<f32, [5]>
  %new = ddp.concat %x, %y : !ddp.bucket<f32, [4]>, !ddp.bucket<f32, [5]>
      -> !ddp.bucket<f32, [4, 5]>
  ddp.store %new, @s : !ddp.bucket<f32, [4, 5]>
  return
}

// -----

// What ends in a state's part a few operations later is computed there from the
// beginning, once nothing needs the part's old value; only what the state gets.

ddp.process_group @dp
ddp.state @q : !ddp.bucket<f32, [4, 4]> replicated zero

// DEST-LABEL: func @ends_in_state(
// DEST:         %[[OLD:.+]] = ddp.load @q
// DEST:         %[[P:.+]]:2 = ddp.split %[[OLD]]
// DEST:         ddp.flat.cast %[[P]]#0
// DEST-NOT:     into %[[P]]
// DEST:         %[[N0:.+]] = ddp.flat.cast {{.+}} into %[[P]]#0 : tensor<4xf16>
// DEST:         %[[S0:.+]] = ddp.flat.all_reduce sum %[[N0]] {{.+}} into %[[N0]]
// DEST:         ddp.flat.cast %[[P]]#1
// DEST-NOT:     into %[[P]]
// DEST:         %[[N1:.+]] = ddp.flat.cast {{.+}} into %[[P]]#1 : tensor<4xf16>
// DEST:         %[[S1:.+]] = ddp.flat.all_reduce sum %[[N1]] {{.+}} into %[[N1]]
// DEST:         %[[NEW:.+]] = ddp.concat %[[S0]], %[[S1]] into %[[OLD]]
// DEST:         ddp.store %[[NEW]], @q
func.func @ends_in_state() -> (!ddp.bucket<f16, [4]>, !ddp.bucket<f16, [4]>) {
  %old = ddp.load @q : !ddp.bucket<f32, [4, 4]>
  %e:2 = ddp.split %old : !ddp.bucket<f32, [4, 4]>
      -> !ddp.bucket<f32, [4]>, !ddp.bucket<f32, [4]>
  %h0 = ddp.cast %e#0 : !ddp.bucket<f32, [4]> -> !ddp.bucket<f16, [4]>
  %n0 = ddp.cast %h0 : !ddp.bucket<f16, [4]> -> !ddp.bucket<f32, [4]>
  %s0 = ddp.all_reduce sum %n0 on @dp as "b" : !ddp.bucket<f32, [4]>
  %h1 = ddp.cast %e#1 : !ddp.bucket<f32, [4]> -> !ddp.bucket<f16, [4]>
  %n1 = ddp.cast %h1 : !ddp.bucket<f16, [4]> -> !ddp.bucket<f32, [4]>
  %s1 = ddp.all_reduce sum %n1 on @dp as "b" : !ddp.bucket<f32, [4]>
  %new = ddp.concat %s0, %s1 : !ddp.bucket<f32, [4]>, !ddp.bucket<f32, [4]>
      -> !ddp.bucket<f32, [4, 4]>
  ddp.store %new, @q : !ddp.bucket<f32, [4, 4]>
  return %h0, %h1 : !ddp.bucket<f16, [4]>, !ddp.bucket<f16, [4]>
}
