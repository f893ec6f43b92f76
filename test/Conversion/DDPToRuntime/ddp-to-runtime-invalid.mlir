// RUN: ddphook-opt %s --convert-ddp-to-runtime -split-input-file -verify-diagnostics

// Not bufferized.
ddp.process_group @dp
func.func private @tensor(%t: tensor<4xf32>) -> tensor<4xf32> {
  %into = tensor.empty() : tensor<4xf32>
  // expected-error @+1 {{'ddp.flat.all_reduce' op could not be converted to a call of the runtime}}
  %r = ddp.flat.all_reduce mean %t on @dp into %into : tensor<4xf32>, tensor<4xf32>
  return %r : tensor<4xf32>
}

// -----

func.func private @bucket(%t: tensor<4xf32>) {
  // expected-error @+1 {{'ddp.pack' op could not be converted to a call of the runtime}}
  %b = ddp.pack %t : tensor<4xf32> -> !ddp.bucket<f32, [4]>
  return
}

// -----

// A type of the runtime's casts that the way there does not know yet.
func.func @cast_to_f8(%a: memref<4xf32>, %b: memref<4xi8>) {
  %c0 = arith.constant 0 : index
  %f8 = memref.alloc() : memref<4xf8E4M3FN>
  // expected-error @+1 {{op operand #1 must be}}
  ddp.flat.cast %a into %f8 : memref<4xf32>, memref<4xf8E4M3FN>
  return
}

// -----

// expected-error @+1 {{expected argument 0 to be a memref or scalar of integers or floats, but got 'memref<4xf8E4M3FN>'}}
func.func @takes_f8(%a: memref<4xf8E4M3FN>, %b: memref<4xf32>) {
  ddp.flat.scale %b by 2.0 into %b : memref<4xf32>, memref<4xf32>
  return
}

// -----

// A function of the runtime's by its name, but another one.
// expected-error @+1 {{expected 'ddphook_rt_arena' to be the runtime's function of type '!llvm.func<ptr (ptr)>'}}
llvm.func @ddphook_rt_arena(!llvm.ptr, i32) -> !llvm.ptr

// -----

// expected-error @+1 {{expected 'ddphook_rt_wait' to be the runtime's function of type '!llvm.func<void (ptr, i64)>'}}
llvm.func @ddphook_rt_wait(%handle: !llvm.ptr, %ticket: i64) {
  llvm.return
}

// -----

func.func @strided(%m: memref<8xf32>) {
  %s = memref.subview %m[0] [4] [2]
      : memref<8xf32> to memref<4xf32, strided<[2]>>
  // expected-error @+1 {{expected contiguous memory, but got 'memref<4xf32, strided<[2]>>'}}
  ddp.flat.scale %s by 2.0 into %s
      : memref<4xf32, strided<[2]>>, memref<4xf32, strided<[2]>>
  return
}

// -----

func.func private @unknown_stride(
    %m: memref<4xf32, strided<[?], offset: ?>>, %n: memref<4xf32>) {
  // expected-error @+1 {{expected contiguous memory, but got 'memref<4xf32, strided<[?], offset: ?>>'}}
  ddp.flat.scale %m by 2.0 into %n
      : memref<4xf32, strided<[?], offset: ?>>, memref<4xf32>
  return
}

// -----

// Entry points that the plan cannot describe.
// expected-error @+1 {{expected argument 1 of static shape and identity layout, but got 'memref<?xf32>'}}
func.func @dynamic(%m: memref<4xf32>, %n: memref<?xf32>) {
  ddp.flat.scale %m by 2.0 into %m : memref<4xf32>, memref<4xf32>
  return
}

// -----

// expected-error @+1 {{expected argument 0 of static shape and identity layout, but got 'memref<4xf32, strided<[1], offset: 2>>'}}
func.func @layout(%m: memref<4xf32, strided<[1], offset: 2>>) {
  %a = ddp.arena : memref<64xi8>
  return
}

// -----

// expected-error @+1 {{expected argument 0 to be a memref or scalar of integers or floats, but got 'memref<4xi7>'}}
func.func @element_type(%m: memref<4xi7>) {
  %a = ddp.arena : memref<64xi8>
  return
}

// -----

// expected-error @+1 {{expected argument 0 to be a memref or scalar of integers or floats, but got 'tensor<4xf32>'}}
func.func @tensor_argument(%t: tensor<4xf32>) {
  %a = ddp.arena : memref<64xi8>
  return
}

// -----

// expected-error @+1 {{expected results to be out-parameters, but got 'memref<64xi8>'}}
func.func @result() -> memref<64xi8> {
  %a = ddp.arena : memref<64xi8>
  return %a : memref<64xi8>
}

// -----

// Converted once already.
// expected-error @+1 {{expected a module without a plan, but it has already been converted}}
module attributes {ddp.plan = #ddp.plan<abi = 10, memory = host>} {
  func.func @again(%m: memref<4xf32>) {
    ddp.flat.scale %m by 2.0 into %m : memref<4xf32>, memref<4xf32>
    return
  }
}

// -----

// Entry points were emitted: the plan is text.
// expected-error @+1 {{expected a module without a plan, but it has already been converted}}
module {
  llvm.mlir.global internal @ddphook.def.__ddphook_handle() : !llvm.ptr
  func.func @again(%m: memref<4xf32>) {
    ddp.flat.scale %m by 2.0 into %m : memref<4xf32>, memref<4xf32>
    return
  }
}

// -----

// What a hook of another dialect may claim.
ddp.process_group @dp
// expected-error @+1 {{expected 'wire_type' to be f16, bf16, f32 or f64, but got 'i8'}}
ddp.bucket_info "b0" mean on @dp hook #ddp.fp16 wire i8 bytes 4 state_bytes 0
    : !ddp.bucket<f32, [4]>

// -----

// expected-error @+1 {{expected argument 0 of at most 72057594037927936 elements, but got 'memref<4294967296x4294967296xf32>'}}
func.func @step(%a: memref<4294967296x4294967296xf32>) {
  return
}

// -----

ddp.state @a : !ddp.bucket<f32, [72057594037927936]> per_rank zero
// expected-error @+1 {{expected states of at most 72057594037927936 elements in total}}
ddp.state @b : !ddp.bucket<f32, [1]> per_rank zero

// -----

ddp.process_group @dp
func.func @unrecorded(%x: memref<4xf32>) {
  // expected-error @+1 {{expected a bucket that 'ddp.bucket_info' describes, but got "b7"}}
  ddp.flat.all_reduce mean %x on @dp as "b7" into %x : memref<4xf32>, memref<4xf32>
  return
}

// -----

ddp.process_group @dp
ddp.bucket_info "b0" mean on @dp hook #ddp.fp16 wire f16 bytes 8 state_bytes 0
    : !ddp.bucket<f32, [4]>
// expected-error @+1 {{expected a unique bucket name, but another bucket is called "b0"}}
ddp.bucket_info "b0" mean on @dp hook #ddp.fp16 wire f16 bytes 8 state_bytes 0
    : !ddp.bucket<f32, [4]>

// -----

// A name that JSON cannot have.
// expected-error @below {{expected names in UTF-8, but got "b\FF"}}
module {
  ddp.process_group @dp
  ddp.bucket_info "b\FF" mean on @dp hook #ddp.allreduce wire f32 bytes 16 state_bytes 0
      : !ddp.bucket<f32, [4]>
  func.func @step(%b: memref<4xf32>) {
    ddp.flat.all_reduce mean %b on @dp as "b\FF" into %b : memref<4xf32>, memref<4xf32>
    return
  }
}

// -----

// The same of a gradient.
// expected-error @below {{expected names in UTF-8, but got "\E4"}}
module {
  ddp.process_group @dp
  ddp.bucket_info "b0" mean on @dp hook #ddp.allreduce wire f32 bytes 16 state_bytes 0
      : !ddp.bucket<f32, [4]> of ["\E4"]
  func.func @step(%b: memref<4xf32>) {
    ddp.flat.all_reduce mean %b on @dp as "b0" into %b : memref<4xf32>, memref<4xf32>
    return
  }
}

// -----

ddp.process_group @dp topology hierarchical
func.func @assignment_of_no_bucket(%x: memref<4xf32>) {
  // expected-error @+1 {{expected the assignment of a bucket that 'ddp.bucket_info' describes, but got #ddp.assignment<"b7" groups[0] members[0] counts[4]>}}
  ddp.flat.all_reduce sum %x on @dp into %x {ddp.assignment = #ddp.assignment<"b7" groups [0] members [0] counts [4]>} : memref<4xf32>, memref<4xf32>
  return
}

// -----

ddp.process_group @dp topology hierarchical
ddp.bucket_info "b0" mean on @dp hook #ddp.powersgd wire f32 bytes 16 state_bytes 0
    : !ddp.bucket<f32, [2, 2]>
func.func @assignment_of_other_members(%x: memref<4xf32>) {
  // expected-error @+1 {{expected an assignment of 2 members, but got #ddp.assignment<"b0" groups[0] members[2] counts[4]>}}
  ddp.flat.all_reduce sum %x on @dp into %x {ddp.assignment = #ddp.assignment<"b0" groups [0] members [2] counts [4]>} : memref<4xf32>, memref<4xf32>
  return
}

// -----

ddp.process_group @dp topology hierarchical
ddp.bucket_info "b0" mean on @dp hook #ddp.powersgd wire f32 bytes 16 state_bytes 0
    : !ddp.bucket<f32, [2, 2]>
func.func @assignment_of_other_groups(%x: memref<4xf32>) {
  // expected-error @+1 {{expected an assignment of 2 members, but got #ddp.assignment<"b0" groups[0, 2] members[0] counts[4]>}}
  ddp.flat.all_reduce sum %x on @dp into %x {ddp.assignment = #ddp.assignment<"b0" groups [0, 2] members [0] counts [4]>} : memref<4xf32>, memref<4xf32>
  return
}

// -----

ddp.process_group @dp topology hierarchical
ddp.process_group @flat
ddp.bucket_info "b0" mean on @flat hook #ddp.powersgd wire f32 bytes 16 state_bytes 0
    : !ddp.bucket<f32, [2, 2]>
func.func @assignment_in_a_flat_group(%x: memref<4xf32>) {
  // expected-error @+1 {{expected the assignment of a bucket of a hierarchical process group, but got #ddp.assignment<"b0" groups[0] members[0] counts[4]>}}
  ddp.flat.all_reduce sum %x on @dp into %x {ddp.assignment = #ddp.assignment<"b0" groups [0] members [0] counts [4]>} : memref<4xf32>, memref<4xf32>
  return
}

// -----

ddp.process_group @dp topology hierarchical
ddp.process_group @other topology hierarchical
ddp.process_group @node placement intra_node parent @other
ddp.bucket_info "b0" mean on @dp hook #ddp.powersgd wire f32 bytes 16 state_bytes 0
    : !ddp.bucket<f32, [2, 2]>
func.func @assignment_in_another_group(%x: memref<4xf32>) {
  // expected-error @+1 {{expected the assignment of a bucket that is reduced over @node, but got #ddp.assignment<"b0" groups[0] members[0] counts[4]>}}
  ddp.flat.all_reduce sum %x on @node into %x {ddp.assignment = #ddp.assignment<"b0" groups [0] members [0] counts [4]>} : memref<4xf32>, memref<4xf32>
  return
}
