//===- collective_desc.h - what one collective does -------------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The description of one collective that every transport of the host backend
// takes. All transports give the same bits: see docs/parity.md.
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

/// An all-reduce, unless it says otherwise.
struct CollectiveDesc {
  /// Elements of the whole array; 0 is legal.
  int64_t count = 0;
  /// Type of the elements in memory, before and after.
  Dtype dtype = Dtype::F32;
  /// Type in which elements travel and are added; nothing: `dtype`.
  std::optional<Dtype> wire;
  /// Divide by the group's size, after the cast and before the addition.
  bool divide = false;
  /// Of an all-reduce: elements travel as these codes, are added in f32 and
  /// divided afterwards; then there is no wire type.
  std::optional<Encoding> encoding = std::nullopt;
  CollectiveKind kind = CollectiveKind::AllReduce;
  /// Of a broadcast: whose elements they are.
  int root = 0;
  /// Of scaled codes: their sums are rounded stochastically by these numbers,
  /// and what ranks have by those beside them; nothing: to nearest.
  std::optional<Rounding> rounding = std::nullopt;
  /// Of a reduce-scatter without an encoding: where each rank's part ends;
  /// null: parts of equal size. Not owned.
  const int64_t *partEnds = nullptr;
  /// Of a reduce-scatter and of an all-gather of parts of equal size, without
  /// an encoding: the elements of each part that it is about, of those that are
  /// there; nothing: all. Others are neither read nor written.
  std::optional<ElementRange> window = std::nullopt;

  /// What a caller of the backend wants of a group of so many ranks; it was
  /// checked.
  static CollectiveDesc of(const ddphook_collective_t &operation, int ranks);

  Dtype wireType() const { return wire.value_or(dtype); }
  /// How a rank's own elements are rounded.
  std::optional<Rounding> roundingOf(int rank) const {
    return rounding ? std::optional(rounding->ofRank(rank)) : std::nullopt;
  }
  /// Elements of the longest part, and the part of a rank.
  int64_t longestPart(int ranks) const {
    return partEnds ? ddphook::longestPart(partEnds, ranks)
                    : partElements(count, ranks);
  }
  ElementRange partOf(int ranks, int rank) const {
    return partEnds ? ddphook::partOf(partEnds, rank)
                    : ddphook::partOf(count, ranks, rank);
  }
  /// Elements of such a window, as far as the longest part has them.
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
