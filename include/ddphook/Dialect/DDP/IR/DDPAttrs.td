// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Compression hooks, and the enums of the operations.

#ifndef DDPHOOK_DIALECT_DDP_IR_DDPATTRS_TD
#define DDPHOOK_DIALECT_DDP_IR_DDPATTRS_TD

include "ddphook/Dialect/DDP/IR/DDPDialect.td"
include "ddphook/Dialect/DDP/IR/DDPHookBase.td"
include "mlir/IR/AttrTypeBase.td"
include "mlir/IR/EnumAttr.td"

class DDP_Enum<string name, string summary, list<I32EnumAttrCase> cases>
    : I32EnumAttr<name, summary, cases> {
  let cppNamespace = "::mlir::ddp";
  let genSpecializedAttr = 0;
}

def DDP_Reduction : DDP_Enum<"Reduction", "what an all-reduce computes", [
    I32EnumAttrCase<"Mean", 0, "mean">,
    I32EnumAttrCase<"Sum", 1, "sum">
  ]>;
def DDP_ReductionAttr : EnumAttr<DDP_Dialect, DDP_Reduction, "reduction">;

/// The plan and the runtime (compiled.h) use the same names and numbers.
def DDP_CollectiveKind : DDP_Enum<"CollectiveKind", "a kind of collective", [
    I32EnumAttrCase<"AllReduce", 0, "all_reduce">,
    I32EnumAttrCase<"ReduceScatter", 1, "reduce_scatter">,
    I32EnumAttrCase<"AllGather", 2, "all_gather">,
    I32EnumAttrCase<"AllToAll", 3, "all_to_all">,
    I32EnumAttrCase<"Broadcast", 4, "broadcast">
  ]>;
def DDP_CollectiveKindAttr
    : EnumAttr<DDP_Dialect, DDP_CollectiveKind, "collective_kind">;

def DDP_Placement : DDP_Enum<"Placement", "which ranks form a group", [
    I32EnumAttrCase<"IntraNode", 0, "intra_node">,
    I32EnumAttrCase<"InterNode", 1, "inter_node">
  ]>;
def DDP_PlacementAttr : EnumAttr<DDP_Dialect, DDP_Placement, "placement">;

def DDP_Topology : DDP_Enum<"Topology", "how a group's ranks reduce", [
    I32EnumAttrCase<"Flat", 0, "flat">,
    I32EnumAttrCase<"Hierarchical", 1, "hierarchical">
  ]>;
def DDP_TopologyAttr : EnumAttr<DDP_Dialect, DDP_Topology, "topology">;

def DDP_StatePlacement
    : DDP_Enum<"StatePlacement", "on which ranks a state is the same", [
    I32EnumAttrCase<"Replicated", 0, "replicated">,
    I32EnumAttrCase<"PerRank", 1, "per_rank">
  ]>;
def DDP_StatePlacementAttr
    : EnumAttr<DDP_Dialect, DDP_StatePlacement, "state_placement">;

def DDP_StateInit : DDP_Enum<"StateInit", "the initial value of a state", [
    I32EnumAttrCase<"Zero", 0, "zero">,
    I32EnumAttrCase<"Normal", 1, "normal">,
    I32EnumAttrCase<"MT19937", 2, "mt19937">
  ]>;
def DDP_StateInitAttr : EnumAttr<DDP_Dialect, DDP_StateInit, "state_init">;

def DDP_StateKind : DDP_Enum<"StateKind", "what a hook keeps in a state", [
    I32EnumAttrCase<"Error", 0, "error">,
    I32EnumAttrCase<"ShareError", 1, "share_error">,
    I32EnumAttrCase<"Factor", 2, "factor">,
    I32EnumAttrCase<"Iteration", 3, "iteration">,
    I32EnumAttrCase<"Counter", 4, "counter">,
    I32EnumAttrCase<"Generator", 5, "generator">
  ]>;
def DDP_StateKindAttr : EnumAttr<DDP_Dialect, DDP_StateKind, "state_kind">;

def DDP_Rounding
    : DDP_Enum<"Rounding", "how an element is rounded to a code", [
    I32EnumAttrCase<"Nearest", 0, "nearest">,
    I32EnumAttrCase<"Stochastic", 1, "stochastic">
  ]>;

def DDP_MatrixView
    : DDP_Enum<"MatrixView", "how a gradient becomes a matrix", [
    I32EnumAttrCase<"First", 0, "first">,
    I32EnumAttrCase<"Fitted", 1, "fitted">
  ]>;

class DDP_Attr<string name, string attrMnemonic, list<Trait> traits = []>
    : AttrDef<DDP_Dialect, name, traits>, DDP_Page {
  let mnemonic = attrMnemonic;
  let description = page;
}

def DDP_MatrixListAttr : DDP_Attr<"MatrixList", "matrix_list"> {
  let summary = "the locations of matrices and their factors in flat memory";
  let description = [{
    `ddp-flatten` creates this attribute, when shapes vanish from the types. It
    describes the elements `begin` … `end` of a bucket. `matrices` lists the
    matrices with six numbers each: offset in the bucket, in P and in Q, rows n,
    columns m, rank r. `pieces` lists the other elements with three numbers each:
    offset in the bucket, offset in the rest, count.

    Example: `#ddp.matrix_list<0 to 2112, [0, 0, 0, 64, 32, 2], [2048, 0, 64]>`

    Constraints:
    - (C1) no number is negative, and `end` is not below `begin`.
  }];
  let parameters = (ins "int64_t":$begin, "int64_t":$end,
                    ArrayRefParameter<"::mlir::ddp::MatrixPlace">:$matrices,
                    ArrayRefParameter<"::mlir::ddp::PiecePlace">:$pieces);
  let assemblyFormat = [{
    `<` $begin `to` $end `,` custom<Places>($matrices) `,` custom<Places>($pieces) `>`
  }];
  let extraClassDeclaration = [{
    /// Returns the number of elements of all P together, and of all pieces.
    int64_t getNumFactorElements() const;
    int64_t getNumPieceElements() const;
  }];
  let genVerifyDecl = 1;
}

def DDP_AssignmentAttr : DDP_Attr<"Assignment", "assignment"> {
  let summary = "the assignment of a bucket's members to the ranks of a node";
  let description = [{
    Over a hierarchical group, the members of a bucket are assigned to the positions
    in a node, in runs of adjacent members (docs/hierarchy.md). The runs are known
    only when the job starts. Members that are assigned together form a group;
    `groups` lists the first member of each. An array consists of `members.size()`
    parts, back to back, with the sizes in `counts`. Part i belongs to member
    `members[i]` of the named bucket, and so to the rank that has this member.

    Example: `#ddp.assignment<"b0" groups [0, 2] members [0, 2] counts [64, 32]>`

    Constraints:
    - (C1) there is a count for each member, and no number is negative.
    - (C2) `groups` starts with 0 and ascends.

    On an operation, as `ddp.assignment`, the counts add up to the operand's elements, and
    - (C3) an all-reduce has no wire type;
    - (C4) over a hierarchical group, an all-reduce is a sum;
    - (C5) another group has the ranks of a hierarchical group on a node;
    - (C6) over such a group, members are adjacent and in one group.
    - (C7) Members of a low-rank operation are in one group;
    - (C8) on flat arrays, no part boundary cuts a matrix or a piece.
  }];
  let parameters = (ins "::mlir::StringAttr":$bucket,
                    ArrayRefParameter<"int64_t">:$groups,
                    ArrayRefParameter<"int64_t">:$members,
                    ArrayRefParameter<"int64_t">:$counts);
  let assemblyFormat = [{
    `<` $bucket `groups` `[` $groups `]` `members` `[` $members `]` `counts` `[` $counts
    `]` `>`
  }];
  let extraClassDeclaration = [{
    int64_t getNumElements() const;
  }];
  let genVerifyDecl = 1;
}

class DDP_Hook<string name, string attrMnemonic, list<string> methods = []>
    : DDP_HookAttr<DDP_Dialect, name, attrMnemonic, methods>;

def DDP_AllReduceHook
    : DDP_Hook<"AllReduceHook", "allreduce", ["prepareScatter"]> {
  let summary = "no compression: all-reduce in the bucket's own type";
  let description = [{
    PyTorch's `allreduce_hook`: with `mean`, every rank divides its bucket by
    the group's size, and the quotients are summed. On `ddp.all_reduce` itself
    the attribute also marks a collective that needs no further expansion.
  }];
  let pytorch = "`allreduce_hook`";
  let contributes = "x / W, summed in the gradient's type";
  let bytesOnTheWire = "4n";
  let parity = "bit-equal";
}

def DDP_AccumulateParameter
    : DDP_TypeParameter<"type in which ranks add: f32, or by default the wire "
                        "type">;

/// Hooks that send a bucket in a 16-bit type.
class DDP_CastHook<string name, string type>
    : DDP_Hook<name, type, ["getWireType", "prepareScatter"]> {
  let parameters = (ins DDP_AccumulateParameter:$accumulate);
  let genVerifyDecl = 1;
  let pytorch = "`" # type # "_compress_hook`";
  let bytesOnTheWire = "2n";
  let parity = "bit-equal";
}

def DDP_FP16Hook : DDP_CastHook<"FP16Hook", "fp16"> {
  let summary = "cast to f16, all-reduce, cast back";
  let description = [{
    PyTorch's `fp16_compress_hook`: cast **then** divide (in f16), sum in f16,
    cast back. Values of 65520 and above become infinite.

    With `accumulate = f32` elements are only sent as f16: ranks add in f32, in the
    order of the ranks, divide the sum, and round it once (docs/quantization.md).

    Constraints:
    - (C1) `accumulate` is f32.
  }];
  let contributes = "f16(x) / W, in f16, summed in f16";
}

def DDP_BF16Hook : DDP_CastHook<"BF16Hook", "bf16"> {
  let summary = "cast to bf16, all-reduce, cast back";
  let description = [{
    PyTorch's `bf16_compress_hook`: like `#ddp.fp16`, also with `accumulate = f32`,
    but in bfloat16.

    Constraints:
    - (C1) `accumulate` is f32.
  }];
  let contributes = "bf16(x) / W, in bf16, summed in bf16";
}

def DDP_NoopHook : DDP_Hook<"NoopHook", "noop", ["reducesEveryStep"]> {
  let summary = "no communication: every rank keeps its own gradient";
  let description = [{
    PyTorch's `noop_hook`, for measuring the cost of communication.
  }];
  let pytorch = "`noop_hook`";
  let contributes = "nothing; every rank keeps its own gradient";
  let bytesOnTheWire = "0";
  let parity = "bit-equal";
}

def DDP_WrapHook
    : DDP_HookAttrBase<DDP_Dialect, "WrapHook", "wrap",
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
  let usage = "any of these with `wrapper=fp16`, `bf16`";
  let pytorch = "`fp16_compress_wrapper`, `bf16_compress_wrapper`";
  let contributes = "what the hook contributes for the bucket cast to 16 bits";
  let bytesOnTheWire = "the hook's bytes for a 16-bit bucket";
  let parity = "as the hook";
}

class DDP_PowerSGDBase<string name, string attrMnemonic,
                       list<string> methods = []>
    : DDP_Hook<name, attrMnemonic,
               !listconcat(["getStateBytes", "getStateMethod", "getWireType"],
                           methods)> {
  string options = [{
    Parameters have PyTorch's names and defaults. Before iteration
    `start_powerSGD_iter` the bucket is all-reduced without compression. A logging
    frequency below 1 counts as 1, as in PyTorch.

    PyTorch does not have the following parameters; docs/numerics.md describes
    the effect of all but the first:

    - `stop_powerSGD_iter`: from this iteration on, the bucket is all-reduced
      without compression again, and error and Q do not change.
    - `local_error_feedback`: the error is what compression lost on this rank,
      M − P·Qₗᵀ with the rank's own Qₗ, not the difference from the mean;
      uncompressed tensors have no error.
    - `keep_zero_columns`: a matrix of zeros gives zeros, not NaN, also at ranks 1
      and 2: where PyTorch divides a column by zero, it becomes a unit vector.
    - `independent_columns`: a column that depends on earlier ones, which consists
      of rounding errors in PyTorch's hook, also becomes a unit vector.
    - `skip_nonfinite`: if the result of the reduction is not finite, error and Q
      do not change, and `powersgd.nonfinite` is incremented.
    - `wire_type`: collectives send this 16-bit type or encoding; everything else,
      including error and norms, keeps the bucket's own type. (A wrapper of 16 bits
      computes everything in 16 bits.) With an encoding, iterations that are not
      compressed send the bucket's own type.
    - `alternate`: a compressed iteration reduces only one factor: P = M·Q̂ if its
      number is even, Q = Mᵀ·P̂ if it is odd. The other one is that of an earlier
      iteration, orthogonalized.
    - `matrix_view`: how a tensor becomes a matrix. `first` is PyTorch's view: the
      first dimension by all others. `fitted` splits the dimensions after the k-th,
      with k such that the factors are smallest; it suits kernels whose output
      channels come last. A leading dimension of layers, heads or experts becomes a
      batch of matrices.

    Constraints:
    - (C1) `matrix_approximation_rank` is positive.
    - (C2) `min_compression_rate` is positive and finite.
    - (C3) with `use_error_feedback` or `warm_start`, `start_powerSGD_iter` is at
      least 2.
    - (C4) `orthogonalization_epsilon` is finite and not negative.
    - (C5) `random_seed` is from 0 to 2³²−1.
    - (C6) `wire_type` is f16, bf16, or an encoding in blocks of i8, i4, f8E4M3FN or
      f8E5M2 that rounds to nearest.
    - (C7) `local_error_feedback` needs `use_error_feedback`.
    - (C8) `matrix_view` is `first` if a bucket is one matrix.
    - (C9) `alternate` needs `warm_start`.
  }];
  let parameters = (ins
    DDP_IntegerParameter<1, "columns of the factors">
        :$matrix_approximation_rank,
    DDP_IntegerParameter<1000, "first iteration that is compressed">
        :$start_powerSGD_iter,
    DDP_IntegerParameter<-1, "first iteration that is no longer compressed; "
                             "below 0: compression never stops">
        :$stop_powerSGD_iter,
    DDP_NumberParameter<"2", "compress a matrix only if its factors are smaller "
                             "by more than this ratio">
        :$min_compression_rate,
    DDP_FlagParameter<1, "add what compression lost to the next gradient">
        :$use_error_feedback,
    DDP_FlagParameter<1, "start each step with the previous step's Q">:$warm_start,
    DDP_NumberParameter<"0", "number added to norms before the division">
        :$orthogonalization_epsilon,
    DDP_IntegerParameter<0, "seed of the first Q, or of stochastic rounding">
        :$random_seed,
    DDP_IntegerParameter<10000, "iterations between reports of the compression "
                                "rate">
        :$compression_stats_logging_frequency,
    DDP_FlagParameter<0, "draw the first Q of all matrices of one shape together">
        :$batch_tensors_with_same_shape,
    DDP_ImprovementParameter<"feed back what compression lost on this rank, not "
                             "the difference from the mean", "use_error_feedback">
        :$local_error_feedback,
    DDP_FlagParameter<1, "matrices of zeros give zeros instead of NaN">
        :$keep_zero_columns,
    DDP_ImprovementParameter<"columns that depend on others become orthonormal "
                             "instead of rounding errors">
        :$independent_columns,
    DDP_ImprovementParameter<"a step with a non-finite result does not change "
                             "error and Q">:$skip_nonfinite,
    DDP_WireTypeParameter<"fp32_error", "under a wrapper: use 16 bits only on the "
                                        "wire">
        :$wire_type,
    DDP_FlagParameter<0, "reduce P and Q alternately, one of them in each step">
        :$alternate,
    DDP_ChoiceParameter<DDP_MatrixView, "First", "first",
                        "how a gradient becomes a matrix: first dimension by "
                        "all others, or the split that compresses best">:$matrix_view);
  let genVerifyDecl = 1;
}

def DDP_PowerSGDHook : DDP_PowerSGDBase<"PowerSGDHook", "powersgd"> {
  let summary = "low-rank approximation of every matrix, with error feedback";
  let description = [{
    PyTorch's `powerSGD_hook`: every tensor is viewed as a matrix M of its first
    dimension by all others, and replaced by P·Qᵀ if P and Q together are smaller by
    more than `min_compression_rate`. Ranks all-reduce P = M·Q and Q = Mᵀ·P. The
    compression error is added to the next step's gradient.

    }] # options;
  let pytorch = "`powerSGD_hook`, all its options";
  let contributes = "P = M·Q and Q = Mᵀ·P of every matrix M, with error feedback";
  let bytesOnTheWire = "4r(n + m) for an n × m matrix at rank r";
  let parity = "equal up to rounding, step by step; first Q and vanilla steps bit-equal";
}

def DDP_BatchedPowerSGDHook
    : DDP_PowerSGDBase<"BatchedPowerSGDHook", "batched_powersgd",
                       ["verifyBucket"]> {
  let summary = "low-rank approximation of a bucket as one square matrix";
  let description = [{
    PyTorch's `batched_powerSGD_hook`: the whole bucket, padded with zeros, is
    one square matrix. `min_compression_rate`, `orthogonalization_epsilon` and
    `batch_tensors_with_same_shape` have no effect here, as in PyTorch.

    }] # options;
  let pytorch = "`batched_powerSGD_hook`";
  let contributes = "the same for the bucket as one square matrix";
  let bytesOnTheWire = "8r√n";
  let parity = "equal up to rounding";
}

def DDP_PostLocalSGDHook
    : DDP_Hook<"PostLocalSGDHook", "post_local_sgd", ["reducesEveryStep"]> {
  let summary = "all-reduce over the whole group at first, later over a subgroup";
  let description = [{
    PyTorch's `post_localSGD_hook`: up to iteration `start_localSGD_iter` the bucket
    is all-reduced over the reduction's own group. After that it is all-reduced over
    `subgroup` only, by default the ranks on one node, or, with
    `post_local_gradient_allreduce = false`, every rank keeps its own gradient.
    Parameters then drift apart; `ddp.average` averages them.

    Example: `#ddp.post_local_sgd<start_localSGD_iter = 100, subgroup = @node>`

    Constraints:
    - (C1) `subgroup` is declared as a process group.
  }];
  let parameters = (ins
    DDP_IntegerParameter<100, "first iteration that is local">
        :$start_localSGD_iter,
    DDP_SymbolParameter<"process group of nearby ranks (default: the "
                        "ranks of a node)">:$subgroup,
    DDP_FlagParameter<1, "all-reduce among nearby ranks">
        :$post_local_gradient_allreduce);
  let pytorch = "`post_localSGD_hook`";
  let contributes = "x / W, later over a subgroup or not at all; `ddp.average` averages parameters";
  let bytesOnTheWire = "4n";
  let parity = "bit-equal";
}

def DDP_AllReduceAndUpcastHook
    : DDP_Hook<"AllReduceAndUpcastHook", "allreduce_and_upcast",
               ["getWireType"]> {
  let summary = "sum in another type, then divide in it, then cast back";
  let description = [{
    PyTorch's `_reducer_allreduce_and_upcast_hook`, which DDP uses with
    `mixed_precision`: the bucket is cast to `reduce_dtype`, summed, and, for
    `mean`, divided by the group's size **after** the sum. Summed in f32, 16-bit
    gradients are rounded once, at the end, however many ranks there are; a sum in
    f16 overflows earlier than that of `#ddp.fp16`, which divides first. Under a
    wrapper the mean is also rounded to the wrapper's type.

    Example: `#ddp.allreduce_and_upcast<reduce_dtype = f32>`

    Constraints:
    - (C1) `reduce_dtype` is f16, bf16, f32 or f64.
  }];
  let parameters = (ins
    DDP_TypeParameter<"type of the sum (default: the bucket's own)">
        :$reduce_dtype);
  let genVerifyDecl = 1;
  let pytorch = "`_reducer_allreduce_and_upcast_hook` (`mixed_precision`)";
  let contributes = "x in `reduce_dtype`; the sum in that type is divided by W";
  let bytesOnTheWire = "n times the size of `reduce_dtype`";
  let parity = "bit-equal";
}

class DDP_ErrorFeedbackParameter<bit value>
    : DDP_FlagParameter<value, "add what compression lost to the next gradient">;

/// Hooks whose reduction is one collective in an encoding.
class DDP_ScaledHook<string name, string attrMnemonic, int blockSize,
                     bit errorFeedback, dag ownParameters = (ins)>
    : DDP_Hook<name, attrMnemonic, ["getStateBytes", "getStateMethod",
                                    "getWireType", "prepareScatter"]> {
  string options = [{
    Every block of elements is sent as codes with one bf16 scale. The rank that owns
    a part adds the codes of all ranks in f32, in the order of the ranks, and sends
    the sum, encoded again, to all ranks. An element is rounded twice, however many
    ranks there are, and all ranks get the same bits (docs/quantization.md). A block
    with an infinity or NaN becomes NaN.

    With `error_feedback` the error of the first encoding on this rank is added to
    its next gradient.

    With `rounding = stochastic` an element becomes one of the two nearest codes,
    such that its expected value is the element. The random numbers depend on
    `random_seed`, the name of the bucket's first gradient, the training step, the
    rank and the element's index: a step that runs again gives the same bits.

    Constraints:
    - (C1) `block_size` is a multiple of 32 from 32 to 4096.
    - (C2) `random_seed` is from 0 to 2³²−1.
  }];
  let parameters = !con((ins
    DDP_IntegerParameter<blockSize, "elements that share a scale">:$block_size,
    DDP_ErrorFeedbackParameter<errorFeedback>:$error_feedback,
    DDP_ChoiceParameter<DDP_Rounding, "Nearest", "nearest",
                        "nearest or stochastic: how an element is rounded to "
                        "a code">
        :$rounding,
    DDP_IntegerParameter<0, "seed of the first Q, or of stochastic rounding">
        :$random_seed),
    ownParameters);
  let genVerifyDecl = 1;
  let pytorch = "none";
  let parity = "PyTorch has none; bit-equal to a model in NumPy";
}

def DDP_Int8Hook : DDP_ScaledHook<"Int8Hook", "int8", 256, 0> {
  let summary = "8-bit integers with a scale per block, summed in f32";
  let description = [{
    Integers from -127 to 127; the scale is the block's largest magnitude divided by
    127.

    }] # options;
  let contributes = "i8(x / s), summed in f32, encoded once more";
  let bytesOnTheWire = "1.008n";
}

def DDP_Int4Hook : DDP_ScaledHook<"Int4Hook", "int4", 64, 1> {
  let summary = "4-bit integers with a scale per block, summed in f32";
  let description = [{
    Integers from -7 to 7, two in a byte; the scale is the block's largest magnitude
    divided by 7. Without error feedback, training with so few bits does not
    converge well.

    }] # options;
  let contributes = "i4(x / s), with error feedback, summed in f32, encoded once more";
  let bytesOnTheWire = "0.531n";
}

def DDP_FP8Hook : DDP_ScaledHook<"FP8Hook", "fp8", 256, 0, (ins
    DDP_TypeParameter<"f8E4M3FN (default) or f8E5M2">:$format)> {
  let summary = "8-bit floats with a scale per block, summed in f32";
  let description = [{
    Numbers of the type `format`: with f8E4M3FN the scale is the block's largest
    magnitude divided by 448, with f8E5M2 divided by 57344. f8E4M3FN has one more
    bit of precision; f8E5M2 keeps elements that are smaller than the largest one by
    up to nine orders of magnitude. For most gradients `#ddp.int8` loses less at the
    same size.

    }] # options # [{
    - (C3) `format` is f8E4M3FN or f8E5M2.
    }];
  let contributes = "f8E4M3FN(x / s), summed in f32, encoded once more";
  let bytesOnTheWire = "1.008n";
}

def DDP_QuantizationPerTensorHook
    : DDP_Hook<"QuantizationPerTensorHook", "quantization_pertensor",
               ["getWireType"]> {
  let summary = "8-bit codes with one scale and zero point for the bucket";
  let description = [{
    PyTorch's `quantization_pertensor_hook`: elements are rounded to one of 256
    steps between the bucket's smallest and largest element, including zero. Every
    rank gets the codes of all ranks, decodes them and adds them in f32.

    `sum` does not divide by the group's size, which PyTorch always does.
  }];
  let pytorch = "`quantization_pertensor_hook`";
  let contributes = "u8(x / s + z), one s and z; all ranks add all ranks' in f32";
  let bytesOnTheWire = "n, to each other rank";
  let parity = "bit-equal";
}

def DDP_QuantizationPerChannelHook
    : DDP_Hook<"QuantizationPerChannelHook", "quantization_perchannel",
               ["getWireType"]> {
  let summary = "8-bit codes with a scale and a zero point per row";
  let description = [{
    PyTorch's `quantization_perchannel_hook`: like `#ddp.quantization_pertensor`,
    but separately for each row of `bucket_size` elements.

    Constraints:
    - (C1) `bucket_size` is positive.
  }];
  let parameters = (ins
    DDP_IntegerParameter<512, "elements that share a scale and a zero point">
        :$bucket_size);
  let genVerifyDecl = 1;
  let pytorch = "`quantization_perchannel_hook`";
  let contributes = "u8(x / s + z), s and z per row of 512; all ranks add all ranks' in f32";
  let bytesOnTheWire = "1.016n, to each other rank";
  let parity = "bit-equal";
}

def DDP_TopKHook
    : DDP_Hook<"TopKHook", "topk",
               ["verifyBucket", "getStateBytes", "getStateMethod",
                "getWireType"]> {
  let summary = "the largest elements with their indices, summed in f32";
  let description = [{
    Sparsification, as in Lin, Han, Mao, Wang and Dally, "Deep Gradient Compression"
    (ICLR 2018), and Stich, Cordonnier and Jaggi, "Sparsified SGD with Memory"
    (NeurIPS 2018). Every rank sends the max(1, ⌊`density` · n⌋) elements of largest
    magnitude among the n elements of its bucket (the first ones of equal
    magnitude), as f32 values with 32-bit indices. All ranks add the elements of all
    ranks in f32, in the order of the ranks, and `mean` divides the sum by the
    group's size; elsewhere the result is 0. Elements of f64 are first rounded to
    f32. NaNs count as larger than infinities, and these as larger than numbers, so
    that they are sent. They are never kept: a gradient that is not finite only
    affects the results of its own step.

    With `error_feedback` elements that are not sent are added to the next gradient,
    in f32. Without it, training with 1 % does not converge.

    Every rank gets what all ranks send, 8 · `density` · n · (W − 1) bytes, so the
    process group must state its size W and must not be hierarchical. The hook does
    not support parts of gradients (`ddp.reduce_scatter`). The collective is an
    all-gather, which `ddp-overlap` does not start early.

    Example: `#ddp.topk<density = 0.001>`

    Constraints:
    - (C1) `density` is above 0, and at most 1.
    - (C2) a bucket has less than 2³¹ elements.
  }];
  let parameters = (ins
    DDP_NumberParameter<"0.01", "fraction of a bucket's elements that a rank sends, "
                                "at least one">:$density,
    DDP_ErrorFeedbackParameter<1>:$error_feedback);
  let genVerifyDecl = 1;
  let pytorch = "none";
  let contributes = "the largest hundredth of x, with error feedback; all ranks add all "
                    "ranks' in f32";
  let bytesOnTheWire = "0.08n, to each other rank";
  let parity = "PyTorch has none; bit-equal to a model in NumPy";
}

#endif // DDPHOOK_DIALECT_DDP_IR_DDPATTRS_TD
