// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The JSON text of docs/plan.md. `ddp-emit-entry-points` puts it into compiled
// modules; a compiler that emits entry points itself calls writePlanText().

#pragma once

#include "ddphook/Dialect/DDP/IR/Plan.h"

#include <string>

namespace mlir::ddp {

/// Returns the text of `plan`, without white space and with its keys in the
/// order of docs/plan.md, so that equal plans have equal bytes.
std::string writePlanText(PlanAttr plan);

} // namespace mlir::ddp
