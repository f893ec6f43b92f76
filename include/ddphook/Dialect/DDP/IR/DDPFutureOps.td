//===- DDPFutureOps.td - collectives in flight -------------*- tablegen -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// An all-reduce in two halves, start and wait. The operations between them run
// while the all-reduce is in flight.
//
//===----------------------------------------------------------------------===//

#ifndef DDPHOOK_DIALECT_DDP_IR_DDPFUTUREOPS_TD
#define DDPHOOK_DIALECT_DDP_IR_DDPFUTUREOPS_TD

include "ddphook/Dialect/DDP/IR/DDPOpBase.td"

def DDP_AllReduceStartOp : DDP_AlgebraOp<"all_reduce_start", [
    DeclareOpInterfaceMethods<SymbolUserOpInterface>]> {
  let summary = "begins an all-reduce";
  let overwritable = "true";
  let otherEffects = [["Write", "CollectiveResource"]];
  let description = [{
    Starts the reduction that `ddp.all_reduce` computes, and returns while it is
    in flight; `ddp.wait` returns the result. `ddp-overlap` creates both
    operations. Collectives run in the order in which they are started, which has
    to be the same on all ranks.

    On buckets and tensors the result is a future. From `ddp-flatten` on there
    are no futures: the results are the destination in flight and a ticket, and
    on memrefs the ticket alone. Neither the operand nor `into` is overwritten
    before the wait, and `into` is not read.

    Example:

    ```mlir
    %f = ddp.all_reduce_start mean %b on @dp as "b0"
        : !ddp.bucket<f32, [4x8, 8]> -> !ddp.future<!ddp.bucket<f32, [4x8, 8]>>
    // operations that do not need the sum
    %s = ddp.wait %f : !ddp.future<!ddp.bucket<f32, [4x8, 8]>>
    ```

    Constraints:
    - (C1) on buckets and tensors there is no `into` and one result, a future of
      the operand's type; or, on tensors, the results are a tensor of that type
      and a ticket; on memrefs there is `into`, and the result is a ticket.
    - (C2) `group` is a `ddp.process_group`.
    - (C3) the wire type is f16 or bf16.
    - (C4) `into` has the operand's type; on memrefs, its shape and element type.
    - (C5) each result has exactly one use, in the same `ddp.wait`, in the same
      block.
  }];
  let arguments = (ins DDP_ReductionAttr:$reduction, DDP_Value:$input,
                   FlatSymbolRefAttr:$group, OptionalAttr<TypeAttr>:$wire,
                   OptionalAttr<StrAttr>:$bucket_name,
                   Optional<DDP_Value>:$destination);
  let results = (outs
      Variadic<AnyTypeOf<[DDP_Future, DDP_Gradient, I64]>>:$values);
  let extraClassDeclaration = [{
    /// The `ddp.wait` that ends this collective.
    ::mlir::ddp::WaitOp getWait();
  }];
  let assemblyFormat = [{
    custom<Keyword>($reduction) $input `on` $group (`wire` $wire^)? (`as` $bucket_name^)?
    (`into` $destination^ `:` type($destination) `,`)? attr-dict
    `:` type($input) `->` type($values)
  }];
  let hasCanonicalizer = 1;
}

def DDP_WaitOp : DDP_Op<"wait", [AttrSizedOperandSegments,
    DeclareOpInterfaceMethods<InferTypeOpInterface>,
    DeclareOpInterfaceMethods<MemoryEffectsOpInterface>]> {
  let summary = "the result of an all-reduce that was started";
  let description = [{
    From `ddp-flatten` on, its operands are the destination that
    `ddp.all_reduce_start` has in flight, the ticket, and the operand of that
    operation, which the runtime reads until the wait.

    Example:

    ```mlir
    %f = ddp.all_reduce_start mean %b on @dp
        : !ddp.bucket<f32, [4x8, 8]> -> !ddp.future<!ddp.bucket<f32, [4x8, 8]>>
    %s = ddp.wait %f : !ddp.future<!ddp.bucket<f32, [4x8, 8]>>
    %x, %ticket = ddp.all_reduce_start mean %y on @dp
        : tensor<40xf32> -> tensor<40xf32>, i64
    %t = ddp.wait %x, %ticket reading %y : tensor<40xf32>, : tensor<40xf32>
    ```

    Constraints:
    - (C1) a future has no ticket beside it; tensors and memrefs have one.
    - (C2) future and ticket are results of `ddp.all_reduce_start`.
    - (C3) the tensor in flight is a result of the same operation, and `reading`
      names its operand.
  }];
  let arguments = (ins
      AnyTypeOf<[DDP_Future, DDP_Gradient, DDP_Buffer]>:$in_flight,
      Optional<I64>:$ticket,
      Optional<AnyTypeOf<[DDP_Gradient, DDP_Buffer]>>:$source);
  let results = (outs Optional<DDP_Value>:$result);
  let extraClassDeclaration = [{
    /// The `ddp.all_reduce_start` that this operation ends.
    ::mlir::ddp::AllReduceStartOp getStart();
  }];
  let assemblyFormat = [{
    $in_flight (`,` $ticket^)? (`reading` $source^ `:` type($source) `,`)? attr-dict
    `:` type($in_flight)
  }];
  let hasVerifier = 1;
}

#endif // DDPHOOK_DIALECT_DDP_IR_DDPFUTUREOPS_TD
