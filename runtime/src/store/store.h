// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A small store that all ranks of a job share: through it they meet, compare
// plans and exchange addresses. It is the control connection, not a data path.

#pragma once

#include "base/deadline.h"
#include "base/status.h"

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <vector>

namespace ddphook {

/// Thread-safe.
class Store {
public:
  virtual ~Store() = default;

  /// Sets `key`, replacing an older value.
  virtual Status set(const std::string &key, const std::string &value) = 0;

  /// Waits until `key` exists and copies its value. DEADLINE_EXCEEDED if it
  /// does not arrive in time; PEER_LOST or ABORTED as soon as the store knows
  /// that a rank died or failed.
  virtual Status get(const std::string &key, const Deadline &deadline,
                     std::string *value) = 0;

  /// Checks whether `key` exists now, without waiting for it.
  virtual Status exists(const std::string &key, bool *result) {
    std::string value;
    Status status = get(key, Deadline::after(0), &value);
    *result = status.isOk();
    return status.code() == DDPHOOK_DEADLINE_EXCEEDED ? Status::ok() : status;
  }

  /// Adds `delta` to the counter `key`, initially 0, and returns its new value.
  /// get() returns a counter as decimal text.
  virtual Status add(const std::string &key, int64_t delta,
                     int64_t *result) = 0;

  /// Removes `key`, which need not exist.
  virtual Status erase(const std::string &key) = 0;
};

/// Adds `delta` to the counter `key`. `text` is its present value, or null.
/// INVALID_ARGUMENT if that is not a number or the sum overflows.
Status addToCounter(const std::string &key, const std::string *text,
                    int64_t delta, int64_t *sum);

/// A store for ranks that are threads of one process, and for a world of one.
class MemoryStore : public Store {
public:
  Status set(const std::string &key, const std::string &value) override;
  Status get(const std::string &key, const Deadline &deadline,
             std::string *value) override;
  Status add(const std::string &key, int64_t delta, int64_t *result) override;
  Status erase(const std::string &key) override;

  /// Fails all present and future waits with `failure`.
  void fail(Status failure);

private:
  std::mutex mutex;
  std::condition_variable changed;
  std::map<std::string, std::string> values;
  Status failure;
};

// For messages: the ranks for which the others wait.

/// Finds the ranks below `size` whose key, keyOf(rank), does not exist.
Status findAbsent(Store &store, int size,
                  const std::function<std::string(int)> &keyOf,
                  std::vector<int> *absent);

/// Returns the ranks as "1, 3, 4": at most eight, then "…".
std::string listRanks(const std::vector<int> &ranks);

/// Returns "rank 1" or "ranks 0, 2".
std::string nameRanks(const std::vector<int> &ranks);

/// Returns "rank 2 is waiting for ranks 1, 3 of 8". If nobody is absent, it
/// names rank 0, which has yet to notify the others.
std::string describeWait(int rank, const std::vector<int> &absent, int size);

} // namespace ddphook
