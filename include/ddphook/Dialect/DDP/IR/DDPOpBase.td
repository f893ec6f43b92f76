// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Base classes that operations of the dialect share.

#ifndef DDPHOOK_DIALECT_DDP_IR_DDPOPBASE_TD
#define DDPHOOK_DIALECT_DDP_IR_DDPOPBASE_TD

include "ddphook/Dialect/DDP/IR/DDPAttrs.td"
include "ddphook/Dialect/DDP/IR/DDPDialect.td"
include "ddphook/Dialect/DDP/IR/DDPInterfaces.td"
include "ddphook/Dialect/DDP/IR/DDPTypes.td"
include "mlir/IR/BuiltinAttributes.td"
include "mlir/IR/SymbolInterfaces.td"
include "mlir/Interfaces/InferTypeOpInterface.td"
include "mlir/Interfaces/SideEffectInterfaces.td"
include "mlir/Interfaces/ViewLikeInterface.td"

/// Sizes of operands and results can be used in computations.
def DDP_HasAddressableSizes : NativeOpTrait<"HasAddressableSizes"> {
  let cppNamespace = "::mlir::ddp";
}

/// The operation's `group`, if it has one, is a process group.
def DDP_UsesGroup : NativeOpTrait<"UsesGroup"> {
  let cppNamespace = "::mlir::ddp";
}

/// The collectives of a program, and its states (DDP.h).
def DDP_CollectiveResource : Resource<"::mlir::ddp::CollectiveResource">;
def DDP_StateResource : Resource<"::mlir::ddp::StateResource">;

class DDP_Op<string mnemonic, list<Trait> traits = []>
    : Op<DDP_Dialect, mnemonic,
         !listconcat(traits, [DDP_HasAddressableSizes])>, DDP_Page {
  let hasVerifier = 1;
  let description = page;
}

/// An operation whose result has the type of its first operand.
class DDP_SameTypeOp<string mnemonic, list<Trait> traits = []>
    : DDP_Op<mnemonic, !listconcat(
          [DeclareOpInterfaceMethods<InferTypeOpInterface>], traits)> {
  let results = (outs DDP_Value:$result);
  let extraClassDefinition = [{
    ::llvm::LogicalResult $cppClass::inferReturnTypes(
        ::mlir::MLIRContext *, ::std::optional<::mlir::Location>,
        ::mlir::ValueRange operands, ::mlir::DictionaryAttr,
        ::mlir::OpaqueProperties, ::mlir::RegionRange,
        ::llvm::SmallVectorImpl<::mlir::Type> &types) {
      types.push_back(operands.front().getType());
      return ::mlir::success();
    }
  }];
}

#endif // DDPHOOK_DIALECT_DDP_IR_DDPOPBASE_TD
