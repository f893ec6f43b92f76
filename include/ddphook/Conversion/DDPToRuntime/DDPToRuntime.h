//===- DDPToRuntime.h - ddp to calls of the runtime -------------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Declares the conversion, and the symbols that it leaves in the module for
// whoever makes an object file of it.
//
//===----------------------------------------------------------------------===//

#ifndef DDPHOOK_CONVERSION_DDPTORUNTIME_DDPTORUNTIME_H
#define DDPHOOK_CONVERSION_DDPTORUNTIME_DDPTORUNTIME_H

#include "mlir/IR/BuiltinOps.h"
#include "mlir/Pass/Pass.h"

namespace mlir::ddp {

/// The slot (`llvm.mlir.global`, a pointer) for the module's handle.
constexpr llvm::StringLiteral kHandleSymbol = "__ddphook_handle";
/// The plan (`llvm.mlir.global constant`, JSON text).
constexpr llvm::StringLiteral kPlanSymbol = "__ddphook_plan";

/// Whose memory a module's arrays lie in: the plan's "memory".
enum class ArrayMemory {
  /// The host's: compiled code reads and writes them.
  Host,
  /// A device's: compiled code passes their addresses on.
  Device
};

#define GEN_PASS_DECL
#include "ddphook/Conversion/DDPToRuntime/Passes.h.inc"

#define GEN_PASS_REGISTRATION
#include "ddphook/Conversion/DDPToRuntime/Passes.h.inc"

} // namespace mlir::ddp

#endif // DDPHOOK_CONVERSION_DDPTORUNTIME_DDPTORUNTIME_H
