// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Maps the states of a checkpoint to those of a module. States have pieces,
// each for one or several gradients. A piece is identified by its role and
// gradients, whichever state contains it. Counters and generators are copied
// whole to every state that shares them. This is pure arithmetic;
// checkpoint_load.cpp reads the files.

#pragma once

#include "plan/plan.h"

#include <functional>
#include <map>
#include <optional>

namespace ddphook {

/// A run of bytes of a saved state.
struct SavedRun {
  int64_t bytes = 0;
  /// The module's state that takes them; not set if they are not needed.
  std::optional<size_t> state;
  int64_t offset = 0; // in that state
};

/// A saved state whose value a counter or generator of the module takes.
struct SharedSource {
  size_t saved = 0;
  std::string gradient; // a gradient that has it
};

struct CheckpointMapping {
  /// For each saved state, all of its bytes in order.
  std::vector<std::vector<SavedRun>> runs;
  /// For each shared state, the sources of its value, which must be equal.
  std::map<size_t, std::vector<SharedSource>> shared;
  /// For each state of the module, true if a part of it, or all, was not saved.
  std::vector<bool> lacksPart;
  std::vector<bool> lacksAll;
  /// Describe what the module lacks, and what it cannot take.
  std::vector<std::string> missing;
  std::vector<std::string> dropped;
};

/// Returns PLAN_MISMATCH, with the pieces that cannot be mapped. If
/// `isPartial`, omits those pieces instead.
Status mapStates(const std::vector<PlanState> &saved,
                 const std::vector<PlanState> &states, bool isPartial,
                 CheckpointMapping *mapping);

/// Sets the module's counters and generators to the values that their gradients
/// had. `values` has those of saved states by number. PLAN_MISMATCH if
/// gradients that now share a value had different ones.
Status placeShared(
    const CheckpointMapping &mapping, const std::vector<PlanState> &states,
    const std::map<size_t, std::vector<char>> &values,
    const std::function<void(size_t, const std::vector<char> &)> &place);

} // namespace ddphook
