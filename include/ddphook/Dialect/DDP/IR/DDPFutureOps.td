// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The start and the wait of an all-reduce. The operations between them run while it
// is in flight. DDPExchangeOps.td has the starts of other collectives.

#ifndef DDPHOOK_DIALECT_DDP_IR_DDPFUTUREOPS_TD
#define DDPHOOK_DIALECT_DDP_IR_DDPFUTUREOPS_TD

include "ddphook/Dialect/DDP/IR/DDPOpBase.td"

def DDP_AllReduceStartOp : DDP_Op<"all_reduce_start", [
    AttrSizedOperandSegments, DDP_CollectiveOpInterface, SymbolUserOpInterface,
    MemoryEffects<[MemWrite<DDP_CollectiveResource>]>]> {
  let summary = "starts an all-reduce";
  let description = [{
    Starts the reduction that `ddp.all_reduce` computes, and returns while it is in
    flight; `ddp.wait` returns the result. `ddp-overlap` creates both operations.
    Collectives run in the order in which they are started, which must be the same
    on all ranks.

    Example:

    ```mlir
    %f = ddp.all_reduce_start mean %b on @dp as "b0"
        : !ddp.bucket<f32, [4x8, 8]> -> !ddp.future<!ddp.bucket<f32, [4x8, 8]>>
    // operations that do not need the sum
    %s = ddp.wait %f : !ddp.future<!ddp.bucket<f32, [4x8, 8]>>
    ```

    With `if`, nothing is started if the condition is false. Then an `scf.if` on the
    same condition has a wait in both branches: one returns the result, the other
    the unchanged operand.

    ```mlir
    %f = ddp.all_reduce_start mean %b on @dp as "b0" if %vanilla
        : !ddp.bucket<f32, [4x8]> -> !ddp.future<!ddp.bucket<f32, [4x8]>>
    %s = scf.if %vanilla -> (!ddp.bucket<f32, [4x8]>) {
      %r = ddp.wait %f : !ddp.future<!ddp.bucket<f32, [4x8]>>
      scf.yield %r : !ddp.bucket<f32, [4x8]>
    } else {
      %same = ddp.wait %f : !ddp.future<!ddp.bucket<f32, [4x8]>>
      // compresses %same
      scf.yield %same : !ddp.bucket<f32, [4x8]>
    }
    ```

    Constraints:
    - (C1) the result is a future of the operand's type.
    - (C2) `group` is a `ddp.process_group`.
    - (C3) the wire type is f16, bf16 or a `!ddp.encoded`.
    - (C4) the result has exactly one use, in a `ddp.wait` in the same block; with
      a condition it has two, in one `ddp.wait` in each branch of an `scf.if` in
      the same block with the same condition.
    - (C5) there is a `step` if and only if the wire type rounds stochastically.
  }];
  let arguments = (ins DDP_ReductionAttr:$reduction,
                   DDP_Value:$input,
                   FlatSymbolRefAttr:$group, OptionalAttr<TypeAttr>:$wire,
                   Optional<I64>:$step, OptionalAttr<StrAttr>:$bucket_name,
                   Optional<I1>:$condition);
  let results = (outs DDP_Future:$future);
  let extraClassDeclaration = [{
    /// Returns the `ddp.wait` that ends this collective.
    ::mlir::ddp::WaitOp getWait();
    ::mlir::Operation *getEnd();
  }];
  let assemblyFormat = [{
    custom<Keyword>($reduction) $input `on` $group (`wire` $wire^)? (`step` $step^)?
    (`as` $bucket_name^)? (`if` $condition^)? attr-dict `:` type($input) `->` type($future)
  }];
  let hasCanonicalizeMethod = 1;
}

def DDP_WaitOp : DDP_Op<"wait", [
    DeclareOpInterfaceMethods<InferTypeOpInterface>,
    MemoryEffects<[MemWrite<DDP_CollectiveResource>]>]> {
  let summary = "the result of a collective that was started";
  let example = [{
    %f = ddp.all_reduce_start mean %b on @dp
        : !ddp.bucket<f32, [4x8, 8]> -> !ddp.future<!ddp.bucket<f32, [4x8, 8]>>
    %s = ddp.wait %f : !ddp.future<!ddp.bucket<f32, [4x8, 8]>>
  }];
  let constraints = [{
    - (C1) the future is the result of a `ddp.all_reduce_start` or of a
      `ddp.exchange_start`.
  }];
  let arguments = (ins DDP_Future:$future);
  let results = (outs DDP_Value:$result);
  let extraClassDeclaration = [{
    /// Returns the operation that this one ends.
    ::mlir::ddp::CollectiveOpInterface getStart();
  }];
  let assemblyFormat = "$future attr-dict `:` type($future)";
}

#endif // DDPHOOK_DIALECT_DDP_IR_DDPFUTUREOPS_TD
