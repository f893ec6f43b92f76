// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The JSON file next to an exported module. docs/frontends.md describes it.

#pragma once

#include "ddphook/Dialect/DDP/IR/DDP.h"

#include "llvm/ADT/MapVector.h"

namespace mlir::ddp {

/// A state of a function: its indices among the arguments and results.
struct StateArgument {
  StateOp state;
  unsigned argument, result;
};

/// A reduce-scatter; these are not in buckets.
struct ScatterRecord {
  StringRef group;
  int64_t numElements;
  Type type, wire;
};

struct Manifest {
  /// The number of ranks in the job, if known.
  std::optional<int64_t> numRanks;
  /// The states of each function, by its name.
  llvm::MapVector<StringRef, SmallVector<StateArgument>> functions;
  SmallVector<BucketInfoOp> buckets;
  SmallVector<ScatterRecord> scatters;
  /// Elements before and after compression, by bucket name.
  llvm::MapVector<StringRef, std::pair<int64_t, int64_t>> compressions;
};

/// Returns the type of a state as an argument: a flat array or, for a counter,
/// 32 bits because JAX has no wider integers by default.
RankedTensorType getExportedType(StateOp state);

/// Writes the file atomically. `module` must still have its states.
LogicalResult writeManifest(const Manifest &manifest, ModuleOp module,
                            StringRef path);

} // namespace mlir::ddp
