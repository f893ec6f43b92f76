//===- DDPInterfaces.td - interfaces of the ddp dialect ----*- tablegen -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The interface that a compression hook implements, and the one that the
// operations of the bucket algebra share.
//
//===----------------------------------------------------------------------===//

#ifndef DDPHOOK_DIALECT_DDP_IR_DDPINTERFACES_TD
#define DDPHOOK_DIALECT_DDP_IR_DDPINTERFACES_TD

include "mlir/IR/OpBase.td"

def DDP_HookAttrInterface : AttrInterface<"HookAttrInterface"> {
  let cppNamespace = "::mlir::ddp";
  let description = [{
    A way to all-reduce a bucket: the compile-time counterpart of PyTorch's
    `register_comm_hook`. A dialect of your own adds a hook by defining one
    attribute that implements this interface.
  }];
  let methods = [
    InterfaceMethod<
      /*desc=*/[{
        Checks that the hook can handle buckets of this type; explains through
        `emitError` why not.
      }],
      /*retTy=*/"::llvm::LogicalResult",
      /*methodName=*/"verifyBucket",
      /*args=*/(ins "::mlir::ddp::BucketType":$bucket,
                "::llvm::function_ref<::mlir::InFlightDiagnostic()>":$emitError),
      /*methodBody=*/"",
      /*defaultImplementation=*/"return ::mlir::success();">,
    InterfaceMethod<
      /*desc=*/[{
        Builds at `builder`'s insertion point what computes `reduction` of
        `bucket`, and returns the reduced bucket, of the same type as `bucket`:
        the packed bucket or, under a wrapper, that bucket in another element
        type. Collectives that the hook builds must carry
        `ddp.hook = #ddp.allreduce`, which marks them as final
        (`buildFinalAllReduce` does it).
      }],
      /*retTy=*/"::llvm::FailureOr<::mlir::Value>",
      /*methodName=*/"expand",
      /*args=*/(ins "::mlir::OpBuilder &":$builder,
                "const ::mlir::ddp::BucketReduction &":$reduction,
                "::mlir::TypedValue<::mlir::ddp::BucketType>":$bucket)>,
    InterfaceMethod<
      /*desc=*/"Bytes that one rank puts into collectives in a step.",
      /*retTy=*/"int64_t", /*methodName=*/"getWireBytes",
      /*args=*/(ins "::mlir::ddp::BucketType":$bucket)>,
    InterfaceMethod<
      /*desc=*/"Bytes of memory that live from step to step, on one rank.",
      /*retTy=*/"int64_t", /*methodName=*/"getStateBytes",
      /*args=*/(ins "::mlir::ddp::BucketType":$bucket),
      /*methodBody=*/"", /*defaultImplementation=*/"return 0;">,
    InterfaceMethod<
      /*desc=*/[{
        The hook without parameters that its states do not depend on: those of
        a checkpoint are taken by hooks for which this is equal.
      }],
      /*retTy=*/"::mlir::Attribute", /*methodName=*/"getStateMethod",
      /*args=*/(ins),
      /*methodBody=*/"", /*defaultImplementation=*/"return $_attr;">,
    InterfaceMethod<
      /*desc=*/[{
        Times that local work reads or writes a bucket-sized array, in units of
        the bucket's own bytes.
      }],
      /*retTy=*/"double", /*methodName=*/"getLocalPasses",
      /*args=*/(ins "::mlir::ddp::BucketType":$bucket)>,
    InterfaceMethod<
      /*desc=*/[{
        The element type in which the bucket travels; the bucket's own unless
        the hook casts.
      }],
      /*retTy=*/"::mlir::Type", /*methodName=*/"getWireType",
      /*args=*/(ins "::mlir::ddp::BucketType":$bucket),
      /*methodBody=*/"",
      /*defaultImplementation=*/"return bucket.getElementType();">,
    InterfaceMethod<
      /*desc=*/[{
        Whether every step reduces the bucket, over whatever group;
        `ddp-verify-order` then checks that no rank keeps what only it has.
      }],
      /*retTy=*/"bool", /*methodName=*/"reducesEveryStep",
      /*args=*/(ins), /*methodBody=*/"",
      /*defaultImplementation=*/"return true;">,
    StaticInterfaceMethod<
      /*desc=*/[{
        The parameters, for options that name the hook instead of writing its
        attribute. Hooks that are not defined with `DDP_HookAttr` give none, and
        can only be written as attributes.
      }],
      /*retTy=*/"::std::optional<::llvm::ArrayRef<::mlir::ddp::HookParameter>>",
      /*methodName=*/"getHookParameters",
      /*args=*/(ins), /*methodBody=*/"",
      /*defaultImplementation=*/"return ::std::nullopt;">
  ];
}

def DDP_AlgebraOpInterface : OpInterface<"AlgebraOpInterface"> {
  let cppNamespace = "::mlir::ddp";
  let description = [{
    An operation of the bucket algebra that computes values from others and may
    be told where to write them: its `into` operands.
  }];
  let methods = [
    InterfaceMethod<
      /*desc=*/"The `into` operands: none, or one for each result.",
      /*retTy=*/"::mlir::MutableOperandRange",
      /*methodName=*/"getDestinationMutable">,
    InterfaceMethod<
      /*desc=*/[{
        Whether element i of that result depends, of this operand, on element i
        only, so that the result may overwrite the operand if it has its type.
      }],
      /*retTy=*/"bool", /*methodName=*/"mayOverwrite",
      /*args=*/(ins "unsigned":$resultNumber, "::mlir::OpOperand &":$operand)>
  ];
}

#endif // DDPHOOK_DIALECT_DDP_IR_DDPINTERFACES_TD
