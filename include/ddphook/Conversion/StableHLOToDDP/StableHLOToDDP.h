// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Declares the import of StableHLO's collectives. The passes know the
// operations by name: they need no StableHLO library, and also work if one is
// registered.

#ifndef DDPHOOK_CONVERSION_STABLEHLOTODDP_STABLEHLOTODDP_H
#define DDPHOOK_CONVERSION_STABLEHLOTODDP_STABLEHLOTODDP_H

#include "mlir/IR/BuiltinOps.h"
#include "mlir/Pass/Pass.h"

namespace mlir::ddp {

#define GEN_PASS_DECL
#include "ddphook/Conversion/StableHLOToDDP/Passes.h.inc"

#define GEN_PASS_REGISTRATION
#include "ddphook/Conversion/StableHLOToDDP/Passes.h.inc"

} // namespace mlir::ddp

#endif // DDPHOOK_CONVERSION_STABLEHLOTODDP_STABLEHLOTODDP_H

// A file that defines a pass includes this header after GEN_PASS_DEF_<PASS>.
namespace mlir::ddp {
#include "ddphook/Conversion/StableHLOToDDP/Passes.h.inc"
} // namespace mlir::ddp
