// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Stand-ins for the dialects of programs that JAX writes, because the libraries
// of StableHLO and Shardy are not part of MLIR.

#pragma once

#include "mlir/Support/LLVM.h"

#include <string>

namespace mlir {
class DialectRegistry;
class MLIRContext;
} // namespace mlir

namespace mlir::ddp {

/// Registers stand-ins for sdy, stablehlo, mhlo and chlo, each unless
/// `registry` has a dialect of that name. A stand-in has no registered
/// operations, attributes or types, and accepts all: operations in their
/// generic form, attributes and types as text, which is printed unchanged. All
/// of its operations may be inlined, and inlined into.
///
/// Call this last: registering a dialect of one of these names later, with the
/// same registry, is a fatal error in MLIR.
void registerOpaqueDialects(DialectRegistry &registry);

/// Returns why `source` cannot be read in `context`, or an empty string: it is
/// a portable artifact of StableHLO (VHLO), or bytecode with operations of a
/// real dialect that has a stand-in here. MLIR would read the encoding of their
/// attributes as that of others, without an error.
std::string explainUnreadable(StringRef source, MLIRContext &context);

} // namespace mlir::ddp
