// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Decides where the parts of a `ddp.concat` are computed, so that it copies as
// little as possible.

#pragma once

#include "BufferPool.h"

namespace mlir::ddp {

/// The slice of a concat's result that holds operand `part`, in elements.
struct PartPlace {
  PartPlace(OpBuilder &builder, ConcatOp concat, unsigned part);

  OpFoldResult offset, size, stride;
};

/// Returns the operand of a concat in op's block that is the only use of
/// `result`, a part that can be computed in place. Returns null if there is
/// none or the part has no elements.
OpOperand *findConcatUse(FlatOpInterface op, Value result);

/// True if a concat has its operand `use` where `part` is in a split bucket.
bool isInSamePlace(OpOperand &use, Value part);

/// Places the parts of concats in one of three ways: in the same parts of a
/// bucket that was split alike and is dead; in slices of a new tensor, the
/// concat's assembly; or in buffers of their own, which the concat copies.
///
/// Invariant: until a concat is lowered, an assembly holds exactly its inserted
/// parts.
class ConcatPlacement {
public:
  /// A concat of more parts copies them: they would form a long chain of
  /// insertions, each of which One-Shot Bufferize compares with all others.
  static constexpr size_t maxInserted = 16;

  explicit ConcatPlacement(BufferPool &pool) : pool(pool) {}

  /// Makes each part of a bucket a buffer if nothing else needs the bucket. It
  /// is not reused freely, because the next value of this part will need it.
  void addSplit(SplitOp op);

  /// For a result of `op` that becomes a part of a bucket, returns the same
  /// part of a bucket that was split in the same way, or null. The bucket of a
  /// state is used only if the concat is the state's new value.
  Value findInSplit(FlatOpInterface op, Value result);

  /// Creates memory before `op` for the part `use` of a concat: a slice of the
  /// concat's assembly or, if it has none and its parts could be computed in
  /// parts of another bucket (`isInSplit`), a part of a new split. Each part is
  /// then an alias set of its own, where insertions would form a chain.
  Value createPlace(FlatOpInterface op, OpOperand &use, bool isInSplit);

  /// Inserts the result of `op` if it is a part of a concat with an assembly.
  void insertResult(FlatOpInterface op, Value result);

  /// Gives the concat memory, or replaces it with its assembly. A concat that
  /// ends in an argument may be put together there.
  void lower(ConcatOp op);

private:
  /// The tensor in which a concat is assembled, with the parts inserted so far.
  struct Assembly {
    Value whole;
    llvm::DenseSet<unsigned> inserted;
  };

  Assembly &getAssembly(ConcatOp concat, Operation *before);
  void insert(OpBuilder &builder, ConcatOp concat, unsigned number);
  SplitOp findSplit(ConcatOp concat);

  BufferPool &pool;
  llvm::DenseMap<Operation *, Assembly> assemblies;
  /// Splits of buckets of which only the parts are still needed, by bucket
  /// type.
  llvm::DenseMap<Type, SmallVector<SplitOp>> splits;
};

} // namespace mlir::ddp
