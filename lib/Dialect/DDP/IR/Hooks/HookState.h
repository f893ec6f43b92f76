// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Declares the states that a hook needs while it is expanded: its own, and
// those that all buckets share (an iteration counter, a random generator).

#pragma once

#include "ddphook/Dialect/DDP/IR/DDP.h"

namespace mlir::ddp {

/// Returns the module at the builder's insertion point.
ModuleOp getModule(const OpBuilder &builder);

class HookState {
public:
  /// For the reduction that is expanded at the builder's insertion point.
  HookState(OpBuilder &builder, const BucketReduction &reduction);

  /// Members of the bucket, for each tensor of a state.
  using Members = ArrayRef<SmallVector<int64_t>>;

  /// Creates a per-rank state of the bucket that starts as zeros. `role`,
  /// HOOK.WORD, says how it relates to those members; its name is BUCKET.WORD.
  /// Reports an error if that name is taken.
  FailureOr<StateOp> createZero(StateKind kind, StringRef role, BucketType type,
                                Members members);

  /// Creates factors that start as normal numbers from `generator`, equal on
  /// all ranks of the reduction's group; otherwise like createZero().
  FailureOr<StateOp> createNormal(StringRef role, BucketType type,
                                  StateOp generator, ArrayRef<int64_t> draws,
                                  Members members);

  /// Returns the random generator that all hooks with this seed share. The
  /// first is named `name`, others `name`.SEED.
  FailureOr<StateOp> getGenerator(StringRef name, int64_t seed);

  /// Creates an i64 that starts at 0. Reports an error if the name is taken.
  FailureOr<StateOp> createCounter(const Twine &name, StateKind kind);

  /// Returns an i64 that starts at 0 and that all hooks share, for events that
  /// all ranks of the reduction's group count alike.
  FailureOr<StateOp> getCounter(StringRef name);

  /// Returns how often the current block ran before: an i64 state that is
  /// loaded at the block's start and stored, incremented, at its end. All
  /// reductions of a block share it. The first block's state is named `name`,
  /// those of others `name`.1 and so on.
  FailureOr<Value> getIteration(StringRef name);

  /// Returns the ranks of the reduction's group on one node, or of one position
  /// on all nodes, as a process group GROUP.`suffix` that all buckets share.
  /// Returns null if that name is taken.
  FlatSymbolRefAttr getLevel(Placement placement, StringRef suffix);

private:
  FailureOr<StateOp> describe(FailureOr<StateOp> state, StringRef role,
                              Members members);
  FailureOr<StateOp> share(FailureOr<StateOp> state, StringRef role);
  FailureOr<StateOp> create(StateKind kind, const Twine &name, Type type,
                            StatePlacement placement, StateInit init,
                            IntegerAttr seed = {},
                            FlatSymbolRefAttr generator = {},
                            DenseI64ArrayAttr draws = {});

  OpBuilder &builder;
  const BucketReduction &reduction;
  Location loc;
  ModuleOp module;
  std::optional<ModuleSymbols> ownSymbols;
  ModuleSymbols &symbols;
};

} // namespace mlir::ddp
