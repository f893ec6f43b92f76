//===- DDPInterfaces.td - interfaces of the ddp dialect ----*- tablegen -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The interfaces of compression hooks, collectives, and operations on flat arrays.
//
//===----------------------------------------------------------------------===//

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
    InterfaceMethod<
      /*desc=*/[{
        Checks that the hook can handle buckets of this type, and reports through
        `emitError` why it cannot.
      }],
      /*retTy=*/"::llvm::LogicalResult",
      /*methodName=*/"verifyBucket",
      /*args=*/(ins "::mlir::ddp::BucketType":$bucket,
                "::llvm::function_ref<::mlir::InFlightDiagnostic()>":$emitError),
      /*methodBody=*/"",
      /*defaultImplementation=*/"return ::mlir::success();">,
    InterfaceMethod<
      /*desc=*/[{
        Builds the operations that compute `reduction` of `bucket`, at
        `builder`'s insertion point, and returns the reduced bucket, which has the
        type of `bucket`: the packed bucket or, under a wrapper, that bucket in
        another element type. Collectives that the hook builds must carry
        `ddp.hook = #ddp.allreduce`, which marks them as final
        (`buildFinalAllReduce` does it).
      }],
      /*retTy=*/"::llvm::FailureOr<::mlir::Value>",
      /*methodName=*/"expand",
      /*args=*/(ins "::mlir::OpBuilder &":$builder,
                "const ::mlir::ddp::BucketReduction &":$reduction,
                "::mlir::TypedValue<::mlir::ddp::BucketType>":$bucket)>,
    InterfaceMethod<
      /*desc=*/[{
        Builds what comes before a `ddp.reduce_scatter` of `bucket`, at `builder`'s
        insertion point, and returns what is scattered, of `bucket`'s type, and its
        wire type. A rank then gets its part of what `expand` would give. By default
        the hook reduces whole gradients only.
      }],
      /*retTy=*/"::llvm::FailureOr<::mlir::ddp::ScatterOperand>",
      /*methodName=*/"prepareScatter",
      /*args=*/(ins "::mlir::OpBuilder &":$builder,
                "const ::mlir::ddp::BucketReduction &":$reduction,
                "::mlir::TypedValue<::mlir::ddp::BucketType>":$bucket),
      /*methodBody=*/"",
      /*defaultImplementation=*/"return ::mlir::ddp::ScatterOperand();">,
    InterfaceMethod<
      /*desc=*/"Bytes that one rank contributes to collectives in a step.",
      /*retTy=*/"int64_t", /*methodName=*/"getWireBytes",
      /*args=*/(ins "::mlir::ddp::BucketType":$bucket)>,
    InterfaceMethod<
      /*desc=*/"Bytes of state that one rank keeps from step to step.",
      /*retTy=*/"int64_t", /*methodName=*/"getStateBytes",
      /*args=*/(ins "::mlir::ddp::BucketType":$bucket),
      /*methodBody=*/"", /*defaultImplementation=*/"return 0;">,
    InterfaceMethod<
      /*desc=*/[{
        The hook without the parameters that its states do not depend on. A
        checkpoint loads only into hooks for which this is equal.
      }],
      /*retTy=*/"::mlir::Attribute", /*methodName=*/"getStateMethod",
      /*args=*/(ins),
      /*methodBody=*/"", /*defaultImplementation=*/"return $_attr;">,
    InterfaceMethod<
      /*desc=*/[{
        Bytes that local work reads and writes, divided by the bytes of the
        bucket.
      }],
      /*retTy=*/"double", /*methodName=*/"getLocalPasses",
      /*args=*/(ins "::mlir::ddp::BucketType":$bucket)>,
    InterfaceMethod<
      /*desc=*/[{
        The element type in which collectives send the bucket. It is the bucket's
        own unless the hook casts.
      }],
      /*retTy=*/"::mlir::Type", /*methodName=*/"getWireType",
      /*args=*/(ins "::mlir::ddp::BucketType":$bucket),
      /*methodBody=*/"",
      /*defaultImplementation=*/"return bucket.getElementType();">,
    InterfaceMethod<
      /*desc=*/[{
        Whether every step reduces the bucket, over any group. If so,
        `ddp-verify-order` checks that no rank keeps unreduced values.
      }],
      /*retTy=*/"bool", /*methodName=*/"reducesEveryStep",
      /*args=*/(ins), /*methodBody=*/"",
      /*defaultImplementation=*/"return true;">,
    StaticInterfaceMethod<
      /*desc=*/[{
        The parameters, for options that name the hook instead of spelling out its
        attribute. Hooks that are not defined with `DDP_HookAttr` return none, and
        can only be written as attributes.
      }],
      /*retTy=*/"::std::optional<::llvm::ArrayRef<::mlir::ddp::HookParameter>>",
      /*methodName=*/"getHookParameters",
      /*args=*/(ins), /*methodBody=*/"",
      /*defaultImplementation=*/"return ::std::nullopt;">
  ];
}

def DDP_CollectiveOpInterface : OpInterface<"CollectiveOpInterface"> {
  let cppNamespace = "::mlir::ddp";
  let description = [{
    An operation that all ranks of a process group have to run together, in the
    same order.
  }];
  let methods = [
    InterfaceMethod<"The process group.",
                    "::mlir::FlatSymbolRefAttr", "getGroupAttr">,
    InterfaceMethod<"What it does with the ranks' values.",
                    "::mlir::ddp::CollectiveKind", "getKind", (ins), "",
                    "return ::mlir::ddp::CollectiveKind::AllReduce;">,
    InterfaceMethod<"Of a reduction, what the ranks' values become; else null.",
                    "::mlir::ddp::ReductionAttr", "getReductionAttr">,
    InterfaceMethod<"Of a broadcast, the rank of the group whose value it is.",
                    "int64_t", "getRoot", (ins), "", "return 0;">,
    InterfaceMethod<"The type that travels, if it is not the value's own.",
                    "::mlir::TypeAttr", "getWireAttr">,
    InterfaceMethod<"The training step by which that rounds stochastically; or null.",
                    "::mlir::Value", "getStep", (ins), "", "return {};">,
    InterfaceMethod<"The bucket's name in the plan; null if it has none.",
                    "::mlir::StringAttr", "getBucketNameAttr">,
    InterfaceMethod<"What this rank contributes.",
                    "::mlir::Value", "getInput">,
    InterfaceMethod<
      "The operation that ends the collective: this one, unless it only starts it.",
      "::mlir::Operation *", "getEnd", (ins), "", "return $_op.getOperation();">
  ];
}

def DDP_FlatOpInterface : OpInterface<"FlatOpInterface", [
    DestinationStyleOpInterface]> {
  let cppNamespace = "::mlir::ddp";
  let description = [{
    An operation on flat arrays that is told where to write its values.
  }];
  let methods = [
    InterfaceMethod<
      /*desc=*/[{
        Whether element i of that result depends, of this operand, on element i
        only, so that the result may overwrite the operand if it has its type.
      }],
      /*retTy=*/"bool", /*methodName=*/"mayOverwrite",
      /*args=*/(ins "unsigned":$resultNumber, "::mlir::OpOperand &":$operand)>
  ];
}

def DDP_FlatStartOpInterface : OpInterface<"FlatStartOpInterface", [
    DDP_CollectiveOpInterface, DDP_FlatOpInterface]> {
  let cppNamespace = "::mlir::ddp";
  let description = [{
    A collective on flat arrays that is only started: `ddp.flat.wait` ends it.
  }];
  let methods = [
    InterfaceMethod<"What names it to its wait.", "::mlir::Value", "getTicket">,
    InterfaceMethod<"The tensor in flight; null on memory.",
                    "::mlir::Value", "getInFlight">,
    InterfaceMethod<"What has to hold for anything to be started; null: nothing.",
                    "::mlir::Value", "getCondition", (ins), "", "return {};">,
    InterfaceMethod<"The operand that holds what this rank contributes.",
                    "::mlir::OpOperand &", "getInputMutable">
  ];
  let extraClassDeclaration = [{
    /// The operand that is written.
    ::mlir::OpOperand &getDestinationOperand();
    /// The `ddp.flat.wait` that ends it: not that of a branch in which nothing
    /// was started.
    ::mlir::Operation *getWait();
    /// Lets it read another array: that is also what its waits name, and with a
    /// condition `into`.
    void replaceInput(::mlir::Value input);
  }];
}

#endif // DDPHOOK_DIALECT_DDP_IR_DDPINTERFACES_TD
