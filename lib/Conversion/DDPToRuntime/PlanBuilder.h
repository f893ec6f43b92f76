//===- PlanBuilder.h - the plan of a module ---------------------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Collects the plan of a module while `convert-ddp-to-runtime` converts it.
//
//===----------------------------------------------------------------------===//

#ifndef DDPHOOK_LIB_CONVERSION_DDPTORUNTIME_PLANBUILDER_H
#define DDPHOOK_LIB_CONVERSION_DDPTORUNTIME_PLANBUILDER_H

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

/// Whether the function's arguments and results can be described by a plan;
/// `why` says what cannot.
bool isPlannable(FunctionOpInterface function, std::string &why);

/// Fails, with a diagnostic, where a bucket travels in a type that the runtime
/// does not know.
FailureOr<PlanAttr> buildPlan(MLIRContext *context,
                              const PlanContents &contents);

} // namespace mlir::ddp

#endif // DDPHOOK_LIB_CONVERSION_DDPTORUNTIME_PLANBUILDER_H
