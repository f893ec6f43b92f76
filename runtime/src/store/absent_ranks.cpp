// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "store/absent_ranks.h"

using namespace ddphook;

/// How many absent ranks a message names.
static constexpr size_t maxNamedRanks = 8;

Status ddphook::findAbsent(Store &store, int size,
                           const std::function<std::string(int)> &keyOf,
                           std::vector<int> *absent) {
  absent->clear();
  for (int rank = 0; rank < size; ++rank) {
    bool isPresent = false;
    DDPHOOK_TRY(store.exists(keyOf(rank), &isPresent));
    if (!isPresent)
      absent->push_back(rank);
  }
  return Status::ok();
}

std::string ddphook::listRanks(const std::vector<int> &ranks) {
  std::string names;
  for (size_t i = 0; i < ranks.size() && i < maxNamedRanks; ++i)
    names += (i == 0 ? "" : ", ") + std::to_string(ranks[i]);
  return ranks.size() > maxNamedRanks ? names + ", …" : names;
}

std::string ddphook::nameRanks(const std::vector<int> &ranks) {
  return (ranks.size() == 1 ? "rank " : "ranks ") + listRanks(ranks);
}

std::string ddphook::describeWait(int rank, const std::vector<int> &absent,
                                  int size) {
  const std::string whom = !absent.empty() ? nameRanks(absent)
                           : rank == 0     ? "the others"
                                           : "rank 0";
  return "rank " + std::to_string(rank) + " is waiting for " + whom + " of " +
         std::to_string(size);
}
