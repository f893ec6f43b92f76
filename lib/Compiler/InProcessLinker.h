// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Links a shared object without another process.

#pragma once

#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"

namespace mlir::ddp {

/// Links the object file `input` and returns the bytes of the shared object.
/// Links it against this process's C, math and compiler support libraries, as
/// needed, and against the shared library `runtime` unless that is empty.
llvm::Expected<llvm::SmallVector<char, 0>>
linkInProcess(llvm::StringRef input, llvm::StringRef runtime);

} // namespace mlir::ddp
