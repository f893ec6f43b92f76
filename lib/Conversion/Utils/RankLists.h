// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Front ends arrange processes in a grid and reduce over some of its axes.

#pragma once

#include "mlir/Support/LLVM.h"
#include "llvm/ADT/SmallVector.h"

#include <optional>

namespace mlir::ddp {

using RankLists = SmallVector<SmallVector<int64_t>>;

/// Returns the number of processes in a grid of static shape, or nothing if
/// they are more than kMaxRanks.
std::optional<int64_t> countRanks(ArrayRef<int64_t> shape);

/// The limit of countRanks(): a process group lists its ranks.
constexpr int64_t kMaxRanks = int64_t(1) << 20;

/// Returns the ranks of each group: processes that agree on all other axes of a
/// grid of static shape. The last axis varies fastest in a process's number.
RankLists listRanks(ArrayRef<int64_t> shape, ArrayRef<int16_t> axes);

} // namespace mlir::ddp
