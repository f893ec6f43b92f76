// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Keeps LLVM from calling __truncsfbf2, which older compilers' libraries lack.

#pragma once

#include "llvm/IR/Module.h"

namespace mlir::ddp {

/// Makes instructions that only move values of type bfloat, such as loads,
/// stores and selects, move integers of 16 bits, and internal functions take
/// such integers. The arithmetic consists of
/// operations on f32 and integers already. On CPUs without AVX512-BF16, LLVM
/// would round values of type bfloat that it keeps in registers by a call.
void moveBFloatAsInteger(llvm::Module &module);

} // namespace mlir::ddp
