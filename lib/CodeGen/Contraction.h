// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Recognizes the linalg ops that `ddp-tile-contractions` lowers, and gives each
// of their loops a role in the tile. Emits no code.

#pragma once

#include "mlir/Dialect/Linalg/IR/Linalg.h"

#include <optional>

namespace mlir::ddp {

struct ContractionOperand {
  Value memref;
  AffineMap map;
};

/// out += lhs * rhs, and the roles of its loops. All loop bounds are static and
/// positive.
struct Contraction {
  linalg::LinalgOp op;
  /// `lhs` is invariant along the columns, `rhs` is not, `out` is contiguous.
  ContractionOperand lhs, rhs, out;
  FloatType elementType;
  SmallVector<int64_t> extents;
  /// The last dimension of `out`, along which vectors are formed.
  unsigned columnLoop = 0;
  /// The parallel loop that reuses vectors of `rhs`, if there is one.
  std::optional<unsigned> rowLoop;
  SmallVector<unsigned> outerLoops, reductionLoops;
  bool rhsIsContiguous = false;
};

/// Matches floating-point contractions on strided memory; returns nothing for
/// other operations.
std::optional<Contraction> matchContraction(linalg::LinalgOp op);

} // namespace mlir::ddp
