// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A record of the collectives of each function. It can be compared with the
// record of the same module after a pass, even if the module is then at another
// level.

#pragma once

#include "ddphook/Dialect/DDP/Analysis/Orders.h"
#include "ddphook/Dialect/DDP/IR/DDP.h"

#include "llvm/ADT/StringSet.h"

#include <map>

namespace mlir::ddp {

struct CollectiveTrace {
  explicit CollectiveTrace(ModuleOp module);

  struct Function {
    /// Collectives in the order and nesting of the program.
    std::string order;
    /// Numbers of elements sent, by reduction, group and element type.
    std::map<std::string, int64_t> elements;
    /// Numbers of members, by reduction, group, element type and shape.
    std::map<std::string, int64_t> members;
    /// The same for collectives without a named bucket.
    std::map<std::string, int64_t> membersWithoutBucket;
  };
  std::map<std::string, Function> functions;
  /// Numbers of members in the records of buckets (`ddp.bucket_info`), by the
  /// same keys as `Function::members`.
  std::map<std::string, int64_t> recorded;
  /// States that are only stored as they were loaded, now or before an earlier
  /// pass: on memrefs no such store remains.
  llvm::StringSet<> unchangedStates;
};

/// Compares the collectives before and after `pass`, as far as it must preserve
/// them, and reports the first difference at `loc`.
LogicalResult compareTraces(Location loc, StringRef pass, OrderAcrossPass kept,
                            const CollectiveTrace &before,
                            const CollectiveTrace &after);

} // namespace mlir::ddp
