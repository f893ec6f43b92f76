//===- Exchanges.h - collectives on parts of tensors ------------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// StableHLO's collectives that are no all-reduces, as sharded optimizers and
// parameters need them. They cut tensors along any dimension; those of ddp cut
// what lies in memory. Reshapes and transposes around them make up for it.
//
//===----------------------------------------------------------------------===//

#ifndef DDPHOOK_LIB_CONVERSION_STABLEHLOTODDP_EXCHANGES_H
#define DDPHOOK_LIB_CONVERSION_STABLEHLOTODDP_EXCHANGES_H

#include "ReplicaGroups.h"

namespace mlir::ddp {

struct Exchange {
  Operation *op;
  CollectiveKind kind;
  ArrayAttr groups;
  /// Of a broadcast, the place in each group of the rank that sends.
  int64_t root = 0;
};

/// The kind of collective that `op` is, if it is one of these.
std::optional<CollectiveKind> getExchangeKind(Operation *op);

/// Fills in `exchange`, whose operation and kind are known. Returns why ddp has
/// no equivalent; an empty text if it has.
std::string readExchange(Exchange &exchange, const ReplicaGroups &groups);

/// Replaces the operation by one of ddp over `group`. `hook`, if any, is that
/// of a reduction.
void importExchange(const Exchange &exchange, ProcessGroupOp group,
                    Attribute hook);

} // namespace mlir::ddp

#endif // DDPHOOK_LIB_CONVERSION_STABLEHLOTODDP_EXCHANGES_H
