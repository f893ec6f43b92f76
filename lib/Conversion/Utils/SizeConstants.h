//===- SizeConstants.h - numbers of ranks in programs --------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Recognizes the number by which a program makes a mean of a sum.
//
//===----------------------------------------------------------------------===//

#ifndef DDPHOOK_LIB_CONVERSION_UTILS_SIZECONSTANTS_H
#define DDPHOOK_LIB_CONVERSION_UTILS_SIZECONSTANTS_H

#include "llvm/ADT/APFloat.h"

namespace mlir::ddp {

/// Whether `number` is the number of ranks `size`, or with `isInverse` what its
/// type has for 1/size.
bool isSizeConstant(const llvm::APFloat &number, int64_t size, bool isInverse);

} // namespace mlir::ddp

#endif // DDPHOOK_LIB_CONVERSION_UTILS_SIZECONSTANTS_H
