// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A loaded module's process groups on this rank, and the translation of their
// collectives for a backend: a hierarchical all-reduce becomes several
// collectives, so that backends need not know nodes (docs/hierarchy.md).

#pragma once

#include "base/collective.h"
#include "base/status.h"
#include "ddphook/runtime/backend.h"
#include "job/process_groups.h"
#include "module/module_memory.h"

#include <map>
#include <string>
#include <vector>

namespace ddphook {

class Context;
struct Plan;
struct PlanCollective;
struct PlanAssignment;

/// The largest numbers of bytes of a group's collectives, as in
/// ddphook_communicator_config_t.
struct WireBytes {
  uint64_t onWire = 0, encoded = 0, gathered = 0;

  void include(const PlanCollective &collective, int64_t ranks);
};

/// A communicator of the backend; the destructor leaves it.
class Communicator {
public:
  Communicator() = default;
  ~Communicator();
  Communicator(const Communicator &) = delete;
  Communicator &operator=(const Communicator &) = delete;

  /// Joins these ranks; collective. Messages call the group `what`. No other
  /// communicator of the job may have this `key` on one of the ranks.
  Status join(Context &newContext, const GroupMembers &members,
              const std::string &what, const std::string &key,
              const WireBytes &most);
  ddphook_communicator_t *get() const { return communicator; }
  /// The number of its ranks, once joined.
  int64_t size() const { return ranks; }

private:
  Context *context = nullptr;
  ddphook_communicator_t *communicator = nullptr;
  int64_t ranks = 0;
};

/// One of the backend's collectives that make up a collective of a module.
struct CollectiveStage {
  CollectiveKind kind;
  /// The bytes that this rank puts on the wire.
  int64_t wireBytes;
};

/// The parts of an array that are assigned to each position in a node.
struct AssignedParts {
  /// Each position's parts; adjacent ones are merged.
  std::vector<std::vector<ElementRange>> ofPositions;
  /// The elements of the parts of the position with the most.
  int64_t most = 0;
  /// The end of each position's parts, if those of all are contiguous.
  std::vector<int64_t> ends;

  AssignedParts(const Plan &plan, const PlanAssignment &assignment,
                int64_t ranks);
  int64_t countOf(int64_t position) const;
};

/// A process group of a module on this rank.
class ModuleGroup {
public:
  explicit ModuleGroup(GroupMembers members) : members(std::move(members)) {}

  int64_t size() const { return static_cast<int64_t>(members.ranks.size()); }

  /// The ranks' numbers in the job.
  const std::vector<int> &ranks() const { return members.ranks; }

  /// This rank's number among them.
  int32_t rank() const { return members.index; }

  /// The number of ranks of a hierarchical group on this node, and this rank's
  /// position among them; for the ranks of a node, the same.
  int64_t nodeRanks() const { return inNode().ranks.size(); }
  int64_t nodePosition() const { return inNode().index; }

  /// Joins the ranks with which this one reduces, for the collectives of `plan`
  /// over group `number`; collective.
  Status connect(Context &context, const Plan &plan, size_t number,
                 const std::string &prefix);

  /// Returns the backend's collectives that make up `operation`, collective
  /// number `number` of the plan. The group must be connected.
  std::vector<CollectiveStage>
  stagesOf(size_t number, const CollectiveOperation &operation) const;

  /// Runs a collective or starts it (`ticket`); ends at the first failure.
  Status run(Context &context, const CollectiveOperation &operation,
             const void *in, void *out, int64_t *ticket) const;

  /// Runs collective `number`, an all-reduce of parts assigned in a node.
  Status runAssigned(Context &context, size_t number,
                     const CollectiveOperation &operation, const void *in,
                     void *out) const;

private:
  const GroupMembers &inNode() const {
    return members.levels.empty() ? members : members.levels.front();
  }
  void prepareAssigned(const Plan &plan, size_t number, size_t collective,
                       uint64_t *inNode, uint64_t *acrossNodes,
                       int64_t *shareBytes);
  /// Does the same for assigned parts: `copyIn` copies this rank's parts of the
  /// array to a buffer, and `copyOut` those of a position from another buffer.
  template <typename CallT, typename CopyInT, typename CopyOutT>
  Status forEachAssignedStage(const AssignedParts &parts,
                              const CollectiveOperation &operation,
                              const void *in, void *out, const CallT &call,
                              const CopyInT &copyIn,
                              const CopyOutT &copyOut) const;

  /// True if the backend overlaps the stages of an all-reduce.
  bool isStaged(Context &context, const CollectiveOperation &operation) const;

  /// Calls `call` with each of the backend's collectives that make up
  /// `operation`: communicator, operation, operand, result. Ends at a failure.
  template <typename CallT>
  Status forEachStage(const CollectiveOperation &operation, const void *in,
                      void *out, const CallT &call) const;

  GroupMembers members;
  /// This rank's intermediate part of an array, for all-reduces of hierarchical
  /// groups. Collectives run one after another, so one buffer is enough.
  DeviceMemory share;
  /// The assigned parts of the plan's collectives over this group.
  std::map<size_t, AssignedParts> assigned;
  /// All ranks; not connected if only levels are used, or nothing is.
  Communicator all;
  /// The ranks of this node, and those of this position on all nodes.
  Communicator node, across;
};

} // namespace ddphook
