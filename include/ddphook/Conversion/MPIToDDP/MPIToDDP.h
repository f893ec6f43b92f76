// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Declares the import of all-reduces over MPI's world.

#pragma once

#include "mlir/IR/BuiltinOps.h"
#include "mlir/Pass/Pass.h"

namespace mlir::ddp {

#define GEN_PASS_DECL
#include "ddphook/Conversion/MPIToDDP/Passes.h.inc"

#define GEN_PASS_REGISTRATION
#include "ddphook/Conversion/MPIToDDP/Passes.h.inc"

} // namespace mlir::ddp
