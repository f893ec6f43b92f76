// RUN: ddphook-opt %s --ddp-expand-hooks -split-input-file | FileCheck %s

// Every hook, on a bucket of f32; `sum` gives the same sequence.

ddp.process_group @dp

// CHECK-LABEL: func @allreduce(
// CHECK-SAME:    %[[B:.+]]: !ddp.bucket<f32, [4x8, 8]>
// CHECK-NEXT:    %[[R:.+]] = ddp.all_reduce mean %[[B]] on @dp as "b0" {ddp.hook = #ddp.allreduce} : !ddp.bucket<f32, [4x8, 8]>
// CHECK-NEXT:    return %[[R]]
func.func @allreduce(%b: !ddp.bucket<f32, [4x8, 8]>)
    -> !ddp.bucket<f32, [4x8, 8]> {
  %r = ddp.all_reduce mean %b on @dp as "b0" {ddp.hook = #ddp.allreduce}
      : !ddp.bucket<f32, [4x8, 8]>
  return %r : !ddp.bucket<f32, [4x8, 8]>
}

// What is all-reduced as it is keeps its wire type, with and without a hook.

// CHECK-LABEL: func @wire(
// CHECK-NEXT:    ddp.all_reduce mean %{{.+}} on @dp wire bf16 as "wire0" {ddp.hook = #ddp.allreduce} :
// CHECK-NEXT:    ddp.all_reduce sum %{{.+}} on @dp wire !ddp.encoded<i8, 256> as "wire1" {ddp.hook = #ddp.allreduce} :
// CHECK-NEXT:    return
func.func @wire(%b: !ddp.bucket<f32, [4x8, 8]>)
    -> (!ddp.bucket<f32, [4x8, 8]>, !ddp.bucket<f32, [4x8, 8]>) {
  %r = ddp.all_reduce mean %b on @dp wire bf16 as "wire0"
      {ddp.hook = #ddp.allreduce} : !ddp.bucket<f32, [4x8, 8]>
  %s = ddp.all_reduce sum %b on @dp wire !ddp.encoded<i8, 256> as "wire1"
      : !ddp.bucket<f32, [4x8, 8]>
  return %r, %s : !ddp.bucket<f32, [4x8, 8]>, !ddp.bucket<f32, [4x8, 8]>
}

// CHECK-LABEL: func @fp16(
// CHECK-SAME:    %[[B:.+]]: !ddp.bucket<f32, [4x8, 8]>
// CHECK-NEXT:    %[[H:.+]] = ddp.cast %[[B]] : !ddp.bucket<f32, [4x8, 8]> -> !ddp.bucket<f16, [4x8, 8]>
// CHECK-NEXT:    %[[S:.+]] = ddp.all_reduce sum %[[H]] on @dp as "b1" {ddp.hook = #ddp.allreduce} : !ddp.bucket<f16, [4x8, 8]>
// CHECK-NEXT:    %[[R:.+]] = ddp.cast %[[S]] : !ddp.bucket<f16, [4x8, 8]> -> !ddp.bucket<f32, [4x8, 8]>
// CHECK-NEXT:    return %[[R]]
func.func @fp16(%b: !ddp.bucket<f32, [4x8, 8]>)
    -> !ddp.bucket<f32, [4x8, 8]> {
  %r = ddp.all_reduce sum %b on @dp as "b1" {ddp.hook = #ddp.fp16}
      : !ddp.bucket<f32, [4x8, 8]>
  return %r : !ddp.bucket<f32, [4x8, 8]>
}

// CHECK-LABEL: func @bf16(
// CHECK-SAME:    %[[B:.+]]: !ddp.bucket<f64, [4x8, 8]>
// CHECK-NEXT:    %[[H:.+]] = ddp.cast %[[B]] : !ddp.bucket<f64, [4x8, 8]> -> !ddp.bucket<bf16, [4x8, 8]>
// CHECK-NEXT:    %[[S:.+]] = ddp.all_reduce mean %[[H]] on @dp as "b2" {ddp.hook = #ddp.allreduce} : !ddp.bucket<bf16, [4x8, 8]>
// CHECK-NEXT:    %[[R:.+]] = ddp.cast %[[S]] : !ddp.bucket<bf16, [4x8, 8]> -> !ddp.bucket<f64, [4x8, 8]>
// CHECK-NEXT:    return %[[R]]
func.func @bf16(%b: !ddp.bucket<f64, [4x8, 8]>)
    -> !ddp.bucket<f64, [4x8, 8]> {
  %r = ddp.all_reduce mean %b on @dp as "b2" {ddp.hook = #ddp.bf16}
      : !ddp.bucket<f64, [4x8, 8]>
  return %r : !ddp.bucket<f64, [4x8, 8]>
}

// A bucket that has the wire type already is not cast.
// CHECK-LABEL: func @fp16_of_f16(
// CHECK-SAME:    %[[B:.+]]: !ddp.bucket<f16, [4]>
// CHECK-NEXT:    %[[R:.+]] = ddp.all_reduce mean %[[B]] on @dp as "b3" {ddp.hook = #ddp.allreduce} : !ddp.bucket<f16, [4]>
// CHECK-NEXT:    return %[[R]]
func.func @fp16_of_f16(%b: !ddp.bucket<f16, [4]>) -> !ddp.bucket<f16, [4]> {
  %r = ddp.all_reduce mean %b on @dp as "b3" {ddp.hook = #ddp.fp16}
      : !ddp.bucket<f16, [4]>
  return %r : !ddp.bucket<f16, [4]>
}

// bf16 travels as f16: narrower in range, not in bytes.
// CHECK-LABEL: func @fp16_of_bf16(
// CHECK:         ddp.cast %{{.+}} : !ddp.bucket<bf16, [4]> -> !ddp.bucket<f16, [4]>
// CHECK-NEXT:    ddp.all_reduce
// CHECK-NEXT:    ddp.cast %{{.+}} : !ddp.bucket<f16, [4]> -> !ddp.bucket<bf16, [4]>
func.func @fp16_of_bf16(%b: !ddp.bucket<bf16, [4]>) -> !ddp.bucket<bf16, [4]> {
  %r = ddp.all_reduce mean %b on @dp as "b4" {ddp.hook = #ddp.fp16}
      : !ddp.bucket<bf16, [4]>
  return %r : !ddp.bucket<bf16, [4]>
}

// CHECK-LABEL: func @noop(
// CHECK-SAME:    %[[B:.+]]: !ddp.bucket<f32, [4]>
// CHECK-NEXT:    return %[[B]]
func.func @noop(%b: !ddp.bucket<f32, [4]>) -> !ddp.bucket<f32, [4]> {
  %r = ddp.all_reduce mean %b on @dp as "b5" {ddp.hook = #ddp.noop}
      : !ddp.bucket<f32, [4]>
  return %r : !ddp.bucket<f32, [4]>
}

// Without communication nothing needs the bucket at all.
// CHECK-LABEL: func @noop_of_tensors(
// CHECK-SAME:    %[[X:[a-z0-9]+]]: tensor<4xf32>, %[[Y:[a-z0-9]+]]: tensor<5xf32>
// CHECK-NEXT:    return %[[X]], %[[Y]]
func.func @noop_of_tensors(%x: tensor<4xf32>, %y: tensor<5xf32>)
    -> (tensor<4xf32>, tensor<5xf32>) {
  %b = ddp.pack %x, %y : tensor<4xf32>, tensor<5xf32>
      -> !ddp.bucket<f32, [4, 5]>
  %r = ddp.all_reduce mean %b on @dp as "b6" {ddp.hook = #ddp.noop}
      : !ddp.bucket<f32, [4, 5]>
  %u:2 = ddp.unpack %r : !ddp.bucket<f32, [4, 5]>
      -> tensor<4xf32>, tensor<5xf32>
  return %u#0, %u#1 : tensor<4xf32>, tensor<5xf32>
}

// What became of the buckets, in the order of their expansion.
// CHECK-LABEL: ddp.bucket_info "b0" mean on @dp hook #ddp.allreduce wire f32 bytes 160 state_bytes 0 : !ddp.bucket<f32, [4x8, 8]>
// CHECK:       ddp.bucket_info "b1" sum on @dp hook #ddp.fp16 wire f16 bytes 80 state_bytes 0 : !ddp.bucket<f32, [4x8, 8]>
// CHECK:       ddp.bucket_info "b2" mean on @dp hook #ddp.bf16 wire bf16 bytes 80 state_bytes 0 : !ddp.bucket<f64, [4x8, 8]>
// CHECK:       ddp.bucket_info "b3" mean on @dp hook #ddp.fp16 wire f16 bytes 8 state_bytes 0 : !ddp.bucket<f16, [4]>
// CHECK:       ddp.bucket_info "b4" mean on @dp hook #ddp.fp16 wire f16 bytes 8 state_bytes 0 : !ddp.bucket<bf16, [4]>
// CHECK:       ddp.bucket_info "b5" mean on @dp hook #ddp.noop wire f32 bytes 0 state_bytes 0 : !ddp.bucket<f32, [4]>
// CHECK:       ddp.bucket_info "b6" mean on @dp hook #ddp.noop wire f32 bytes 0 state_bytes 0 : !ddp.bucket<f32, [4, 5]>

// -----

// Wrappers: the bucket is cast, the inner hook runs in the 16-bit type, the
// result is cast back.

ddp.process_group @dp

// CHECK-LABEL: func @wrapped_allreduce(
// CHECK-SAME:    %[[B:.+]]: !ddp.bucket<f32, [4]>
// CHECK-NEXT:    %[[H:.+]] = ddp.cast %[[B]] : !ddp.bucket<f32, [4]> -> !ddp.bucket<f16, [4]>
// CHECK-NEXT:    %[[S:.+]] = ddp.all_reduce mean %[[H]] on @dp as "b0" {ddp.hook = #ddp.allreduce} : !ddp.bucket<f16, [4]>
// CHECK-NEXT:    %[[R:.+]] = ddp.cast %[[S]] : !ddp.bucket<f16, [4]> -> !ddp.bucket<f32, [4]>
// CHECK-NEXT:    return %[[R]]
func.func @wrapped_allreduce(%b: !ddp.bucket<f32, [4]>)
    -> !ddp.bucket<f32, [4]> {
  %r = ddp.all_reduce mean %b on @dp as "b0"
      {ddp.hook = #ddp.wrap<f16, #ddp.allreduce>} : !ddp.bucket<f32, [4]>
  return %r : !ddp.bucket<f32, [4]>
}

// The rounding of a wrapper happens though nothing is sent.
// CHECK-LABEL: func @wrapped_noop(
// CHECK-SAME:    %[[B:.+]]: !ddp.bucket<f32, [4]>
// CHECK-NEXT:    %[[H:.+]] = ddp.cast %[[B]] : !ddp.bucket<f32, [4]> -> !ddp.bucket<bf16, [4]>
// CHECK-NEXT:    %[[R:.+]] = ddp.cast %[[H]] : !ddp.bucket<bf16, [4]> -> !ddp.bucket<f32, [4]>
// CHECK-NEXT:    return %[[R]]
func.func @wrapped_noop(%b: !ddp.bucket<f32, [4]>) -> !ddp.bucket<f32, [4]> {
  %r = ddp.all_reduce mean %b on @dp as "b1"
      {ddp.hook = #ddp.wrap<bf16, #ddp.noop>} : !ddp.bucket<f32, [4]>
  return %r : !ddp.bucket<f32, [4]>
}

// Two different 16-bit types: two roundings each way.
// CHECK-LABEL: func @wrapped_twice(
// CHECK:         ddp.cast %{{.+}} : !ddp.bucket<f32, [4]> -> !ddp.bucket<bf16, [4]>
// CHECK-NEXT:    ddp.cast %{{.+}} : !ddp.bucket<bf16, [4]> -> !ddp.bucket<f16, [4]>
// CHECK-NEXT:    ddp.all_reduce sum %{{.+}} : !ddp.bucket<f16, [4]>
// CHECK-NEXT:    ddp.cast %{{.+}} : !ddp.bucket<f16, [4]> -> !ddp.bucket<bf16, [4]>
// CHECK-NEXT:    ddp.cast %{{.+}} : !ddp.bucket<bf16, [4]> -> !ddp.bucket<f32, [4]>
func.func @wrapped_twice(%b: !ddp.bucket<f32, [4]>) -> !ddp.bucket<f32, [4]> {
  %r = ddp.all_reduce sum %b on @dp as "b2"
      {ddp.hook = #ddp.wrap<bf16, #ddp.fp16>} : !ddp.bucket<f32, [4]>
  return %r : !ddp.bucket<f32, [4]>
}

// The same type twice: nothing is left to cast.
// CHECK-LABEL: func @wrapped_in_the_same(
// CHECK:         ddp.cast %{{.+}} : !ddp.bucket<f32, [4]> -> !ddp.bucket<bf16, [4]>
// CHECK-NEXT:    ddp.all_reduce mean %{{.+}} : !ddp.bucket<bf16, [4]>
// CHECK-NEXT:    ddp.cast %{{.+}} : !ddp.bucket<bf16, [4]> -> !ddp.bucket<f32, [4]>
// CHECK-NEXT:    return
func.func @wrapped_in_the_same(%b: !ddp.bucket<f32, [4]>)
    -> !ddp.bucket<f32, [4]> {
  %r = ddp.all_reduce mean %b on @dp as "b3"
      {ddp.hook = #ddp.wrap<bf16, #ddp.bf16>} : !ddp.bucket<f32, [4]>
  return %r : !ddp.bucket<f32, [4]>
}

// CHECK-LABEL: ddp.bucket_info "b0" mean on @dp hook #ddp.wrap<f16, #ddp.allreduce> wire f16 bytes 8 state_bytes 0
// CHECK:       ddp.bucket_info "b1" mean on @dp hook #ddp.wrap<bf16, #ddp.noop> wire bf16 bytes 0 state_bytes 0
// CHECK:       ddp.bucket_info "b2" sum on @dp hook #ddp.wrap<bf16, #ddp.fp16> wire f16 bytes 8 state_bytes 0
// CHECK:       ddp.bucket_info "b3" mean on @dp hook #ddp.wrap<bf16, #ddp.bf16> wire bf16 bytes 8 state_bytes 0

// -----

// The innermost attribute wins: operation, function, module.

module attributes {ddp.hook = #ddp.bf16} {
  ddp.process_group @dp
  // CHECK-LABEL: func @from_module(
  // CHECK:         ddp.all_reduce {{.+}} : !ddp.bucket<bf16, [4]>
  func.func @from_module(%b: !ddp.bucket<f32, [4]>) -> !ddp.bucket<f32, [4]> {
    %r = ddp.all_reduce mean %b on @dp as "b0" : !ddp.bucket<f32, [4]>
    return %r : !ddp.bucket<f32, [4]>
  }
  // CHECK-LABEL: func @from_function(
  // CHECK-SAME:    attributes {ddp.hook = #ddp.fp16}
  // CHECK:         ddp.all_reduce {{.+}} : !ddp.bucket<f16, [4]>
  // CHECK:         ddp.all_reduce {{.+}} {ddp.hook = #ddp.allreduce} : !ddp.bucket<f32, [4]>
  func.func @from_function(%b: !ddp.bucket<f32, [4]>)
      -> (!ddp.bucket<f32, [4]>, !ddp.bucket<f32, [4]>)
      attributes {ddp.hook = #ddp.fp16} {
    %r = ddp.all_reduce mean %b on @dp as "b1" : !ddp.bucket<f32, [4]>
    %s = ddp.all_reduce mean %b on @dp as "b2" {ddp.hook = #ddp.allreduce}
        : !ddp.bucket<f32, [4]>
    return %r, %s : !ddp.bucket<f32, [4]>, !ddp.bucket<f32, [4]>
  }
}

// -----

// In a loop and in a branch; run twice, the pass finds nothing to do.

// CHECK-LABEL: func @nested(
// CHECK:         scf.for
// CHECK:           ddp.cast
// CHECK-NEXT:      ddp.all_reduce
// CHECK-NEXT:      ddp.cast
// CHECK-NEXT:      scf.yield
ddp.process_group @dp
func.func @nested(%b: !ddp.bucket<f32, [4]>) -> !ddp.bucket<f32, [4]>
    attributes {ddp.hook = #ddp.fp16} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c3 = arith.constant 3 : index
  %r = scf.for %i = %c0 to %c3 step %c1 iter_args(%acc = %b)
      -> !ddp.bucket<f32, [4]> {
    %s = ddp.all_reduce mean %acc on @dp as "b0" : !ddp.bucket<f32, [4]>
    scf.yield %s : !ddp.bucket<f32, [4]>
  }
  return %r : !ddp.bucket<f32, [4]>
}
