// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// An all-gather of a few bytes per rank, for barriers, the comparison of plans
// and the exchange of machine identities. It takes a handful of messages per
// rank and is not for bulk data.

#pragma once

#include "store/store.h"

#include <cstdint>
#include <string>
#include <vector>

namespace ddphook {

/// One rank's side of a sequence of exchanges. All ranks make the same calls in
/// the same order.
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

  /// Waits for all ranks.
  Status barrier(const std::string &what, const Deadline &deadline);

private:
  Status gather(const std::string &what, const std::string &mine,
                const Deadline &deadline, std::string *packed);
  Status nameAbsent(const std::string &what, double seconds);
  std::string keyOf(int other) const {
    return baseKey(number) + "/" + std::to_string(other);
  }
  std::string baseKey(int64_t number) const {
    return prefix + std::to_string(number);
  }
  void eraseOld();

  Store &store;
  const std::string prefix;
  const int rank;
  const int size;
  const bool tellsWaits;
  int64_t number = 0;
};

} // namespace ddphook
