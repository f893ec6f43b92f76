// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The collectives besides all-reduces, on values and on flat arrays: broadcasts,
// and those that divide an array into one part per rank. A single operation starts
// any of them asynchronously.

#ifndef DDPHOOK_DIALECT_DDP_IR_DDPEXCHANGEOPS_TD
#define DDPHOOK_DIALECT_DDP_IR_DDPEXCHANGEOPS_TD

include "ddphook/Dialect/DDP/IR/DDPFlatOps.td"
include "ddphook/Dialect/DDP/IR/DDPOpBase.td"

/// The declarations of a collective of that kind.
class DDP_Exchange<string kind> {
  string declarations = [{
    ::mlir::ddp::CollectiveKind getKind() {
      return ::mlir::ddp::CollectiveKind::}] # kind # [{;
    }
  }];
}

class DDP_ExchangeOp<string mnemonic, string kind, list<Trait> traits = []>
    : DDP_Op<mnemonic, !listconcat(traits, [
        DDP_CollectiveOpInterface, SymbolUserOpInterface,
        MemoryEffects<[MemWrite<DDP_CollectiveResource>]>])> {
  let extraClassDeclaration = DDP_Exchange<kind>.declarations;
}

def DDP_ReduceScatterOp : DDP_ExchangeOp<"reduce_scatter", "ReduceScatter"> {
  let summary = "reduces a gradient, and leaves each rank its part";
  let text = [{
    The gradient's n elements, in row-major order, are divided into parts of ⌈n / W⌉
    elements, where W is the group's size. Rank r gets part r of the result of
    `ddp.all_reduce`, bit for bit (over NCCL: docs/cuda.md). Parts at the end may be
    shorter or empty; they are padded with zeros.

    This is the reduction of sharded data parallelism (ZeRO, FSDP): each rank
    updates its part of the parameters, and `ddp.all_gather` joins the parts. It is
    not put into buckets; to reduce several gradients in one collective, pack them.

    Only hooks that define how elements are sent and added are legal:
    `#ddp.allreduce`, `#ddp.fp16`, `#ddp.bf16`, `#ddp.int8`, `#ddp.int4` and
    `#ddp.fp8`, also with error feedback. `ddp-expand-hooks` refuses others with a
    reason. States that a hook keeps are named after `ddp.name`, which the pass
    derives if it is missing; members of a bucket are NAME.0, NAME.1 and so on.
  }];
  let example = [{
    %s = ddp.reduce_scatter mean %g on @pairs : tensor<5x3xf32> -> tensor<8xf32>
  }];
  let constraints = [{
    - (C1) the result has the operand's element type, and one dimension.
    - (C2) `group` is a `ddp.process_group` that states its size.
    - (C3) the result has ⌈n / W⌉ elements.
    - (C4) the wire type is f16, bf16 or a `!ddp.encoded` without a zero point.
    - (C5) there is a `step` if and only if the wire type rounds stochastically.
  }];
  let arguments = (ins DDP_ReductionAttr:$reduction, DDP_Value:$input,
                   FlatSymbolRefAttr:$group, OptionalAttr<TypeAttr>:$wire,
                   Optional<I64>:$step);
  let results = (outs DDP_FlatBucket:$result);
  let assemblyFormat = [{
    custom<Keyword>($reduction) $input `on` $group (`wire` $wire^)? (`step` $step^)?
    attr-dict `:` type($input) `->` type($result)
  }];
}

def DDP_AllGatherOp : DDP_ExchangeOp<"all_gather", "AllGather"> {
  let summary = "joins the parts of all ranks";
  let text = [{
    The inverse of `ddp.reduce_scatter`: every rank gets the parts of all ranks, one
    after another, without their padding. With `wire` all elements, including a
    rank's own, are cast to that type and back, or encoded in blocks that begin at
    each part, and decoded. A hook that reduces a bucket by gathering the data of all
    ranks gives the bucket's name after `as`.
  }];
  let example = [{
    %p = ddp.all_gather %s on @pairs : tensor<8xf32> -> tensor<5x3xf32>
  }];
  let constraints = [{
    - (C1) the operand has the result's element type, and one dimension.
    - (C2) `group` is a `ddp.process_group` that states its size.
    - (C3) the operand has ⌈n / W⌉ elements, where the result has n.
    - (C4) the wire type is f16, bf16 or a `!ddp.encoded` without zero points and
      random numbers.
  }];
  let arguments = (ins DDP_FlatBucket:$input, FlatSymbolRefAttr:$group,
                   OptionalAttr<TypeAttr>:$wire,
                   OptionalAttr<StrAttr>:$bucket_name);
  let results = (outs DDP_Value:$result);
  let assemblyFormat = [{
    $input `on` $group (`wire` $wire^)? (`as` $bucket_name^)? attr-dict
    `:` type($input) `->` type($result)
  }];
}

def DDP_AllToAllOp : DDP_ExchangeOp<"all_to_all", "AllToAll", [
    SameOperandsAndResultType]> {
  let summary = "gives each rank its part of all ranks' values";
  let hasVerifier = 0;
  let text = [{
    Part r of the operand, in row-major order, goes to rank r, where it becomes the
    part of the result with the sender's number.
  }];
  let example = [{
    %y = ddp.all_to_all %x on @pairs : tensor<8x3xf32>
  }];
  let constraints = [{
    - (C1) `group` is a `ddp.process_group` that states its size.
    - (C2) the number of elements is a multiple of that size.
  }];
  let arguments = (ins DDP_Value:$input, FlatSymbolRefAttr:$group);
  let results = (outs DDP_Value:$result);
  let assemblyFormat = "$input `on` $group attr-dict `:` type($input)";
}

def DDP_BroadcastOp : DDP_ExchangeOp<"broadcast", "Broadcast", [
    SameOperandsAndResultType]> {
  let summary = "gives all ranks the value of one";
  let text = [{
    `root` is a rank of the group. The operands of other ranks are not read.
  }];
  let example = [{
    %y = ddp.broadcast %x from 0 on @dp : tensor<8x3xf32>
  }];
  let constraints = [{
    - (C1) `group` is a `ddp.process_group`.
    - (C2) `root` is not negative, and less than the group's size if that is stated.
  }];
  let arguments = (ins DDP_Value:$input, I64Attr:$root,
                   FlatSymbolRefAttr:$group);
  let results = (outs DDP_Value:$result);
  let assemblyFormat = [{
    $input `from` $root `on` $group attr-dict `:` type($input)
  }];
}

def DDP_ExchangeStartOp : DDP_Op<"exchange_start", [
    DDP_CollectiveOpInterface, SymbolUserOpInterface,
    MemoryEffects<[MemWrite<DDP_CollectiveResource>]>]> {
  let summary = "starts a collective other than an all-reduce";
  let text = [{
    Starts the collective of the named operation (`ddp.reduce_scatter`, …), with the
    same clauses, and returns while it is in flight; `ddp.wait` returns the result.
    `ddp-overlap` creates both operations. All collectives run in the order in which
    they are started, which must be the same on all ranks.
  }];
  let example = [{
    %f = ddp.exchange_start reduce_scatter mean %g on @pairs wire f16
        : tensor<5x3xf32> -> !ddp.future<tensor<8xf32>>
    %h = ddp.exchange_start broadcast %x from 1 on @pairs
        : tensor<2xf32> -> !ddp.future<tensor<2xf32>>
    // operations that need neither result
    %s = ddp.wait %f : !ddp.future<tensor<8xf32>>
    %y = ddp.wait %h : !ddp.future<tensor<2xf32>>
  }];
  let constraints = [{
    - (C1) it is not an all-reduce; `ddp.all_reduce_start` starts those.
    - (C2) the named operation has all clauses `from`, `wire` and `as` that are
      given; `from` and `mean` or `sum` are given if it has them.
    - (C3) operand and result are valid for the named operation, with the group's
      size and the wire type.
    - (C4) the result has exactly one use, in a `ddp.wait` in the same block.
    - (C5) there is a `step` if and only if the wire type rounds stochastically.
  }];
  let arguments = (ins DDP_CollectiveKindAttr:$kind,
                   OptionalAttr<DDP_ReductionAttr>:$reduction, DDP_Value:$input,
                   OptionalAttr<I64Attr>:$from, FlatSymbolRefAttr:$group,
                   OptionalAttr<TypeAttr>:$wire, Optional<I64>:$step,
                   OptionalAttr<StrAttr>:$bucket_name);
  let results = (outs DDP_Future:$future);
  let extraClassDeclaration = [{
    int64_t getRoot() { return getFrom().value_or(0); }
    ::mlir::Operation *getEnd();
  }];
  let assemblyFormat = [{
    custom<Keyword>($kind) (custom<OptionalKeyword>($reduction)^)? $input
    (`from` $from^)? `on` $group (`wire` $wire^)? (`step` $step^)?
    (`as` $bucket_name^)? attr-dict `:` type($input) `->` type($future)
  }];
  let hasCanonicalizeMethod = 1;
}

class DDP_FlatExchangeOp<string mnemonic, string kind>
    : DDP_FlatOp<mnemonic, [DDP_CollectiveOpInterface, SymbolUserOpInterface]> {
  let otherEffects = [["Write", "CollectiveResource"]];
  let extraClassDeclaration = destinationStyle # DDP_Exchange<kind>.declarations;
  let commonConstraints = [{
    - (C1) both arrays are tensors, or both are memrefs, of one element type.
  }];
}

def DDP_FlatReduceScatterOp
    : DDP_FlatExchangeOp<"reduce_scatter", "ReduceScatter"> {
  let example = [{
    %s = ddp.flat.reduce_scatter mean %x on @pairs wire f16 into %y
        : tensor<15xf32>, tensor<8xf32>
  }];
  let constraints = [{
    - (C2) `group` is a `ddp.process_group` that states its size.
    - (C3) `into` has ⌈n / W⌉ elements.
    - (C4) the wire type is f16, bf16 or a `!ddp.encoded` without a zero point.
    - (C5) there is a `step` if and only if the wire type rounds stochastically.
  }];
  let arguments = (ins DDP_ReductionAttr:$reduction, DDP_FlatArray:$input,
                   FlatSymbolRefAttr:$group, OptionalAttr<TypeAttr>:$wire,
                   Optional<I64>:$step, DDP_FlatArray:$destination);
  let assemblyFormat = [{
    custom<Keyword>($reduction) $input `on` $group (`wire` $wire^)? (`step` $step^)?
    `into` $destination attr-dict `:` type($input) `,` type($destination)
  }];
}

def DDP_FlatAllGatherOp : DDP_FlatExchangeOp<"all_gather", "AllGather"> {
  let example = [{
    %s = ddp.flat.all_gather %x on @pairs into %y : tensor<8xf32>, tensor<15xf32>
  }];
  let constraints = [{
    - (C2) `group` is a `ddp.process_group` that states its size.
    - (C3) the operand has ⌈n / W⌉ elements, where `into` has n.
    - (C4) the wire type is as for `ddp.all_gather`.
  }];
  let arguments = (ins DDP_FlatArray:$input, FlatSymbolRefAttr:$group,
                   OptionalAttr<TypeAttr>:$wire,
                   OptionalAttr<StrAttr>:$bucket_name,
                   DDP_FlatArray:$destination);
  let assemblyFormat = [{
    $input `on` $group (`wire` $wire^)? (`as` $bucket_name^)?
    `into` $destination attr-dict
    `:` type(operands)
  }];
}

def DDP_FlatAllToAllOp : DDP_FlatExchangeOp<"all_to_all", "AllToAll"> {
  let example = [{
    %s = ddp.flat.all_to_all %x on @pairs into %y : tensor<24xf32>, tensor<24xf32>
  }];
  let constraints = [{
    - (C2) `group` is a `ddp.process_group` that states its size.
    - (C3) both arrays have the same number of elements, a multiple of that size.
  }];
  let arguments = (ins DDP_FlatArray:$input, FlatSymbolRefAttr:$group,
                   DDP_FlatArray:$destination);
  let assemblyFormat = [{
    $input `on` $group `into` $destination attr-dict `:` type(operands)
  }];
}

def DDP_FlatBroadcastOp : DDP_FlatExchangeOp<"broadcast", "Broadcast"> {
  let overwritable = "true";
  let example = [{
    %s = ddp.flat.broadcast %x from 0 on @dp into %y
        : tensor<24xf32>, tensor<24xf32>
  }];
  let constraints = [{
    - (C2) `group` is a `ddp.process_group`.
    - (C3) both arrays have the same number of elements.
    - (C4) `root` is not negative, and less than the group's size if that is stated.
  }];
  let arguments = (ins DDP_FlatArray:$input, I64Attr:$root,
                   FlatSymbolRefAttr:$group, DDP_FlatArray:$destination);
  let assemblyFormat = [{
    $input `from` $root `on` $group `into` $destination attr-dict
    `:` type(operands)
  }];
}

def DDP_FlatExchangeStartOp : DDP_FlatOp<"exchange_start", [
    DDP_CollectiveOpInterface, DDP_FlatStartOpInterface, SymbolUserOpInterface]> {
  let otherEffects = [["Write", "CollectiveResource"]];
  let otherResults = "types.push_back(::mlir::IntegerType::get(context, 64));";
  let overwritable = "getKind() == ::mlir::ddp::CollectiveKind::Broadcast";
  let text = [{
    The results are the array in flight, on tensors, and a ticket. Until the wait,
    neither the operand nor `into` may be overwritten, and `into` must not be read.
  }];
  let example = [{
    %s, %ticket = ddp.flat.exchange_start reduce_scatter mean %x on @pairs into %y
        : tensor<15xf32>, tensor<8xf32>
    %t = ddp.flat.wait %s, %ticket reading %x : tensor<8xf32>, tensor<15xf32>
  }];
  let constraints = [{
    - (C1) both arrays are tensors, or both are memrefs, of one element type.
    - (C2) as for `ddp.exchange_start`: C1, C2, C3 and C5.
    - (C3) each result has exactly one use, in the same `ddp.flat.wait`, in the
      same block.
  }];
  let arguments = (ins DDP_CollectiveKindAttr:$kind,
                   OptionalAttr<DDP_ReductionAttr>:$reduction,
                   DDP_FlatArray:$input, OptionalAttr<I64Attr>:$from,
                   FlatSymbolRefAttr:$group, OptionalAttr<TypeAttr>:$wire,
                   Optional<I64>:$step, OptionalAttr<StrAttr>:$bucket_name,
                   DDP_FlatArray:$destination);
  let results = (outs Optional<DDP_Gradient>:$in_flight, I64:$ticket);
  let extraClassDeclaration = destinationStyle # [{
    int64_t getRoot() { return getFrom().value_or(0); }
    ::mlir::Operation *getEnd();
  }];
  let assemblyFormat = [{
    custom<Keyword>($kind) (custom<OptionalKeyword>($reduction)^)? $input
    (`from` $from^)? `on` $group (`wire` $wire^)? (`step` $step^)?
    (`as` $bucket_name^)? `into` $destination attr-dict
    `:` type($input) `,` type($destination)
  }];
}

#endif // DDPHOOK_DIALECT_DDP_IR_DDPEXCHANGEOPS_TD
