// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Faults of MLIR 22 that stock mlir-opt has as well. A fuzzer that runs into
// them finds nothing else.

#pragma once

#include "llvm/ADT/StringRef.h"

namespace mlir::ddp {

/// Whether `text` has what one of the faults needs; some innocent modules have
/// it, too.
bool crashesUpstream(llvm::StringRef text);

} // namespace mlir::ddp
