//===- merge.h - the parts of all ranks become one trace --------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Reads the parts that the ranks of a job have left, one at a time, and writes
// one trace. Ranks that died and parts that are missing or belong to another
// job make it shorter, not impossible.
//
//===----------------------------------------------------------------------===//
#ifndef DDPHOOK_RUNTIME_SRC_TRACE_MERGE_H
#define DDPHOOK_RUNTIME_SRC_TRACE_MERGE_H

#include "trace/trace_writer.h"

#include <string>
#include <vector>

namespace ddphook::trace {

/// The name of rank number `rank`'s part of the trace `path`.
std::string partPath(const std::string &path, int rank);

/// The parts of the trace `path` that exist, in the order of ranks.
std::vector<std::string> findParts(const std::string &path);

struct MergeResult {
  std::string runId;
  /// One for each rank of the job.
  std::vector<RankSummary> ranks;
  /// What could not be merged, and why: a line each.
  std::vector<std::string> problems;
  /// The parts that were.
  std::vector<std::string> merged;
};

/// Merges `parts` into `path`. All have to be of the run `runId`, and are
/// opened as files that the runtime has named; if it is empty, of that of the
/// newest of them, and a user has named them. DATA_LOSS: none is; IO_ERROR and
/// RESOURCE_EXHAUSTED: the trace cannot be written.
Status mergeParts(const std::vector<std::string> &parts,
                  const std::string &runId, const std::string &path,
                  MergeResult *result);

/// Writes one part, which may be under way, as a trace of its own: at most
/// `mostEvents` of each thread.
Status writePart(const Part &part, uint64_t mostEvents,
                 const std::string &path);

} // namespace ddphook::trace

#endif // DDPHOOK_RUNTIME_SRC_TRACE_MERGE_H
