// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Checks of arguments that every backend makes. The runtime, too, checks
// collectives, when it has resolved the plan's groups.

#pragma once

#include "base/collective.h"
#include "base/status.h"
#include "ddphook/runtime/backend.h"

#include <limits>

namespace ddphook {

/// Checks that `ranks` ranks can run `operation`. INVALID_ARGUMENT for an
/// unknown kind, a negative count, one that is not a multiple of the ranks
/// where it must be, a root outside the group, or parts that do not fit the
/// array.
inline Status checkCollective(const ddphook_collective_t &operation,
                              int64_t ranks) {
  const std::optional<CollectiveKind> kind =
      collectiveKindFromAbi(operation.kind);
  if (!kind)
    return invalid("expected a kind of collective, but got %d", operation.kind);
  if (operation.count < 0)
    return invalid("expected a count of at least 0, but got %lld",
                   static_cast<long long>(operation.count));
  if (*kind == CollectiveKind::AllToAll && operation.count % ranks != 0)
    return invalid(
        "expected the element count of an all-to-all to be a multiple "
        "of %lld ranks, but got %lld",
        static_cast<long long>(ranks), static_cast<long long>(operation.count));
  if (*kind == CollectiveKind::Broadcast &&
      (operation.root < 0 || operation.root >= ranks))
    return error(
        DDPHOOK_INVALID_ARGUMENT,
        "expected the root of a broadcast to be one of %lld ranks, but got %d",
        static_cast<long long>(ranks), operation.root);
  if (!operation.part_ends)
    return Status::ok();
  if (*kind != CollectiveKind::ReduceScatter || operation.encoding)
    return invalid("expected part ends only for a reduce-scatter without an "
                   "encoding, but got kind %d with encoding %d",
                   operation.kind, operation.encoding);
  int64_t end = 0;
  for (int64_t rank = 0; rank < ranks; ++rank) {
    const int64_t next = operation.part_ends[rank];
    const bool isLast = rank + 1 == ranks;
    if (next < end || next > operation.count ||
        (isLast && next != operation.count))
      return invalid("expected consecutive parts that cover %lld elements, but "
                     "got a part from element %lld to %lld",
                     static_cast<long long>(operation.count),
                     static_cast<long long>(end), static_cast<long long>(next));
    end = next;
  }
  return Status::ok();
}

/// Checks the arguments of ddphook_rt_sparsify().
inline Status checkKept(int64_t keep, int64_t count) {
  if (keep <= count && count <= std::numeric_limits<int32_t>::max())
    return Status::ok();
  return error(
      DDPHOOK_INVALID_ARGUMENT,
      "expected to keep some of fewer than 2^31 elements, but got %lld of %lld",
      static_cast<long long>(keep), static_cast<long long>(count));
}

} // namespace ddphook
