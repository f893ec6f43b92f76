// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Resolves the plan's process groups to lists of this job's ranks. A group
// stands for disjoint sets of ranks; each rank works with its own.

#pragma once

#include "job/node.h"
#include "plan/plan.h"

#include <vector>

namespace ddphook {

/// This rank's set of one group.
struct GroupMembers {
  /// Ranks of the job, ascending unless the plan lists them otherwise.
  std::vector<int> ranks;
  /// This rank's index in `ranks`.
  int index = 0;
  bool isOneMachine = false;
  /// Two levels of a hierarchical group: the ranks on this rank's node, and the
  /// ranks with this rank's position on their nodes. Otherwise empty.
  std::vector<GroupMembers> levels;
};

/// Finds this rank's set of every group of `plan`, in its order. `nodes` has
/// one identity per rank of the job. INVALID_ARGUMENT if a group does not fit
/// the job: it has another size, lists ranks that do not exist, or is
/// hierarchical with different numbers of ranks on its nodes.
Status resolveGroups(const Plan &plan, int rank,
                     const std::vector<NodeIdentity> &nodes,
                     std::vector<GroupMembers> *groups);

} // namespace ddphook
