// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Describes one collective to the transports of the host backend. All
// transports produce the same bits: see docs/parity.md.

#pragma once

#include "base/collective.h"
#include "base/rounding.h"

namespace ddphook::host {

/// One collective; by default an all-reduce.
struct CollectiveDesc : CollectiveOperation {
  using CollectiveOperation::CollectiveOperation;
  /// Describes a collective over `ranks` ranks, which the caller has checked.
  CollectiveDesc(const ddphook_collective_t &operation, int ranks)
      : CollectiveOperation(operation) {
    if (rounding.is_stochastic)
      sumRounding = Rounding::ofSum(rounding.stream, rounding.step,
                                    rounding.share, ranks);
  }

  /// The random numbers for stochastic rounding of the sums; each rank's
  /// elements use numbers derived from them. nullopt: to nearest.
  std::optional<Rounding> sumRounding;
  /// Reduce-scatters and all-gathers of equal parts, without an encoding: the
  /// elements of each part to process, as far as the part has them; nullopt
  /// means all. Other elements are neither read nor written.
  std::optional<ElementRange> window;

  /// Returns how the elements of `rank` are rounded.
  std::optional<Rounding> roundingOf(int rank) const {
    return sumRounding ? std::optional(sumRounding->ofRank(rank))
                       : std::nullopt;
  }
  /// The number of elements of the longest part.
  int64_t longestPart(int ranks) const {
    return part_ends ? ddphook::longestPart(part_ends, ranks)
                     : partElements(count, ranks);
  }
  ElementRange partOf(int ranks, int rank) const {
    return part_ends ? ddphook::partOf(part_ends, rank)
                     : ddphook::partOf(count, ranks, rank);
  }
  /// Returns the window, or all elements of the longest part without one.
  ElementRange windowOf(int ranks) const {
    return window.value_or(ElementRange{0, longestPart(ranks)});
  }
  int64_t memoryBytes() const { return bytesOf(count); }
  int64_t wireBytes() const { return wireBytesOf(count); }
};

} // namespace ddphook::host
