// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Replaces the operations of expanded hooks in a function. A bucket becomes a
// list of member tensors, joined where a collective or a state needs one array.
// A state becomes a value that is threaded from use to use.

#pragma once

#include "HLOBuilder.h"
#include "Manifest.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

namespace mlir::ddp {

/// The ranks of process groups: XLA has none, and each collective lists its
/// own.
class ListedGroups {
public:
  /// `numRanks` is the size of the job, or 0 to take it from the module.
  explicit ListedGroups(ModuleOp module, int64_t numRanks)
      : module(module), numRanks(numRanks) {}

  /// Determines the number of ranks. Fails if the module contradicts it.
  LogicalResult init();

  std::optional<int64_t> getNumRanks() const {
    return numRanks ? std::optional(numRanks) : std::nullopt;
  }
  /// Returns the ranks of each group, one group per row. Emits an error at `op`
  /// if the compiler does not know them.
  FailureOr<DenseIntElementsAttr> lookup(FlatSymbolRefAttr group,
                                         Operation *op) const;

private:
  ModuleOp module;
  int64_t numRanks;
};

/// State shared by the functions of a module.
struct ExportContext {
  ModuleOp module;
  const ListedGroups &groups;
  /// The channel of the next collective; each collective has its own.
  int64_t nextChannel;
  Manifest &manifest;
  /// The functions that orthonormalize columns, by matrix type and parameters.
  llvm::DenseMap<std::pair<Type, Attribute>, func::FuncOp> orthogonalizers{};
};

/// Returns true if operations of that dialect are left to XLA.
bool isXLADialect(StringRef dialect);

/// Orthonormalizes the columns of matrices with the algorithm of the
/// operation's description. The first dimension of the 3-D tensor is the number
/// of the matrix. Columns beyond the number of rows become zero.
TensorValue orthogonalize(HLOBuilder &hlo, TensorValue matrices,
                          OrthogonalizeOp op);

/// The members of a bucket, each in its own shape.
using Members = SmallVector<TensorValue>;

class FunctionExporter {
public:
  FunctionExporter(ExportContext &context, func::FuncOp function)
      : context(context), function(function) {}

  LogicalResult run();

private:
  /// A state's value as one array, as members, or both; neither if it is empty.
  struct StateValue {
    TensorValue flat;
    Members members;
  };
  struct Scope {
    llvm::DenseMap<StringAttr, StateValue> states;
    /// The operation around this region if only XLA knows when it runs; null in
    /// a function and in branches.
    Operation *around = nullptr;
  };

  void addStates(Scope &scope);
  void returnStates(Scope &scope);
  LogicalResult eraseDead();

  LogicalResult convertBlock(Block &block, Scope &scope);
  LogicalResult convertOp(Operation *op, Scope &scope);
  static InFlightDiagnostic refuse(Operation *op);
  LogicalResult checkOperands(Operation *op);
  /// Returns the ranks of each group that a collective runs in; refuses sums in
  /// an encoded type.
  FailureOr<DenseIntElementsAttr> getRanks(CollectiveOpInterface op);

  // Buckets.
  LogicalResult convert(PackOp op);
  LogicalResult convert(UnpackOp op);
  LogicalResult convert(ExtractOp op);
  LogicalResult convert(SplitOp op);
  LogicalResult convert(ConcatOp op);
  LogicalResult convert(ResizeOp op);
  LogicalResult convert(AllReduceOp op);
  void convert(ReduceScatterOp op, DenseIntElementsAttr groups);
  void convert(AllGatherOp op, DenseIntElementsAttr groups);
  void convert(AllToAllOp op, DenseIntElementsAttr groups);
  void convert(BroadcastOp op, DenseIntElementsAttr groups);
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

  // Scalars.
  LogicalResult convert(arith::ConstantOp op);
  LogicalResult convert(arith::CmpIOp op);
  LogicalResult convertNumbers(Operation *op, StringRef name);

  /// Returns the members of a bucket, or a gradient as the only member.
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
  /// Splits a 1-D tensor into the members of `type`.
  Members split(TensorValue flat, BucketType type);
  void forEach(Value result, Value operand,
               function_ref<TensorValue(TensorValue)> make);
  /// Divides by the number of ranks in a group.
  TensorValue divideByGroup(TensorValue value, DenseIntElementsAttr groups);
  func::FuncOp getOrthogonalizer(RankedTensorType type, OrthogonalizeOp op);

  ExportContext &context;
  func::FuncOp function;
  HLOBuilder hlo{function.getLoc(), function.getContext()};
  llvm::DenseMap<Value, Members> buckets;
  /// The tensors that `i64` and `i1` values have become.
  llvm::DenseMap<Value, TensorValue> numbers;
  /// The states that are arguments, in order.
  SmallVector<StateOp> states;
  /// Operations that were replaced, in program order.
  SmallVector<Operation *> dead;
};

} // namespace mlir::ddp
