// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The interfaces of compression hooks, collectives, and operations on flat arrays.

#ifndef DDPHOOK_DIALECT_DDP_IR_DDPINTERFACES_TD
#define DDPHOOK_DIALECT_DDP_IR_DDPINTERFACES_TD

include "mlir/IR/OpBase.td"
include "mlir/Interfaces/DestinationStyleOpInterface.td"

def DDP_HookAttrInterface : AttrInterface<"HookAttrInterface"> {
  let cppNamespace = "::mlir::ddp";
  let description = [{
    A hook: a way to all-reduce a bucket. It is the compile-time counterpart of
    PyTorch's `register_comm_hook`. Any dialect can add a hook by defining one
    attribute that implements this interface.
  }];
  let methods = [
    InterfaceMethod<[{
        Checks that the hook can handle buckets of this type, and reports an error
        through `emitError` if it cannot.
      }],
      "::llvm::LogicalResult", "verifyBucket",
      (ins "::mlir::ddp::BucketType":$bucket,
           "::llvm::function_ref<::mlir::InFlightDiagnostic()>":$emitError),
      "", "return ::mlir::success();">,
    InterfaceMethod<[{
        Builds the operations that compute `reduction` of `bucket`, at `builder`'s
        insertion point, and returns the reduced bucket, which has the type of
        `bucket`: the packed bucket or, under a wrapper, that bucket in another
        element type. Collectives that the hook builds must carry
        `ddp.hook = #ddp.allreduce`, which marks them as final
        (`buildFinalAllReduce` does this).
      }],
      "::llvm::FailureOr<::mlir::Value>", "expand",
      (ins "::mlir::OpBuilder &":$builder,
           "const ::mlir::ddp::BucketReduction &":$reduction,
           "::mlir::TypedValue<::mlir::ddp::BucketType>":$bucket)>,
    InterfaceMethod<[{
        Builds the operations before a `ddp.reduce_scatter` of `bucket`, at
        `builder`'s insertion point. Returns the value to scatter, which has
        `bucket`'s type, and its wire type. Each rank then gets its part of the
        result of `expand`. By default the hook reduces only whole gradients.
      }],
      "::llvm::FailureOr<::mlir::ddp::ScatterOperand>", "prepareScatter",
      (ins "::mlir::OpBuilder &":$builder,
           "const ::mlir::ddp::BucketReduction &":$reduction,
           "::mlir::TypedValue<::mlir::ddp::BucketType>":$bucket),
      "", "return ::mlir::ddp::ScatterOperand();">,
    InterfaceMethod<
      "Returns the bytes that one rank contributes to collectives per step.",
      "int64_t", "getWireBytes", (ins "::mlir::ddp::BucketType":$bucket)>,
    InterfaceMethod<
      "Returns the bytes of state that one rank keeps between steps.",
      "int64_t", "getStateBytes", (ins "::mlir::ddp::BucketType":$bucket), "",
      "return 0;">,
    InterfaceMethod<[{
        Returns the hook without the parameters that do not affect its states. A
        checkpoint loads only into hooks for which this is equal.
      }],
      "::mlir::Attribute", "getStateMethod", (ins), "", "return $_attr;">,
    InterfaceMethod<[{
        Returns the element type in which collectives send the bucket. It is the
        bucket's own unless the hook casts.
      }],
      "::mlir::Type", "getWireType", (ins "::mlir::ddp::BucketType":$bucket), "",
      "return bucket.getElementType();">,
    InterfaceMethod<[{
        Returns true if every step reduces the bucket, over any group. If so,
        `ddp-verify-order` checks that no rank keeps unreduced values.
      }],
      "bool", "reducesEveryStep", (ins), "", "return true;">,
    StaticInterfaceMethod<[{
        Returns the parameters, for options that name the hook instead of spelling
        out its attribute. Hooks that are not defined with `DDP_HookAttr` return
        none, and can only be written as attributes.
      }],
      "::std::optional<::llvm::ArrayRef<::mlir::ddp::HookParameter>>",
      "getHookParameters", (ins), "", "return ::std::nullopt;">
  ];
}

def DDP_CollectiveOpInterface : OpInterface<"CollectiveOpInterface"> {
  let cppNamespace = "::mlir::ddp";
  let description = [{
    An operation that all ranks of a process group must run together, in the same
    order.
  }];
  let methods = [
    InterfaceMethod<"Returns the process group.",
                    "::mlir::FlatSymbolRefAttr", "getGroupAttr">,
    InterfaceMethod<"Returns the kind of collective.",
                    "::mlir::ddp::CollectiveKind", "getKind", (ins), "",
                    "return ::mlir::ddp::CollectiveKind::AllReduce;">,
    InterfaceMethod<"Returns how a reduction combines the ranks' values, or null.",
                    "::mlir::ddp::ReductionAttr", "getReductionAttr", (ins), "",
                    "return {};">,
    InterfaceMethod<"Returns the rank of the group whose value a broadcast sends.",
                    "int64_t", "getRoot", (ins), "", "return 0;">,
    InterfaceMethod<"Returns the type in which elements are sent, or null for their own.",
                    "::mlir::TypeAttr", "getWireAttr", (ins), "", "return {};">,
    InterfaceMethod<"Returns the training step for stochastic rounding, or null.",
                    "::mlir::Value", "getStep", (ins), "", "return {};">,
    InterfaceMethod<"Returns the bucket's name in the plan, or null.",
                    "::mlir::StringAttr", "getBucketNameAttr", (ins), "",
                    "return {};">,
    InterfaceMethod<"Returns this rank's contribution.",
                    "::mlir::Value", "getInput">,
    InterfaceMethod<
      "Returns the operation that ends the collective: this one, unless it is a start.",
      "::mlir::Operation *", "getEnd", (ins), "", "return $_op.getOperation();">
  ];
  /// Implements SymbolUserOpInterface.
  let extraTraitClassDeclaration = [{
    ::llvm::LogicalResult verifySymbolUses(::mlir::SymbolTableCollection &symbols) {
      return ::mlir::ddp::verifyCollectiveSymbols($_op, symbols);
    }
  }];
}

def DDP_FlatOpInterface : OpInterface<"FlatOpInterface", [
    DestinationStyleOpInterface]> {
  let cppNamespace = "::mlir::ddp";
  let description = [{
    An operation on flat arrays that takes its destinations as operands.
  }];
  let methods = [
    InterfaceMethod<[{
        Returns true if element i of the result depends, of this operand, only on
        element i, so that the result may overwrite the operand if it has its type.
      }],
      "bool", "mayOverwrite",
      (ins "unsigned":$resultNumber, "::mlir::OpOperand &":$operand)>
  ];
}

def DDP_FlatStartOpInterface : OpInterface<"FlatStartOpInterface", [
    DDP_CollectiveOpInterface, DDP_FlatOpInterface]> {
  let cppNamespace = "::mlir::ddp";
  let description = [{
    Starts a collective on flat arrays; `ddp.flat.wait` ends it.
  }];
  let methods = [
    InterfaceMethod<"Returns the ticket, which identifies it to its wait.",
                    "::mlir::Value", "getTicket">,
    InterfaceMethod<"Returns the tensor in flight; null on memory.",
                    "::mlir::Value", "getInFlight">,
    InterfaceMethod<"Returns the condition of the start, or null if it has none.",
                    "::mlir::Value", "getCondition", (ins), "", "return {};">,
    InterfaceMethod<"Returns the operand that holds this rank's contribution.",
                    "::mlir::OpOperand &", "getInputMutable">
  ];
  let extraClassDeclaration = [{
    /// Returns the operand that is written.
    ::mlir::OpOperand &getDestinationOperand();
    /// Returns the `ddp.flat.wait` that ends it, not the one in the branch where
    /// nothing was started.
    ::mlir::Operation *getWait();
    /// Replaces the array that it reads, also in its waits and, with a condition,
    /// as `into`.
    void replaceInput(::mlir::Value input);
  }];
}

#endif // DDPHOOK_DIALECT_DDP_IR_DDPINTERFACES_TD
