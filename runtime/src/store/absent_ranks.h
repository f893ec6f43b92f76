// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Finds the ranks for which the others wait, and names them in messages.

#pragma once

#include "store/store.h"

#include <functional>
#include <vector>

namespace ddphook {

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
