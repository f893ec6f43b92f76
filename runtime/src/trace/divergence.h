//===- divergence.h - which rank is elsewhere than the others ---*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// All ranks call the same collectives in the same order. When one waits in vain
// they tell each other how far they have come; the sentence that follows from
// that belongs to the error.
//
//===----------------------------------------------------------------------===//
#ifndef DDPHOOK_RUNTIME_SRC_TRACE_DIVERGENCE_H
#define DDPHOOK_RUNTIME_SRC_TRACE_DIVERGENCE_H

#include "trace/recorder.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ddphook::trace {

/// Where a rank is; numbers count from 1.
struct Whereabouts {
  uint64_t step = 0;
  /// Collectives that were called, begun and ended; begun later than called
  /// where a thread runs them.
  uint64_t called = 0, begun = 0, ended = 0;
  /// Of the collective that began last: "all_reduce b3".
  std::string begunName;
  CollectivePlace place;

  bool isInCollective() const { return begun > ended; }

  std::string encode() const;
  /// Nothing for a text that encode() did not write.
  static std::optional<Whereabouts> decode(std::string_view text);
};

/// Where the rank of `recorder` is; any thread.
Whereabouts findWhereabouts(const Recorder &recorder);

/// The sentence, without a period: which ranks of its process group have not
/// begun the first collective that others wait in, or do not answer, and who
/// waits in it; or else that ranks wait in different collectives. Ranks have
/// their numbers in the job. Empty where no rank waits, or none is elsewhere.
std::string
describeDivergence(const std::vector<std::optional<Whereabouts>> &ranks);

/// The sentence of a rank that has heard of none of the others, since rank 0,
/// through which they tell each other, does not answer; `own`: where it is.
std::string describeSilence(const std::optional<Whereabouts> &own, int rank);

} // namespace ddphook::trace

#endif // DDPHOOK_RUNTIME_SRC_TRACE_DIVERGENCE_H
