// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Reads the parts that the ranks of a job have left, one at a time, and writes
// one trace. If ranks died, or parts are missing or belong to another job, the
// trace is shorter, but still written.

#pragma once

#include "trace/trace_writer.h"

#include <string>
#include <vector>

namespace ddphook::trace {

/// Returns the name of the part of rank `rank` for the trace `path`.
std::string partPath(const std::string &path, int rank);

/// Returns the existing parts of the trace `path`, in rank order.
std::vector<std::string> findParts(const std::string &path);

struct MergeResult {
  std::string runId;
  /// One for each rank of the job.
  std::vector<RankSummary> ranks;
  /// The parts that could not be merged, and why: one line each.
  std::vector<std::string> problems;
  std::vector<std::string> merged;
};

/// Merges `parts` into `path`. If `runId` is not empty, all must be of that
/// run, and are opened as files that the runtime has named; otherwise all must
/// be of the newest part's run, and a user has named them. DATA_LOSS: no part
/// is valid; IO_ERROR and RESOURCE_EXHAUSTED: the trace cannot be written.
Status mergeParts(const std::vector<std::string> &parts,
                  const std::string &runId, const std::string &path,
                  MergeResult *result);

/// Writes one part, which may still be recording, as a separate trace: at most
/// `mostEvents` of each thread.
Status writePart(const RankRecording &part, uint64_t mostEvents,
                 const std::string &path);

} // namespace ddphook::trace
