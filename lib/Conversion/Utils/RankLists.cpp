// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "RankLists.h"

#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/CheckedArithmetic.h"

using namespace mlir;
using namespace mlir::ddp;

std::optional<int64_t> mlir::ddp::countRanks(ArrayRef<int64_t> shape) {
  std::optional<int64_t> numRanks = 1;
  for (int64_t size : shape)
    numRanks = numRanks ? llvm::checkedMul(*numRanks, size) : std::nullopt;
  return numRanks && *numRanks <= kMaxRanks ? numRanks : std::nullopt;
}

RankLists mlir::ddp::listRanks(ArrayRef<int64_t> shape,
                               ArrayRef<int16_t> axes) {
  // Processes of a group have the same index along the remaining axes.
  llvm::MapVector<int64_t, SmallVector<int64_t>> lists;
  int64_t numRanks = llvm::product_of(shape);
  for (int64_t rank = 0; rank < numRanks; ++rank) {
    int64_t group = 0, stride = 1, rest = rank;
    for (int16_t axis = shape.size() - 1; axis >= 0; --axis) {
      if (!llvm::is_contained(axes, axis)) {
        group += rest % shape[axis] * stride;
        stride *= shape[axis];
      }
      rest /= shape[axis];
    }
    lists[group].push_back(rank);
  }
  return llvm::to_vector(llvm::make_second_range(lists));
}
