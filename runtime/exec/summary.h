// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The lines at the end of a successful run.

#pragma once

#include "planned_files.h"

#include "ddphook/runtime/runtime.h"

#include <chrono>

namespace ddphook {

/// A rank's figures of its run, in shared memory.
struct RankFigures {
  double medianSeconds = 0; ///< Time of one entry-point call.
  ddphook_stats_t stats = {};
};

class StepTimes {
public:
  template <typename Step>
  auto measure(const Step &step) {
    const auto start = std::chrono::steady_clock::now();
    auto result = step();
    add(std::chrono::duration<double>(std::chrono::steady_clock::now() - start)
            .count());
    return result;
  }
  void add(double seconds);
  /// Returns the median, of very many steps that of the last ones; 0 if none.
  double median() const;

private:
  std::vector<float> times;
  size_t next = 0;
};

struct Summary {
  const char *toolName;
  const RunOptions &options;
  const EntrySignature &signature;
  int32_t worldSize = 1;
  double seconds = 0;  ///< Time of the whole run.
  RankFigures figures; ///< From rank 0.
};

std::string describeRun(const Summary &summary);

} // namespace ddphook
