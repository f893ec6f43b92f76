//===- Orthogonalize.h - orthonormal columns in StableHLO -------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// ddp.orthogonalize of one matrix, written out.
//
//===----------------------------------------------------------------------===//

#ifndef DDPHOOK_LIB_CONVERSION_DDPTOSTABLEHLO_ORTHOGONALIZE_H
#define DDPHOOK_LIB_CONVERSION_DDPTOSTABLEHLO_ORTHOGONALIZE_H

#include "HLOBuilder.h"

namespace mlir::ddp {

/// Makes the columns of a 2-D tensor orthonormal, by the algorithm that the
/// operation's description says. Columns beyond the number of rows become zero.
TensorValue orthogonalize(HLOBuilder &hlo, TensorValue matrix, double epsilon,
                          bool unitColumns);

} // namespace mlir::ddp

#endif // DDPHOOK_LIB_CONVERSION_DDPTOSTABLEHLO_ORTHOGONALIZE_H
