// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Finds the ranks of process groups.

#include "ExportFunction.h"

using namespace mlir;
using namespace mlir::ddp;

/// Returns the number of ranks in the job if the group implies it.
static std::optional<int64_t> getJobSize(ProcessGroupOp group) {
  if (std::optional<ArrayAttr> lists = group.getRanks()) {
    int64_t count = 0;
    for (auto list : lists->getAsRange<DenseI64ArrayAttr>())
      count += list.size();
    return count;
  }
  return group.getPlacement() ? std::nullopt : group.getSize();
}

LogicalResult ListedGroups::init() {
  for (auto group : module.getOps<ProcessGroupOp>()) {
    if (group.isHierarchical())
      return group.emitOpError() << "expected no hierarchical topology: XLA "
                                    "decides how ranks reach each other";
    std::optional<int64_t> size = getJobSize(group);
    if (!size)
      continue;
    if (numRanks && *size != numRanks)
      return group.emitOpError()
             << "expected a job of " << numRanks
             << " ranks, but the job of this group has " << *size;
    numRanks = *size;
  }
  return success();
}

FailureOr<DenseIntElementsAttr> ListedGroups::lookup(FlatSymbolRefAttr symbol,
                                                     Operation *op) const {
  auto group = ModuleOp(module).lookupSymbol<ProcessGroupOp>(symbol.getAttr());
  if (group.getPlacement())
    return op->emitOpError()
           << "expected a process group whose ranks the compiler knows, but @"
           << symbol.getValue() << " depends on the machines of a job";
  if (!numRanks)
    return op->emitOpError()
           << "expected the number of ranks of @" << symbol.getValue()
           << " to be known; set num-ranks";
  SmallVector<int64_t> ranks;
  int64_t numGroups = 1;
  if (std::optional<ArrayAttr> lists = group.getRanks()) {
    numGroups = lists->size();
    for (auto list : lists->getAsRange<DenseI64ArrayAttr>())
      llvm::append_range(ranks, list.asArrayRef());
  } else {
    llvm::append_range(ranks, llvm::seq<int64_t>(numRanks));
  }
  auto type = RankedTensorType::get(
      {numGroups, static_cast<int64_t>(ranks.size()) / numGroups},
      IntegerType::get(op->getContext(), 64));
  return DenseIntElementsAttr::get(type, ranks);
}
