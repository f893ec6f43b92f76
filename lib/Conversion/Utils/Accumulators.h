// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Frameworks sum 16-bit numbers in f32. The imports mark the programs that come
// from a framework.

#pragma once

#include "mlir/IR/BuiltinOps.h"

namespace mlir::ddp {

/// Marks the module for `ddp-widen-accumulators` if it computes with f16 or
/// bf16.
void requestWideAccumulators(ModuleOp module);

} // namespace mlir::ddp
