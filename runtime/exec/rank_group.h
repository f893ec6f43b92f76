// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Starts one process per rank and monitors them until all have ended: no rank
// outlives its parent, none keeps the others waiting, and of many failures it
// finds the one that caused the others. The caller defines the work of a rank.

#pragma once

#include "summary.h"

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <sys/types.h>

namespace ddphook {

/// Returns "step 4" for step 3. Messages count from 1, like the records of
/// steps, which may be in the same line. File names and seeds count from 0.
std::string nameStep(int64_t step);

/// A rank's report to its parent, in shared memory.
class RankReport {
public:
  /// Must be called whenever the rank makes progress: before each step and
  /// after the last. A rank that is silent for too long is killed.
  void progress(int64_t step);

  enum class State : int32_t { Running, Done, Failed };

  std::atomic<State> state{State::Running};
  std::atomic<int64_t> step{-1}; ///< −1: before the first.
  std::atomic<int64_t> progressTime{0};
  /// Written before `state` becomes Done.
  RankFigures figures;
  /// The following members are written before `state` becomes Failed.
  ddphook_status_t code = DDPHOOK_OK;
  int64_t failureTime = 0;
  char message[2048] = {};
};

struct RankGroupOptions {
  int32_t ranks = 1;
  /// Seconds without progress after which a rank is considered hung.
  double stallSeconds = 330;
  /// Seconds that the other ranks have to end after one has failed.
  double graceSeconds = 1;
  /// Runs in a new child and returns the rank's status.
  std::function<Status(int32_t rank, RankReport &report)> body;
  /// Runs in the parent, several times a second while ranks run, with the last
  /// step that all of them have begun, or −1.
  std::function<void(int64_t step)> onProgress;
  /// Runs in the parent for every rank that did not finish, after it has ended.
  /// `step` is the last step that it began, or −1.
  std::function<void(int32_t rank, pid_t process, int64_t step)> cleanUp;
};

struct RankGroupResult {
  /// The first failure that is not explained by another one.
  Status status;
  /// The signal that made the parent end the group, or 0.
  int signal = 0;
  /// From rank 0, after success.
  RankFigures figures;
};

/// Runs the group until it ends. Children leave by _exit(): destructors of
/// static objects and atexit() functions run only in the parent. The calling
/// process must have a single thread.
RankGroupResult runRankGroup(const RankGroupOptions &options);

} // namespace ddphook
