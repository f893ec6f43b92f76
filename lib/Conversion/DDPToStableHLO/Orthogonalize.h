// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// ddp.orthogonalize for matrices of one shape, unrolled.

#pragma once

#include "HLOBuilder.h"

#include "ddphook/Dialect/DDP/IR/DDP.h"

namespace mlir::ddp {

/// Orthonormalizes the columns of matrices with the algorithm of the
/// operation's description. The first dimension of the 3-D tensor is the number
/// of the matrix. Columns beyond the number of rows become zero.
TensorValue orthogonalize(HLOBuilder &hlo, TensorValue matrices,
                          OrthogonalizeOp op);

} // namespace mlir::ddp
