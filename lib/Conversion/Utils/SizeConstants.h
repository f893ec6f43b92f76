// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Recognizes the constant by which a program turns a sum into a mean, and
// reports other constants.

#pragma once

#include "ddphook/Dialect/DDP/IR/DDP.h"

namespace mlir::ddp {

/// A division of all elements of `scaled` by `number`, or a multiplication.
struct Scaling {
  Operation *op;
  Value scaled;
  APFloat number;
  bool isProduct;

  /// Returns true if it divides by `size`, or multiplies by 1/size as rounded
  /// to the number's type.
  bool isBy(int64_t size) const;
};

/// Emits a remark of `pass` that the first of `scalings` that scales down does
/// not turn `reduction`, a sum over `size` ranks, into a mean.
void remarkOtherSize(AllReduceOp reduction,
                     ArrayRef<std::optional<Scaling>> scalings, int64_t size,
                     StringRef pass);

} // namespace mlir::ddp
