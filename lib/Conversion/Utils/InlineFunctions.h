// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Inlines functions whose operations a pass can only convert where they are
// called.

#pragma once

#include "mlir/IR/BuiltinOps.h"

namespace mlir::ddp {

/// Inlines the calls of functions that contain operations for which `isWanted`
/// returns true, also through other functions, and erases private ones that are
/// then unused. `what` names the operations in messages. The operations may be
/// of any dialect, registered or not, so upstream's inliner is not used.
LogicalResult inlineFunctionsWith(ModuleOp module,
                                  function_ref<bool(Operation *)> isWanted,
                                  StringRef what);

} // namespace mlir::ddp
