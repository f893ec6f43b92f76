// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Output of the compiler's tools.

#pragma once

#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"

namespace mlir::ddp {

/// Writes `text` to the file `path`, or to standard output for "-". Even after
/// an error, a file is either the old one or the complete new one.
llvm::Error writeText(llvm::StringRef path, llvm::StringRef text);

} // namespace mlir::ddp
