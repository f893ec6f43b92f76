//===- FXExchange.h - collectives on parts of tensors -----------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// PyTorch's collectives that are no all-reduces. They cut tensors along the
// first dimension, where ddp's parts lie as well.
//
//===----------------------------------------------------------------------===//

#ifndef DDPHOOK_LIB_CONVERSION_FXTODDP_FXEXCHANGE_H
#define DDPHOOK_LIB_CONVERSION_FXTODDP_FXEXCHANGE_H

#include "FXCollective.h"

namespace mlir::ddp {

/// Why ddp has no equivalent of `start`, an exchange among `size` ranks; empty
/// if it has.
std::string judgeExchange(const FXCollective &start,
                          std::optional<int64_t> size);

/// Builds the equivalent in front of `start`. Returns its result.
Value buildExchange(const FXCollective &start, ProcessGroupOp group);

} // namespace mlir::ddp

#endif // DDPHOOK_LIB_CONVERSION_FXTODDP_FXEXCHANGE_H
