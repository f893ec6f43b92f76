// RUN: ddphook-opt %s --pass-pipeline="builtin.module(func.func(ddp-assign-destinations))" | FileCheck %s --implicit-check-not=tensor.empty

// Every new buffer is named below; there are no others.

ddp.process_group @dp

// The bucket is ours and not used again: in place.
// CHECK-LABEL: func @dying(
// CHECK:         %[[B:.+]] = ddp.pack
// CHECK:         %[[R:.+]] = ddp.flat.all_reduce mean %[[B]] on @dp into %[[B]]
// CHECK:         %[[S:.+]] = ddp.flat.scale %[[R]] by 2.000000e+00 into %[[R]]
// CHECK:         return %[[S]]
func.func @dying(%g: tensor<4xf32>) -> tensor<4xf32> {
  %b = ddp.pack %g : tensor<4xf32> -> tensor<4xf32>
  %into0 = tensor.empty() : tensor<4xf32>
  %r = ddp.flat.all_reduce mean %b on @dp into %into0 : tensor<4xf32>, tensor<4xf32>
  %into1 = tensor.empty() : tensor<4xf32>
  %s = ddp.flat.scale %r by 2.0 into %into1 : tensor<4xf32>, tensor<4xf32>
  return %s : tensor<4xf32>
}

// An argument is not ours.
// CHECK-LABEL: func @argument(
// CHECK-SAME:    %[[G:.+]]: tensor<4xf32>
// CHECK:         %[[E:.+]] = tensor.empty()
// CHECK:         ddp.flat.all_reduce mean %[[G]] on @dp into %[[E]]
func.func @argument(%g: tensor<4xf32>) -> tensor<4xf32> {
  %into = tensor.empty() : tensor<4xf32>
  %r = ddp.flat.all_reduce mean %g on @dp into %into : tensor<4xf32>, tensor<4xf32>
  return %r : tensor<4xf32>
}

// Used again: by a later operation, by one in a region, by the same one.
// CHECK-LABEL: func @used_again(
// CHECK:         %[[B:.+]] = ddp.pack
// CHECK:         %[[E:.+]] = tensor.empty()
// CHECK:         %[[R:.+]] = ddp.flat.all_reduce mean %[[B]] on @dp into %[[E]]
// CHECK:         %[[F:.+]] = tensor.empty()
// CHECK:         %[[S:.+]] = ddp.flat.scale %[[R]] by 2.000000e+00 into %[[F]]
// CHECK:           arith.addf %[[R]], %[[R]]
// CHECK:         return %[[B]], %[[S]],
func.func @used_again(%g: tensor<4xf32>, %c: i1)
    -> (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) {
  %b = ddp.pack %g : tensor<4xf32> -> tensor<4xf32>
  %into0 = tensor.empty() : tensor<4xf32>
  %r = ddp.flat.all_reduce mean %b on @dp into %into0 : tensor<4xf32>, tensor<4xf32>
  %into1 = tensor.empty() : tensor<4xf32>
  %s = ddp.flat.scale %r by 2.0 into %into1 : tensor<4xf32>, tensor<4xf32>
  %i = scf.if %c -> tensor<4xf32> {
    %a = arith.addf %r, %r : tensor<4xf32>
    scf.yield %a : tensor<4xf32>
  } else {
    scf.yield %g : tensor<4xf32>
  }
  return %b, %s, %i : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
}

// A slice of the bucket is used again: the bucket as a whole is.
// CHECK-LABEL: func @slice_used_again(
// CHECK:         %[[B:.+]] = ddp.pack
// CHECK:         tensor.extract_slice %[[B]][1] [2] [1]
// CHECK:         %[[E:.+]] = tensor.empty()
// CHECK:         ddp.flat.all_reduce mean %[[B]] on @dp into %[[E]]
func.func @slice_used_again(%g: tensor<4xf32>)
    -> (tensor<4xf32>, tensor<2xf32>) {
  %b = ddp.pack %g : tensor<4xf32> -> tensor<4xf32>
  %x = tensor.extract_slice %b[1] [2] [1] : tensor<4xf32> to tensor<2xf32>
  %into = tensor.empty() : tensor<4xf32>
  %r = ddp.flat.all_reduce mean %b on @dp into %into : tensor<4xf32>, tensor<4xf32>
  return %r, %x : tensor<4xf32>, tensor<2xf32>
}

// Another type has other memory; a buffer that nothing needs any more is used
// again.
// CHECK-LABEL: func @cast(
// CHECK:         %[[B:.+]] = ddp.pack
// CHECK:         %[[E:.+]] = tensor.empty() : tensor<4xf16>
// CHECK:         %[[H:.+]] = ddp.flat.cast %[[B]] into %[[E]]
// CHECK:         %[[S:.+]] = ddp.flat.all_reduce mean %[[H]] on @dp into %[[H]]
// CHECK:         ddp.flat.cast %[[S]] into %[[B]]
func.func @cast(%g: tensor<4xf32>) -> tensor<4xf32> {
  %b = ddp.pack %g : tensor<4xf32> -> tensor<4xf32>
  %into0 = tensor.empty() : tensor<4xf16>
  %h = ddp.flat.cast %b into %into0 : tensor<4xf32>, tensor<4xf16>
  %into1 = tensor.empty() : tensor<4xf16>
  %s = ddp.flat.all_reduce mean %h on @dp into %into1 : tensor<4xf16>, tensor<4xf16>
  %into2 = tensor.empty() : tensor<4xf32>
  %r = ddp.flat.cast %s into %into2 : tensor<4xf16>, tensor<4xf32>
  return %r : tensor<4xf32>
}

// The parts of a concat are computed in their places, and inserted right there.
// CHECK-LABEL: func @concat(
// CHECK-SAME:    %[[X:[a-z0-9]+]]: tensor<4xf32>, %[[Y:[a-z0-9]+]]: tensor<5xf32>
// CHECK:         %[[E:.+]] = tensor.empty() : tensor<9xf32>
// CHECK:         %[[E0:.+]] = tensor.extract_slice %[[E]][0] [4] [1]
// CHECK:         %[[R0:.+]] = ddp.flat.all_reduce mean %[[X]] on @dp into %[[E0]]
// CHECK-NEXT:    %[[I0:.+]] = tensor.insert_slice %[[R0]] into %[[E]][0] [4] [1]
// CHECK:         %[[E1:.+]] = tensor.extract_slice %[[I0]][4] [5] [1]
// CHECK:         %[[R1:.+]] = ddp.flat.scale %[[Y]] by 2.000000e+00 into %[[E1]]
// CHECK-NEXT:    %[[I1:.+]] = tensor.insert_slice %[[R1]] into %[[I0]][4] [5] [1]
// CHECK:         return %[[I1]]
func.func @concat(%x: tensor<4xf32>, %y: tensor<5xf32>) -> tensor<9xf32> {
  %into0 = tensor.empty() : tensor<4xf32>
  %0 = ddp.flat.all_reduce mean %x on @dp into %into0 : tensor<4xf32>, tensor<4xf32>
  %into1 = tensor.empty() : tensor<5xf32>
  %1 = ddp.flat.scale %y by 2.0 into %into1 : tensor<5xf32>, tensor<5xf32>
  %2 = ddp.concat %0, %1 : tensor<4xf32>, tensor<5xf32> -> tensor<9xf32>
  return %2 : tensor<9xf32>
}

// Parts that others need, or that are given, are inserted.
// CHECK-LABEL: func @concat_of_shared(
// CHECK-SAME:    %[[X:[a-z0-9]+]]: tensor<4xf32>, %[[Z:[a-z0-9]+]]: tensor<0xf32>
// CHECK:         %[[D:.+]] = tensor.empty() : tensor<4xf32>
// CHECK:         %[[R:.+]] = ddp.flat.scale %[[X]] by 2.000000e+00 into %[[D]]
// CHECK:         %[[E:.+]] = tensor.empty() : tensor<8xf32>
// CHECK:         %[[I0:.+]] = tensor.insert_slice %[[R]] into %[[E]][0] [4] [1]
// CHECK-NEXT:    %[[I1:.+]] = tensor.insert_slice %[[X]] into %[[I0]][4] [4] [1]
// CHECK-NEXT:    return %[[R]], %[[I1]]
func.func @concat_of_shared(%x: tensor<4xf32>, %z: tensor<0xf32>)
    -> (tensor<4xf32>, tensor<8xf32>) {
  %into = tensor.empty() : tensor<4xf32>
  %0 = ddp.flat.scale %x by 2.0 into %into : tensor<4xf32>, tensor<4xf32>
  %1 = ddp.concat %0, %x, %z : tensor<4xf32>, tensor<4xf32>, tensor<0xf32>
      -> tensor<8xf32>
  return %0, %1 : tensor<4xf32>, tensor<8xf32>
}

// In a loop: what comes from outside is needed by the next iteration.
// CHECK-LABEL: func @loop(
// CHECK:         %[[B:.+]] = ddp.pack
// CHECK:         scf.for
// CHECK:           %[[E:.+]] = tensor.empty()
// CHECK:           %[[S:.+]] = ddp.flat.scale %[[B]] by 2.000000e+00 into %[[E]]
// CHECK:           ddp.flat.scale %[[S]] by 3.000000e+00 into %[[S]]
func.func @loop(%g: tensor<4xf32>) -> tensor<4xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c3 = arith.constant 3 : index
  %b = ddp.pack %g : tensor<4xf32> -> tensor<4xf32>
  %r = scf.for %i = %c0 to %c3 step %c1 iter_args(%acc = %g) -> tensor<4xf32> {
    %into0 = tensor.empty() : tensor<4xf32>
    %s = ddp.flat.scale %b by 2.0 into %into0 : tensor<4xf32>, tensor<4xf32>
    %into1 = tensor.empty() : tensor<4xf32>
    %t = ddp.flat.scale %s by 3.0 into %into1 : tensor<4xf32>, tensor<4xf32>
    scf.yield %t : tensor<4xf32>
  }
  return %r : tensor<4xf32>
}

// What has a destination keeps it; memory has none to assign.
// CHECK-LABEL: func @given(
// CHECK-SAME:    %[[T:[a-z0-9]+]]: tensor<4xf32>, %[[M:[a-z0-9]+]]: memref<4xf32>
// CHECK:         ddp.flat.scale %[[T]] by 2.000000e+00 into %[[T]]
// CHECK:         ddp.flat.scale %[[M]] by 2.000000e+00 into %[[M]]
func.func @given(%t: tensor<4xf32>, %m: memref<4xf32>) {
  %0 = ddp.flat.scale %t by 2.0 into %t : tensor<4xf32>, tensor<4xf32>
  ddp.flat.scale %m by 2.0 into %m : memref<4xf32>, memref<4xf32>
  return
}

// A program computes in the memory of what was unpacked from a bucket: it is not
// free while the program's value lives, in whatever shape and place.
// CHECK-LABEL: func @computed_in_place(
// CHECK:         %[[H:.+]] = ddp.pack %{{.+}} : tensor<4xf16>
// CHECK:         %[[E:.+]] = tensor.empty() : tensor<4xf32>
// CHECK:         ddp.flat.cast %[[H]] into %[[E]]
func.func @computed_in_place(%g: tensor<4xf32>, %h: tensor<4xf16>)
    -> (tensor<2x2xf32>, tensor<4xf32>) {
  %b = ddp.pack %g : tensor<4xf32> -> tensor<4xf32>
  %u = ddp.unpack %b : tensor<4xf32> -> tensor<4xf32>
  %x = linalg.exp ins(%u : tensor<4xf32>) outs(%u : tensor<4xf32>) -> tensor<4xf32>
  %y = tensor.expand_shape %x [[0, 1]] output_shape [2, 2]
      : tensor<4xf32> into tensor<2x2xf32>
  %p = ddp.pack %h : tensor<4xf16> -> tensor<4xf16>
  %into = tensor.empty() : tensor<4xf32>
  %c = ddp.flat.cast %p into %into : tensor<4xf16>, tensor<4xf32>
  return %y, %c : tensor<2x2xf32>, tensor<4xf32>
}

// It is free once the program's last value is over.
// CHECK-LABEL: func @computed_and_over(
// CHECK:         %[[B:.+]] = ddp.pack %{{.+}} : tensor<4xf32>
// CHECK:         tensor.empty()
// CHECK:         %[[H:.+]] = ddp.pack %{{.+}} : tensor<4xf16>
// CHECK:         ddp.flat.cast %[[H]] into %[[B]]
func.func @computed_and_over(%g: tensor<4xf32>, %h: tensor<4xf16>)
    -> (tensor<4xf32>, tensor<4xf32>) {
  %b = ddp.pack %g : tensor<4xf32> -> tensor<4xf32>
  %u = ddp.unpack %b : tensor<4xf32> -> tensor<4xf32>
  %x = linalg.exp ins(%u : tensor<4xf32>) outs(%u : tensor<4xf32>) -> tensor<4xf32>
  %e = tensor.empty() : tensor<4xf32>
  %y = linalg.exp ins(%x : tensor<4xf32>) outs(%e : tensor<4xf32>) -> tensor<4xf32>
  %p = ddp.pack %h : tensor<4xf16> -> tensor<4xf16>
  %into = tensor.empty() : tensor<4xf32>
  %c = ddp.flat.cast %p into %into : tensor<4xf16>, tensor<4xf32>
  return %y, %c : tensor<4xf32>, tensor<4xf32>
}

// A loop, a branch and a call may each hold what was unpacked.
// CHECK-LABEL: func @held_by_control_flow(
// CHECK:         %[[E0:.+]] = tensor.empty()
// CHECK:         ddp.flat.cast %{{.+}} into %[[E0]]
// CHECK:         %[[E1:.+]] = tensor.empty()
// CHECK:         ddp.flat.cast %{{.+}} into %[[E1]]
// CHECK:         %[[E2:.+]] = tensor.empty()
// CHECK:         ddp.flat.cast %{{.+}} into %[[E2]]
func.func private @identity(%x: tensor<4xf32>) -> tensor<4xf32>
func.func @held_by_control_flow(%g0: tensor<4xf32>, %g1: tensor<4xf32>,
    %g2: tensor<4xf32>, %h: tensor<4xf16>, %c: i1, %n: index)
    -> (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>,
        tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %b0 = ddp.pack %g0 : tensor<4xf32> -> tensor<4xf32>
  %u0 = ddp.unpack %b0 : tensor<4xf32> -> tensor<4xf32>
  %x0 = scf.for %i = %c0 to %n step %c1 iter_args(%a = %u0) -> tensor<4xf32> {
    scf.yield %a : tensor<4xf32>
  }
  %p0 = ddp.pack %h : tensor<4xf16> -> tensor<4xf16>
  %into0 = tensor.empty() : tensor<4xf32>
  %r0 = ddp.flat.cast %p0 into %into0 : tensor<4xf16>, tensor<4xf32>
  %b1 = ddp.pack %g1 : tensor<4xf32> -> tensor<4xf32>
  %u1 = ddp.unpack %b1 : tensor<4xf32> -> tensor<4xf32>
  %x1 = scf.if %c -> tensor<4xf32> {
    scf.yield %u1 : tensor<4xf32>
  } else {
    scf.yield %g1 : tensor<4xf32>
  }
  %p1 = ddp.pack %h : tensor<4xf16> -> tensor<4xf16>
  %into1 = tensor.empty() : tensor<4xf32>
  %r1 = ddp.flat.cast %p1 into %into1 : tensor<4xf16>, tensor<4xf32>
  %b2 = ddp.pack %g2 : tensor<4xf32> -> tensor<4xf32>
  %u2 = ddp.unpack %b2 : tensor<4xf32> -> tensor<4xf32>
  %x2 = func.call @identity(%u2) : (tensor<4xf32>) -> tensor<4xf32>
  %p2 = ddp.pack %h : tensor<4xf16> -> tensor<4xf16>
  %into2 = tensor.empty() : tensor<4xf32>
  %r2 = ddp.flat.cast %p2 into %into2 : tensor<4xf16>, tensor<4xf32>
  return %x0, %x1, %x2, %r0, %r1, %r2 : tensor<4xf32>, tensor<4xf32>,
      tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
}
