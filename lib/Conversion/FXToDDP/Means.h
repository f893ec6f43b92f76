//===- Means.h -------------------------------------------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Finds sums that are means.
//
//===----------------------------------------------------------------------===//

#ifndef DDPHOOK_LIB_CONVERSION_FXTODDP_MEANS_H
#define DDPHOOK_LIB_CONVERSION_FXTODDP_MEANS_H

#include "ddphook/Dialect/DDP/IR/DDP.h"

namespace mlir::ddp {

/// Makes a mean of a sum over `size` ranks that is divided by `size`, before or
/// behind it, and removes the division. Returns false if it is not divided.
bool foldLinalgMean(AllReduceOp reduction, int64_t size);

} // namespace mlir::ddp

#endif // DDPHOOK_LIB_CONVERSION_FXTODDP_MEANS_H
