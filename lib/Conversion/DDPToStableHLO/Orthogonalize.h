//===- Orthogonalize.h - orthonormal columns in StableHLO -------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// ddp.orthogonalize of matrices of one shape, written out.
//
//===----------------------------------------------------------------------===//

#ifndef DDPHOOK_LIB_CONVERSION_DDPTOSTABLEHLO_ORTHOGONALIZE_H
#define DDPHOOK_LIB_CONVERSION_DDPTOSTABLEHLO_ORTHOGONALIZE_H

#include "HLOBuilder.h"

#include "ddphook/Dialect/DDP/IR/DDP.h"

namespace mlir::ddp {

/// Makes the columns of matrices orthonormal, by the algorithm that the
/// operation's description says. The first dimension of the 3-D tensor counts
/// the matrices. Columns beyond the number of rows become zero.
TensorValue orthogonalize(HLOBuilder &hlo, TensorValue matrices,
                          OrthogonalizeOp op);

} // namespace mlir::ddp

#endif // DDPHOOK_LIB_CONVERSION_DDPTOSTABLEHLO_ORTHOGONALIZE_H
