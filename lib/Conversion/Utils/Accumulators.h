// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Frameworks sum 16-bit numbers in f32. The imports mark the programs that come
// from a framework.

#ifndef DDPHOOK_LIB_CONVERSION_UTILS_ACCUMULATORS_H
#define DDPHOOK_LIB_CONVERSION_UTILS_ACCUMULATORS_H

#include "mlir/IR/BuiltinOps.h"

namespace mlir::ddp {

/// Marks the module for `ddp-widen-accumulators` if it computes with f16 or
/// bf16.
void requestWideAccumulators(ModuleOp module);

} // namespace mlir::ddp

#endif // DDPHOOK_LIB_CONVERSION_UTILS_ACCUMULATORS_H
