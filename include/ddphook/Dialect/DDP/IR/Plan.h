// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The parts of a module that `convert-ddp-to-runtime` leaves for the passes
// that emit machine code: the plan, an attribute, and the slot of the module's
// handle.

#pragma once

#include "ddphook/Dialect/DDP/IR/DDP.h"

namespace mlir::ddp {

/// The slot (`llvm.mlir.global`, a pointer) in which the runtime stores the
/// module's handle.
inline constexpr llvm::StringLiteral kHandleSymbol = "__ddphook_handle";

/// Returns the plan of `module`; null if the module was not converted.
PlanAttr getPlan(ModuleOp module);

/// True if the plan of `module` puts arrays in a device's memory. False without
/// a plan.
bool usesDeviceMemory(ModuleOp module);

/// If a plan cannot describe an argument or a result of this type, returns
/// words for a diagnostic that state a requirement (" of static shape …");
/// otherwise an empty text.
StringRef findPlanTypeDefect(Type type);

} // namespace mlir::ddp
