// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Values that no rank asks the store for. Rank 0's process takes them from its
// server, even when the job has failed and its own connection is gone.

#pragma once

#include "base/status.h"

#include <map>
#include <mutex>
#include <string>
#include <utility>

namespace ddphook {

/// Thread-safe.
class Mailbox {
public:
  /// The most bytes that all values together may have.
  static constexpr size_t mostBytes = size_t(256) << 20;

  /// Stores the value of `rank`, replacing an older one. RESOURCE_EXHAUSTED if
  /// it does not fit.
  Status put(int rank, std::string value) {
    std::lock_guard<std::mutex> lock(mutex);
    std::string &place = values[rank];
    bytes -= place.size();
    const bool fits = value.size() <= mostBytes - bytes;
    place = fits ? std::move(value) : std::string();
    bytes += place.size();
    return fits ? Status::ok()
                : error(DDPHOOK_RESOURCE_EXHAUSTED,
                        "rank 0 has no space for it");
  }

  /// Returns all values by rank and removes them.
  std::map<int, std::string> take() {
    std::lock_guard<std::mutex> lock(mutex);
    bytes = 0;
    return std::exchange(values, {});
  }

private:
  std::mutex mutex;
  std::map<int, std::string> values;
  size_t bytes = 0;
};

} // namespace ddphook
