//===- DDPOpBase.td - base classes of operations -----------*- tablegen -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What all operations of the dialect, and those of the bucket algebra, share.
//
//===----------------------------------------------------------------------===//

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

/// Sizes of operands and results can be computed with.
def DDP_HasAddressableSizes : NativeOpTrait<"HasAddressableSizes"> {
  let cppNamespace = "::mlir::ddp";
}

class DDP_Op<string mnemonic, list<Trait> traits = []>
    : Op<DDP_Dialect, mnemonic,
         !listconcat(traits, [DDP_HasAddressableSizes])>;

/// On buckets and tensors: results, no effect on memory. On memrefs: no results;
/// reads the operands, writes `into`.
class DDP_AlgebraOp<string mnemonic, list<Trait> traits = []>
    : DDP_Op<mnemonic, !listconcat(traits, [
        DeclareOpInterfaceMethods<DDP_AlgebraOpInterface>,
        DeclareOpInterfaceMethods<MemoryEffectsOpInterface>])> {
  let hasVerifier = 1;
  string algebraConstraints = [{
    - (C1) on memrefs there is an `into` operand and no result; otherwise there
      is a result, and `into`, if any, has its type.
  }];

  /// `mayOverwrite`, an expression in C++.
  string overwritable = "false";
  /// What the operation does to resources that are no operands: pairs of an
  /// effect and a resource.
  list<list<string>> otherEffects = [];
  string algebraMethods = [{
    bool $cppClass::mayOverwrite(unsigned resultNumber, ::mlir::OpOperand &operand) {
      return }] # overwritable # [{;
    }
    void $cppClass::getEffects(
        ::llvm::SmallVectorImpl<::mlir::MemoryEffects::EffectInstance> &effects) {
      }] # !interleave(
               !foreach(pair, otherEffects,
                        "effects.emplace_back(::mlir::MemoryEffects::" #
                        pair[0] # "::get(), ::mlir::ddp::" # pair[1] #
                        "::get());"), "\n      ") # [{
      ::mlir::ddp::getAlgebraEffects(*this, effects);
    }
  }];
  let extraClassDefinition = algebraMethods;
}

/// An operation whose result has the type of its first operand, on buckets and
/// tensors, and may take the place of any operand.
class DDP_SameTypeOp<string mnemonic, list<Trait> traits = []>
    : DDP_AlgebraOp<mnemonic, !listconcat(
          [DeclareOpInterfaceMethods<InferTypeOpInterface>], traits)> {
  let overwritable = "true";
  string inferenceMethods = [{
    ::llvm::LogicalResult $cppClass::inferReturnTypes(
        ::mlir::MLIRContext *, ::std::optional<::mlir::Location>,
        ::mlir::ValueRange operands, ::mlir::DictionaryAttr,
        ::mlir::OpaqueProperties, ::mlir::RegionRange,
        ::llvm::SmallVectorImpl<::mlir::Type> &types) {
      return ::mlir::ddp::inferAlgebraType(operands.front(), types);
    }
  }];
  let extraClassDefinition = algebraMethods # inferenceMethods;
}

#endif // DDPHOOK_DIALECT_DDP_IR_DDPOPBASE_TD
