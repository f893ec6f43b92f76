//===- OpaqueDialects.h - dialects known by name alone ----------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Stand-ins for the dialects of programs that JAX writes: StableHLO's and
// Shardy's own libraries are no part of MLIR.
//
//===----------------------------------------------------------------------===//

#ifndef DDPHOOK_DIALECT_OPAQUE_OPAQUEDIALECTS_H
#define DDPHOOK_DIALECT_OPAQUE_OPAQUEDIALECTS_H

namespace mlir {
class DialectRegistry;
} // namespace mlir

namespace mlir::ddp {

/// Registers stand-ins for sdy, stablehlo, mhlo and chlo, each unless
/// `registry` has a dialect of that name. A stand-in knows no operation,
/// attribute or type, and takes all: operations in their generic form,
/// attributes and types as text, which is printed as it was read. All of its
/// operations may be inlined, and inlined into.
///
/// Call it last: a dialect of one of these names that is registered later, with
/// the same registry, is a fatal error of MLIR's.
void registerOpaqueDialects(DialectRegistry &registry);

} // namespace mlir::ddp

#endif // DDPHOOK_DIALECT_OPAQUE_OPAQUEDIALECTS_H
