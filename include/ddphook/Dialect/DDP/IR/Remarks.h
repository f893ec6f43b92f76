// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What MLIR's remarks need to know about a remark of a pass.

#pragma once

#include "mlir/IR/Remarks.h"

namespace mlir::ddp {

/// Returns the name of a remark and, as its category, the pass that makes it.
constexpr remark::RemarkOpts remarkOf(StringRef name, StringRef pass) {
  return remark::RemarkOpts::name(name).category(pass);
}

} // namespace mlir::ddp
