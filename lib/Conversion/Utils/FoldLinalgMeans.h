// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Finds sums of tensors that are means.

#pragma once

#include "ddphook/Dialect/DDP/IR/DDP.h"

namespace mlir::ddp {

/// Turns a sum over `size` ranks that is divided by `size`, before or after,
/// into a mean and removes the division. A sum in f16 that is divided
/// afterwards stays, because a mean divides first. A remark of `pass` reports a
/// division by any other constant.
void foldLinalgMean(AllReduceOp reduction, int64_t size, StringRef pass);

} // namespace mlir::ddp
