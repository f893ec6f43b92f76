// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Reads a module just before and just after `convert-ddp-to-runtime`. Before,
// buffers and buckets are operations; after, collectives have their numbers.

#pragma once

#include "mlir/IR/BuiltinOps.h"
#include "llvm/Support/JSON.h"

#include <string>

namespace mlir::ddp {

/// Returns "FILE:LINE:COLUMN", a name if the location has no file, or nothing.
std::string describeLocation(Location loc);

/// Facts from before the conversion to calls.
struct MemoryFacts {
  /// The report's `program`: origins of buckets, buffers and copies.
  llvm::json::Object program;
  /// Names of buckets, by the location of their operations.
  llvm::DenseMap<Attribute, std::string> bucketNames;
};
MemoryFacts readMemory(ModuleOp module);

/// Adds to `report` its `functions`, and where they start and await the
/// `collectives` of the plan.
void readSchedule(ModuleOp module, llvm::json::Object &report);

} // namespace mlir::ddp
