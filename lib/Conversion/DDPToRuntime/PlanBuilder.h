// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Collects the plan of a module while `convert-ddp-to-runtime` converts it.

#pragma once

#include "ddphook/Dialect/DDP/IR/Plan.h"

#include "mlir/Interfaces/FunctionInterfaces.h"

namespace mlir::ddp {

struct PlanContents {
  ArrayMemory memory = ArrayMemory::Host;
  SmallVector<ProcessGroupOp> groups;
  SmallVector<BucketInfoOp> buckets;
  SmallVector<StateOp> states;
  SmallVector<PlanMatrixListAttr> matrixLists;
  SmallVector<PlanCollectiveAttr> collectives;
  SmallVector<FunctionOpInterface> entries;
  int64_t arenaBytes = 0;
};

/// Returns true if a plan can describe the function's arguments and results;
/// otherwise sets `why`.
bool isPlannable(FunctionOpInterface function, std::string &why);

/// Builds the plan. Fails with a diagnostic if a bucket's wire type is unknown
/// to the runtime.
FailureOr<PlanAttr> buildPlan(MLIRContext *context,
                              const PlanContents &contents);

} // namespace mlir::ddp
