//===- Plan.h - the plan of a module ----------------------------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What `convert-ddp-to-runtime` leaves in a module for whoever makes machine
// code of it: the plan, an attribute, and the slot of the module's handle.
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

/// The plan of `module`; null where it was not converted.
PlanAttr getPlan(ModuleOp module);

/// Whether the plan of `module` says that arrays lie in a device's memory; no
/// without a plan.
bool usesDeviceMemory(ModuleOp module);

/// What an argument or a result of an entry point would have to be, in words,
/// if it had not that type (" of static shape …"); empty where a plan can
/// describe it.
StringRef findPlanTypeDefect(Type type);

} // namespace mlir::ddp

#endif // DDPHOOK_DIALECT_DDP_IR_PLAN_H
