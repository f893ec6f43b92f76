// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Writes parts as one file in the Trace Event Format, which Perfetto and
// chrome://tracing open. docs/tracing.md has the schema.

#pragma once

#include "files/atomic_file.h"
#include "trace/rank_recording.h"

#include <string>
#include <vector>

namespace ddphook::trace {

/// A trace's data on a rank besides its events.
struct RankSummary {
  PartIdentity identity;
  /// "closed", "failed", "running", "lost" or "missing".
  std::string state;
  /// The reason why it is not "closed", or empty; at `time` of rank 0's clock.
  std::string reason;
  int64_t time = 0;
  uint64_t events = 0, lost = 0;
};

/// The first and last times of a part on the clock of rank 0.
int64_t firstTime(const PartContents &part); ///< INT64_MAX: no event.
int64_t lastTime(const PartContents &part);  ///< Includes its failure.

/// One file, which is written in pieces and appears when it is complete.
class TraceWriter {
public:
  /// Times in the file are relative to `origin`, a time of rank 0's clock.
  TraceWriter(const std::string &path, int64_t origin)
      : file(path), origin(origin) {}

  Status begin();
  /// Adds the events of a rank; those without an end last until its last time.
  Status add(const PartContents &part, const RankSummary &summary);
  /// Adds the data of the run, with a summary of each of its ranks.
  Status finish(const std::string &runId, int worldSize,
                const std::vector<RankSummary> &summaries);

private:
  void beginEvent();
  void addMetadata(int32_t rank, int tid, const char *what,
                   const std::string &name);
  void addEvents(const PartContents &part, int lane, int64_t end);
  Status flush(size_t least = 0);

  AtomicFile file;
  const int64_t origin;
  std::string json;
  bool hasEvents = false;
};

} // namespace ddphook::trace
