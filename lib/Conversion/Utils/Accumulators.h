//===- Accumulators.h - in which type whole steps add up ---------*- C++
//-*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Frameworks add up 16-bit numbers in f32. Only the import knows that a program
// comes from one.
//
//===----------------------------------------------------------------------===//

#ifndef DDPHOOK_LIB_CONVERSION_UTILS_ACCUMULATORS_H
#define DDPHOOK_LIB_CONVERSION_UTILS_ACCUMULATORS_H

#include "mlir/IR/BuiltinOps.h"

namespace mlir::ddp {

/// Marks a module that computes with 16-bit floating-point numbers for
/// `ddp-widen-accumulators`.
void requestWideAccumulators(ModuleOp module);

} // namespace mlir::ddp

#endif // DDPHOOK_LIB_CONVERSION_UTILS_ACCUMULATORS_H
