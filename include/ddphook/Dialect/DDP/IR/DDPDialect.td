// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Defines the dialect itself and everything that its attributes, types and
// operations share.

#ifndef DDPHOOK_DIALECT_DDP_IR_DDPDIALECT_TD
#define DDPHOOK_DIALECT_DDP_IR_DDPDIALECT_TD

include "mlir/IR/OpBase.td"

/// The description of an operation, attribute or type, made from its parts.
class DDP_Page {
  string text = "";
  /// MLIR code; test/Docs runs it.
  string example = "";
  /// Those of a class of operations come before those of one operation.
  string commonConstraints = "";
  string constraints = "";
  string page = text #
      !if(!empty(example), "",
          "\n    Example:\n\n    ```mlir" # example # "  ```\n  ") #
      !if(!empty(commonConstraints # constraints), "", "\n    Constraints:") #
      commonConstraints # constraints;
}

def DDP_Dialect : Dialect {
  let name = "ddp";
  let cppNamespace = "::mlir::ddp";
  let summary = "Gradient buckets, all-reduce, and how they are compressed";
  let description = [{
    The `ddp` dialect models how distributed data-parallel training processes
    gradients: it packs them into buckets, compresses, all-reduces and decompresses
    them.

    `ddp.all_reduce mean %g on @dp` averages a gradient. Its compression is not an
    operation but a *hook attribute*, such as `#ddp.fp16`, in the discardable
    attribute `ddp.hook` of the operation, of its function or of the module; the
    innermost wins, and a pipeline option gives the default. `ddp-expand-hooks`
    turns hooks into sequences of this dialect's operations.

    Collectives and arithmetic exist in two forms: on buckets (`!ddp.bucket`), which
    abstract from memory, and as `ddp.flat.*` on flat arrays, in destination-passing
    style. `ddp-flatten` turns the first form into the second.

    Discardable attributes:
    - `ddp.hook`: a hook attribute, on `ddp.all_reduce`, `ddp.reduce_scatter`, a
      function or a module.
    - `ddp.name`: a string, on the `ddp.all_reduce` of a gradient or on a
      function's argument that is a gradient: its name in states and checkpoints.
    - `ddp.gradient`: on a function's result, or on an argument that is an
      out-parameter: its value must be reduced exactly once (`ddp-verify-sync`).
    - `ddp.replicated`: on a function's argument: all ranks pass the same value, so
      branches may depend on it.
    - `ddp.inout`: on a public function's argument, written by
      `ddp-prepare-entries`: the function may update it in place.
    - `ddp.result_arguments`: on a public function, written by
      `ddp-prepare-entries`: for each result of the original function, the number of
      the argument that the function updates in place to return it, or -1 for an
      out-parameter.
    - `ddp.error`: on an all-reduce in an encoding without a zero point, written by
      `ddp-expand-hooks`: the name of a state with the operand's number and type of
      elements. The state's contents are added to the data before it is first
      encoded, and the state then keeps the encoding error. Over a hierarchical
      group the encoded data is this rank's shard of a node's sum, and only the
      elements of that shard are used.
    - `ddp.assignment`: a `#ddp.assignment`, on an all-reduce over a hierarchical group or the
      ranks of its nodes, and on low-rank operations and their flat counterparts,
      written by `ddp-expand-hooks`. Over a hierarchical group, each part of the
      operand is summed over the ranks that it is assigned to, one on each node.
      Over the ranks of a node, the sum of each part goes to the rank that it is
      assigned to, and is unspecified elsewhere. Products P and Q, projections and
      errors are only needed for the matrices that are assigned to this rank: other
      matrices may be computed or unspecified, and an error may also keep its old
      values there.
    - `ddp.compresses`: on the `ddp.matmul transpose_lhs` that is this rank's
      contribution to a factor, on `ddp.sparsify`, and on their flat counterparts,
      written by `ddp-expand-hooks`: the name of the bucket that it compresses, for
      which metrics measure what it loses.
    - `ddp.widen_accumulators`: on a module, set by the imports of whole steps:
      `ddp-widen-accumulators` sums 16-bit numbers in f32.
    - `ddp.plan`: on a module, written by `convert-ddp-to-runtime`: its plan, a
      `#ddp.plan`.
  }];
  let useDefaultAttributePrinterParser = 1;
  let useDefaultTypePrinterParser = 1;
  let hasOperationAttrVerify = 1;
  let hasRegionArgAttrVerify = 1;
  let hasRegionResultAttrVerify = 1;
  let dependentDialects = [
    "bufferization::BufferizationDialect", "memref::MemRefDialect",
    "tensor::TensorDialect"
  ];
  let extraClassDeclaration = [{
    /// Names of the discardable attributes.
    static constexpr llvm::StringLiteral kHookAttrName = "ddp.hook";
    static constexpr llvm::StringLiteral kNameAttrName = "ddp.name";
    static constexpr llvm::StringLiteral kErrorAttrName = "ddp.error";
    static constexpr llvm::StringLiteral kAssignmentAttrName = "ddp.assignment";
    static constexpr llvm::StringLiteral kCompressesAttrName = "ddp.compresses";
    static constexpr llvm::StringLiteral kGradientAttrName = "ddp.gradient";
    static constexpr llvm::StringLiteral kReplicatedAttrName = "ddp.replicated";
    static constexpr llvm::StringLiteral kInoutAttrName = "ddp.inout";
    static constexpr llvm::StringLiteral kResultArgumentsAttrName =
        "ddp.result_arguments";
    static constexpr llvm::StringLiteral kPlanAttrName = "ddp.plan";
    static constexpr llvm::StringLiteral kWidenAccumulatorsAttrName =
        "ddp.widen_accumulators";

    void registerAttributes();
    void registerTypes();
  }];
}

#endif // DDPHOOK_DIALECT_DDP_IR_DDPDIALECT_TD
