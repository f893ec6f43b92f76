// RUN: ddphook-opt %s -split-input-file -verify-diagnostics

// One case for every way in which types, attributes and operations refuse what
// they are given, under the number of the constraint.

//===----------------------------------------------------------------------===//
// !ddp.bucket
//===----------------------------------------------------------------------===//

// C1
// expected-error @+1 {{expected a bucket of f16, bf16, f32 or f64, but got 'i32'}}
func.func private @bucket_of_integers(!ddp.bucket<i32, [4]>)

// -----

// C1
// expected-error @+1 {{expected a bucket of f16, bf16, f32 or f64, but got 'f8E4M3FN'}}
func.func private @bucket_of_bytes(!ddp.bucket<f8E4M3FN, [4]>)

// -----

// C2
// expected-error @+1 {{expected static shapes in a bucket}}
func.func private @bucket_of_unknown_size(!ddp.bucket<f32, [4, ?x8]>)

// -----

// expected-error @+1 {{expected ','}}
func.func private @bucket_without_members(!ddp.bucket<f32>)

// -----

// expected-error @+1 {{expected '['}}
func.func private @bucket_without_list(!ddp.bucket<f32, 4>)

// -----

// expected-error @+1 {{expected '>'}}
func.func private @bucket_not_closed(!ddp.bucket<f32, [4], 5>)

// -----

//===----------------------------------------------------------------------===//
// Hooks
//===----------------------------------------------------------------------===//

// C1 of #ddp.wrap
// expected-error @+1 {{expected a wrapper to f16 or bf16, but got 'f32'}}
module attributes {ddp.hook = #ddp.wrap<f32, #ddp.allreduce>} {}

// -----

// C2 of #ddp.wrap
// expected-error @+1 {{expected a wrapper around a hook, but got "fp16"}}
module attributes {ddp.hook = #ddp.wrap<f16, "fp16">} {}

// -----

// expected-error @+1 {{unknown attribute `gzip` in dialect `ddp`}}
module attributes {ddp.hook = #ddp.gzip} {}

// -----

//===----------------------------------------------------------------------===//
// Discardable attributes
//===----------------------------------------------------------------------===//

// expected-error @+1 {{expected 'ddp.hook' to be a hook attribute, but got "fp16"}}
module attributes {ddp.hook = "fp16"} {}

// -----

func.func @hook_on_something_else(%t: tensor<4xf32>) {
  // expected-error @+1 {{expected 'ddp.hook' on 'ddp.all_reduce', 'ddp.reduce_scatter', a function or a module only}}
  %0 = ddp.scale %t by 2.0 {ddp.hook = #ddp.fp16} : tensor<4xf32>
  return
}

// -----

// expected-error @+1 {{expected 'ddp.result_arguments' to be an array of i64 on a function}}
func.func private @result_arguments_of_another_type()
    attributes {ddp.result_arguments = [0, 1]}

// -----

// expected-error @+1 {{expected 'ddp.result_arguments' to be an array of i64 on a function}}
module attributes {ddp.result_arguments = array<i64: 0>} {}

// -----

// expected-error @+1 {{got unknown attribute 'ddp.hooks' of the ddp dialect}}
func.func private @unknown() attributes {ddp.hooks = #ddp.fp16}

// -----

// expected-error @+1 {{got unknown argument attribute 'ddp.hook' of the ddp dialect}}
func.func private @unknown_on_argument(tensor<4xf32> {ddp.hook = #ddp.fp16})

// -----

// expected-error @+1 {{expected 'ddp.replicated' to be a unit attribute}}
func.func private @replicated_value(i1 {ddp.replicated = true})

// -----

// expected-error @+1 {{expected 'ddp.inout' to be a unit attribute}}
func.func private @inout_value(memref<4xf32> {ddp.inout = 1})

// -----

// expected-error @+1 {{expected argument 1 marked 'ddp.gradient' to be a memref of floats (an out-parameter), but got 'tensor<4xf32>'}}
func.func private @gradient_argument(i1, tensor<4xf32> {ddp.gradient})

// -----

// expected-error @+1 {{expected argument 0 marked 'ddp.gradient' to be a memref of floats (an out-parameter), but got 'memref<4xi32>'}}
func.func private @gradient_argument_of_integers(memref<4xi32> {ddp.gradient})

// -----

// expected-error @+1 {{got unknown result attribute 'ddp.replicated' of the ddp dialect}}
func.func private @unknown_on_result() -> (tensor<4xf32> {ddp.replicated})

// -----

// expected-error @+1 {{expected 'ddp.gradient' to be a unit attribute}}
func.func private @gradient_value() -> (tensor<4xf32> {ddp.gradient = "yes"})

// -----

// expected-error @+1 {{expected result 1 marked 'ddp.gradient' to be a tensor of floats, but got 'tensor<4xi32>'}}
func.func private @gradient_of_integers()
    -> (tensor<4xf32>, tensor<4xi32> {ddp.gradient})

// -----

// expected-error @+1 {{expected result 0 marked 'ddp.gradient' to be a tensor of floats, but got 'f32'}}
func.func private @gradient_without_shape() -> (f32 {ddp.gradient})

// -----

//===----------------------------------------------------------------------===//
// ddp.process_group
//===----------------------------------------------------------------------===//

// C1
// expected-error @+1 {{expected a positive size, but got 0}}
ddp.process_group @dp size 0

// -----

// C1
// expected-error @+1 {{expected a positive size, but got -2}}
ddp.process_group @dp size -2

// -----

// C1
// expected-error @+1 {{expected a size of at most 16777216, but got 16777217}}
ddp.process_group @dp size 16777217

// -----

// C2
// expected-error @+1 {{expected lists of ranks of equal size}}
ddp.process_group @dp ranks [[0, 1], [2]]

// -----

// C2
// expected-error @+1 {{expected lists of ranks of equal size}}
ddp.process_group @dp ranks [[], []]

// -----

// C2
// expected-error @+1 {{expected each rank from 0 to 3 once, but got 1}}
ddp.process_group @dp ranks [[0, 1], [1, 3]]

// -----

// C2
// expected-error @+1 {{expected each rank from 0 to 1 once, but got 2}}
ddp.process_group @dp ranks [[0, 2]]

// -----

// C2
// expected-error @+1 {{expected each rank from 0 to 1 once, but got -1}}
ddp.process_group @dp ranks [[0, -1]]

// -----

// C3
// expected-error @+1 {{expected lists of 4 ranks, but got 2}}
ddp.process_group @dp size 4 ranks [[0, 1], [2, 3]]

// -----

// C4
// expected-error @+1 {{expected either ranks, or placement and parent}}
ddp.process_group @dp ranks [[0, 1]] placement intra_node

// -----

// C4
ddp.process_group @all
// expected-error @+1 {{expected either ranks, or placement and parent}}
ddp.process_group @dp ranks [[0, 1]] parent @all

// -----

// C5
ddp.process_group @all
// expected-error @+1 {{expected a 'placement' with 'parent'}}
ddp.process_group @dp parent @all

// -----

// C6
// expected-error @+1 {{expected either a topology or a placement}}
ddp.process_group @dp placement intra_node topology hierarchical

// -----

// C5
// expected-error @+1 {{expected process group @all to be declared}}
ddp.process_group @dp placement intra_node parent @all

// -----

// C5
// expected-note @+1 {{the name refers to this}}
func.func private @all()
// expected-error @+1 {{expected @all to be a process group}}
ddp.process_group @dp placement intra_node parent @all

// -----

// expected-error @+1 {{expected a parent that does not depend on this group}}
ddp.process_group @dp placement intra_node parent @dp

// -----

// expected-error @+1 {{expected a parent that does not depend on this group}}
ddp.process_group @a placement intra_node parent @b
ddp.process_group @b placement inter_node parent @a

// -----

// expected-error @+1 {{'ranks' failed to satisfy constraint: list of lists of ranks}}
"ddp.process_group"() {sym_name = "dp", ranks = [0, 1]} : () -> ()

// -----

// expected-error @+1 {{expected 'intra_node' or 'inter_node', but got 'rack'}}
ddp.process_group @dp placement rack

// -----

//===----------------------------------------------------------------------===//
// ddp.bucket_info
//===----------------------------------------------------------------------===//

ddp.process_group @dp
// expected-error @+1 {{'hook' failed to satisfy constraint: HookAttrInterface instance}}
"ddp.bucket_info"() {bucket_name = "b0", reduction = #ddp<reduction mean>,
    group = @dp, hook = "fp16", wire_type = f16, wire_bytes = 8 : i64,
    state_bytes = 0 : i64, type = !ddp.bucket<f32, [4]>} : () -> ()

// -----

ddp.process_group @dp
// expected-error @+1 {{'type' failed to satisfy constraint}}
"ddp.bucket_info"() {bucket_name = "b0", reduction = #ddp<reduction mean>,
    group = @dp, hook = #ddp.fp16, wire_type = f16, wire_bytes = 8 : i64,
    state_bytes = 0 : i64, type = tensor<4xf32>} : () -> ()

// -----

// C1
// expected-error @+1 {{expected process group @dp to be declared}}
ddp.bucket_info "b0" mean on @dp hook #ddp.fp16 wire f16 bytes 8
    state_bytes 0 : !ddp.bucket<f32, [4]>

// -----

// C2
ddp.process_group @dp
// expected-error @+1 {{expected names of 1 gradients, but got 2}}
ddp.bucket_info "b0" mean on @dp hook #ddp.fp16 wire f16 bytes 8
    state_bytes 0 : !ddp.bucket<f32, [4]> of ["w", "b"]

// -----

//===----------------------------------------------------------------------===//
// ddp.pack, ddp.unpack
//===----------------------------------------------------------------------===//

// C1
func.func @pack_element_type(%a: tensor<4xf32>, %b: tensor<5xf16>) {
  // expected-error @+1 {{expected tensor 1 to have element type 'f32', but got 'tensor<5xf16>'}}
  %0 = ddp.pack %a, %b : tensor<4xf32>, tensor<5xf16>
      -> !ddp.bucket<f32, [4, 5]>
  return
}

// -----

// C1
func.func @pack_number(%a: tensor<4xf32>) {
  // expected-error @+1 {{expected 2 tensors for this bucket, but got 1}}
  %0 = ddp.pack %a : tensor<4xf32> -> !ddp.bucket<f32, [4, 5]>
  return
}

// -----

// C1
func.func @pack_shape(%a: tensor<4xf32>, %b: tensor<5x1xf32>) {
  // expected-error @+1 {{expected tensor 1 to be 'tensor<5xf32>', but got 'tensor<5x1xf32>'}}
  %0 = ddp.pack %a, %b : tensor<4xf32>, tensor<5x1xf32>
      -> !ddp.bucket<f32, [4, 5]>
  return
}

// -----

// C1
func.func @pack_flat(%a: tensor<4xf32>, %b: tensor<5x1xf32>) {
  // expected-error @+1 {{expected tensors of 10 elements in total, but got 9}}
  %0 = ddp.pack %a, %b : tensor<4xf32>, tensor<5x1xf32> -> tensor<10xf32>
  return
}

// -----

func.func @pack_dynamic(%a: tensor<?xf32>) {
  // expected-error @+1 {{operand #0 must be variadic of statically shaped tensor of f16, bf16, f32 or f64, but got 'tensor<?xf32>'}}
  %0 = ddp.pack %a : tensor<?xf32> -> tensor<10xf32>
  return
}

// -----

func.func @pack_integers(%a: tensor<4xi32>) {
  // expected-error @+1 {{operand #0 must be variadic of statically shaped tensor of f16, bf16, f32 or f64, but got 'tensor<4xi32>'}}
  %0 = ddp.pack %a : tensor<4xi32> -> tensor<4xf32>
  return
}

// -----

func.func @pack_into_matrix(%a: tensor<4xf32>) {
  // expected-error @+1 {{result #0 must be}}
  %0 = ddp.pack %a : tensor<4xf32> -> tensor<2x2xf32>
  return
}

// -----

// C1
func.func @unpack_element_type(%b: !ddp.bucket<f32, [4, 5]>) {
  // expected-error @+1 {{expected tensor 0 to have element type 'f32', but got 'tensor<4xf64>'}}
  %0:2 = ddp.unpack %b : !ddp.bucket<f32, [4, 5]>
      -> tensor<4xf64>, tensor<5xf32>
  return
}

// -----

// C1
func.func @unpack_number(%b: !ddp.bucket<f32, [4, 5]>) {
  // expected-error @+1 {{expected 2 tensors for this bucket, but got 3}}
  %0:3 = ddp.unpack %b : !ddp.bucket<f32, [4, 5]>
      -> tensor<4xf32>, tensor<5xf32>, tensor<f32>
  return
}

// -----

// C1
func.func @unpack_shape(%b: !ddp.bucket<f32, [4, 5]>) {
  // expected-error @+1 {{expected tensor 0 to be 'tensor<4xf32>', but got 'tensor<5xf32>'}}
  %0:2 = ddp.unpack %b : !ddp.bucket<f32, [4, 5]>
      -> tensor<5xf32>, tensor<4xf32>
  return
}

// -----

// C1
func.func @unpack_flat(%b: tensor<9xf32>) {
  // expected-error @+1 {{expected tensors of 9 elements in total, but got 4}}
  %0 = ddp.unpack %b : tensor<9xf32> -> tensor<4xf32>
  return
}

// -----

func.func @unpack_dynamic(%b: tensor<9xf32>) {
  // expected-error @+1 {{result #0 must be variadic of statically shaped tensor of f16, bf16, f32 or f64, but got 'tensor<?xf32>'}}
  %0 = ddp.unpack %b : tensor<9xf32> -> tensor<?xf32>
  return
}

// -----

//===----------------------------------------------------------------------===//
// ddp.extract
//===----------------------------------------------------------------------===//

// C1
func.func @extract_out_of_range(%b: !ddp.bucket<f32, [4, 5]>) {
  // expected-error @+1 {{expected members below 2, but got 2}}
  %0 = ddp.extract %b [1, 2] : !ddp.bucket<f32, [4, 5]>
  return
}

// -----

// C1
func.func @extract_negative(%b: !ddp.bucket<f32, [4, 5]>) {
  // expected-error @+1 {{expected members below 2, but got -1}}
  %0 = ddp.extract %b [-1] : !ddp.bucket<f32, [4, 5]>
  return
}

// -----

// C1
func.func @extract_twice(%b: !ddp.bucket<f32, [4, 5, 6]>) {
  // expected-error @+1 {{expected distinct members, but got 2 twice}}
  %0 = ddp.extract %b [2, 0, 2] : !ddp.bucket<f32, [4, 5, 6]>
  return
}

// -----

func.func @extract_from_tensor(%b: tensor<9xf32>) {
  // expected-error @+1 {{expected a bucket to extract from}}
  %0 = ddp.extract %b [0] : tensor<9xf32>
  return
}

// -----

func.func @extract_result(%b: !ddp.bucket<f32, [4, 5]>) {
  // expected-error @+2 {{failed to infer returned types}}
  // expected-error @+1 {{'ddp.extract' op inferred type(s) '!ddp.bucket<f32, [4]>' are incompatible with return type(s) of operation '!ddp.bucket<f32, [5]>'}}
  %0 = "ddp.extract"(%b) {members = array<i64: 0>}
      : (!ddp.bucket<f32, [4, 5]>) -> !ddp.bucket<f32, [5]>
  return
}

// -----

//===----------------------------------------------------------------------===//
// ddp.concat
//===----------------------------------------------------------------------===//

// C1
func.func @concat_element_type(%x: !ddp.bucket<f32, [4]>,
                               %y: !ddp.bucket<f16, [5]>) {
  // expected-error @+1 {{expected operand 1 to have element type 'f32', but got '!ddp.bucket<f16, [5]>'}}
  %0 = ddp.concat %x, %y : !ddp.bucket<f32, [4]>, !ddp.bucket<f16, [5]>
      -> !ddp.bucket<f32, [4, 5]>
  return
}

// -----

// C1
func.func @concat_kind(%x: !ddp.bucket<f32, [4]>, %y: tensor<5xf32>) {
  // expected-error @+1 {{expected operand 1 to be of the result's kind, but got 'tensor<5xf32>'}}
  %0 = ddp.concat %x, %y : !ddp.bucket<f32, [4]>, tensor<5xf32>
      -> !ddp.bucket<f32, [4, 5]>
  return
}

// -----

// C1
func.func @concat_members(%x: !ddp.bucket<f32, [4]>,
                          %y: !ddp.bucket<f32, [5]>) {
  // expected-error @+1 {{expected the operands' members to match the result's, but got '!ddp.bucket<f32, [4, 5]>'}}
  %0 = ddp.concat %x, %y : !ddp.bucket<f32, [4]>, !ddp.bucket<f32, [5]>
      -> !ddp.bucket<f32, [9]>
  return
}

// -----

// C1
func.func @concat_flat(%x: tensor<4xf32>, %y: tensor<5xf32>) {
  // expected-error @+1 {{expected operands of 10 elements in total, but got 9}}
  %0 = ddp.concat %x, %y : tensor<4xf32>, tensor<5xf32> -> tensor<10xf32>
  return
}

// -----

func.func @concat_matrix(%x: tensor<2x2xf32>) {
  // expected-error @+1 {{operand #0 must be}}
  %0 = ddp.concat %x : tensor<2x2xf32> -> tensor<4xf32>
  return
}

// -----

// C3
func.func @concat_into_another_type(%x: tensor<4xf32>, %into: tensor<5xf32>) {
  // expected-error @+1 {{expected 'into' on tensors only, of the result's type, but got 'tensor<5xf32>'}}
  %0 = ddp.concat %x into %into : tensor<5xf32>, : tensor<4xf32>
      -> tensor<4xf32>
  return
}

// -----

// C3
func.func @concat_into_a_bucket(%x: !ddp.bucket<f32, [4]>) {
  // expected-error @+1 {{expected 'into' on tensors only, of the result's type, but got '!ddp.bucket<f32, [4]>'}}
  %0 = ddp.concat %x into %x : !ddp.bucket<f32, [4]>, : !ddp.bucket<f32, [4]>
      -> !ddp.bucket<f32, [4]>
  return
}

// -----

//===----------------------------------------------------------------------===//
// ddp.split
//===----------------------------------------------------------------------===//

// C1
func.func @split_element_type(%b: !ddp.bucket<f32, [4, 5]>) {
  // expected-error @+1 {{expected result 1 to have element type 'f32', but got '!ddp.bucket<f16, [5]>'}}
  %0:2 = ddp.split %b : !ddp.bucket<f32, [4, 5]>
      -> !ddp.bucket<f32, [4]>, !ddp.bucket<f16, [5]>
  return
}

// -----

// C1
func.func @split_kind(%b: !ddp.bucket<f32, [4, 5]>) {
  // expected-error @+1 {{expected result 0 to be of the operand's kind, but got 'tensor<4xf32>'}}
  %0:2 = ddp.split %b : !ddp.bucket<f32, [4, 5]>
      -> tensor<4xf32>, !ddp.bucket<f32, [5]>
  return
}

// -----

// C1
func.func @split_members(%b: !ddp.bucket<f32, [4, 5]>) {
  // expected-error @+1 {{expected the results' members to match the operand's, but got '!ddp.bucket<f32, [5, 4]>'}}
  %0:2 = ddp.split %b : !ddp.bucket<f32, [4, 5]>
      -> !ddp.bucket<f32, [5]>, !ddp.bucket<f32, [4]>
  return
}

// -----

// C1
func.func @split_flat(%b: tensor<9xf32>) {
  // expected-error @+1 {{expected results of 9 elements in total, but got 8}}
  %0:2 = ddp.split %b : tensor<9xf32> -> tensor<4xf32>, tensor<4xf32>
  return
}

// -----

//===----------------------------------------------------------------------===//
// ddp.all_reduce
//===----------------------------------------------------------------------===//

// C1
ddp.process_group @dp
func.func @all_reduce_without_destination(%m: memref<4xf32>) {
  // expected-error @+1 {{expected an 'into' operand and no result on memrefs}}
  ddp.all_reduce mean %m on @dp : memref<4xf32>
  return
}

// -----

// C2
func.func @all_reduce_undeclared(%t: tensor<4xf32>) {
  // expected-error @+1 {{expected process group @dp to be declared}}
  %0 = ddp.all_reduce mean %t on @dp : tensor<4xf32>
  return
}

// -----

// C2
// expected-note @+1 {{the name refers to this}}
func.func @all_reduce_on_a_function(%t: tensor<4xf32>) {
  // expected-error @+1 {{expected @all_reduce_on_a_function to be a process group}}
  %0 = ddp.all_reduce mean %t on @all_reduce_on_a_function : tensor<4xf32>
  return
}

// -----

// C3
ddp.process_group @dp
func.func @all_reduce_wire(%t: tensor<4xf32>) {
  // expected-error @+1 {{expected wire type f16 or bf16 or an encoding, but got 'f32'}}
  %0 = ddp.all_reduce mean %t on @dp wire f32 : tensor<4xf32>
  return
}

// -----

// C1
ddp.process_group @dp
func.func @all_reduce_into(%t: tensor<4xf32>, %d: memref<4xf32>) {
  // expected-error @+1 {{expected 'into' with a memref only, but got 'tensor<4xf32>'}}
  %0 = ddp.all_reduce mean %t on @dp into %d : memref<4xf32>, : tensor<4xf32>
  return
}

// -----

// C1, on memory
ddp.process_group @dp
func.func @all_reduce_into_memory(%m: memref<4xf32>, %n: memref<4xf64>) {
  // expected-error @+1 {{expected 'into' to have the operand's type, but got 'memref<4xf64>'}}
  ddp.all_reduce mean %m on @dp into %n : memref<4xf64>, : memref<4xf32>
  return
}

// -----

ddp.process_group @dp
func.func @all_reduce_dynamic(%t: tensor<4x?xf32>) {
  // expected-error @+1 {{operand #0 must be bucket or statically shaped tensor of f16, bf16, f32 or f64 or statically shaped memref of f16, bf16, f32 or f64, but got 'tensor<4x?xf32>'}}
  %0 = ddp.all_reduce mean %t on @dp : tensor<4x?xf32>
  return
}

// -----

ddp.process_group @dp
func.func @all_reduce_integers(%t: tensor<4xi32>) {
  // expected-error @+1 {{operand #0 must be bucket or statically shaped tensor of f16, bf16, f32 or f64 or statically shaped memref of f16, bf16, f32 or f64, but got 'tensor<4xi32>'}}
  %0 = ddp.all_reduce sum %t on @dp : tensor<4xi32>
  return
}

// -----

ddp.process_group @dp
func.func @all_reduce_unranked(%t: tensor<*xf32>) {
  // expected-error @+1 {{operand #0 must be}}
  %0 = ddp.all_reduce sum %t on @dp : tensor<*xf32>
  return
}

// -----

ddp.process_group @dp
func.func @all_reduce_scalar(%t: f32) {
  // expected-error @+1 {{operand #0 must be}}
  %0 = ddp.all_reduce sum %t on @dp : f32
  return
}

// -----

ddp.process_group @dp
func.func @all_reduce_kind(%t: tensor<4xf32>) {
  // expected-error @+1 {{expected 'mean' or 'sum', but got 'max'}}
  %0 = ddp.all_reduce max %t on @dp : tensor<4xf32>
  return
}

// -----

ddp.process_group @dp
func.func @all_reduce_result(%t: tensor<4xf32>) {
  // expected-error @+1 {{expected a result of the operand's type}}
  %0 = "ddp.all_reduce"(%t) {reduction = #ddp<reduction mean>, group = @dp}
      : (tensor<4xf32>) -> tensor<4xf16>
  return
}

// -----

ddp.process_group @dp
func.func @all_reduce_without_result(%t: tensor<4xf32>) {
  // expected-error @+1 {{expected a result of the operand's type}}
  "ddp.all_reduce"(%t) {reduction = #ddp<reduction mean>, group = @dp}
      : (tensor<4xf32>) -> ()
  return
}

// -----

//===----------------------------------------------------------------------===//
// ddp.cast
//===----------------------------------------------------------------------===//

func.func @cast_of_memory(%m: memref<4xf32>) {
  // expected-error @+1 {{operand #0 must be bucket or statically shaped tensor of f16, bf16, f32 or f64, but got 'memref<4xf32>'}}
  %0 = ddp.cast %m : memref<4xf32> -> memref<4xf16>
  return
}

// -----

// C1
func.func @cast_shape(%t: tensor<4xf32>) {
  // expected-error @+1 {{expected a target of the same shape as 'tensor<4xf32>', but got 'tensor<2x2xf16>'}}
  %0 = ddp.cast %t : tensor<4xf32> -> tensor<2x2xf16>
  return
}

// -----

// C1
func.func @cast_members(%b: !ddp.bucket<f32, [4, 5]>) {
  // expected-error @+1 {{expected a target of the same shape as '!ddp.bucket<f32, [4, 5]>', but got '!ddp.bucket<f16, [9]>'}}
  %0 = ddp.cast %b : !ddp.bucket<f32, [4, 5]> -> !ddp.bucket<f16, [9]>
  return
}

// -----

// C1
func.func @cast_kind(%b: !ddp.bucket<f32, [4]>) {
  // expected-error @+1 {{expected a target of the same shape as '!ddp.bucket<f32, [4]>', but got 'tensor<4xf16>'}}
  %0 = ddp.cast %b : !ddp.bucket<f32, [4]> -> tensor<4xf16>
  return
}

// -----

func.func @cast_to_integers(%t: tensor<4xf32>) {
  // expected-error @+1 {{result #0 must be bucket or statically shaped tensor of f16, bf16, f32 or f64, but got 'tensor<4xi8>'}}
  %0 = ddp.cast %t : tensor<4xf32> -> tensor<4xi8>
  return
}

// -----

//===----------------------------------------------------------------------===//
// ddp.scale
//===----------------------------------------------------------------------===//

// C1
func.func @scale_by_nothing(%t: tensor<4xf32>) {
  // expected-error @+1 {{expected either a factor or a process group}}
  %0 = ddp.scale %t : tensor<4xf32>
  return
}

// -----

// C2
ddp.process_group @dp
func.func @scale_by_both(%t: tensor<4xf32>) {
  // expected-error @+1 {{expected either a factor or a process group}}
  %0 = ddp.scale %t by 2.0 by_world_of @dp : tensor<4xf32>
  return
}

// -----

// C2
func.func @scale_undeclared(%t: tensor<4xf32>) {
  // expected-error @+1 {{expected process group @dp to be declared}}
  %0 = ddp.scale %t by_world_of @dp : tensor<4xf32>
  return
}

// -----

// C3
// expected-note @+1 {{the name refers to this}}
func.func @scale_by_a_function(%t: tensor<4xf32>) {
  // expected-error @+1 {{expected @scale_by_a_function to be a process group}}
  %0 = ddp.scale %t by_world_of @scale_by_a_function : tensor<4xf32>
  return
}

// -----

//===----------------------------------------------------------------------===//
// ddp.view, ddp.arena
//===----------------------------------------------------------------------===//

// C1
func.func @view_of_strided(%m: memref<8xf32, strided<[2]>>) {
  // expected-error @+1 {{expected memrefs with identity layout}}
  %0 = ddp.view %m[0] : memref<8xf32, strided<[2]>> to memref<4xf32>
  return
}

// -----

// C1
func.func @view_strided(%m: memref<8xf32>) {
  // expected-error @+1 {{expected memrefs with identity layout}}
  %0 = ddp.view %m[0] : memref<8xf32> to memref<4xf32, strided<[1], offset: 2>>
  return
}

// -----

// C1
func.func @view_element_type(%m: memref<8xf32>) {
  // expected-error @+1 {{expected a slice of 'f32' in the same memory space, but got 'memref<4xf16>'}}
  %0 = ddp.view %m[0] : memref<8xf32> to memref<4xf16>
  return
}

// -----

// C1
func.func @view_memory_space(%m: memref<8xf32>) {
  // expected-error @+1 {{expected a slice of 'f32' in the same memory space, but got 'memref<4xf32, 1>'}}
  %0 = ddp.view %m[0] : memref<8xf32> to memref<4xf32, 1>
  return
}

// -----

// C2
func.func @view_outside(%m: memref<8xf32>) {
  // expected-error @+1 {{expected a slice within 8 elements, but got 2 from 7}}
  %0 = ddp.view %m[7] : memref<8xf32> to memref<2xf32>
  return
}

// -----

// C2
func.func @view_far_outside(%m: memref<8xf32>) {
  // expected-error @+1 {{expected a slice within 8 elements, but got 2 from 9223372036854775807}}
  %0 = ddp.view %m[9223372036854775807] : memref<8xf32> to memref<2xf32>
  return
}

// -----

// C2
func.func @view_negative(%m: memref<8xf32>) {
  // expected-error @+1 {{attribute 'offset' failed to satisfy constraint: 64-bit signless integer attribute whose value is non-negative}}
  %0 = ddp.view %m[-1] : memref<8xf32> to memref<2xf32>
  return
}

// -----

ddp.process_group @dp
func.func @too_few_names(%b: !ddp.bucket<f32, [2, 3]>) {
  // C5
  // expected-error @+1 {{expected names of 2 gradients, but got 1}}
  %0 = ddp.all_reduce sum %b on @dp : !ddp.bucket<f32, [2, 3]> of ["x"]
  return
}

// -----

ddp.process_group @dp
func.func @names_of_a_tensor(%a: tensor<2xf32>) {
  // C5
  // expected-error @+1 {{expected gradient names only on a bucket, but got 'tensor<2xf32>'}}
  %0 = ddp.all_reduce sum %a on @dp : tensor<2xf32> of ["x"]
  return
}

// -----

ddp.process_group @dp
func.func @name_of_a_bucket(%b: !ddp.bucket<f32, [2]>) {
  // expected-error @+1 {{expected 'ddp.name' on the 'ddp.all_reduce' of a gradient, on a 'ddp.reduce_scatter', or on a function's argument}}
  %0 = ddp.all_reduce sum %b on @dp {ddp.name = "x"} : !ddp.bucket<f32, [2]>
  return
}

// -----

// expected-error @+1 {{expected 'ddp.name' on the 'ddp.all_reduce' of a gradient, on a 'ddp.reduce_scatter', or on a function's argument}}
func.func @name_of_a_function() attributes {ddp.name = "x"} {
  return
}

// -----

ddp.process_group @dp
func.func @empty_name(%a: tensor<2xf32>) {
  // expected-error @+1 {{expected 'ddp.name' to be a string that is not empty, in UTF-8, but got ""}}
  %0 = ddp.all_reduce sum %a on @dp {ddp.name = ""} : tensor<2xf32>
  return
}

// -----

// expected-error @+1 {{expected 'ddp.name' of argument 1 to be a string that is not empty, in UTF-8, but got 7 : i64}}
func.func @number_as_a_name(%a: tensor<2xf32>, %b: tensor<2xf32> {ddp.name = 7}) {
  return
}

// -----

// expected-error @+1 {{expected 'ddp.name' of argument 0 to be a string that is not empty, in UTF-8, but got "\FF"}}
func.func @no_utf8(%a: tensor<2xf32> {ddp.name = "\FF"}) {
  return
}

// -----

func.func @view_dynamic(%m: memref<?xf32>) {
  // expected-error @+1 {{operand #0 must be statically shaped memref of f16, bf16, f32 or f64, but got 'memref<?xf32>'}}
  %0 = ddp.view %m[0] : memref<?xf32> to memref<2xf32>
  return
}

// -----

func.func @arena_of_floats() {
  // expected-error @+1 {{result #0 must be 1D memref of 8-bit signless integer values, but got 'memref<4xf32>'}}
  %0 = ddp.arena : memref<4xf32>
  return
}
