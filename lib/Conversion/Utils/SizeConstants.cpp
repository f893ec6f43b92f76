//===- SizeConstants.cpp ---------------------------------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Compares a program's numbers with a number of ranks.
//
//===----------------------------------------------------------------------===//

#include "SizeConstants.h"

using llvm::APFloat;

bool mlir::ddp::isSizeConstant(const APFloat &number, int64_t size,
                               bool isInverse) {
  APFloat exact(number.getSemantics());
  // A size that the type cannot represent is another number in the program.
  if (exact.convertFromAPInt(llvm::APInt(64, size), /*IsSigned=*/true,
                             APFloat::rmNearestTiesToEven) != APFloat::opOK)
    return false;
  if (isInverse) {
    APFloat one(number.getSemantics(), 1);
    one.divide(exact, APFloat::rmNearestTiesToEven);
    exact = one;
  }
  return number.bitwiseIsEqual(exact);
}
