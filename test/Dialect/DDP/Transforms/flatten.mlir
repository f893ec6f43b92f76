// RUN: ddphook-opt %s --ddp-flatten | FileCheck %s

// CHECK: ddp.process_group @dp
ddp.process_group @dp

// Operands, results, arguments and function types.
// CHECK-LABEL: func @arithmetic(
// CHECK-SAME:    %[[B:.+]]: tensor<40xf32>) -> tensor<40xf16>
// CHECK-NEXT:    %[[INTO1:.+]] = tensor.empty() : tensor<40xf32>
// CHECK-NEXT:    %[[R:.+]] = ddp.flat.all_reduce mean %[[B]] on @dp wire f16 as "b0" into %[[INTO1]] : tensor<40xf32>, tensor<40xf32>
// CHECK-NEXT:    %[[INTO2:.+]] = tensor.empty() : tensor<40xf32>
// CHECK-NEXT:    %[[S:.+]] = ddp.flat.scale %[[R]] by 2.000000e+00 into %[[INTO2]] : tensor<40xf32>, tensor<40xf32>
// CHECK-NEXT:    %[[INTO3:.+]] = tensor.empty() : tensor<40xf16>
// CHECK-NEXT:    %[[H:.+]] = ddp.flat.cast %[[S]] into %[[INTO3]] : tensor<40xf32>, tensor<40xf16>
// CHECK-NEXT:    return %[[H]] : tensor<40xf16>
func.func @arithmetic(%b: !ddp.bucket<f32, [4x8, 8]>)
    -> !ddp.bucket<f16, [4x8, 8]> {
  %0 = ddp.all_reduce mean %b on @dp wire f16 as "b0"
      : !ddp.bucket<f32, [4x8, 8]>
  %1 = ddp.scale %0 by 2.0 : !ddp.bucket<f32, [4x8, 8]>
  %2 = ddp.cast %1 : !ddp.bucket<f32, [4x8, 8]> -> !ddp.bucket<f16, [4x8, 8]>
  return %2 : !ddp.bucket<f16, [4x8, 8]>
}

// CHECK-LABEL: func @pack_unpack(
// CHECK:         %[[P:.+]] = ddp.pack %{{.+}}, %{{.+}}, %{{.+}} : tensor<4x8xf32>, tensor<f32>, tensor<0x3xf32> -> tensor<33xf32>
// CHECK-NEXT:    %{{.+}}:3 = ddp.unpack %[[P]] : tensor<33xf32> -> tensor<4x8xf32>, tensor<f32>, tensor<0x3xf32>
func.func @pack_unpack(%a: tensor<4x8xf32>, %b: tensor<f32>,
                       %c: tensor<0x3xf32>) {
  %0 = ddp.pack %a, %b, %c : tensor<4x8xf32>, tensor<f32>, tensor<0x3xf32>
      -> !ddp.bucket<f32, [4x8, scalar, 0x3]>
  %1:3 = ddp.unpack %0 : !ddp.bucket<f32, [4x8, scalar, 0x3]>
      -> tensor<4x8xf32>, tensor<f32>, tensor<0x3xf32>
  return
}

// CHECK-LABEL: func @empty(
// CHECK-NEXT:    %[[P:.+]] = ddp.pack -> tensor<0xf32>
// CHECK-NEXT:    ddp.unpack %[[P]] : tensor<0xf32>
// CHECK-NEXT:    return %[[P]] : tensor<0xf32>
func.func @empty() -> !ddp.bucket<f32, []> {
  %0 = ddp.pack -> !ddp.bucket<f32, []>
  ddp.unpack %0 : !ddp.bucket<f32, []>
  return %0 : !ddp.bucket<f32, []>
}

// Extracts become slices; an extract of one too.
// CHECK-LABEL: func @extract(
// CHECK-SAME:    %[[B:.+]]: tensor<43xf32>
// CHECK-NEXT:    %[[X:.+]] = tensor.extract_slice %[[B]][32] [11] [1] : tensor<43xf32> to tensor<11xf32>
// CHECK-NEXT:    %[[Y:.+]] = tensor.extract_slice %[[X]][8] [3] [1] : tensor<11xf32> to tensor<3xf32>
// CHECK-NEXT:    %[[Z:.+]] = ddp.concat %[[Y]], %[[X]] : tensor<3xf32>, tensor<11xf32> -> tensor<14xf32>
// CHECK-NEXT:    return %[[Z]] : tensor<14xf32>
func.func @extract(%b: !ddp.bucket<f32, [4x8, 8, 3]>)
    -> !ddp.bucket<f32, [3, 8, 3]> {
  %0 = ddp.extract %b [1, 2] : !ddp.bucket<f32, [4x8, 8, 3]>
  %1 = ddp.extract %0 [1] : !ddp.bucket<f32, [8, 3]>
  %2 = ddp.concat %1, %0 : !ddp.bucket<f32, [3]>, !ddp.bucket<f32, [8, 3]>
      -> !ddp.bucket<f32, [3, 8, 3]>
  return %2 : !ddp.bucket<f32, [3, 8, 3]>
}

// Nothing, in the middle and at the end.
// CHECK-LABEL: func @extract_without_elements(
// CHECK-SAME:    %[[B:.+]]: tensor<9xf32>
// CHECK-NEXT:    tensor.extract_slice %[[B]][0] [0] [1] : tensor<9xf32> to tensor<0xf32>
// CHECK-NEXT:    tensor.extract_slice %[[B]][0] [0] [1] : tensor<9xf32> to tensor<0xf32>
// CHECK-NEXT:    tensor.extract_slice %[[B]][0] [0] [1] : tensor<9xf32> to tensor<0xf32>
func.func @extract_without_elements(%b: !ddp.bucket<f32, [4, 0x2, 5, 0]>)
    -> (!ddp.bucket<f32, [0x2]>, !ddp.bucket<f32, [0]>, !ddp.bucket<f32, []>) {
  %0 = ddp.extract %b [1] : !ddp.bucket<f32, [4, 0x2, 5, 0]>
  %1 = ddp.extract %b [3] : !ddp.bucket<f32, [4, 0x2, 5, 0]>
  %2 = ddp.extract %b [] : !ddp.bucket<f32, [4, 0x2, 5, 0]>
  return %0, %1, %2 : !ddp.bucket<f32, [0x2]>, !ddp.bucket<f32, [0]>,
      !ddp.bucket<f32, []>
}

// Through regions, blocks, calls and declarations.
// CHECK-LABEL: func @control_flow(
// CHECK-SAME:    %[[B:[a-z0-9]+]]: tensor<9xf32>, %[[C:[a-z0-9]+]]: i1
// CHECK:         %[[L:.+]] = scf.for {{.+}} iter_args(%[[ACC:.+]] = %[[B]]) -> (tensor<9xf32>)
// CHECK-NEXT:      %[[I:.+]] = scf.if %[[C]] -> (tensor<9xf32>)
// CHECK:             %[[S:.+]] = ddp.flat.scale %[[ACC]]
// CHECK-NEXT:        scf.yield %[[S]] : tensor<9xf32>
// CHECK:             scf.yield %[[ACC]] : tensor<9xf32>
// CHECK:           scf.yield %[[I]] : tensor<9xf32>
// CHECK:         %[[K:.+]] = call @callee(%[[L]]) : (tensor<9xf32>) -> tensor<9xf32>
// CHECK-NEXT:    cf.br ^[[END:.+]](%[[K]] : tensor<9xf32>)
// CHECK-NEXT:  ^[[END]](%[[R:.+]]: tensor<9xf32>):
// CHECK-NEXT:    return %[[R]] : tensor<9xf32>
func.func @control_flow(%b: !ddp.bucket<f32, [4, 5]>, %c: i1)
    -> !ddp.bucket<f32, [4, 5]> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c3 = arith.constant 3 : index
  %0 = scf.for %i = %c0 to %c3 step %c1 iter_args(%acc = %b)
      -> !ddp.bucket<f32, [4, 5]> {
    %1 = scf.if %c -> !ddp.bucket<f32, [4, 5]> {
      %2 = ddp.scale %acc by 2.0 : !ddp.bucket<f32, [4, 5]>
      scf.yield %2 : !ddp.bucket<f32, [4, 5]>
    } else {
      scf.yield %acc : !ddp.bucket<f32, [4, 5]>
    }
    scf.yield %1 : !ddp.bucket<f32, [4, 5]>
  }
  %3 = func.call @callee(%0)
      : (!ddp.bucket<f32, [4, 5]>) -> !ddp.bucket<f32, [4, 5]>
  cf.br ^end(%3 : !ddp.bucket<f32, [4, 5]>)
^end(%4: !ddp.bucket<f32, [4, 5]>):
  return %4 : !ddp.bucket<f32, [4, 5]>
}
// CHECK: func.func private @callee(tensor<9xf32>) -> tensor<9xf32>
func.func private @callee(!ddp.bucket<f32, [4, 5]>) -> !ddp.bucket<f32, [4, 5]>

// The record keeps the members: they are what the plan tells.
// CHECK: ddp.bucket_info "b0" mean on @dp hook #ddp.fp16 wire f16 bytes 80 state_bytes 0 : !ddp.bucket<f32, [4x8, 8]>
ddp.bucket_info "b0" mean on @dp hook #ddp.fp16 wire f16 bytes 80 state_bytes 0
    : !ddp.bucket<f32, [4x8, 8]>

// CHECK: llvm.func @returns_nothing(!llvm.ptr)
llvm.func @returns_nothing(!llvm.ptr)

// What is not a bucket may have gaps between its elements: a copy has none.

// CHECK-LABEL: func @gaps(
// CHECK:         %[[S:.+]] = tensor.extract_slice %{{.+}}[0, 1] [4, 1] [1, 1]
// CHECK:         %[[C:.+]] = bufferization.alloc_tensor() copy(%[[S]])
// CHECK:         ddp.flat.all_reduce_start mean %[[C]] on @dp
// CHECK:         %[[D:.+]] = bufferization.alloc_tensor() copy(%[[S]])
// CHECK:         ddp.flat.scale %[[D]] by
// CHECK:         ddp.flat.wait {{.+}} reading %[[C]]
// CHECK:         %[[ROW:.+]] = tensor.extract_slice %{{.+}}[1, 0] [1, 4] [1, 1]
// CHECK:         ddp.flat.scale %[[ROW]] by
func.func @gaps(%x: tensor<4x4xf32>)
    -> (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) {
  %s = tensor.extract_slice %x[0, 1] [4, 1] [1, 1]
      : tensor<4x4xf32> to tensor<4xf32>
  %f = ddp.all_reduce_start mean %s on @dp
      : tensor<4xf32> -> !ddp.future<tensor<4xf32>>
  %y = ddp.scale %s by 2.0 : tensor<4xf32>
  %r = ddp.wait %f : !ddp.future<tensor<4xf32>>
  %row = tensor.extract_slice %x[1, 0] [1, 4] [1, 1]
      : tensor<4x4xf32> to tensor<4xf32>
  %z = ddp.scale %row by 2.0 : tensor<4xf32>
  return %r, %y, %z : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
}

// A call may turn out to give its operand. Of another type it cannot.

// CHECK-LABEL: func @gaps_through_calls(
// CHECK:         %[[T:.+]]:2 = call @passed_on
// CHECK:         %[[C:.+]] = bufferization.alloc_tensor() copy(%[[T]]#0)
// CHECK:         ddp.flat.scale %[[C]] by
// CHECK:         ddp.flat.scale %[[T]]#1 by
func.func private @passed_on(%x: tensor<4xf32>, %y: tensor<4x4xf32>)
    -> (tensor<4xf32>, tensor<4x4xf32>) {
  return %x, %y : tensor<4xf32>, tensor<4x4xf32>
}
func.func @gaps_through_calls(%x: tensor<4x4xf32>)
    -> (tensor<4xf32>, tensor<4x4xf32>) {
  %s = tensor.extract_slice %x[0, 1] [4, 1] [1, 1]
      : tensor<4x4xf32> to tensor<4xf32>
  %t:2 = call @passed_on(%s, %x)
      : (tensor<4xf32>, tensor<4x4xf32>) -> (tensor<4xf32>, tensor<4x4xf32>)
  %y = ddp.scale %t#0 by 2.0 : tensor<4xf32>
  %z = ddp.scale %t#1 by 2.0 : tensor<4x4xf32>
  return %y, %z : tensor<4xf32>, tensor<4x4xf32>
}
