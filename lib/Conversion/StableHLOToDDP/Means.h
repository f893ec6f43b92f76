//===- Means.h - sums that are means ----------------------------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// JAX has no all-reduce that gives a mean: it divides, before or after a sum.
//
//===----------------------------------------------------------------------===//

#ifndef DDPHOOK_LIB_CONVERSION_STABLEHLOTODDP_MEANS_H
#define DDPHOOK_LIB_CONVERSION_STABLEHLOTODDP_MEANS_H

#include "ddphook/Dialect/DDP/IR/DDP.h"

namespace mlir::ddp {

/// Makes a mean of `reduction`, a sum over groups of `size` ranks, if all uses
/// of its result or its operand are divided by exactly that number, and removes
/// the division. Returns whether it did; a remark names another number.
bool foldStableHLOMean(AllReduceOp reduction, int64_t size);

} // namespace mlir::ddp

#endif // DDPHOOK_LIB_CONVERSION_STABLEHLOTODDP_MEANS_H
