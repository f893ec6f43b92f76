//===- ProgramFacts.h - facts of a program next to its plan -----*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Reads a module just before and just after `convert-ddp-to-runtime`. Before,
// buffers and buckets are operations; after, collectives have their numbers.
//
//===----------------------------------------------------------------------===//
#ifndef DDPHOOK_LIB_REPORT_PROGRAMFACTS_H
#define DDPHOOK_LIB_REPORT_PROGRAMFACTS_H

#include "ddphook/Dialect/DDP/IR/BucketOrigin.h"
#include "ddphook/Report/PlanReport.h"

#include "mlir/IR/BuiltinOps.h"

#include <map>

namespace mlir::ddp {

/// Returns "FILE:LINE:COLUMN", a name if the location has no file, or nothing.
std::string describeLocation(Location loc);

/// The origins recorded for a bucket.
struct BucketFacts {
  std::string hookFrom, source;
  std::map<std::string, std::string> gradientSources;
};

/// Facts from before the conversion to calls.
struct MemoryFacts {
  std::map<std::string, BucketFacts> buckets;
  /// Names of buckets, by the location of their operations.
  llvm::DenseMap<Attribute, std::string> bucketNames;
  std::vector<ReportBuffer> buffers;
  std::vector<ReportCopy> copies;
};
MemoryFacts readMemory(ModuleOp module);

/// Fills in where the functions of a module start and await the collectives of
/// its plan.
void readSchedule(ModuleOp module, PlanReport &report);

} // namespace mlir::ddp

#endif // DDPHOOK_LIB_REPORT_PROGRAMFACTS_H
