// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The declarations of the dialect: types, hook attributes, operations and their
// interfaces.

#pragma once

#include "ddphook/Dialect/DDP/IR/MLIRVersion.h"

#include "mlir/Bytecode/BytecodeOpInterface.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Dialect.h"
#include "mlir/IR/OpDefinition.h"
#include "mlir/IR/SymbolTable.h"
#include "mlir/IR/TypeUtilities.h"
#include "mlir/Interfaces/DestinationStyleOpInterface.h"
#include "mlir/Interfaces/InferTypeOpInterface.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"
#include "mlir/Interfaces/ViewLikeInterface.h"
#include "llvm/ADT/StringMap.h"
#include <array>
#include <optional>

#include "ddphook/Dialect/DDP/IR/DDPDialect.h.inc"
#include "ddphook/Dialect/DDP/IR/DDPEnums.h.inc"

#define GET_TYPEDEF_CLASSES
#include "ddphook/Dialect/DDP/IR/DDPTypes.h.inc"

namespace mlir::ddp {
class CollectiveOpInterface;
class StateOp;

/// The largest number of elements of a bucket, a tensor or a memref, counted
/// without dimensions of size 0. The number of bytes for any element type, and
/// the sum of a few such numbers, still fit in 64 bits.
constexpr int64_t kMaxElements = int64_t(1) << 56;

/// Returns the sum of two numbers of elements, or `kMaxElements` + 1 if it
/// exceeds `kMaxElements`.
constexpr int64_t addElements(int64_t a, int64_t b) {
  return a + b > kMaxElements ? kMaxElements + 1 : a + b;
}

/// True if a bucket, tensor or memref has at most `kMaxElements` elements. Also
/// true for other types and for shapes that are not static.
bool hasAddressableSize(Type type);

/// Reports the first operand or result of `op` that has more than
/// `kMaxElements` elements.
LogicalResult verifyAddressableSizes(Operation *op);

/// The trait of every operation of the dialect.
template <typename ConcreteType>
class HasAddressableSizes
    : public OpTrait::TraitBase<ConcreteType, HasAddressableSizes> {
public:
  static LogicalResult verifyTrait(Operation *op) {
    return verifyAddressableSizes(op);
  }
};

/// Checks that `symbol`, if there is one, is a process group.
LogicalResult verifyGroup(Operation *op, FlatSymbolRefAttr symbol,
                          SymbolTableCollection &symbols);

/// Implements SymbolUserOpInterface for operations that refer to a group only.
template <typename ConcreteType>
class UsesGroup : public OpTrait::TraitBase<ConcreteType, UsesGroup> {
public:
  LogicalResult verifySymbolUses(SymbolTableCollection &symbols) {
    auto op = cast<ConcreteType>(this->getOperation());
    return verifyGroup(op, op.getGroupAttr(), symbols);
  }
};

/// Checks the process group of a collective and all that depends on it: sizes,
/// the root of a broadcast, and the state for an all-reduce's error feedback.
LogicalResult verifyCollectiveSymbols(CollectiveOpInterface op,
                                      SymbolTableCollection &symbols);

/// The collectives of a program. Collectives write this resource, so that no
/// transformation reorders them, moves one into a branch, or drops it on some
/// ranks only.
struct CollectiveResource
    : public SideEffects::Resource::Base<CollectiveResource> {
  StringRef getName() final { return "<Collective>"; }
};

/// The states of a program. Loads read this resource; stores and draws write
/// it.
struct StateResource : public SideEffects::Resource::Base<StateResource> {
  StringRef getName() final { return "<State>"; }
};

/// A matrix of n rows, m columns and rank r: its offset in the bucket, and
/// those of its factors, n x r in P and m x r in Q. All numbers count elements.
struct MatrixPlace {
  int64_t offset, pOffset, qOffset, rows, columns, rank;

  std::array<int64_t, 6> getNumbers() const {
    return {offset, pOffset, qOffset, rows, columns, rank};
  }
};

/// Elements that are not in a matrix: their offset in the bucket and in the
/// rest, and their number.
struct PiecePlace {
  int64_t offset, restOffset, count;

  std::array<int64_t, 3> getNumbers() const {
    return {offset, restOffset, count};
  }
};

inline bool operator==(const MatrixPlace &a, const MatrixPlace &b) {
  return a.getNumbers() == b.getNumbers();
}
inline bool operator==(const PiecePlace &a, const PiecePlace &b) {
  return a.getNumbers() == b.getNumbers();
}
inline llvm::hash_code hash_value(const MatrixPlace &place) {
  return llvm::hash_value(ArrayRef<int64_t>(place.getNumbers()));
}
inline llvm::hash_code hash_value(const PiecePlace &place) {
  return llvm::hash_value(ArrayRef<int64_t>(place.getNumbers()));
}

/// The symbols of a module in which hooks declare states. No hook then has to
/// search the module.
struct ModuleSymbols {
  explicit ModuleSymbols(ModuleOp module);

  SymbolTable table;
  /// The last process group or state; null if there is none.
  Operation *lastState = nullptr;
  /// For each name, the number of iteration counters that are named after it.
  llvm::StringMap<unsigned> numIterations;
};

/// The reduction that a hook has to compute: the `ddp.all_reduce` that it
/// replaces.
struct BucketReduction {
  Location loc;
  Reduction kind;
  /// The process group.
  FlatSymbolRefAttr group;
  /// The bucket's name in the plan; states are named after it.
  StringAttr bucketName;
  /// The names of the bucket's gradients; null if they have none.
  ArrayAttr gradients = {};
  /// A hook appends the states that it shares with other buckets; their roles
  /// are later completed with the gradients of all these buckets. May be null.
  SmallVectorImpl<StateOp> *sharedStates = nullptr;
  /// The number of bytes of the bucket that a stage of a hook should process at
  /// a time, so that the next stage finds them in the cache; 0 means no limit.
  /// This is a hint, which hooks may ignore.
  int64_t groupBytes = 0;
  /// True if the process group is hierarchical: a wire type then applies
  /// between nodes, and a rank encodes its node's sum, not its own data.
  bool isHierarchical = false;
  /// The module's symbols, for `createGradientState`; null if not collected.
  ModuleSymbols *symbols = nullptr;
};

/// The operand of a reduce-scatter that a hook prepared.
struct ScatterOperand {
  /// Null if the hook reduces only whole gradients.
  Value value;
  /// The type in which elements are sent; null for their own.
  Type wire;
  /// The training step, an i64, for stochastic rounding to `wire`; or null.
  Value step;
};

/// A parameter of a hook as an option, from its definition in TableGen
/// (DDPHookBase.td).
struct HookParameter {
  /// Selects how the option's value is parsed.
  enum class Kind { Integer, Number, Flag, Choice, Symbol, Type, WireType };

  /// The name in the attribute's text.
  StringRef name;
  /// The name on command lines, with dashes.
  StringRef option;
  Kind kind;
  /// The default as users write it; empty for none.
  StringRef defaultValue;
  StringRef description;
  /// True if `numerics=improved` sets this flag, provided that the flag named
  /// `improves`, if any, is true.
  bool isImprovement;
  StringRef improves;
};

} // namespace mlir::ddp

#include "ddphook/Dialect/DDP/IR/DDPAttrInterfaces.h.inc"

#define GET_ATTRDEF_CLASSES
#include "ddphook/Dialect/DDP/IR/DDPAttrs.h.inc"

#include "ddphook/Dialect/DDP/IR/DDPOpInterfaces.h.inc"

#define GET_OP_CLASSES
#include "ddphook/Dialect/DDP/IR/DDPOps.h.inc"

namespace mlir::ddp {

/// Returns the number of elements of the whole array that a collective handles;
/// for an all-gather that is its result.
int64_t getWholeSize(CollectiveOpInterface op);

/// Returns the number of a group's ranks if the group states it.
std::optional<int64_t> getStatedSize(ProcessGroupOp group);

/// Returns the number of elements of each rank's part of an array.
inline int64_t getPartSize(int64_t numElements, int64_t ranks) {
  return numElements / ranks + (numElements % ranks != 0);
}

/// Lists one or more names for diagnostics: "a, b or c".
std::string listAlternatives(ArrayRef<StringRef> names);

/// True if `op` or an operation in it belongs to the dialect.
bool hasDDPOps(Operation *op);

/// Removes the dialect's attributes from `op`, and from its arguments and
/// results if it is a function.
void removeDDPAttrs(Operation *op);

/// True if `op` is a blocking collective whose result is a value.
bool isWholeOnValues(Operation *op);

/// Creates the operation that starts the collective `whole`, for which
/// isWholeOnValues() is true and getAssignment() is null. Its one result is the
/// future. Only an all-reduce may have a condition.
Operation *createStart(OpBuilder &builder, CollectiveOpInterface whole,
                       Value condition = {});

/// Returns the operation that started the collective that `op` waits for; null
/// if `op` is not a wait.
Operation *getAwaited(Operation *op);

/// True if `op` is a wait in an else branch, where the condition is false and
/// the collective was not started.
bool isIdleWait(Operation *op);

/// Returns the hook of `op`: the innermost `ddp.hook` of the operation, its
/// function and its module, or `defaultHook`.
HookAttrInterface getEffectiveHook(Operation *op,
                                   HookAttrInterface defaultHook = {});

/// Builds the all-reduce of `input` for `reduction`, and marks it as final, so
/// that it is not expanded again. Sends elements as `wire`; null means their
/// own type. `step` is the training step, an i64, for stochastic rounding. For
/// use in HookAttrInterface::expand.
Value buildFinalAllReduce(OpBuilder &builder, const BucketReduction &reduction,
                          Value input, Type wire = {}, Value step = {});

/// Makes an all-reduce in an encoding without a zero point use `error`, a state
/// of its type, for error feedback (`ddp.error`). Does nothing if `error` is
/// null.
void setErrorState(Operation *allReduce, FlatSymbolRefAttr error);
/// Returns the state that setErrorState() set, or null.
FlatSymbolRefAttr getErrorState(Operation *op);

/// Records the bucket members that the parts of an all-reduce's operand, or of
/// a low-rank operation's large bucket, belong to (`ddp.assignment`). Does
/// nothing if the attribute is null.
void setAssignment(Operation *op, AssignmentAttr assignment);
/// Returns the attribute that setAssignment() set, or null.
AssignmentAttr getAssignment(Operation *op);

/// Makes metrics measure what a low-rank product or `ddp.sparsify` loses of
/// this bucket (`ddp.compresses`). Does nothing if the name is null.
void setCompressedBucket(Operation *op, StringAttr bucket);

/// Declares a per-rank state of the bucket's type that starts as zeros. `role`,
/// HOOK.WORD, and `kind` say what the hook keeps for every gradient. The state
/// is named BUCKET.WORD; reports an error if that is taken. For use in
/// HookAttrInterface::expand.
FailureOr<StateOp> createGradientState(OpBuilder &builder,
                                       const BucketReduction &reduction,
                                       BucketType type, StringRef role,
                                       StateKind kind = StateKind::Error);

/// Returns the type of the memory of a state, or of any array, of this type.
MemRefType getStateMemory(Type type);

/// Returns the type of a bucket that consists of these members of `bucket`, in
/// this order.
BucketType getSubBucket(BucketType bucket, ArrayRef<int64_t> members);

/// Returns the members of a bucket that are not listed, in order.
SmallVector<int64_t> getRestMembers(BucketType bucket,
                                    ArrayRef<int64_t> members);

/// Returns the element type of a bucket, tensor or memref.
Type getElementTypeOf(Type type);

/// Returns the number of elements of a statically shaped bucket, tensor or
/// memref.
int64_t getNumElementsOf(Type type);

} // namespace mlir::ddp
