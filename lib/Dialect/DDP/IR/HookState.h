//===- HookState.h - states that hooks declare ------------------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Declares, while a hook is expanded, the states that it needs: its own, and
// those that all buckets share (an iteration counter, a random generator).
//
//===----------------------------------------------------------------------===//

#ifndef DDPHOOK_LIB_DIALECT_DDP_IR_HOOKSTATE_H
#define DDPHOOK_LIB_DIALECT_DDP_IR_HOOKSTATE_H

#include "ddphook/Dialect/DDP/IR/DDP.h"

#include "mlir/IR/BuiltinOps.h"

namespace mlir::ddp {

class HookState {
public:
  /// For the reduction that is expanded at the builder's insertion point.
  HookState(OpBuilder &builder, const BucketReduction &reduction);

  /// A state of this name and type that begins as zeros. An error if the name
  /// is taken.
  FailureOr<StateOp> createZero(const Twine &name, Type type,
                                StatePlacement placement);

  /// A replicated state of normal numbers from `generator`.
  FailureOr<StateOp> createNormal(const Twine &name, BucketType type,
                                  StateOp generator, ArrayRef<int64_t> draws);

  /// The random generator that all hooks with this seed share. The first is
  /// called `name`, others `name`.SEED.
  FailureOr<StateOp> getGenerator(StringRef name, int64_t seed);

  /// A replicated i64 that begins as 0 and that all hooks share.
  FailureOr<StateOp> getCounter(StringRef name);

  /// The number of times that the current block ran before: an i64 state that
  /// is loaded at the block's start, and stored, one higher, at its end. All
  /// reductions of a block share it. The first block's is called `name`, those
  /// of others `name`.1 and so on.
  FailureOr<Value> getIteration(StringRef name);

private:
  FailureOr<StateOp> create(const Twine &name, Type type,
                            StatePlacement placement, StateInit init,
                            IntegerAttr seed, FlatSymbolRefAttr generator,
                            DenseI64ArrayAttr draws);

  OpBuilder &builder;
  Location loc;
  ModuleOp module;
};

} // namespace mlir::ddp

#endif // DDPHOOK_LIB_DIALECT_DDP_IR_HOOKSTATE_H
