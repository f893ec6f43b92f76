//===- PlanWriter.h - the plan of a module ----------------------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Writes what `convert-ddp-to-runtime` has learnt about a module as the JSON
// text of docs/plan.md.
//
//===----------------------------------------------------------------------===//

#ifndef DDPHOOK_LIB_CONVERSION_DDPTORUNTIME_PLANWRITER_H
#define DDPHOOK_LIB_CONVERSION_DDPTORUNTIME_PLANWRITER_H

#include "ddphook/Dialect/DDP/IR/DDP.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/Interfaces/FunctionInterfaces.h"

namespace mlir::ddp {

/// The version of the plan and of the calls, DDPHOOK_ABI_VERSION of
/// ddphook/runtime/compiled.h.
constexpr int64_t kABIVersion = 4;

/// Names and values of element types, as in ddphook/runtime/compiled.h and the
/// plan. The name of a type that the plan cannot express is empty.
std::string getTypeName(Type type);
int32_t getDtypeValue(Type type);

/// One call of ddphook_rt_all_reduce.
struct Collective {
  StringRef bucket;
  unsigned group;
  int64_t count;
  Type elementType, wireType; // wireType may be null
  bool divide;
};

/// What the low-rank calls work on.
struct MatrixList {
  MatrixListAttr layout;
  Type elementType;
};

struct PlanContents {
  SmallVector<ProcessGroupOp> groups;
  SmallVector<BucketInfoOp> buckets;
  SmallVector<StateOp> states;
  SmallVector<MatrixList> matrixLists;
  SmallVector<Collective> collectives;
  SmallVector<FunctionOpInterface> entries;
  /// Whether compiled code leaves memory to the runtime's calls.
  bool usesDeviceMemory = false;
  /// Names of kernels in the module's device code.
  SmallVector<std::string> kernels;
  int64_t arenaBytes = 0;
};

/// Whether the function's arguments and results can be described by a plan;
/// `why` says what cannot.
bool isPlannable(FunctionOpInterface function, std::string &why);

std::string writePlan(const PlanContents &contents);

} // namespace mlir::ddp

#endif // DDPHOOK_LIB_CONVERSION_DDPTORUNTIME_PLANWRITER_H
