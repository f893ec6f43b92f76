// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A checkpoint describes its states, so that modules with other buckets find
// the states of their gradients. The description is a JSON text in the metadata
// of ranks' files.

#pragma once

#include "plan/plan.h"

namespace ddphook {

/// Returns the description of states, in their order: name, type, shapes, role,
/// gradients, method, placement and seed.
std::string printStates(const std::vector<PlanState> &states);
/// Parses the result of printStates() and lays each state out after the ones
/// before it. The text comes from a file: DATA_LOSS if it is invalid.
Status parseStates(std::string_view text, std::vector<PlanState> *states);

/// Returns a hash that is equal for modules that keep the same states of the
/// same gradients, however these are put into buckets.
uint64_t hashProgram(const std::vector<PlanState> &states);

} // namespace ddphook
