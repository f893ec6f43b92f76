// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// An all-gather of a few bytes per rank, for barriers, the comparison of plans
// and the exchange of machine identities, which takes a handful of messages per
// rank; and a broadcast in parts. Neither is for bulk data.

#pragma once

#include "store/store.h"

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace ddphook {

/// One rank's side of exchanges that all ranks make in the same order.
class StoreCollectives {
public:
  /// `prefix` separates its keys from those of others. With `tellsWaits` this
  /// rank logs for whom it waits.
  StoreCollectives(Store &store, std::string prefix, int rank, int size,
                   bool tellsWaits = false)
      : store(store), prefix(std::move(prefix)), rank(rank), size(size),
        tellsWaits(tellsWaits) {}

  /// Collective: sends `mine`, and receives the bytes of all ranks in rank
  /// order. `what` names the exchange. If ranks make different ones, they fail
  /// with FAILED_PRECONDITION, which names both. DEADLINE_EXCEEDED names the
  /// ranks that did not take part.
  Status allGather(const std::string &what, const std::string &mine,
                   const Deadline &deadline, std::vector<std::string> *all);

  Status barrier(const std::string &what, const Deadline &deadline);

  /// Collective: sends data from rank `root` to all others. Every wait is for
  /// one or two parts and has its own deadline after `seconds`, so a slow link
  /// makes a broadcast slow but does not make it fail. Returns OK if all ranks
  /// have all bytes.
  Status broadcast(char *data, size_t bytes, int root, double seconds);

private:
  Status gather(const std::string &what, const std::string &mine,
                const Deadline &deadline, std::string *packed);
  Status nameAbsent(const std::string &what, double seconds);
  /// Returns the ranks whose key does not exist, as far as the store answers.
  std::vector<int> absent(const std::function<std::string(int)> &key);
  std::string keyOf(int other) const {
    return concat(baseKey(number), "/", other);
  }
  std::string baseKey(int64_t number) const {
    return prefix + std::to_string(number);
  }
  void eraseOld();

  std::string partKey(size_t part) const {
    return concat("broadcast/", broadcasts, "/", part);
  }
  /// Returns the key by which a rank acknowledges a part.
  std::string receiptOf(size_t part, int other) const {
    return concat(partKey(part), "/", other);
  }
  Status sendParts(const char *data, size_t bytes, double seconds);
  Status awaitReceipts(size_t part, double seconds);
  Status receivePart(size_t part, char *data, size_t bytes, int root,
                     double seconds);

  Store &store;
  const std::string prefix;
  const int rank;
  const int size;
  const bool tellsWaits;
  int64_t number = 0;
  int64_t broadcasts = 0; ///< The number of broadcasts so far.
};

} // namespace ddphook
