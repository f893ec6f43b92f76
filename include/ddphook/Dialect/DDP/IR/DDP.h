//===- DDP.h - the ddp dialect ----------------------------------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Everything the dialect declares: types, hook attributes, operations and their
// interfaces.
//
//===----------------------------------------------------------------------===//

#ifndef DDPHOOK_DIALECT_DDP_IR_DDP_H
#define DDPHOOK_DIALECT_DDP_IR_DDP_H

#include "mlir/Bytecode/BytecodeOpInterface.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Dialect.h"
#include "mlir/IR/OpDefinition.h"
#include "mlir/IR/SymbolTable.h"
#include "mlir/Interfaces/DestinationStyleOpInterface.h"
#include "mlir/Interfaces/InferTypeOpInterface.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"
#include "mlir/Interfaces/ViewLikeInterface.h"
#include <array>
#include <optional>

#include "ddphook/Dialect/DDP/IR/DDPDialect.h.inc"
#include "ddphook/Dialect/DDP/IR/DDPEnums.h.inc"

#define GET_TYPEDEF_CLASSES
#include "ddphook/Dialect/DDP/IR/DDPTypes.h.inc"

namespace mlir::ddp {
class StateOp;

/// The largest number of elements of a bucket, a tensor or a memref, counted
/// without dimensions of size 0. The number of bytes for any element type, and
/// the sum of a few such numbers, still fit into 64 bits.
constexpr int64_t kMaxElements = int64_t(1) << 56;

/// The sum of two numbers of elements; `kMaxElements` + 1 stands for every
/// larger sum.
constexpr int64_t addElements(int64_t a, int64_t b) {
  return a + b > kMaxElements ? kMaxElements + 1 : a + b;
}

/// Whether a bucket, tensor or memref has at most `kMaxElements` elements. True
/// for other types and for shapes that are not static.
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

/// The collectives of a program. An all-reduce writes this resource, so that no
/// transformation moves one across another, into a branch, or drops it on some
/// ranks only.
struct CollectiveResource
    : public SideEffects::Resource::Base<CollectiveResource> {
  StringRef getName() final { return "<Collective>"; }
};

/// The states of a program. Loads read this resource, stores and draws write
/// it.
struct StateResource : public SideEffects::Resource::Base<StateResource> {
  StringRef getName() final { return "<State>"; }
};

/// A matrix of n rows, m columns and rank r: its offset in the bucket, those of
/// its factors, n x r and m x r, in P and in Q. All numbers count elements.
struct MatrixPlace {
  int64_t offset, pOffset, qOffset, rows, columns, rank;

  std::array<int64_t, 6> getNumbers() const {
    return {offset, pOffset, qOffset, rows, columns, rank};
  }
};

/// Elements that are no matrix: their offset in the bucket and in the rest, and
/// their number.
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
  /// A hook appends the states here that it shares with other buckets; their
  /// roles are then completed with the gradients of all these buckets. May be
  /// null.
  SmallVectorImpl<StateOp> *sharedStates = nullptr;
  /// Bytes of the bucket that one stage of a hook should work on at a time, if
  /// it has several, so that the next stage finds them in the cache; 0 is no
  /// limit. A wish: hooks may have reasons not to follow it.
  int64_t groupBytes = 0;
  /// Whether the process group is hierarchical: a wire type is one between
  /// nodes, and what comes before it is not what a rank encodes.
  bool isHierarchical = false;
};

/// What a reduce-scatter sends for a hook.
struct ScatterOperand {
  /// Null: the hook reduces whole gradients only.
  Value value;
  /// The type that its elements travel as; null: their own.
  Type wire;
  /// The training step, an i64, by which `wire` rounds stochastically; or null.
  Value step;
};

/// A parameter of a hook as an option, from its definition in TableGen
/// (DDPHookBase.td).
struct HookParameter {
  /// How the option's value is parsed.
  enum class Kind { Integer, Number, Flag, Choice, Symbol, Type, WireType };

  /// The name in the attribute's text.
  StringRef name;
  /// The name on command lines, with dashes.
  StringRef option;
  Kind kind;
  /// The default as users write it; empty for none.
  StringRef defaultValue;
  StringRef description;
  /// Whether `numerics=improved` makes this flag true, provided that the flag
  /// `improves`, if there is one, is true.
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

/// The elements of the whole array that a collective is about: of an all-gather
/// those of its result.
int64_t getWholeSize(CollectiveOpInterface op);

/// The number of a group's ranks, if the group says it.
std::optional<int64_t> getStatedSize(ProcessGroupOp group);

/// Elements of each rank's part where `ranks` ranks share so many.
inline int64_t getPartSize(int64_t numElements, int64_t ranks) {
  return numElements / ranks + (numElements % ranks != 0);
}

/// Whether `op` is a collective in one piece, with a result that is a value.
bool isWholeOnValues(Operation *op);

/// The operation that starts what `whole`, of which isWholeOnValues() is true
/// and which has no deal, does at once. It has one result, the future.
Operation *createStart(OpBuilder &builder, CollectiveOpInterface whole);

/// The operation that started the collective that `op` waits for; null if it
/// does not wait.
Operation *getAwaited(Operation *op);

/// Whether `op` waits for a collective that was not started, because its
/// condition is false: it stands in an else branch.
bool isIdleWait(Operation *op);

/// The hook that governs `op`: the innermost `ddp.hook` of the operation, its
/// function and its module, or `defaultHook`.
HookAttrInterface getEffectiveHook(Operation *op,
                                   HookAttrInterface defaultHook = {});

/// Builds the all-reduce of `input` that `reduction` asks for, and marks it as
/// final, so that it is not expanded again. Elements travel as `wire`; null: as
/// they are. `step` is the training step, an i64, by which that rounds
/// stochastically. For use in HookAttrInterface::expand.
Value buildFinalAllReduce(OpBuilder &builder, const BucketReduction &reduction,
                          Value input, Type wire = {}, Value step = {});

/// Has an all-reduce in an encoding without a zero point feed back what
/// `error`, a state of its type, keeps (`ddp.error`). Null: it has none.
void setErrorState(Operation *allReduce, FlatSymbolRefAttr error);
/// What setErrorState() has set; or null.
FlatSymbolRefAttr getErrorState(Operation *op);

/// Says of which members of a bucket the parts of an all-reduce's operand, or
/// the members of a low-rank operation's large bucket are (`ddp.deal`). Null:
/// they are not dealt.
void setDeal(Operation *op, DealAttr deal);
/// What setDeal() has set; or null.
DealAttr getDeal(Operation *op);

/// Declares a state of the bucket's type that is zero at first, and each rank's
/// own: what `role`, HOOK.WORD, says that the hook keeps of every gradient. It
/// is called BUCKET.WORD; an error if that is taken. For use in
/// HookAttrInterface::expand.
FailureOr<StateOp> createGradientState(OpBuilder &builder,
                                       const BucketReduction &reduction,
                                       BucketType type, StringRef role);

/// The type of a bucket that consists of these members of `bucket`, in this
/// order.
BucketType getSubBucket(BucketType bucket, ArrayRef<int64_t> members);

/// The members of a bucket that are not listed, in order.
SmallVector<int64_t> getRestMembers(BucketType bucket,
                                    ArrayRef<int64_t> members);

/// The element type of a bucket, tensor or memref.
Type getElementTypeOf(Type type);

/// The number of elements of a statically shaped bucket, tensor or memref.
int64_t getNumElementsOf(Type type);

} // namespace mlir::ddp

#endif // DDPHOOK_DIALECT_DDP_IR_DDP_H
