//===- Plan.h - the plan of a module ----------------------------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The parts of a module that `convert-ddp-to-runtime` leaves for the code that
// emits machine code: the plan, an attribute, and the slot of the module's
// handle.
//
//===----------------------------------------------------------------------===//

#ifndef DDPHOOK_DIALECT_DDP_IR_PLAN_H
#define DDPHOOK_DIALECT_DDP_IR_PLAN_H

#include "ddphook/Dialect/DDP/IR/DDP.h"

#include "mlir/IR/BuiltinOps.h"

namespace mlir::ddp {

/// The slot (`llvm.mlir.global`, a pointer) in which the runtime stores the
/// module's handle.
inline constexpr llvm::StringLiteral kHandleSymbol = "__ddphook_handle";

/// The plan of `module`; null if the module was not converted.
PlanAttr getPlan(ModuleOp module);

/// Whether the plan of `module` says that arrays are in a device's memory.
/// False without a plan.
bool usesDeviceMemory(ModuleOp module);

/// If a plan cannot describe an argument or a result of this type, returns
/// words for a diagnostic that say what the type would have to be (" of static
/// shape …"); else an empty text.
StringRef findPlanTypeDefect(Type type);

} // namespace mlir::ddp

#endif // DDPHOOK_DIALECT_DDP_IR_PLAN_H
