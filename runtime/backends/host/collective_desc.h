//===- collective_desc.h - description of one collective --------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Describes one collective to the transports of the host backend. All
// transports produce the same bits: see docs/parity.md.
//
//===----------------------------------------------------------------------===//
#ifndef DDPHOOK_RUNTIME_BACKENDS_HOST_COLLECTIVE_DESC_H
#define DDPHOOK_RUNTIME_BACKENDS_HOST_COLLECTIVE_DESC_H

#include "base/collective.h"
#include "base/dtype.h"
#include "base/encoding.h"
#include "base/rounding.h"
#include "ddphook/runtime/backend.h"

#include <cstdint>
#include <optional>

namespace ddphook::host {

/// One collective; by default an all-reduce.
struct CollectiveDesc {
  /// Number of elements in the whole array; may be 0.
  int64_t count = 0;
  /// Type of the elements in memory, before and after.
  Dtype dtype = Dtype::F32;
  /// Type in which elements are sent and added; nullopt means `dtype`.
  std::optional<Dtype> wire;
  /// Divide by the group's size, after the cast and before the addition.
  bool divide = false;
  /// All-reduces only: elements are sent as these codes, added in f32 and
  /// divided afterwards. There is no wire type then.
  std::optional<Encoding> encoding = std::nullopt;
  CollectiveKind kind = CollectiveKind::AllReduce;
  /// Broadcasts only: the rank whose elements are sent.
  int root = 0;
  /// Scaled codes only: the random numbers for stochastic rounding of the sums;
  /// each rank's elements use numbers derived from them. nullopt: to nearest.
  std::optional<Rounding> rounding = std::nullopt;
  /// Reduce-scatters without an encoding only: the end of each rank's part;
  /// null if parts have equal size. Not owned.
  const int64_t *partEnds = nullptr;
  /// Reduce-scatters and all-gathers of equal parts, without an encoding: the
  /// elements of each part to process, as far as the part has them; nullopt
  /// means all. Other elements are neither read nor written.
  std::optional<ElementRange> window = std::nullopt;

  /// Converts a collective over `ranks` ranks, which the caller has checked.
  static CollectiveDesc of(const ddphook_collective_t &operation, int ranks);

  Dtype wireType() const { return wire.value_or(dtype); }
  /// Returns how the elements of `rank` are rounded.
  std::optional<Rounding> roundingOf(int rank) const {
    return rounding ? std::optional(rounding->ofRank(rank)) : std::nullopt;
  }
  /// The number of elements of the longest part.
  int64_t longestPart(int ranks) const {
    return partEnds ? ddphook::longestPart(partEnds, ranks)
                    : partElements(count, ranks);
  }
  ElementRange partOf(int ranks, int rank) const {
    return partEnds ? ddphook::partOf(partEnds, rank)
                    : ddphook::partOf(count, ranks, rank);
  }
  /// Returns the window, or all elements of the longest part without one.
  ElementRange windowOf(int ranks) const {
    return window.value_or(ElementRange{0, longestPart(ranks)});
  }
  int64_t memoryBytes() const { return count * dtypeSize(dtype); }
  int64_t wireBytes() const {
    return encoding ? encoding->bytes(count) : count * dtypeSize(wireType());
  }
};

} // namespace ddphook::host

#endif // DDPHOOK_RUNTIME_BACKENDS_HOST_COLLECTIVE_DESC_H
