//===- ProgramFacts.h - what a program says beside its plan -----*- C++ -*-===//
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

/// "FILE:LINE:COLUMN", or a name where a location has no file, or nothing.
std::string describeLocation(Location loc);

/// What the record of a bucket says of where it comes from.
struct BucketFacts {
  std::string hookFrom, source;
  std::map<std::string, std::string> gradientSources;
};

/// What a module says before its conversion to calls.
struct MemoryFacts {
  std::map<std::string, BucketFacts> buckets;
  /// Names of buckets, by the location that their operations have.
  llvm::DenseMap<Attribute, std::string> bucketNames;
  std::vector<ReportBuffer> buffers;
  std::vector<ReportCopy> copies;
};
MemoryFacts readMemory(ModuleOp module);

/// Where the functions of a module run the collectives of its plan. Fills in
/// what a report's collectives say of that.
void readSchedule(ModuleOp module, PlanReport &report);

} // namespace mlir::ddp

#endif // DDPHOOK_LIB_REPORT_PROGRAMFACTS_H
