// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Imports PyTorch's collectives other than all-reduces. They split tensors
// along the first dimension, so that the parts are contiguous, as ddp's are.

#pragma once

#include "FXCollective.h"

namespace mlir::ddp {

/// Returns why ddp has no equivalent of `start`, an exchange among `size`
/// ranks; an empty string if it has one.
std::string judgeExchange(const FXCollective &start,
                          std::optional<int64_t> size);

/// Builds the equivalent before `start` and returns its result.
Value buildExchange(const FXCollective &start, ProcessGroupOp group);

} // namespace mlir::ddp
