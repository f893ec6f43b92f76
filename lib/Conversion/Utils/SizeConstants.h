//===- SizeConstants.h - numbers of ranks in programs --------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Recognizes the number by which a program makes a mean of a sum, and says what
// it has in its place.
//
//===----------------------------------------------------------------------===//

#ifndef DDPHOOK_LIB_CONVERSION_UTILS_SIZECONSTANTS_H
#define DDPHOOK_LIB_CONVERSION_UTILS_SIZECONSTANTS_H

#include "ddphook/Dialect/DDP/IR/DDP.h"

#include <optional>

namespace mlir::ddp {

/// A quotient of all elements of `scaled` by `number`, or with `isProduct`
/// their product with it.
struct Scaling {
  Operation *op;
  Value scaled;
  APFloat number;
  bool isProduct;

  /// Whether it is a quotient by `size`, or a product with what the number's
  /// type has for 1/size.
  bool isBy(int64_t size) const;
};

/// Remarks, for the pass with the argument `pass`, that the first of `scalings`
/// that could be meant to makes no mean of `reduction`, a sum over `size`
/// ranks: the first one that gives a part of what it gets.
void remarkOtherSize(AllReduceOp reduction,
                     ArrayRef<std::optional<Scaling>> scalings, int64_t size,
                     StringRef pass);

} // namespace mlir::ddp

#endif // DDPHOOK_LIB_CONVERSION_UTILS_SIZECONSTANTS_H
