// Tensors that ddp-bufferize bufferizes without an analysis, and others that look
// like them. One-Shot's analysis, which sees all of them upstream, has to agree.
//
// RUN: ddphook-opt %s --ddp-bufferize -o %t.ours
// RUN: ddphook-opt %s -o %t.upstream \
// RUN:   --one-shot-bufferize="bufferize-function-boundaries function-boundary-type-conversion=identity-layout-map"
// RUN: diff %t.upstream %t.ours
// RUN: FileCheck %s < %t.ours

#id = affine_map<(i, j) -> (i, j)>
#transposed = affine_map<(i, j) -> (j, i)>

// CHECK-LABEL: func.func @chain(
// CHECK-NOT:     memref.alloc
// CHECK:         memref.copy %arg2, %arg2
func.func @chain(%x: memref<4x2xf32>, %y: memref<2x8xf32>, %g: memref<4x8xf32>) {
  %zero = arith.constant 0.0 : f32
  %a = bufferization.to_tensor %x restrict : memref<4x2xf32> to tensor<4x2xf32>
  %b = bufferization.to_tensor %y restrict : memref<2x8xf32> to tensor<2x8xf32>
  %e = bufferization.to_tensor %g restrict writable : memref<4x8xf32> to tensor<4x8xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<4x8xf32>) -> tensor<4x8xf32>
  %m = linalg.matmul ins(%a, %b : tensor<4x2xf32>, tensor<2x8xf32>)
      outs(%f : tensor<4x8xf32>) -> tensor<4x8xf32>
  %n = linalg.sub ins(%m, %m : tensor<4x8xf32>, tensor<4x8xf32>)
      outs(%m : tensor<4x8xf32>) -> tensor<4x8xf32>
  bufferization.materialize_in_destination %n in restrict writable %g
      : (tensor<4x8xf32>, memref<4x8xf32>) -> ()
  return
}

// CHECK-LABEL: func.func @empty(
// CHECK-COUNT-2: memref.alloc(
// CHECK-NOT:     memref.alloc
// CHECK:         memref.copy
func.func @empty(%g: memref<?xf32>, %n: index) {
  %zero = arith.constant 0.0 : f32
  %unused = bufferization.alloc_tensor() : tensor<4xf32>
  %e = bufferization.alloc_tensor(%n) : tensor<?xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<?xf32>) -> tensor<?xf32>
  %d = bufferization.alloc_tensor(%n) : tensor<?xf32>
  %x = linalg.exp ins(%f : tensor<?xf32>) outs(%d : tensor<?xf32>) -> tensor<?xf32>
  bufferization.materialize_in_destination %x in restrict writable %g
      : (tensor<?xf32>, memref<?xf32>) -> ()
  return
}

// The fill, which has written over the tensor, must not reach the reader.
// CHECK-LABEL: func.func @reads_old(
// CHECK:         memref.alloc
func.func @reads_old(%x: memref<4xf32>, %g: memref<4xf32>) {
  %zero = arith.constant 0.0 : f32
  %a = bufferization.to_tensor %x restrict writable : memref<4xf32> to tensor<4xf32>
  %d = bufferization.to_tensor %g restrict writable : memref<4xf32> to tensor<4xf32>
  %f = linalg.fill ins(%zero : f32) outs(%a : tensor<4xf32>) -> tensor<4xf32>
  %s = linalg.add ins(%a, %f : tensor<4xf32>, tensor<4xf32>) outs(%d : tensor<4xf32>)
      -> tensor<4xf32>
  bufferization.materialize_in_destination %s in restrict writable %g
      : (tensor<4xf32>, memref<4xf32>) -> ()
  return
}

// CHECK-LABEL: func.func @writes_old(
// CHECK:         memref.alloc
func.func @writes_old(%x: memref<4xf32>, %g: memref<4xf32>, %h: memref<4xf32>) {
  %a = bufferization.to_tensor %x restrict writable : memref<4xf32> to tensor<4xf32>
  %b = linalg.exp ins(%a : tensor<4xf32>) outs(%a : tensor<4xf32>) -> tensor<4xf32>
  %c = linalg.abs ins(%b : tensor<4xf32>) outs(%a : tensor<4xf32>) -> tensor<4xf32>
  bufferization.materialize_in_destination %b in restrict writable %g
      : (tensor<4xf32>, memref<4xf32>) -> ()
  bufferization.materialize_in_destination %c in restrict writable %h
      : (tensor<4xf32>, memref<4xf32>) -> ()
  return
}

// CHECK-LABEL: func.func @not_writable(
// CHECK:         memref.alloc
func.func @not_writable(%x: memref<4xf32>, %g: memref<4xf32>) {
  %a = bufferization.to_tensor %x restrict : memref<4xf32> to tensor<4xf32>
  %b = linalg.exp ins(%a : tensor<4xf32>) outs(%a : tensor<4xf32>) -> tensor<4xf32>
  bufferization.materialize_in_destination %b in restrict writable %g
      : (tensor<4xf32>, memref<4xf32>) -> ()
  return
}

// CHECK-LABEL: func.func @transposed(
// CHECK:         memref.alloc
func.func @transposed(%x: memref<4x4xf32>) {
  %a = bufferization.to_tensor %x restrict writable : memref<4x4xf32> to tensor<4x4xf32>
  %b = linalg.generic {indexing_maps = [#transposed, #id],
                       iterator_types = ["parallel", "parallel"]}
      ins(%a : tensor<4x4xf32>) outs(%a : tensor<4x4xf32>) {
  ^bb0(%in: f32, %out: f32):
    linalg.yield %in : f32
  } -> tensor<4x4xf32>
  bufferization.materialize_in_destination %b in restrict writable %x
      : (tensor<4x4xf32>, memref<4x4xf32>) -> ()
  return
}

// CHECK-LABEL: func.func @product(
// CHECK:         memref.alloc
func.func @product(%x: memref<4x4xf32>) {
  %a = bufferization.to_tensor %x restrict writable : memref<4x4xf32> to tensor<4x4xf32>
  %b = linalg.matmul ins(%a, %a : tensor<4x4xf32>, tensor<4x4xf32>)
      outs(%a : tensor<4x4xf32>) -> tensor<4x4xf32>
  bufferization.materialize_in_destination %b in restrict writable %x
      : (tensor<4x4xf32>, memref<4x4xf32>) -> ()
  return
}

// Two results, one tensor.
// CHECK-LABEL: func.func @two_results(
// CHECK:         memref.alloc
func.func @two_results(%x: memref<4x4xf32>, %g: memref<4x4xf32>) {
  %a = bufferization.to_tensor %x restrict writable : memref<4x4xf32> to tensor<4x4xf32>
  %b:2 = linalg.generic {indexing_maps = [#id, #id],
                         iterator_types = ["parallel", "parallel"]}
      outs(%a, %a : tensor<4x4xf32>, tensor<4x4xf32>) {
  ^bb0(%out0: f32, %out1: f32):
    %s = arith.addf %out0, %out1 : f32
    %m = arith.mulf %out0, %out1 : f32
    linalg.yield %s, %m : f32, f32
  } -> (tensor<4x4xf32>, tensor<4x4xf32>)
  bufferization.materialize_in_destination %b#0 in restrict writable %g
      : (tensor<4x4xf32>, memref<4x4xf32>) -> ()
  bufferization.materialize_in_destination %b#1 in restrict writable %x
      : (tensor<4x4xf32>, memref<4x4xf32>) -> ()
  return
}

// The same where only the last result is used, and where only the first is.
// CHECK-LABEL: func.func @last_result(
// CHECK:         memref.alloc
// CHECK-LABEL: func.func @first_result(
// CHECK:         memref.alloc
func.func @last_result(%x: memref<4x4xf32>) {
  %a = bufferization.to_tensor %x restrict writable : memref<4x4xf32> to tensor<4x4xf32>
  %b:2 = linalg.generic {indexing_maps = [#id, #id],
                         iterator_types = ["parallel", "parallel"]}
      outs(%a, %a : tensor<4x4xf32>, tensor<4x4xf32>) {
  ^bb0(%out0: f32, %out1: f32):
    %s = arith.addf %out0, %out1 : f32
    %m = arith.mulf %out0, %out1 : f32
    linalg.yield %s, %m : f32, f32
  } -> (tensor<4x4xf32>, tensor<4x4xf32>)
  bufferization.materialize_in_destination %b#1 in restrict writable %x
      : (tensor<4x4xf32>, memref<4x4xf32>) -> ()
  return
}
func.func @first_result(%x: memref<4x4xf32>) {
  %a = bufferization.to_tensor %x restrict writable : memref<4x4xf32> to tensor<4x4xf32>
  %b:2 = linalg.generic {indexing_maps = [#id, #id],
                         iterator_types = ["parallel", "parallel"]}
      outs(%a, %a : tensor<4x4xf32>, tensor<4x4xf32>) {
  ^bb0(%out0: f32, %out1: f32):
    %s = arith.addf %out0, %out1 : f32
    %m = arith.mulf %out0, %out1 : f32
    linalg.yield %s, %m : f32, f32
  } -> (tensor<4x4xf32>, tensor<4x4xf32>)
  bufferization.materialize_in_destination %b#0 in restrict writable %x
      : (tensor<4x4xf32>, memref<4x4xf32>) -> ()
  return
}

// The body reads elements that the operation may have written over.
// CHECK-LABEL: func.func @read_in_body(
// CHECK:         memref.alloc
func.func @read_in_body(%x: memref<4x4xf32>) {
  %c0 = arith.constant 0 : index
  %a = bufferization.to_tensor %x restrict writable : memref<4x4xf32> to tensor<4x4xf32>
  %b = linalg.generic {indexing_maps = [#id],
                       iterator_types = ["parallel", "parallel"]}
      outs(%a : tensor<4x4xf32>) {
  ^bb0(%out: f32):
    %first = tensor.extract %a[%c0, %c0] : tensor<4x4xf32>
    linalg.yield %first : f32
  } -> tensor<4x4xf32>
  bufferization.materialize_in_destination %b in restrict writable %x
      : (tensor<4x4xf32>, memref<4x4xf32>) -> ()
  return
}

// Each iteration reads what the memory held before the loop.
// CHECK-LABEL: func.func @in_loop(
// CHECK:         memref.alloc
func.func @in_loop(%x: memref<4xf32>, %g: memref<4xf32>, %n: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %a = bufferization.to_tensor %x restrict writable : memref<4xf32> to tensor<4xf32>
  scf.for %i = %c0 to %n step %c1 {
    %b = linalg.exp ins(%a : tensor<4xf32>) outs(%a : tensor<4xf32>) -> tensor<4xf32>
    bufferization.materialize_in_destination %b in restrict writable %g
        : (tensor<4xf32>, memref<4xf32>) -> ()
  }
  return
}

// A chain within the loop's body, and one that the loop carries.
// CHECK-LABEL: func.func @of_loop(
// CHECK:         scf.for
// CHECK-NOT:       memref.alloc
// CHECK:         return
func.func @of_loop(%x: memref<4xf32>, %g: memref<4xf32>, %n: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %d = bufferization.to_tensor %g restrict writable : memref<4xf32> to tensor<4xf32>
  %r = scf.for %i = %c0 to %n step %c1 iter_args(%s = %d) -> tensor<4xf32> {
    %a = bufferization.to_tensor %x restrict writable : memref<4xf32> to tensor<4xf32>
    %b = linalg.exp ins(%a : tensor<4xf32>) outs(%a : tensor<4xf32>) -> tensor<4xf32>
    bufferization.materialize_in_destination %b in restrict writable %x
        : (tensor<4xf32>, memref<4xf32>) -> ()
    %t = linalg.abs ins(%s : tensor<4xf32>) outs(%s : tensor<4xf32>) -> tensor<4xf32>
    scf.yield %t : tensor<4xf32>
  }
  bufferization.materialize_in_destination %r in restrict writable %g
      : (tensor<4xf32>, memref<4xf32>) -> ()
  return
}

// The reader stands above what it reads, and runs behind the writer.
// CHECK-LABEL: func.func @blocks(
// CHECK:         memref.alloc
func.func @blocks(%x: memref<4xf32>, %g: memref<4xf32>) {
  %zero = arith.constant 0.0 : f32
  cf.br ^define
^use:
  bufferization.materialize_in_destination %a in restrict writable %g
      : (tensor<4xf32>, memref<4xf32>) -> ()
  return
^define:
  %a = bufferization.to_tensor %x restrict writable : memref<4xf32> to tensor<4xf32>
  %f = linalg.fill ins(%zero : f32) outs(%a : tensor<4xf32>) -> tensor<4xf32>
  bufferization.materialize_in_destination %f in restrict writable %x
      : (tensor<4xf32>, memref<4xf32>) -> ()
  cf.br ^use
}

// An operation that One-Shot has to see, with all that it uses.
// CHECK-LABEL: func.func @with_others(
// CHECK:         memref.alloc
func.func @with_others(%x: memref<4xf32>, %g: memref<4xf32>, %i: index) -> f32 {
  %a = bufferization.to_tensor %x restrict writable : memref<4xf32> to tensor<4xf32>
  %d = bufferization.to_tensor %g restrict writable : memref<4xf32> to tensor<4xf32>
  %b = linalg.exp ins(%a : tensor<4xf32>) outs(%d : tensor<4xf32>) -> tensor<4xf32>
  %c = linalg.abs ins(%b : tensor<4xf32>) outs(%b : tensor<4xf32>) -> tensor<4xf32>
  %e = tensor.extract %b[%i] : tensor<4xf32>
  bufferization.materialize_in_destination %c in restrict writable %g
      : (tensor<4xf32>, memref<4xf32>) -> ()
  return %e : f32
}

func.func private @of_arguments(%x: tensor<4xf32>, %y: tensor<4xf32>)
    -> (tensor<4xf32>, tensor<4xf32>) {
  %e = bufferization.alloc_tensor() : tensor<4xf32>
  %a = linalg.exp ins(%x : tensor<4xf32>) outs(%y : tensor<4xf32>) -> tensor<4xf32>
  %b = linalg.abs ins(%y : tensor<4xf32>) outs(%e : tensor<4xf32>) -> tensor<4xf32>
  return %a, %b : tensor<4xf32>, tensor<4xf32>
}

// CHECK-LABEL: func.func @calls(
// CHECK:         memref.alloc
func.func @calls(%x: memref<4xf32>, %g: memref<4xf32>) {
  %a = bufferization.to_tensor %x restrict writable : memref<4xf32> to tensor<4xf32>
  %e = bufferization.alloc_tensor() : tensor<4xf32>
  %b = linalg.exp ins(%a : tensor<4xf32>) outs(%e : tensor<4xf32>) -> tensor<4xf32>
  %r:2 = func.call @of_arguments(%b, %a) : (tensor<4xf32>, tensor<4xf32>)
      -> (tensor<4xf32>, tensor<4xf32>)
  %s = linalg.add ins(%a, %r#0 : tensor<4xf32>, tensor<4xf32>)
      outs(%r#1 : tensor<4xf32>) -> tensor<4xf32>
  bufferization.materialize_in_destination %s in restrict writable %g
      : (tensor<4xf32>, memref<4xf32>) -> ()
  return
}

// Views that nothing uses.
// CHECK-LABEL: func.func @dead_views(
// CHECK-NOT:     to_tensor
// CHECK:         linalg.exp
func.func @dead_views(%x: memref<6x5xf32>, %g: memref<6x5xf32>, %i: index) {
  %a = bufferization.to_tensor %x restrict : memref<6x5xf32> to tensor<6x5xf32>
  %s = tensor.extract_slice %a[%i, 1] [2, 3] [1, 1] : tensor<6x5xf32> to tensor<2x3xf32>
  %c = tensor.collapse_shape %s [[0, 1]] : tensor<2x3xf32> into tensor<6xf32>
  %d = bufferization.to_tensor %g restrict writable : memref<6x5xf32> to tensor<6x5xf32>
  %b = linalg.exp ins(%a : tensor<6x5xf32>) outs(%d : tensor<6x5xf32>) -> tensor<6x5xf32>
  bufferization.materialize_in_destination %b in restrict writable %g
      : (tensor<6x5xf32>, memref<6x5xf32>) -> ()
  return
}

// The dimensions of the slice are not contiguous, so that the collapse copies.
// CHECK-LABEL: func.func @collapsed_slice(
// CHECK:         memref.copy
func.func @collapsed_slice(%x: memref<6x5xf32>, %g: memref<6xf32>, %i: index) {
  %a = bufferization.to_tensor %x restrict : memref<6x5xf32> to tensor<6x5xf32>
  %s = tensor.extract_slice %a[%i, 1] [2, 3] [1, 1] : tensor<6x5xf32> to tensor<2x3xf32>
  %c = tensor.collapse_shape %s [[0, 1]] : tensor<2x3xf32> into tensor<6xf32>
  %d = bufferization.to_tensor %g restrict writable : memref<6xf32> to tensor<6xf32>
  %b = linalg.exp ins(%c : tensor<6xf32>) outs(%d : tensor<6xf32>) -> tensor<6xf32>
  bufferization.materialize_in_destination %b in restrict writable %g
      : (tensor<6xf32>, memref<6xf32>) -> ()
  return
}
