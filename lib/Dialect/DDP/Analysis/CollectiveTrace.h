//===- CollectiveTrace.h - which collectives a module runs ------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A record of the collectives of each function, that can be compared with that
// of the same module after a pass, whatever level it is on by then.
//
//===----------------------------------------------------------------------===//

#ifndef DDPHOOK_LIB_DIALECT_DDP_ANALYSIS_COLLECTIVETRACE_H
#define DDPHOOK_LIB_DIALECT_DDP_ANALYSIS_COLLECTIVETRACE_H

#include "ddphook/Dialect/DDP/Transforms/Passes.h"

#include <map>

namespace mlir::ddp {

struct CollectiveTrace {
  explicit CollectiveTrace(ModuleOp module);

  struct Function {
    /// Collectives in the order and nesting of the program.
    std::string order;
    /// How many elements travel, by reduction, group and element type.
    std::map<std::string, int64_t> elements;
    /// How many members of which shape, by the same and the shape.
    std::map<std::string, int64_t> members;
    /// Those of named buckets.
    std::map<std::string, int64_t> bucketMembers;
  };
  std::map<std::string, Function> functions;
  /// What is recorded of buckets, and what buckets are reduced: members
  /// likewise.
  std::map<std::string, int64_t> recorded;
};

/// Compares what was there before a pass with what is there now; says at `loc`
/// what is different.
LogicalResult compareTraces(Location loc, StringRef pass, OrderAcrossPass kept,
                            const CollectiveTrace &before,
                            const CollectiveTrace &after);

} // namespace mlir::ddp

#endif // DDPHOOK_LIB_DIALECT_DDP_ANALYSIS_COLLECTIVETRACE_H
