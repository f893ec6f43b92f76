// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// libFuzzer changes bytes, after which hardly any module parses. These
// mutations change tokens and lines instead, and what the fuzzer is asked to
// do; bytes as well, now and then.

#pragma once

#include "mlir/IR/DialectRegistry.h"

namespace mlir::ddp {

/// The beginning of the line that says what is done with a module.
inline constexpr llvm::StringLiteral kRequestPrefix = "// fuzz:";

/// Collects the words that mutations may insert: the operations of `registry`'s
/// ddp dialect, our passes, and the pipeline's options.
void setMutatorWords(const DialectRegistry &registry);

} // namespace mlir::ddp
