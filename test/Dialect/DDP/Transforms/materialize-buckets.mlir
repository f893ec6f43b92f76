// RUN: ddphook-opt %s --pass-pipeline="builtin.module(func.func(ddp-materialize-buckets))" -split-input-file | FileCheck %s
// RUN: ddphook-opt %s --pass-pipeline="builtin.module(func.func(ddp-materialize-buckets))" -split-input-file --remarks-filter=.* --remark-format=emitRemark 2>&1 >/dev/null | FileCheck %s --check-prefix=REMARK

// Which gradients are born in their bucket, and which have to be copied. What
// is copied is seen by whether the producer's destination is a view of the
// bucket.

// Destination-passing operations that start from a tensor.empty.
// CHECK-LABEL: func @born(
// CHECK-SAME:    %[[X:[a-z0-9]+]]: tensor<4x2xf32>, %[[Y:[a-z0-9]+]]: tensor<2x8xf32>, %[[Z:[a-z0-9]+]]: tensor<f32>
// CHECK:         %[[B:.+]] = memref.alloc() {alignment = 64 : i64} : memref<33xf32>
// CHECK-DAG:     %[[V0:.+]] = ddp.view %[[B]][0] : memref<33xf32> to memref<4x8xf32>
// CHECK-DAG:     %[[T0:.+]] = bufferization.to_tensor %[[V0]] restrict writable
// CHECK-DAG:     %[[V1:.+]] = ddp.view %[[B]][32] : memref<33xf32> to memref<f32>
// CHECK-DAG:     %[[T1:.+]] = bufferization.to_tensor %[[V1]] restrict writable
// CHECK-NOT:     bufferization.alloc_tensor
// CHECK:         %[[F:.+]] = linalg.fill {{.+}} outs(%[[T0]] :
// CHECK:         %[[G0:.+]] = linalg.matmul {{.+}} outs(%[[F]] :
// CHECK:         %[[G1:.+]] = linalg.exp {{.+}} outs(%[[T1]] :
// CHECK-DAG:     bufferization.materialize_in_destination %[[G0]] in writable %[[V0]]
// CHECK-DAG:     bufferization.materialize_in_destination %[[G1]] in writable %[[V1]]
// CHECK:         %[[P:.+]] = bufferization.to_tensor %[[B]] restrict writable : memref<33xf32>
// CHECK:         %[[R:.+]] = ddp.flat.all_reduce mean %[[P]] on @dp into %[[P]]
// CHECK:         %[[M:.+]] = bufferization.to_buffer %[[R]] :
// CHECK-DAG:     %[[U0:.+]] = ddp.view %[[M]][0] : memref<33xf32> to memref<4x8xf32>
// CHECK-DAG:     %[[U1:.+]] = ddp.view %[[M]][32] : memref<33xf32> to memref<f32>
// CHECK-DAG:     %[[R0:.+]] = bufferization.to_tensor %[[U0]] restrict writable
// CHECK-DAG:     %[[R1:.+]] = bufferization.to_tensor %[[U1]] restrict writable
// CHECK:         return %[[R0]], %[[R1]]
// REMARK-NOT: remark
ddp.process_group @dp
func.func @born(%x: tensor<4x2xf32>, %y: tensor<2x8xf32>, %z: tensor<f32>)
    -> (tensor<4x8xf32>, tensor<f32>) {
  %zero = arith.constant 0.0 : f32
  %e0 = tensor.empty() : tensor<4x8xf32>
  %f0 = linalg.fill ins(%zero : f32) outs(%e0 : tensor<4x8xf32>)
      -> tensor<4x8xf32>
  %g0 = linalg.matmul ins(%x, %y : tensor<4x2xf32>, tensor<2x8xf32>)
      outs(%f0 : tensor<4x8xf32>) -> tensor<4x8xf32>
  %e1 = tensor.empty() : tensor<f32>
  %g1 = linalg.exp ins(%z : tensor<f32>) outs(%e1 : tensor<f32>) -> tensor<f32>
  %b = ddp.pack %g0, %g1 : tensor<4x8xf32>, tensor<f32> -> tensor<33xf32>
  %r = ddp.flat.all_reduce mean %b on @dp into %b : tensor<33xf32>, tensor<33xf32>
  %u:2 = ddp.unpack %r : tensor<33xf32> -> tensor<4x8xf32>, tensor<f32>
  return %u#0, %u#1 : tensor<4x8xf32>, tensor<f32>
}

// -----

// One fill that two gradients share: each gets its own.
// CHECK-LABEL: func @shared_fill(
// CHECK:         %[[V0:.+]] = ddp.view %{{.+}}[0]
// CHECK:         %[[T0:.+]] = bufferization.to_tensor %[[V0]]
// CHECK:         %[[V1:.+]] = ddp.view %{{.+}}[4]
// CHECK:         %[[T1:.+]] = bufferization.to_tensor %[[V1]]
// CHECK-NOT:     bufferization.alloc_tensor
// CHECK-DAG:     %[[F0:.+]] = linalg.fill {{.+}} outs(%[[T0]] :
// CHECK-DAG:     linalg.{{exp|map}} {{.+}} outs(%[[F0]] :
// CHECK-DAG:     %[[F1:.+]] = linalg.fill {{.+}} outs(%[[T1]] :
// CHECK-DAG:     linalg.{{exp|map}} {{.+}} outs(%[[F1]] :
func.func @shared_fill(%x: tensor<4xf32>, %y: tensor<4xf32>) -> tensor<8xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<4xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<4xf32>) -> tensor<4xf32>
  %g0 = linalg.exp ins(%x : tensor<4xf32>) outs(%f : tensor<4xf32>)
      -> tensor<4xf32>
  %g1 = linalg.exp ins(%y : tensor<4xf32>) outs(%f : tensor<4xf32>)
      -> tensor<4xf32>
  %b = ddp.pack %g0, %g1 : tensor<4xf32>, tensor<4xf32> -> tensor<8xf32>
  return %b : tensor<8xf32>
}

// -----

// Made by a loop.
// CHECK-LABEL: func @loop(
// CHECK:         %[[V:.+]] = ddp.view %{{.+}}[0]
// CHECK:         %[[T:.+]] = bufferization.to_tensor %[[V]]
// CHECK-NOT:     bufferization.alloc_tensor
// CHECK:         %[[F:.+]] = linalg.fill {{.+}} outs(%[[T]] :
// CHECK:         scf.for {{.+}} iter_args(%{{.+}} = %[[F]])
func.func @loop(%x: tensor<4xf32>) -> tensor<4xf32> {
  %zero = arith.constant 0.0 : f32
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c3 = arith.constant 3 : index
  %e = tensor.empty() : tensor<4xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<4xf32>) -> tensor<4xf32>
  %g = scf.for %i = %c0 to %c3 step %c1 iter_args(%acc = %f) -> tensor<4xf32> {
    %s = linalg.add ins(%acc, %x : tensor<4xf32>, tensor<4xf32>)
        outs(%acc : tensor<4xf32>) -> tensor<4xf32>
    scf.yield %s : tensor<4xf32>
  }
  %b = ddp.pack %g : tensor<4xf32> -> tensor<4xf32>
  return %b : tensor<4xf32>
}

// -----

// Transposed on the way into the bucket; what it is transposed from stands
// elsewhere.
// CHECK-LABEL: func @transposed(
// CHECK:         %[[V:.+]] = ddp.view %{{.+}}[0] : memref<8xf32> to memref<4x2xf32>
// CHECK:         %[[T:.+]] = bufferization.to_tensor %[[V]]
// CHECK:         %[[E:.+]] = bufferization.alloc_tensor() : tensor<2x4xf32>
// CHECK:         linalg.exp {{.+}} outs(%[[E]] :
// CHECK:         linalg.transpose {{.+}} outs(%[[T]] :
func.func @transposed(%x: tensor<2x4xf32>) -> tensor<8xf32> {
  %e = tensor.empty() : tensor<2x4xf32>
  %h = linalg.exp ins(%x : tensor<2x4xf32>) outs(%e : tensor<2x4xf32>)
      -> tensor<2x4xf32>
  %t = tensor.empty() : tensor<4x2xf32>
  %g = linalg.transpose ins(%h : tensor<2x4xf32>) outs(%t : tensor<4x2xf32>)
      permutation = [1, 0]
  %b = ddp.pack %g : tensor<4x2xf32> -> tensor<8xf32>
  return %b : tensor<8xf32>
}

// -----

// Read by another operation before the bucket is reduced: still no copy.
// CHECK-LABEL: func @read_before(
// CHECK:         %[[V:.+]] = ddp.view %{{.+}}[0]
// CHECK:         %[[T:.+]] = bufferization.to_tensor %[[V]]
// CHECK:         %[[G:.+]] = linalg.exp {{.+}} outs(%[[T]] :
// CHECK:         linalg.mul ins(%[[G]], %[[G]] :
ddp.process_group @dp
func.func @read_before(%x: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
  %e = tensor.empty() : tensor<4xf32>
  %g = linalg.exp ins(%x : tensor<4xf32>) outs(%e : tensor<4xf32>)
      -> tensor<4xf32>
  %q = tensor.empty() : tensor<4xf32>
  %b = ddp.pack %g : tensor<4xf32> -> tensor<4xf32>
  %s = linalg.mul ins(%g, %g : tensor<4xf32>, tensor<4xf32>)
      outs(%q : tensor<4xf32>) -> tensor<4xf32>
  %r = ddp.flat.all_reduce mean %b on @dp into %b : tensor<4xf32>, tensor<4xf32>
  return %r, %s : tensor<4xf32>, tensor<4xf32>
}

// -----

// Read after the bucket was reduced: the local gradient needs its own memory.
// CHECK-LABEL: func @read_after(
// CHECK:         %[[V:.+]] = ddp.view %{{.+}}[0]
// CHECK:         %[[E:.+]] = bufferization.alloc_tensor() : tensor<4xf32>
// CHECK:         %[[G:.+]] = linalg.exp {{.+}} outs(%[[E]] :
// CHECK:         bufferization.materialize_in_destination %[[G]] in writable %[[V]]
// CHECK:         ddp.flat.all_reduce
// CHECK:         linalg.mul ins(%[[G]], %[[G]] :
// REMARK:      remark: [Missed] BucketView | Category:ddp-materialize-buckets | Remark="gradients are copied into their bucket", copied=1, gradients=1
ddp.process_group @dp
func.func @read_after(%x: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
  %e = tensor.empty() : tensor<4xf32>
  %g = linalg.exp ins(%x : tensor<4xf32>) outs(%e : tensor<4xf32>)
      -> tensor<4xf32>
  %q = tensor.empty() : tensor<4xf32>
  %b = ddp.pack %g : tensor<4xf32> -> tensor<4xf32>
  %r = ddp.flat.all_reduce mean %b on @dp into %b : tensor<4xf32>, tensor<4xf32>
  %s = linalg.mul ins(%g, %g : tensor<4xf32>, tensor<4xf32>)
      outs(%q : tensor<4xf32>) -> tensor<4xf32>
  return %r, %s : tensor<4xf32>, tensor<4xf32>
}

// -----

// Not only read: returned, sliced (a view that may live on), captured in a
// branch behind the reduction.
// CHECK-LABEL: func @escapes(
// CHECK-COUNT-3: bufferization.alloc_tensor() : tensor<4xf32>
// CHECK-NOT:     bufferization.alloc_tensor
ddp.process_group @dp
func.func @escapes(%x: tensor<4xf32>, %c: i1)
    -> (tensor<12xf32>, tensor<4xf32>, tensor<2xf32>, tensor<4xf32>) {
  %e0 = tensor.empty() : tensor<4xf32>
  %g0 = linalg.exp ins(%x : tensor<4xf32>) outs(%e0 : tensor<4xf32>)
      -> tensor<4xf32>
  %e1 = tensor.empty() : tensor<4xf32>
  %g1 = linalg.exp ins(%x : tensor<4xf32>) outs(%e1 : tensor<4xf32>)
      -> tensor<4xf32>
  %s1 = tensor.extract_slice %g1[1] [2] [1] : tensor<4xf32> to tensor<2xf32>
  %e2 = tensor.empty() : tensor<4xf32>
  %g2 = linalg.exp ins(%x : tensor<4xf32>) outs(%e2 : tensor<4xf32>)
      -> tensor<4xf32>
  %b = ddp.pack %g0, %g1, %g2 : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
      -> tensor<12xf32>
  %r = ddp.flat.all_reduce mean %b on @dp into %b : tensor<12xf32>, tensor<12xf32>
  %i = scf.if %c -> tensor<4xf32> {
    scf.yield %g2 : tensor<4xf32>
  } else {
    scf.yield %x : tensor<4xf32>
  }
  return %r, %g0, %s1, %i
      : tensor<12xf32>, tensor<4xf32>, tensor<2xf32>, tensor<4xf32>
}

// -----

// Packed twice: born in the first bucket, copied to the second; in one bucket
// and in two.
// CHECK-LABEL: func @packed_twice(
// CHECK:         %[[V0:.+]] = ddp.view %[[B:.+]][0] : memref<8xf32> to memref<4xf32>
// CHECK:         %[[T:.+]] = bufferization.to_tensor %[[V0]]
// CHECK:         %[[V1:.+]] = ddp.view %[[B]][4] : memref<8xf32> to memref<4xf32>
// CHECK-NOT:     bufferization.to_tensor %[[V1]]
// CHECK:         %[[G:.+]] = linalg.exp {{.+}} outs(%[[T]] :
// CHECK-DAG:     bufferization.materialize_in_destination %[[G]] in writable %[[V0]]
// CHECK-DAG:     bufferization.materialize_in_destination %[[G]] in writable %[[V1]]
func.func @packed_twice(%x: tensor<4xf32>) -> tensor<8xf32> {
  %e = tensor.empty() : tensor<4xf32>
  %g = linalg.exp ins(%x : tensor<4xf32>) outs(%e : tensor<4xf32>)
      -> tensor<4xf32>
  %b = ddp.pack %g, %g : tensor<4xf32>, tensor<4xf32> -> tensor<8xf32>
  return %b : tensor<8xf32>
}

// CHECK-LABEL: func @packed_in_two(
// CHECK:         %[[G:.+]] = linalg.exp
// CHECK:         bufferization.materialize_in_destination %[[G]] in
// CHECK:         bufferization.materialize_in_destination %[[G]] in
func.func @packed_in_two(%x: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
  %e = tensor.empty() : tensor<4xf32>
  %g = linalg.exp ins(%x : tensor<4xf32>) outs(%e : tensor<4xf32>)
      -> tensor<4xf32>
  %b = ddp.pack %g : tensor<4xf32> -> tensor<4xf32>
  %c = ddp.pack %g : tensor<4xf32> -> tensor<4xf32>
  return %b, %c : tensor<4xf32>, tensor<4xf32>
}

// -----

// Not ours to place: an argument, an operation without a destination, a
// destination that is no tensor.empty, one from another block, a call.
// CHECK-LABEL: func @elsewhere(
// CHECK-SAME:    %[[X:[a-z0-9]+]]: tensor<4xf32>
// CHECK-COUNT-5: ddp.view
// CHECK:         %[[G1:.+]] = arith.negf
// CHECK:         %[[G2:.+]] = linalg.exp {{.+}} outs(%[[X]] :
// CHECK:         %[[E3:.+]] = bufferization.alloc_tensor()
// CHECK:         %[[G3:.+]] = scf.if
// CHECK:           linalg.exp {{.+}} outs(%[[E3]] :
// CHECK:         %[[G4:.+]] = call @make
// CHECK-DAG:     bufferization.materialize_in_destination %[[X]] in
// CHECK-DAG:     bufferization.materialize_in_destination %[[G1]] in
// CHECK-DAG:     bufferization.materialize_in_destination %[[G2]] in
// CHECK-DAG:     bufferization.materialize_in_destination %[[G3]] in
// CHECK-DAG:     bufferization.materialize_in_destination %[[G4]] in
// REMARK:      remark: [Missed] BucketView | Category:ddp-materialize-buckets | Remark="gradients are copied into their bucket", copied=5, gradients=5
func.func private @make() -> tensor<4xf32>
func.func @elsewhere(%x: tensor<4xf32>, %c: i1) -> tensor<20xf32> {
  %g1 = arith.negf %x : tensor<4xf32>
  %g2 = linalg.exp ins(%x : tensor<4xf32>) outs(%x : tensor<4xf32>)
      -> tensor<4xf32>
  %e3 = tensor.empty() : tensor<4xf32>
  %g3 = scf.if %c -> tensor<4xf32> {
    %h = linalg.exp ins(%x : tensor<4xf32>) outs(%e3 : tensor<4xf32>)
        -> tensor<4xf32>
    scf.yield %h : tensor<4xf32>
  } else {
    scf.yield %x : tensor<4xf32>
  }
  %g4 = func.call @make() : () -> tensor<4xf32>
  %b = ddp.pack %x, %g1, %g2, %g3, %g4 : tensor<4xf32>, tensor<4xf32>,
      tensor<4xf32>, tensor<4xf32>, tensor<4xf32> -> tensor<20xf32>
  return %b : tensor<20xf32>
}

// -----

// What another operation still reads when it would be overwritten.
// CHECK-LABEL: func @overwritten(
// CHECK:         %[[E:.+]] = bufferization.alloc_tensor() : tensor<4xf32>
// CHECK:         %[[H:.+]] = linalg.exp {{.+}} outs(%[[E]] :
// CHECK:         linalg.exp {{.+}} outs(%[[H]] :
func.func @overwritten(%x: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
  %e = tensor.empty() : tensor<4xf32>
  %h = linalg.exp ins(%x : tensor<4xf32>) outs(%e : tensor<4xf32>)
      -> tensor<4xf32>
  %g = linalg.exp ins(%h : tensor<4xf32>) outs(%h : tensor<4xf32>)
      -> tensor<4xf32>
  %b = ddp.pack %g : tensor<4xf32> -> tensor<4xf32>
  return %b, %h : tensor<4xf32>, tensor<4xf32>
}

// -----

// Unpacked, and the bucket's memory used again, by way of another unpack: it is
// lent, not handed on, for as long as one of the tensors is needed. An argument's
// never is.
// CHECK-LABEL: func @unpack_not_last(
// CHECK-SAME:    %[[A:[a-z0-9]+]]: tensor<8xf32>
// CHECK:         %[[S:.+]] = ddp.flat.scale
// CHECK:         %[[M:.+]] = bufferization.to_buffer %[[S]] read_only
// CHECK:         %[[V:.+]] = ddp.view %[[M]][0]
// CHECK:         bufferization.to_tensor %[[V]] restrict :
// CHECK:         %[[N:.+]] = bufferization.to_buffer %[[S]] read_only
// CHECK:         %[[W:.+]] = ddp.view %[[N]][0]
// CHECK:         bufferization.to_tensor %[[W]] restrict :
// CHECK:         bufferization.to_buffer %[[A]] read_only
func.func @unpack_not_last(%a: tensor<8xf32>)
    -> (tensor<8xf32>, tensor<2x4xf32>, tensor<8xf32>) {
  %e = tensor.empty() : tensor<8xf32>
  %s = ddp.flat.scale %a by 2.0 into %e : tensor<8xf32>, tensor<8xf32>
  %0 = ddp.unpack %s : tensor<8xf32> -> tensor<8xf32>
  %1 = ddp.unpack %s : tensor<8xf32> -> tensor<2x4xf32>
  %2 = ddp.unpack %a : tensor<8xf32> -> tensor<8xf32>
  return %0, %1, %2 : tensor<8xf32>, tensor<2x4xf32>, tensor<8xf32>
}

// -----

// The tensors of the first unpack are over when the second one begins; those of
// the third one may be overwritten only where another iteration does not come.
// CHECK-LABEL: func @unpack_last(
// CHECK:         %[[S:.+]] = ddp.flat.scale
// CHECK:         bufferization.to_buffer %[[S]] read_only
// CHECK:         linalg.exp
// CHECK:         %[[N:.+]] = bufferization.to_buffer %[[S]] :
// CHECK:         %[[W:.+]] = ddp.view %[[N]][0]
// CHECK:         bufferization.to_tensor %[[W]] restrict writable :
// CHECK:         %[[T:.+]] = ddp.flat.scale
// CHECK:         scf.for
// CHECK:           bufferization.to_buffer %[[T]] read_only
func.func @unpack_last(%a: tensor<8xf32>, %n: index)
    -> (tensor<8xf32>, tensor<2x4xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %e = tensor.empty() : tensor<8xf32>
  %f = tensor.empty() : tensor<8xf32>
  %g = tensor.empty() : tensor<8xf32>
  %s = ddp.flat.scale %a by 2.0 into %e : tensor<8xf32>, tensor<8xf32>
  %0 = ddp.unpack %s : tensor<8xf32> -> tensor<8xf32>
  %x = linalg.exp ins(%0 : tensor<8xf32>) outs(%f : tensor<8xf32>) -> tensor<8xf32>
  %1 = ddp.unpack %s : tensor<8xf32> -> tensor<2x4xf32>
  %t = ddp.flat.scale %a by 3.0 into %g : tensor<8xf32>, tensor<8xf32>
  %r = scf.for %i = %c0 to %n step %c1 iter_args(%y = %x) -> (tensor<8xf32>) {
    %2 = ddp.unpack %t : tensor<8xf32> -> tensor<8xf32>
    %z = linalg.add ins(%y, %2
        : tensor<8xf32>, tensor<8xf32>) outs(%y : tensor<8xf32>) -> tensor<8xf32>
    scf.yield %z : tensor<8xf32>
  }
  return %r, %1 : tensor<8xf32>, tensor<2x4xf32>
}

// -----

// No members, no elements.
// CHECK-LABEL: func @empty(
// CHECK-DAG:     %[[B0:.+]] = memref.alloc() {{.+}} : memref<0xf32>
// CHECK-DAG:     memref.alloc() {{.+}} : memref<0xf16>
// CHECK-DAG:     ddp.view %[[B0]][0] : memref<0xf32> to memref<0x3xf32>
// CHECK-NOT:     ddp.pack
// CHECK-NOT:     ddp.unpack
func.func @empty(%x: tensor<0x3xf32>)
    -> (tensor<0xf32>, tensor<0xf16>, tensor<0x3xf32>) {
  %b = ddp.pack %x : tensor<0x3xf32> -> tensor<0xf32>
  %c = ddp.pack -> tensor<0xf16>
  ddp.unpack %c : tensor<0xf16>
  %u = ddp.unpack %b : tensor<0xf32> -> tensor<0x3xf32>
  return %b, %c, %u : tensor<0xf32>, tensor<0xf16>, tensor<0x3xf32>
}

// -----

// What is not computed has no place to be born in, and nothing to copy.
// CHECK-LABEL: func @nothing_computed(
// CHECK:         %[[B:.+]] = memref.alloc() {{.+}} : memref<16xf32>
// CHECK-NEXT:    %[[V:.+]] = ddp.view %[[B]][4] : memref<16xf32> to memref<8xf32>
// CHECK-NOT:     ddp.view
// CHECK:         linalg.exp
// CHECK-NEXT:    bufferization.materialize_in_destination %{{.+}} in writable %[[V]]
// CHECK-NEXT:    bufferization.to_tensor %[[B]] restrict writable
func.func @nothing_computed(%x: tensor<8xf32>) -> tensor<16xf32> {
  %e = tensor.empty() : tensor<4xf32>
  %f = tensor.empty() : tensor<8xf32>
  %g = linalg.exp ins(%x : tensor<8xf32>) outs(%f : tensor<8xf32>) -> tensor<8xf32>
  %b = ddp.pack %e, %g, %e : tensor<4xf32>, tensor<8xf32>, tensor<4xf32> -> tensor<16xf32>
  return %b : tensor<16xf32>
}

// -----

// An argument of which another slice is overwritten behind the split: the parts
// are those of a copy.
// CHECK-LABEL: func @slice_overwritten(
// CHECK-SAME:    %[[A:.+]]: memref<4xf32>
// CHECK:         %[[OLD:.+]] = bufferization.to_tensor %[[A]] restrict writable
// CHECK:         %[[C:.+]] = bufferization.alloc_tensor() copy(%[[OLD]])
// CHECK:         %[[M:.+]] = bufferization.to_buffer %[[C]]
// CHECK:         %[[V0:.+]] = ddp.view %[[M]][0]
// CHECK:         bufferization.to_tensor %[[V0]] restrict writable
// CHECK:         %[[V1:.+]] = ddp.view %[[M]][3]
// CHECK:         bufferization.to_tensor %[[V1]] restrict writable
// REMARK: a bucket is copied
func.func @slice_overwritten(%arg: memref<4xf32>) -> (tensor<3xf32>, tensor<1xf32>) {
  %a = bufferization.to_tensor %arg restrict writable : memref<4xf32> to tensor<4xf32>
  %old = tensor.extract_slice %a[3] [1] [1] : tensor<4xf32> to tensor<1xf32>
  %s:2 = ddp.split %a : tensor<4xf32> -> tensor<3xf32>, tensor<1xf32>
  %exp = linalg.exp ins(%old : tensor<1xf32>) outs(%old : tensor<1xf32>) -> tensor<1xf32>
  %x = tensor.insert_slice %s#1 into %a[3] [1] [1] : tensor<1xf32> into tensor<4xf32>
  bufferization.materialize_in_destination %x in restrict writable %arg : (tensor<4xf32>, memref<4xf32>) -> ()
  return %s#0, %exp : tensor<3xf32>, tensor<1xf32>
}

// -----

// One that is only read behind the split is not copied.
// CHECK-LABEL: func @slice_read(
// CHECK-SAME:    %[[A:.+]]: memref<4xf32>
// CHECK:         %[[OLD:.+]] = bufferization.to_tensor %[[A]] restrict writable
// CHECK:         %[[M:.+]] = bufferization.to_buffer %[[OLD]] read_only
// REMARK-NOT: a bucket is copied
func.func @slice_read(%arg: memref<4xf32>) -> (tensor<3xf32>, tensor<1xf32>) {
  %a = bufferization.to_tensor %arg restrict writable : memref<4xf32> to tensor<4xf32>
  %old = tensor.extract_slice %a[3] [1] [1] : tensor<4xf32> to tensor<1xf32>
  %s:2 = ddp.split %a : tensor<4xf32> -> tensor<3xf32>, tensor<1xf32>
  %e = tensor.empty() : tensor<1xf32>
  %exp = linalg.exp ins(%old : tensor<1xf32>) outs(%e : tensor<1xf32>) -> tensor<1xf32>
  %d = tensor.empty() : tensor<4xf32>
  %x = linalg.exp ins(%a : tensor<4xf32>) outs(%d : tensor<4xf32>) -> tensor<4xf32>
  bufferization.materialize_in_destination %x in restrict writable %arg : (tensor<4xf32>, memref<4xf32>) -> ()
  return %s#0, %exp : tensor<3xf32>, tensor<1xf32>
}

// -----

// A loop that begins with a bucket hands something else on in its place, while
// what was unpacked before is needed: the parts are those of a copy.
// CHECK-LABEL: func @loop_begins_with_bucket(
// CHECK:         %[[S:.+]] = ddp.flat.scale
// CHECK:         %[[C:.+]] = bufferization.alloc_tensor() copy(%[[S]])
// CHECK:         %[[M:.+]] = bufferization.to_buffer %[[C]]
// CHECK:         ddp.view %[[M]][0]
// CHECK:         scf.for {{.+}} iter_args(%{{.+}} = %[[S]])
// REMARK: a bucket is copied
func.func @loop_begins_with_bucket(%a: tensor<4xf32>, %n: index)
    -> (tensor<4xf32>, tensor<2x2xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %e = tensor.empty() : tensor<4xf32>
  %s = ddp.flat.scale %a by 2.0 into %e : tensor<4xf32>, tensor<4xf32>
  %p = ddp.unpack %s : tensor<4xf32> -> tensor<2x2xf32>
  %r = scf.for %i = %c0 to %n step %c1 iter_args(%y = %s) -> (tensor<4xf32>) {
    scf.yield %a : tensor<4xf32>
  }
  return %r, %p : tensor<4xf32>, tensor<2x2xf32>
}

// -----

// Not if nothing needs the parts when the loop runs.
// CHECK-LABEL: func @loop_behind_parts(
// CHECK-NOT:     alloc_tensor() copy
// CHECK:         return
// REMARK-NOT: a bucket is copied
func.func @loop_behind_parts(%a: tensor<4xf32>, %n: index)
    -> (tensor<4xf32>, tensor<2x2xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %e = tensor.empty() : tensor<4xf32>
  %s = ddp.flat.scale %a by 2.0 into %e : tensor<4xf32>, tensor<4xf32>
  %p = ddp.unpack %s : tensor<4xf32> -> tensor<2x2xf32>
  %f = tensor.empty() : tensor<2x2xf32>
  %x = linalg.exp ins(%p : tensor<2x2xf32>) outs(%f : tensor<2x2xf32>) -> tensor<2x2xf32>
  %r = scf.for %i = %c0 to %n step %c1 iter_args(%y = %s) -> (tensor<4xf32>) {
    scf.yield %a : tensor<4xf32>
  }
  return %r, %x : tensor<4xf32>, tensor<2x2xf32>
}

// -----

// What a private function returns of its argument is a copy: its caller may write
// over what a call gives.
// CHECK-LABEL: func private @returned(
// CHECK-SAME:    %[[ARG:.+]]: tensor<4xf32>, %{{.+}}: i1
// CHECK:         %[[M:.+]] = bufferization.to_buffer %[[ARG]] read_only
// CHECK:         %[[V:.+]] = ddp.view %[[M]][0]
// CHECK:         %[[P:.+]] = bufferization.to_tensor %[[V]] restrict :
// CHECK:         %[[CHOICE:.+]] = scf.if
// CHECK:         %[[COPY:.+]] = bufferization.alloc_tensor() copy(%[[CHOICE]])
// CHECK:         return %[[COPY]] :
func.func private @returned(%b: tensor<4xf32>, %c: i1) -> tensor<2xf32> {
  %p:2 = ddp.unpack %b : tensor<4xf32> -> tensor<2xf32>, tensor<2xf32>
  %r = scf.if %c -> tensor<2xf32> {
    scf.yield %p#0 : tensor<2xf32>
  } else {
    scf.yield %p#1 : tensor<2xf32>
  }
  return %r : tensor<2xf32>
}

// -----

// Not of what is its own.
// CHECK-LABEL: func private @returned_own(
// CHECK-NOT:     alloc_tensor() copy
// CHECK:         return
func.func private @returned_own(%x: tensor<4xf32>) -> tensor<2xf32> {
  %b = ddp.pack %x : tensor<4xf32> -> tensor<4xf32>
  %p:2 = ddp.unpack %b : tensor<4xf32> -> tensor<2xf32>, tensor<2xf32>
  return %p#0 : tensor<2xf32>
}

// -----

// Where it is not known what is returned, the bucket is copied.
// CHECK-LABEL: func private @returned_by_branch(
// CHECK-SAME:    %[[ARG:.+]]: tensor<4xf32>
// CHECK:         %[[COPY:.+]] = bufferization.alloc_tensor() copy(%[[ARG]])
// CHECK:         bufferization.to_buffer %[[COPY]]
// REMARK: a bucket is copied
func.func private @returned_by_branch(%b: tensor<4xf32>) -> tensor<2x2xf32> {
  %p = ddp.unpack %b : tensor<4xf32> -> tensor<2x2xf32>
  cf.br ^next(%p : tensor<2x2xf32>)
^next(%x: tensor<2x2xf32>):
  return %x : tensor<2x2xf32>
}
