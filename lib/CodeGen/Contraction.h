// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Recognizes f32 and f64 contractions, and gives each of their loops a role in
// a tile, for `ddp-tile-contractions` and KernelBody.cpp. Emits no code.

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
  /// The loop over the last dimension of `out`, along which vectors are formed.
  unsigned columnLoop = 0;
  /// The longest parallel loop that reuses vectors of `rhs`, if there is one.
  std::optional<unsigned> rowLoop;
  SmallVector<unsigned> outerLoops, reductionLoops;
  bool rhsIsContiguous = false;
};

/// Matches f32 and f64 contractions on memrefs; returns nothing for other ops.
std::optional<Contraction> matchContraction(linalg::LinalgOp op);

} // namespace mlir::ddp
