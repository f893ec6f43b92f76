//===- DDPToRuntime.h - ddp to calls of the runtime -------------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Declares the conversion. What it leaves in the module for whoever makes an
// object file of it is in ddphook/Dialect/DDP/IR/Plan.h.
//
//===----------------------------------------------------------------------===//

#ifndef DDPHOOK_CONVERSION_DDPTORUNTIME_DDPTORUNTIME_H
#define DDPHOOK_CONVERSION_DDPTORUNTIME_DDPTORUNTIME_H

#include "ddphook/Dialect/DDP/IR/Plan.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/Pass/Pass.h"

namespace mlir::ddp {

#define GEN_PASS_DECL
#include "ddphook/Conversion/DDPToRuntime/Passes.h.inc"

#define GEN_PASS_REGISTRATION
#include "ddphook/Conversion/DDPToRuntime/Passes.h.inc"

} // namespace mlir::ddp

#endif // DDPHOOK_CONVERSION_DDPTORUNTIME_DDPTORUNTIME_H
