//===- DDPAttrs.td - attributes of the ddp dialect ---------*- tablegen -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Compression hooks, and the enums of the operations.
//
//===----------------------------------------------------------------------===//

#ifndef DDPHOOK_DIALECT_DDP_IR_DDPATTRS_TD
#define DDPHOOK_DIALECT_DDP_IR_DDPATTRS_TD

include "ddphook/Dialect/DDP/IR/DDPDialect.td"
include "ddphook/Dialect/DDP/IR/DDPInterfaces.td"
include "mlir/IR/AttrTypeBase.td"
include "mlir/IR/EnumAttr.td"

def DDP_Reduction : I32EnumAttr<"Reduction", "what an all-reduce computes", [
    I32EnumAttrCase<"Mean", 0, "mean">,
    I32EnumAttrCase<"Sum", 1, "sum">
  ]> {
  let cppNamespace = "::mlir::ddp";
  let genSpecializedAttr = 0;
}
def DDP_ReductionAttr : EnumAttr<DDP_Dialect, DDP_Reduction, "reduction">;

def DDP_Placement : I32EnumAttr<"Placement", "which ranks form a group", [
    I32EnumAttrCase<"IntraNode", 0, "intra_node">,
    I32EnumAttrCase<"InterNode", 1, "inter_node">
  ]> {
  let cppNamespace = "::mlir::ddp";
  let genSpecializedAttr = 0;
}
def DDP_PlacementAttr : EnumAttr<DDP_Dialect, DDP_Placement, "placement">;

def DDP_StatePlacement
    : I32EnumAttr<"StatePlacement", "on which ranks a state is the same", [
    I32EnumAttrCase<"Replicated", 0, "replicated">,
    I32EnumAttrCase<"PerRank", 1, "per_rank">
  ]> {
  let cppNamespace = "::mlir::ddp";
  let genSpecializedAttr = 0;
}
def DDP_StatePlacementAttr
    : EnumAttr<DDP_Dialect, DDP_StatePlacement, "state_placement">;

def DDP_StateInit : I32EnumAttr<"StateInit", "what a state begins as", [
    I32EnumAttrCase<"Zero", 0, "zero">,
    I32EnumAttrCase<"Normal", 1, "normal">,
    I32EnumAttrCase<"MT19937", 2, "mt19937">
  ]> {
  let cppNamespace = "::mlir::ddp";
  let genSpecializedAttr = 0;
}
def DDP_StateInitAttr : EnumAttr<DDP_Dialect, DDP_StateInit, "state_init">;

class DDP_Attr<string name, string attrMnemonic, list<Trait> traits = []>
    : AttrDef<DDP_Dialect, name, traits> {
  let mnemonic = attrMnemonic;
}

/// A hook. Subclasses implement expand, getWireBytes and getLocalPasses.
def DDP_MatrixListAttr : DDP_Attr<"MatrixList", "matrix_list"> {
  let summary = "where matrices and their factors lie in flat memory";
  let description = [{
    Written by `ddp-flatten`, when shapes vanish from the types. Of the elements
    `begin` … `end` of a bucket, `matrices` lists those that are matrices, six
    numbers each: offset in the bucket, in P and in Q, rows n, columns m, rank r.
    `pieces` lists the others, three numbers each: offset in the bucket, offset
    in the rest, count.

    Example: `#ddp.matrix_list<0 to 2112, [0, 0, 0, 64, 32, 2], [2048, 0, 64]>`

    Constraints:
    - (C1) six numbers a matrix, three a piece, none of them negative.
  }];
  let parameters = (ins "int64_t":$begin, "int64_t":$end,
                    "::mlir::DenseI64ArrayAttr":$matrices,
                    "::mlir::DenseI64ArrayAttr":$pieces);
  let assemblyFormat = "`<` $begin `to` $end `,` $matrices `,` $pieces `>`";
  let extraClassDeclaration = [{
    /// Elements of all P together, and of all pieces.
    int64_t getNumFactorElements() const;
    int64_t getNumPieceElements() const;
  }];
  let genVerifyDecl = 1;
}

class DDP_Hook<string name, string attrMnemonic, list<string> methods = []>
    : DDP_Attr<name, attrMnemonic,
               [DeclareAttrInterfaceMethods<
                   DDP_HookAttrInterface,
                   !listconcat(["expand", "getWireBytes", "getLocalPasses"],
                               methods)>]>;

def DDP_AllReduceHook : DDP_Hook<"AllReduceHook", "allreduce"> {
  let summary = "no compression: all-reduce in the bucket's own type";
  let description = [{
    PyTorch's `allreduce_hook`: with `mean`, every rank divides its bucket by
    the group's size, and the quotients are summed. On `ddp.all_reduce` itself
    the attribute also marks a collective that needs no further expansion.
  }];
}

def DDP_FP16Hook : DDP_Hook<"FP16Hook", "fp16", ["getWireType"]> {
  let summary = "cast to f16, all-reduce, cast back";
  let description = [{
    PyTorch's `fp16_compress_hook`: cast **then** divide (in f16), sum in f16,
    cast back. Values of 65520 and above become infinite.
  }];
}

def DDP_BF16Hook : DDP_Hook<"BF16Hook", "bf16", ["getWireType"]> {
  let summary = "cast to bf16, all-reduce, cast back";
  let description = [{
    PyTorch's `bf16_compress_hook`: as `#ddp.fp16`, in bfloat16.
  }];
}

def DDP_NoopHook : DDP_Hook<"NoopHook", "noop", ["reducesEveryStep"]> {
  let summary = "no communication: every rank keeps its own gradient";
  let description = [{
    PyTorch's `noop_hook`, for measuring what communication costs.
  }];
}

def DDP_WrapHook
    : DDP_Hook<"WrapHook", "wrap",
               ["verifyBucket", "getStateBytes", "getStateMethod",
                "getWireType", "reducesEveryStep"]> {
  let summary = "run another hook in a 16-bit type";
  let description = [{
    PyTorch's `fp16_compress_wrapper` and `bf16_compress_wrapper`: the bucket is
    cast to the wire type, the inner hook runs on the 16-bit bucket, and the
    result is cast back.

    Example: `#ddp.wrap<bf16, #ddp.allreduce>`

    Constraints:
    - (C1) the wire type is f16 or bf16.
    - (C2) the inner attribute is a hook.
  }];
  let parameters = (ins "::mlir::Type":$wireType, "::mlir::Attribute":$inner);
  let assemblyFormat = "`<` $wireType `,` $inner `>`";
  let genVerifyDecl = 1;
}

class DDP_PowerSGDBase<string name, string attrMnemonic,
                       list<string> methods = []>
    : DDP_Hook<name, attrMnemonic,
               !listconcat(["getStateBytes", "getStateMethod", "getWireType"],
                           methods)> {
  string options = [{
    Parameters have PyTorch's names and defaults. Until iteration
    `start_powerSGD_iter` the bucket is all-reduced as it is. A logging frequency
    below 1 counts as 1, as in PyTorch.

    Four more parameters change what PyTorch does (docs/numerics.md):

    - `local_error_feedback`: the error is what this rank lost, M − P·Qₗᵀ with
      its own Qₗ, not what its gradient lacks of the mean; tensors that are not
      compressed have none.
    - `keep_zero_columns`: a matrix of zeros gives zeros, not NaN, also at ranks
      1 and 2: columns of zeros become unit vectors in the orthogonalization.
    - `skip_nonfinite`: when what was reduced is not finite, error and Q stay as
      they are, and `powersgd.nonfinite` counts one.
    - `wire_type`: collectives cast to this 16-bit type; everything else, error
      and norms included, keeps the bucket's own type. (A wrapper computes all of
      it in 16 bits.)

    Constraints:
    - (C1) `matrix_approximation_rank` is positive.
    - (C2) `min_compression_rate` is positive and finite.
    - (C3) with `use_error_feedback` or `warm_start`, `start_powerSGD_iter` is at
      least 2.
    - (C4) `orthogonalization_epsilon` is finite and not negative.
    - (C5) `random_seed` is from 0 to 2³²−1.
    - (C6) `wire_type` is f16 or bf16.
    - (C7) `local_error_feedback` needs `use_error_feedback`.
  }];
  let parameters = (ins
    DefaultValuedParameter<"int64_t", "1">:$matrix_approximation_rank,
    DefaultValuedParameter<"int64_t", "1000">:$start_powerSGD_iter,
    DefaultValuedParameter<"::mlir::FloatAttr", "$_builder.getF64FloatAttr(2.0)">
        :$min_compression_rate,
    DefaultValuedParameter<"bool", "true">:$use_error_feedback,
    DefaultValuedParameter<"bool", "true">:$warm_start,
    DefaultValuedParameter<"::mlir::FloatAttr", "$_builder.getF64FloatAttr(0.0)">
        :$orthogonalization_epsilon,
    DefaultValuedParameter<"int64_t", "0">:$random_seed,
    DefaultValuedParameter<"int64_t", "10000">
        :$compression_stats_logging_frequency,
    DefaultValuedParameter<"bool", "false">:$batch_tensors_with_same_shape,
    DefaultValuedParameter<"bool", "false">:$local_error_feedback,
    DefaultValuedParameter<"bool", "false">:$keep_zero_columns,
    DefaultValuedParameter<"bool", "false">:$skip_nonfinite,
    OptionalParameter<"::mlir::Type">:$wire_type);
  let assemblyFormat = "(`<` struct(params)^ `>`)?";
  let genVerifyDecl = 1;
}

def DDP_PowerSGDHook : DDP_PowerSGDBase<"PowerSGDHook", "powersgd"> {
  let summary = "low-rank approximation of every matrix, with error feedback";
  let description = [{
    PyTorch's `powerSGD_hook`: every tensor of at least two dimensions, seen as
    a matrix M of its first dimension by all others, is replaced by P·Qᵀ where
    that is smaller by `min_compression_rate`. Ranks all-reduce P = M·Q and
    Q = Mᵀ·P; what was lost is added to the next step's gradient.

    }] # options;
}

def DDP_BatchedPowerSGDHook
    : DDP_PowerSGDBase<"BatchedPowerSGDHook", "batched_powersgd",
                       ["verifyBucket"]> {
  let summary = "low-rank approximation of a bucket as one square matrix";
  let description = [{
    PyTorch's `batched_powerSGD_hook`: the whole bucket, filled up with zeros, is
    one square matrix. `min_compression_rate`, `orthogonalization_epsilon` and
    `batch_tensors_with_same_shape` mean nothing here, as in PyTorch.

    }] # options;
}

def DDP_PostLocalSGDHook
    : DDP_Hook<"PostLocalSGDHook", "post_local_sgd", ["reducesEveryStep"]> {
  let summary = "all-reduce at first, only among near ranks later";
  let description = [{
    PyTorch's `post_localSGD_hook`: up to iteration `start_localSGD_iter` the
    bucket is all-reduced over the reduction's own group. After that, with
    `post_local_gradient_allreduce`, over `subgroup` only, by default the ranks of
    one machine; without it every rank keeps its own gradient. Parameters then
    drift apart; `ddp.average` brings them together.

    Example: `#ddp.post_local_sgd<start_localSGD_iter = 100, subgroup = @node>`

    Constraints:
    - (C1) `subgroup` is declared as a process group.
  }];
  let parameters = (ins
    DefaultValuedParameter<"int64_t", "100">:$start_localSGD_iter,
    OptionalParameter<"::mlir::FlatSymbolRefAttr">:$subgroup,
    DefaultValuedParameter<"bool", "true">:$post_local_gradient_allreduce);
  let assemblyFormat = "(`<` struct(params)^ `>`)?";
}

#endif // DDPHOOK_DIALECT_DDP_IR_DDPATTRS_TD
