//===- DDPDialect.td - the ddp dialect --------------------*- tablegen -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Defines the dialect itself and what its attributes, types and operations
// share.
//
//===----------------------------------------------------------------------===//

#ifndef DDPHOOK_DIALECT_DDP_IR_DDPDIALECT_TD
#define DDPHOOK_DIALECT_DDP_IR_DDPDIALECT_TD

include "mlir/IR/OpBase.td"

def DDP_Dialect : Dialect {
  let name = "ddp";
  let cppNamespace = "::mlir::ddp";
  let summary = "Gradient buckets, all-reduce, and how they are compressed";
  let description = [{
    The `ddp` dialect models what distributed data-parallel training does with
    gradients: it packs them into buckets, compresses, all-reduces and
    decompresses them.

    `ddp.all_reduce mean %g on @dp` averages a gradient. How it is
    compressed is not an operation but a *hook attribute*, such as `#ddp.fp16`, in
    the discardable attribute `ddp.hook` of the operation, of its function or
    of the module; the innermost wins, and a pipeline option gives the default.
    `ddp-expand-hooks` turns hooks into sequences of this dialect's operations.

    Collectives and arithmetic exist twice: on buckets (`!ddp.bucket`), whose
    memory nobody thinks of, and as `ddp.flat.*` on flat arrays, in
    destination-passing style. `ddp-flatten` makes the second out of the first.

    Discardable attributes:
    - `ddp.hook`: a hook attribute, on `ddp.all_reduce`, `ddp.reduce_scatter`, a
      function or a module.
    - `ddp.name`: a string, on the `ddp.all_reduce` of a gradient or on a
      function's argument that is a gradient: its name in states and checkpoints.
    - `ddp.gradient`: on a function's result, or on an argument that is an
      out-parameter: its value must be reduced exactly once (`ddp-verify-sync`).
    - `ddp.replicated`: on a function's argument: all ranks pass the same value,
      so that branches may depend on it.
    - `ddp.inout`: on a public function's argument, written by
      `ddp-prepare-entries`: the function may update it in place.
    - `ddp.result_arguments`: on a public function, written by
      `ddp-prepare-entries`: for each result of the original function, the
      number of the argument whose memory it is, or -1 for an out-parameter.
    - `ddp.error`: on an all-reduce in an encoding without a zero point, written by
      `ddp-expand-hooks`: the name of a state, of as many elements of its type.
      What the state has is added where elements are encoded first, and it keeps
      what that loses. Over a hierarchical group that is a share of a node's sum,
      and of the state only the elements of this rank's share are used.
    - `ddp.deal`: a `#ddp.deal`, on an all-reduce over a hierarchical group or the
      ranks of its nodes, and on low-rank operations and their twins on flat arrays,
      written by `ddp-expand-hooks`. Over a hierarchical group an all-reduce sums, of
      each part of its operand, what the ranks have that it is dealt to, one on each
      node. Over the ranks of a node it gives the sum of each part to the rank that it
      is dealt to, and elsewhere any values. Products P and Q, a projection
      and an error are only wanted of the matrices that are dealt to this rank: they may
      be computed, and hold any values elsewhere; of an error also those it had.
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
    static constexpr llvm::StringLiteral kDealAttrName = "ddp.deal";
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
