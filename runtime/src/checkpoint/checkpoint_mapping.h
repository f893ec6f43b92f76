//===- checkpoint_mapping.h - which saved bytes go where --------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Maps the states of a checkpoint to those of a module. States have pieces, one
// for a gradient or for several together; a piece is found by its role and its
// gradients, in whatever state it lies. Counters and generators are copied
// whole to whatever shares them. Pure arithmetic: files are read elsewhere.
//
//===----------------------------------------------------------------------===//
#ifndef DDPHOOK_RUNTIME_SRC_CHECKPOINT_CHECKPOINT_MAPPING_H
#define DDPHOOK_RUNTIME_SRC_CHECKPOINT_CHECKPOINT_MAPPING_H

#include "plan/plan.h"

#include <functional>
#include <map>
#include <optional>

namespace ddphook {

/// A run of bytes of a saved state.
struct SavedRun {
  int64_t bytes = 0;
  /// The module's state to which they belong; none if they are not needed.
  std::optional<size_t> state;
  int64_t offset = 0; // in that state
};

/// A saved state that a module's counter or generator is a copy of.
struct SharedSource {
  size_t saved = 0;
  std::string gradient; // one that has it
};

struct CheckpointMapping {
  /// For each saved state all of its bytes, in order.
  std::vector<std::vector<SavedRun>> runs;
  /// For states that gradients share: all that the values could come from. They
  /// have to be equal.
  std::map<size_t, std::vector<SharedSource>> shared;
  /// For each state of the module: whether a part of it, or all, was not saved.
  std::vector<bool> lacksPart;
  std::vector<bool> lacksAll;
  /// What the module lacks, and what it has no place for, in words.
  std::vector<std::string> missing;
  std::vector<std::string> dropped;
};

/// PLAN_MISMATCH, with what cannot be carried over, unless `isPartial`: then
/// that is left out.
Status mapStates(const std::vector<PlanState> &saved,
                 const std::vector<PlanState> &states, bool isPartial,
                 CheckpointMapping *mapping);

/// Gives the module's counters and generators the values that their gradients
/// had: `values` has those of saved states, by their numbers. PLAN_MISMATCH if
/// gradients that share one now had different ones.
Status placeShared(
    const CheckpointMapping &mapping, const std::vector<PlanState> &states,
    const std::map<size_t, std::vector<char>> &values,
    const std::function<void(size_t, const std::vector<char> &)> &place);

/// What mapStates() gives for the states of the module itself.
CheckpointMapping mapInPlace(const std::vector<PlanState> &states);

} // namespace ddphook

#endif // DDPHOOK_RUNTIME_SRC_CHECKPOINT_CHECKPOINT_MAPPING_H
