//===- ExportFunction.h - one function's hooks in StableHLO -----*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Replaces the operations of expanded hooks in a function. A bucket is a list
// of tensors, its members, which are put together where a collective or a state
// needs one array; a state is a value that is handed from use to use.
//
//===----------------------------------------------------------------------===//

#ifndef DDPHOOK_LIB_CONVERSION_DDPTOSTABLEHLO_EXPORTFUNCTION_H
#define DDPHOOK_LIB_CONVERSION_DDPTOSTABLEHLO_EXPORTFUNCTION_H

#include "HLOBuilder.h"
#include "Manifest.h"
#include "RankGroups.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

namespace mlir::ddp {

/// What the functions of a module share.
struct ExportContext {
  ModuleOp module;
  const ListedGroups &groups;
  /// The channel of the next collective; no two have the same.
  int64_t nextChannel;
  Manifest &manifest;
  /// By type of the matrix and parameters: the functions that make its columns
  /// orthonormal.
  llvm::DenseMap<std::pair<Type, Attribute>, func::FuncOp> orthogonalizers{};
};

/// Whether operations of that dialect are left to XLA.
bool isXLADialect(StringRef dialect);

/// The members of a bucket, each of its own shape.
using Members = SmallVector<TensorValue>;

class FunctionExporter {
public:
  FunctionExporter(ExportContext &context, func::FuncOp function)
      : context(context), function(function) {}

  LogicalResult run();

private:
  /// A state's value: an array, its parts, or both. Neither: it is empty.
  struct StateValue {
    TensorValue flat;
    Members members;
  };
  struct Scope {
    llvm::DenseMap<StringAttr, StateValue> states;
    /// The operation whose region this is, of which only XLA knows when it
    /// runs; null in a function and in branches.
    Operation *around = nullptr;
  };

  void addStates(Scope &scope);
  void returnStates(Scope &scope);
  LogicalResult eraseDead();

  LogicalResult convertBlock(Block &block, Scope &scope);
  LogicalResult convertOp(Operation *op, Scope &scope);
  static InFlightDiagnostic refuse(Operation *op);
  LogicalResult checkOperands(Operation *op);

  // Buckets.
  LogicalResult convert(PackOp op);
  LogicalResult convert(UnpackOp op);
  LogicalResult convert(ExtractOp op);
  LogicalResult convert(SplitOp op);
  LogicalResult convert(ConcatOp op);
  LogicalResult convert(ResizeOp op);
  LogicalResult convert(AllReduceOp op);
  LogicalResult convert(ReduceScatterOp op);
  LogicalResult convert(AllGatherOp op);
  LogicalResult convert(AllToAllOp op);
  LogicalResult convert(BroadcastOp op);
  LogicalResult convert(CastOp op);
  LogicalResult convert(ScaleOp op);
  LogicalResult convert(MatmulOp op);
  LogicalResult convert(OrthogonalizeOp op);
  LogicalResult convert(IsFiniteOp op);
  template <typename OpT>
  LogicalResult convertBinary(OpT op, StringRef name);

  // States and branches.
  StateOp lookupState(FlatSymbolRefAttr name) {
    return context.module.lookupSymbol<StateOp>(name.getAttr());
  }
  LogicalResult checkScope(StateOp state, Scope &scope);
  LogicalResult convert(LoadOp op, Scope &scope);
  LogicalResult convert(StoreOp op, Scope &scope);
  LogicalResult convert(CountCompressionOp op);
  LogicalResult convert(scf::IfOp op, Scope &scope);
  const Members &getMembers(StateOp state, StateValue &value);
  TensorValue getFlat(StateOp state, StateValue &value);

  // Numbers that are the same for all elements.
  LogicalResult convert(arith::ConstantOp op);
  LogicalResult convert(arith::CmpIOp op);
  LogicalResult convertNumbers(Operation *op, StringRef name);

  /// The members of a bucket, or a gradient as the only one.
  Members get(Value value);
  void set(Value value, Members members);
  TensorValue join(ArrayRef<TensorValue> members, Type elementType);
  /// Returns a bucket or a tensor as a 1-D tensor.
  TensorValue getWhole(Value value);
  void setWhole(Value value, TensorValue flat);
  /// Cuts a 1-D tensor to `size` elements, or pads it with zeros.
  TensorValue resize(TensorValue flat, int64_t size);
  std::optional<Members> viewMembers(ArrayRef<TensorValue> from,
                                     BucketType type);
  /// Parts of a 1-D tensor.
  Members split(TensorValue flat, BucketType type);
  void forEach(Value result, Value operand,
               function_ref<TensorValue(TensorValue)> make);
  /// Divides by the number of ranks in a group.
  TensorValue divideByGroup(TensorValue value, DenseIntElementsAttr groups);
  func::FuncOp getOrthogonalizer(RankedTensorType type, OrthogonalizeOp op);

  HLOBuilder getHLO() { return HLOBuilder(builder, loc); }

  ExportContext &context;
  func::FuncOp function;
  OpBuilder builder{function.getContext()};
  Location loc = function.getLoc();
  llvm::DenseMap<Value, Members> buckets;
  /// What `i64` and `i1` have become.
  llvm::DenseMap<Value, TensorValue> numbers;
  /// The states that are arguments, in order.
  SmallVector<StateOp> states;
  /// Operations that are replaced, in program order.
  SmallVector<Operation *> dead;
};

} // namespace mlir::ddp

#endif // DDPHOOK_LIB_CONVERSION_DDPTOSTABLEHLO_EXPORTFUNCTION_H
