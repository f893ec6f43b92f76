// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The dialect's symbols, bucket operations, collectives and arithmetic, and the two
// operations that exist only on memrefs.

#ifndef DDPHOOK_DIALECT_DDP_IR_DDPOPS_TD
#define DDPHOOK_DIALECT_DDP_IR_DDPOPS_TD

include "ddphook/Dialect/DDP/IR/DDPExchangeOps.td"
include "ddphook/Dialect/DDP/IR/DDPFutureOps.td"
include "ddphook/Dialect/DDP/IR/DDPLowRankOps.td"
include "ddphook/Dialect/DDP/IR/DDPFlatOps.td"
include "ddphook/Dialect/DDP/IR/DDPOpBase.td"
include "ddphook/Dialect/DDP/IR/DDPPlanAttrs.td"
include "ddphook/Dialect/DDP/IR/DDPSparseOps.td"
include "ddphook/Dialect/DDP/IR/DDPStateOps.td"

def DDP_ProcessGroupOp : DDP_Op<"process_group", [
    Symbol, DeclareOpInterfaceMethods<SymbolUserOpInterface>]> {
  let summary = "declares a set of ranks that reduce together";
  let text = [{
    Without further clauses the group is the whole job. `size` states the number of
    ranks in the group; it is an error if the job's group has another size. `ranks`
    partitions the job into groups of equal size, with each rank in exactly one.
    `placement` selects, from the group `parent` or by default the whole job, the
    ranks on one node (`intra_node`), or those with the same position on their nodes
    (`inter_node`).

    With `topology hierarchical` the ranks of a node first reduce among themselves,
    one shard each. Then the ranks with one position on all nodes reduce that shard,
    and finally the ranks of a node exchange the results. Wire types apply between
    nodes; elements sent within a node keep their type (docs/hierarchy.md). Without
    the clause, and with `flat`, all ranks are equal.
  }];
  let example = [{
    ddp.process_group @dp
    ddp.process_group @pairs size 2 ranks [[0, 1], [2, 3]]
    ddp.process_group @node placement intra_node
    ddp.process_group @nodes topology hierarchical
  }];
  let constraints = [{
    - (C1) `size` is positive, and at most 2^24.
    - (C2) `ranks` are lists of equal size that contain each of 0 … n−1 once.
    - (C3) `size`, if given with `ranks`, is the size of those lists.
    - (C4) `ranks` excludes `placement` and `parent`.
    - (C5) `parent` is a process group, and needs a `placement`.
    - (C6) `topology` excludes `placement`: such ranks are on one node, or all on
      different nodes.
  }];
  let arguments = (ins SymbolNameAttr:$sym_name,
                   OptionalAttr<I64Attr>:$size,
                   OptionalAttr<TypedArrayAttrBase<DenseI64ArrayAttr,
                                "list of lists of ranks">>:$ranks,
                   OptionalAttr<DDP_PlacementAttr>:$placement,
                   OptionalAttr<FlatSymbolRefAttr>:$parent,
                   OptionalAttr<DDP_TopologyAttr>:$topology);
  let builders = [
    /// The whole job, of `size` ranks if that is known.
    OpBuilder<(ins "::llvm::StringRef":$name,
                   CArg<"::std::optional<int64_t>", "{}">:$size)>,
    /// The ranks of `parent`, by default of the whole job, on one node, or of one
    /// position on all nodes.
    OpBuilder<(ins "::llvm::StringRef":$name, "Placement":$placement,
                   CArg<"::llvm::StringRef", "{}">:$parent)>
  ];
  let assemblyFormat = [{
    $sym_name (`size` $size^)? (`ranks` custom<RankLists>($ranks)^)?
    (`placement` custom<Keyword>($placement)^)? (`parent` $parent^)?
    (`topology` custom<Keyword>($topology)^)? attr-dict
  }];
  let extraClassDeclaration = [{
    bool isHierarchical() { return getTopology() == Topology::Hierarchical; }
  }];
  // Files of version 1 have no topology.
  let useCustomPropertiesEncoding = 1;
}

def DDP_BucketInfoOp : DDP_Op<"bucket_info", [
    DDP_UsesGroup, SymbolUserOpInterface]> {
  let summary = "records a bucket for the plan";
  let text = [{
    `ddp-expand-hooks` creates one for each expanded bucket, because the hook itself
    is gone after the expansion. `convert-ddp-to-runtime` moves it into the plan.
  }];
  let example = [{
    ddp.bucket_info "b0" mean on @dp hook #ddp.fp16 wire f16 bytes 240
        state_bytes 0 : !ddp.bucket<f32, [120]> of ["w"]
  }];
  let constraints = [{
    - (C1) `group` is a `ddp.process_group`.
    - (C2) `of` has a name for each member.
  }];
  let arguments = (ins StrAttr:$bucket_name, DDP_ReductionAttr:$reduction,
                   FlatSymbolRefAttr:$group, DDP_HookAttrInterface:$hook,
                   TypeAttr:$wire_type, I64Attr:$wire_bytes,
                   I64Attr:$state_bytes, TypeAttrOf<DDP_BucketType>:$type,
                   OptionalAttr<StrArrayAttr>:$gradients);
  let assemblyFormat = [{
    $bucket_name custom<Keyword>($reduction) `on` $group `hook` $hook `wire` $wire_type
    `bytes` $wire_bytes `state_bytes` $state_bytes attr-dict `:` $type
    (`of` $gradients^)?
  }];
}

def DDP_PackOp : DDP_Op<"pack", [Pure]> {
  let summary = "puts tensors into a bucket";
  let text = [{
    Where possible, `ddp-materialize-buckets` makes the tensors' producers write
    directly into the bucket, so that nothing is copied.
  }];
  let example = [{
    %b = ddp.pack %g0, %g1 : tensor<4x8xf32>, tensor<8xf32>
        -> !ddp.bucket<f32, [4x8, 8]>
  }];
  let constraints = [{
    - (C1) the tensors have the bucket's element type and its members' shapes,
      in order; after `ddp-flatten` their elements add up to the bucket's.
  }];
  let arguments = (ins Variadic<DDP_Gradient>:$tensors);
  let results = (outs DDP_BucketLike:$bucket);
  let assemblyFormat = [{
    ($tensors^ `:` type($tensors))? attr-dict `->` type($bucket)
  }];
  let hasFolder = 1;
}

def DDP_UnpackOp : DDP_Op<"unpack", [Pure]> {
  let summary = "takes all tensors out of a bucket";
  let example = [{
    %r:2 = ddp.unpack %b : !ddp.bucket<f32, [4x8, 8]>
        -> tensor<4x8xf32>, tensor<8xf32>
  }];
  let constraints = [{
    - (C1) as for `ddp.pack`.
  }];
  let arguments = (ins DDP_BucketLike:$bucket);
  let results = (outs Variadic<DDP_Gradient>:$tensors);
  let assemblyFormat = [{
    $bucket attr-dict `:` type($bucket) (`->` type($tensors)^)?
  }];
  let hasFolder = 1;
}

def DDP_ExtractOp : DDP_Op<"extract", [
    Pure, DeclareOpInterfaceMethods<InferTypeOpInterface>]> {
  let summary = "takes members of a bucket as a new bucket";
  let text = [{
    Adjacent members are a slice. Other members must be copied, unless `ddp-fuse`
    makes their user read them in place.
  }];
  let example = [{
    %m = ddp.extract %b [1, 2] : !ddp.bucket<f32, [4x8, 8, 3]>
        // -> !ddp.bucket<f32, [8, 3]>
  }];
  let constraints = [{
    - (C1) `members` are in range and distinct.
  }];
  let arguments = (ins DDP_Bucket:$bucket, DenseI64ArrayAttr:$members);
  let results = (outs DDP_Bucket:$result);
  let assemblyFormat = "$bucket $members attr-dict `:` type($bucket)";
  let hasFolder = 1;
  let hasVerifier = 0;
}

def DDP_SplitOp : DDP_Op<"split", [Pure]> {
  let summary = "splits a bucket into buckets of adjacent members";
  let text = [{
    The parts stay where they were in the bucket's memory. A `ddp.concat` of values
    that are computed in place of all parts is that memory again, and copies
    nothing.
  }];
  let example = [{
    %x, %y = ddp.split %b : !ddp.bucket<f32, [4x8, 8]>
        -> !ddp.bucket<f32, [4x8]>, !ddp.bucket<f32, [8]>
  }];
  let constraints = [{
    - (C1) the results have the bucket's element type, and their members are the
      bucket's members, in order; after `ddp-flatten` their elements add up to
      the bucket's.
  }];
  let arguments = (ins DDP_BucketLike:$bucket);
  let results = (outs Variadic<DDP_BucketLike>:$parts);
  let assemblyFormat = [{
    $bucket attr-dict `:` type($bucket) `->` type($parts)
  }];
}

def DDP_ConcatOp : DDP_Op<"concat", [Pure, AttrSizedOperandSegments]> {
  let summary = "joins buckets into one";
  let text = [{
    With `order`, the i-th of all the operands' members becomes member order[i] of
    the result. With `into`, which `ddp-assign-destinations` adds, the operands have
    been computed in place of the parts of a `ddp.split`, and the result is in the
    memory of that split's operand.
  }];
  let example = [{
    %b = ddp.concat %x, %y : !ddp.bucket<f32, [4x8]>, !ddp.bucket<f32, [8]>
        -> !ddp.bucket<f32, [4x8, 8]>
  }];
  let constraints = [{
    - (C1) the operands have the result's element type, and their members are
      the result's members, in order; after `ddp-flatten` their elements add up
      to the result's.
    - (C2) `order` contains each member of the result once; on buckets only.
    - (C3) `into` is on tensors only, and has the result's type.
  }];
  let arguments = (ins Variadic<DDP_BucketLike>:$parts,
                   OptionalAttr<DenseI64ArrayAttr>:$order,
                   Optional<DDP_BucketLike>:$destination);
  let results = (outs DDP_BucketLike:$result);
  let builders = [
    OpBuilder<(ins "::mlir::Type":$type, "::mlir::ValueRange":$parts,
                   CArg<"::mlir::DenseI64ArrayAttr", "{}">:$order), [{
      build($_builder, $_state, type, parts, order, /*destination=*/{});
    }]>
  ];
  let assemblyFormat = [{
    ($parts^)? (`order` $order^)? (`into` $destination^ `:` type($destination) `,`)?
    attr-dict (`:` type($parts)^)? `->` type($result)
  }];
  let hasFolder = 1;
}

/// The step or the destination of an all-reduce: only a reduction in memory has a
/// destination, and only others may round stochastically. A single operand needs no
/// operand counts, so users can write the generic form.
def DDP_StepOrDestination : AnyTypeOf<[I64, DDP_Buffer]>;

def DDP_AllReduceOp : DDP_Op<"all_reduce", [
    DDP_CollectiveOpInterface,
    DeclareOpInterfaceMethods<InferTypeOpInterface>,
    DeclareOpInterfaceMethods<MemoryEffectsOpInterface>,
    SymbolUserOpInterface]> {
  let summary = "reduces a gradient or a bucket over a process group";
  let text = [{
    Every rank of the group gets the same bits. With W ranks, per element:

    - `sum`: x₀ + … + x_{W−1}, rounded after every addition, in the order of a
      ring all-reduce (docs/parity.md).
    - `mean`: the same sum of the xᵢ / W, each rounded. The division comes before
      the sum, as in PyTorch's `allreduce_hook`.

    With `wire`, operands are first cast to that type, divided and summed in it, and
    the sum is cast back. The result equals that of a cast, an all-reduce and a
    cast, but takes one pass over memory (`ddp-fuse` creates this form).

    With a `!ddp.encoded` type operands are sent as its codes, added in f32 in the
    order of the ranks, and then divided (docs/quantization.md). If it rounds
    stochastically, it takes the training step, so that each step uses other random
    numbers.

    A gradient in memory is reduced `into` memory, which may be the gradient's own.

    A gradient's name is the discardable attribute `ddp.name`. `ddp-bucketize`
    derives the name if it is missing, and lists the names of a bucket's members
    after `of`. States and checkpoints identify gradients by these names.
  }];
  let example = [{
    %r = ddp.all_reduce mean %g on @dp : tensor<300x200xf32>
    %s = ddp.all_reduce sum %b on @dp as "b0" : !ddp.bucket<f32, [4x8, 8]>
        of ["w", "b"]
    %q = ddp.all_reduce mean %b on @dp wire !ddp.encoded<i8, 32 stochastic 17>
        as "b1" step %i : !ddp.bucket<f32, [4x8, 8]>
  }];
  let constraints = [{
    - (C1) with a memref there is an `into` of its shape and element type, and no
      result; otherwise there is a result, and no `into`.
    - (C2) `group` is a `ddp.process_group`.
    - (C3) the wire type is f16, bf16 or a `!ddp.encoded`.
    - (C4) `of` is given only for a bucket, and has a name for each member.
    - (C5) there is a `step` if and only if the wire type rounds stochastically.
  }];
  let arguments = (ins DDP_ReductionAttr:$reduction, DDP_Reducible:$input,
                   FlatSymbolRefAttr:$group, OptionalAttr<TypeAttr>:$wire,
                   OptionalAttr<StrAttr>:$bucket_name,
                   Optional<DDP_StepOrDestination>:$step_or_destination,
                   OptionalAttr<StrArrayAttr>:$gradients);
  let results = (outs Optional<DDP_Value>:$result);
  let builders = [
    /// Reduces a gradient or a bucket over the process group of that name.
    OpBuilder<(ins "::mlir::Value":$input, "::llvm::StringRef":$group,
                   CArg<"Reduction", "Reduction::Mean">:$reduction)>,
    OpBuilder<(ins "::mlir::Value":$input, "ProcessGroupOp":$group,
                   CArg<"Reduction", "Reduction::Mean">:$reduction)>,
    /// Reduces a bucket or a gradient, without names of gradients.
    OpBuilder<(ins "ReductionAttr":$reduction, "::mlir::Value":$input,
                   "::mlir::FlatSymbolRefAttr":$group,
                   "::mlir::TypeAttr":$wire, "::mlir::StringAttr":$bucketName,
                   CArg<"::mlir::Value", "{}">:$step), [{
      build($_builder, $_state, input.getType(), reduction, input, group, wire,
            bucketName, step, /*gradients=*/{});
    }]>
  ];
  let assemblyFormat = [{
    custom<Keyword>($reduction) $input `on` $group (`wire` $wire^)? (`as` $bucket_name^)?
    (custom<StepOrDestination>($step_or_destination, type($step_or_destination))^)?
    attr-dict `:` type($input) (`of` $gradients^)?
  }];
  let extraClassDeclaration = [{
    /// Returns the training step for stochastic rounding, or null.
    ::mlir::Value getStep() {
      ::mlir::Value operand = getStepOrDestination();
      return operand && operand.getType().isInteger() ? operand : ::mlir::Value();
    }
    /// Returns the memory that is written, or null.
    ::mlir::Value getDestination() {
      return getStep() ? ::mlir::Value() : getStepOrDestination();
    }
    /// Sets the hook of this reduction, which overrides any other.
    void setHook(HookAttrInterface hook) {
      (*this)->setAttr(DDPDialect::kHookAttrName, hook);
    }
    /// Sets the gradient's name in states and checkpoints.
    void setGradientName(::llvm::StringRef name) {
      (*this)->setAttr(DDPDialect::kNameAttrName,
                       ::mlir::StringAttr::get(getContext(), name));
    }
  }];
}

def DDP_AverageOp : DDP_SameTypeOp<"average", [
    DDP_UsesGroup, SymbolUserOpInterface]> {
  let summary = "averages parameters over a process group periodically";
  let text = [{
    PyTorch's `PeriodicModelAverager`: the operation counts its runs. After `warmup`
    runs, the first and then every `period`-th run returns the mean of the tensor
    over all ranks; every other run returns the tensor itself. All averages of a
    block with the same clauses share one collective, in program order.
    `ddp-expand-averages` lowers the operation.
  }];
  let example = [{
    %w1 = ddp.average %w on @dp every 4 warmup 100 : tensor<300x200xf32>
  }];
  let constraints = [{
    - (C1) `group` is a `ddp.process_group`.
    - (C2) `period` is positive, `warmup` is not negative.
  }];
  let arguments = (ins DDP_Gradient:$input, FlatSymbolRefAttr:$group,
                   I64Attr:$period, DefaultValuedAttr<I64Attr, "0">:$warmup);
  let results = (outs DDP_Gradient:$result);
  let assemblyFormat = [{
    $input `on` $group `every` $period (`warmup` $warmup^)? attr-dict
    `:` type($input)
  }];
}

def DDP_CastOp : DDP_Op<"cast", [Pure]> {
  let summary = "converts the elements to another type";
  let text = [{
    Rounds to nearest, ties to even. A cast from f64 to a 16-bit type goes through
    f32, that is, it rounds twice, as in PyTorch.
  }];
  let example = [{
    %h = ddp.cast %b : !ddp.bucket<f32, [4x8]> -> !ddp.bucket<f16, [4x8]>
  }];
  let constraints = [{
    - (C1) source and target have the same kind and shapes.
  }];
  let arguments = (ins DDP_Value:$input);
  let results = (outs DDP_Value:$result);
  let assemblyFormat = "$input attr-dict `:` type($input) `->` type($result)";
  let hasFolder = 1;
}

def DDP_EncodingErrorOp : DDP_SameTypeOp<"encoding_error", [Pure,
    DDP_UsesGroup, SymbolUserOpInterface]> {
  let summary = "the error of encoding elements";
  let text = [{
    Subtracts from every element the value that its code decodes to; the result is 0
    where that value is an infinity or a NaN. Hooks keep this error, and add it to
    the next gradient (error feedback).

    With stochastic rounding, it uses the random numbers of this rank in the step's
    reduction over the group.
  }];
  let example = [{
    %e = ddp.encoding_error %m as !ddp.encoded<i8, 256> : !ddp.bucket<f32, [40x8]>
    %f = ddp.encoding_error %m as !ddp.encoded<i8, 256 stochastic 17> step %i on @dp
        : !ddp.bucket<f32, [40x8]>
  }];
  let constraints = [{
    - (C1) the type is a `!ddp.encoded`.
    - (C2) there are a `step` and a group if and only if it rounds stochastically.
    - (C3) `group` is a `ddp.process_group`.
  }];
  let arguments = (ins DDP_Value:$input, TypeAttr:$encoding, Optional<I64>:$step,
                   OptionalAttr<FlatSymbolRefAttr>:$group);
  let builders = [
    /// Encodes with rounding to nearest.
    OpBuilder<(ins "::mlir::Value":$input, "::mlir::TypeAttr":$encoding), [{
      build($_builder, $_state, input, encoding, /*step=*/::mlir::Value(),
            /*group=*/::mlir::FlatSymbolRefAttr());
    }]>
  ];
  let assemblyFormat = [{
    $input `as` $encoding (`step` $step^)? (`on` $group^)? attr-dict `:` type($input)
  }];
}

def DDP_ScaleOp : DDP_SameTypeOp<"scale", [Pure,
    DDP_UsesGroup, SymbolUserOpInterface]> {
  let summary = "multiplies by a constant, or divides by a group's size";
  let text = [{
    With a `factor` the elements are multiplied by it. With a process group they are
    divided by the group's size (a true division, not a multiplication by the
    inverse, which differs at W = 3). 16-bit types are computed in f32 and rounded
    once.
  }];
  let example = [{
    %a = ddp.scale %b by 2.500000e-01 : !ddp.bucket<f32, [4x8]>
    %c = ddp.scale %b by_world_of @dp : !ddp.bucket<f32, [4x8]>
  }];
  let constraints = [{
    - (C1) there is either a factor or a group.
    - (C2) `group` is a `ddp.process_group`.
  }];
  let arguments = (ins DDP_Value:$input, OptionalAttr<F64Attr>:$factor,
                   OptionalAttr<FlatSymbolRefAttr>:$group);
  let assemblyFormat = [{
    $input (`by` $factor^)? (`by_world_of` $group^)? attr-dict `:` type($input)
  }];
  let hasFolder = 1;
}

def DDP_ViewOp : DDP_Op<"view", [
    Pure, DeclareOpInterfaceMethods<ViewLikeOpInterface>]> {
  let summary = "a slice of a buffer, as a memref with identity layout";
  let text = [{
    The slice starts `offset` elements into a contiguous buffer. Unlike with
    `memref.subview` and `memref.reinterpret_cast`, the offset is not part of the
    result's type, so a slice can be passed wherever a whole buffer can.
  }];
  let example = [{
    %v = ddp.view %b[2048] : memref<2080xf32> to memref<4x8xf32>
  }];
  let constraints = [{
    - (C1) both memrefs have identity layout and the same element type.
    - (C2) the slice is inside the buffer.
  }];
  let arguments = (ins DDP_Buffer:$source,
                   ConfinedAttr<I64Attr, [IntNonNegative]>:$offset);
  let results = (outs DDP_Buffer:$result);
  let assemblyFormat = [{
    $source `[` $offset `]` attr-dict `:` type($source) `to` type($result)
  }];
  let hasFolder = 1;
}

def DDP_ArenaOp : DDP_Op<"arena", [Pure]> {
  let summary = "the module's scratch memory";
  let text = [{
    The runtime allocates this memory once, when the module is loaded.
    `ddp-plan-arena` places every buffer of a step in it.
  }];
  let example = [{
    %arena = ddp.arena : memref<65536xi8>
  }];
  let results = (outs MemRefRankOf<[I8], [1]>:$result);
  let assemblyFormat = "attr-dict `:` type($result)";
  let hasVerifier = 0;
}

#endif // DDPHOOK_DIALECT_DDP_IR_DDPOPS_TD
