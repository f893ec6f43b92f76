// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// JAX has no all-reduce that computes a mean: it divides before or after a sum.

#pragma once

#include "ddphook/Dialect/DDP/IR/DDP.h"

namespace mlir::ddp {

/// Turns `reduction`, a sum over groups of `size` ranks, into a mean and
/// removes the division if its operand or all uses of its result are divided by
/// exactly `size`. Returns true if it did; a remark reports other divisors.
bool foldStableHLOMean(AllReduceOp reduction, int64_t size);

} // namespace mlir::ddp
