// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// All ranks call the same collectives in the same order. If one waits in vain,
// they exchange how far they have come, and the error says so.

#pragma once

#include "trace/recorder.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ddphook::trace {

/// The progress of a rank; numbers count from 1.
struct Whereabouts {
  uint64_t step = 0;
  /// Collectives that were called, begun and ended; a collective begins later
  /// than it is called if a thread runs it.
  uint64_t called = 0, begun = 0, ended = 0;
  /// The name of the collective that began last: "all_reduce b3".
  std::string begunName;
  CollectivePlace place;

  bool isInCollective() const { return begun > ended; }

  std::string encode() const;
  /// Returns nullopt for a text that encode() did not write.
  static std::optional<Whereabouts> decode(std::string_view text);
};

/// Returns the progress of the rank of `recorder`; any thread may call it.
Whereabouts findWhereabouts(const Recorder &recorder);

/// Returns the sentence, without a period: which ranks of a process group have
/// not begun the first collective in which others wait, or do not answer, and
/// which ranks wait in it; or that ranks wait in different collectives. Uses
/// the job's rank numbers. Empty if no rank waits, or none lags.
std::string
describeDivergence(const std::vector<std::optional<Whereabouts>> &ranks);

/// Returns the sentence of a rank that has heard from no other rank because
/// rank 0, which forwards the exchange, does not answer; `own` is its progress.
std::string describeSilence(const std::optional<Whereabouts> &own, int rank);

} // namespace ddphook::trace
