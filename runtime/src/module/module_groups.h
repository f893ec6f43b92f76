//===- module_groups.h - process groups of a module -------------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A loaded module's process groups on this rank, and how their collectives get
// to a backend: a hierarchical all-reduce is several collectives there, so that
// backends know nothing of nodes (docs/hierarchy.md).
//
//===----------------------------------------------------------------------===//
#ifndef DDPHOOK_RUNTIME_SRC_MODULE_MODULE_GROUPS_H
#define DDPHOOK_RUNTIME_SRC_MODULE_MODULE_GROUPS_H

#include "base/collective.h"
#include "base/status.h"
#include "ddphook/runtime/backend.h"
#include "job/process_groups.h"
#include "module/module_memory.h"

#include <map>
#include <memory>
#include <string>
#include <vector>

namespace ddphook {

class Context;
struct Plan;
struct PlanCollective;
struct PlanDeal;

/// The largest numbers of bytes that collectives of a group have, those of
/// ddphook_communicator_config_t.
struct WireBytes {
  uint64_t onWire = 0, encoded = 0, gathered = 0;

  /// Those of one more collective, among so many ranks.
  void include(const PlanCollective &collective, int64_t ranks);
};

/// A communicator of the backend; left when it goes.
class Communicator {
public:
  Communicator() = default;
  ~Communicator();
  Communicator(const Communicator &) = delete;
  Communicator &operator=(const Communicator &) = delete;

  /// Joins these ranks; collective. Messages call it `what`. No other
  /// communicator of the job has this `key` on one of the ranks.
  Status join(Context &newContext, const GroupMembers &members,
              const std::string &what, const std::string &key,
              const WireBytes &most);
  ddphook_communicator_t *get() const { return communicator; }
  /// Its ranks, once they are joined.
  int64_t size() const { return ranks; }

private:
  Context *context = nullptr;
  ddphook_communicator_t *communicator = nullptr;
  int64_t ranks = 0;
};

/// One of the backend's collectives that a collective of a module is.
struct CollectiveStage {
  CollectiveKind kind;
  /// What this rank puts on the wire.
  int64_t wireBytes;
};

/// Which parts of an array each position in a node is dealt.
struct DealtParts {
  /// Adjacent ones are one.
  std::vector<std::vector<ElementRange>> ofPositions;
  /// Elements of the longest position's parts.
  int64_t most = 0;
  /// Where each position's parts end, if those of all positions lie one behind
  /// the other.
  std::vector<int64_t> ends;

  DealtParts(const Plan &plan, const PlanDeal &deal, int64_t ranks);
  int64_t countOf(int64_t position) const;
};

/// A process group of a module on this rank.
class ModuleGroup {
public:
  explicit ModuleGroup(GroupMembers members) : members(std::move(members)) {}

  int64_t size() const { return static_cast<int64_t>(members.ranks.size()); }

  /// Their numbers in the job.
  const std::vector<int> &ranks() const { return members.ranks; }

  /// This rank's number among them.
  int32_t rank() const { return members.index; }

  /// Of a hierarchical group: the number of ranks on this node, and this rank's
  /// position among them; of the ranks of a node, the same.
  int64_t nodeRanks() const {
    return static_cast<int64_t>(inNode().ranks.size());
  }
  int64_t nodePosition() const { return inNode().index; }

  /// Joins the ranks with which it will reduce, for the collectives of `plan`
  /// over group `number`; collective.
  Status connect(Context &context, const Plan &plan, size_t number,
                 const std::string &prefix);

  /// What `operation`, collective number `number` of the plan, is over this
  /// group, once that is connected.
  std::vector<CollectiveStage>
  stagesOf(size_t number, const ddphook_collective_t &operation) const;

  /// Runs a collective, or starts one. The first failure ends both.
  Status run(Context &context, const ddphook_collective_t &operation,
             const void *in, void *out) const;
  Status start(Context &context, const ddphook_collective_t &operation,
               const void *in, void *out, int64_t *ticket) const;

  /// Runs collective number `number` of the plan, an all-reduce of parts that
  /// are dealt to the ranks of a node.
  Status runDealt(Context &context, size_t number,
                  const ddphook_collective_t &operation, const void *in,
                  void *out) const;

private:
  const GroupMembers &inNode() const {
    return members.levels.empty() ? members : members.levels.front();
  }
  void prepareDealt(const Plan &plan, size_t number, size_t collective,
                    uint64_t *inNode, uint64_t *acrossNodes,
                    int64_t *shareBytes);
  /// The same of a dealt one, of whose array `copyIn` takes this rank's parts
  /// to a place, and `copyOut` those of a position from another place.
  template <typename CallT, typename CopyInT, typename CopyOutT>
  Status forEachDealtStage(const DealtParts &parts,
                           const ddphook_collective_t &operation,
                           const void *in, void *out, const CallT &call,
                           const CopyInT &copyIn,
                           const CopyOutT &copyOut) const;

  /// Whether the backend overlaps the stages of an all-reduce.
  bool isStaged(Context &context, const ddphook_collective_t &operation) const;

  /// Calls `call` with each of the backend's collectives that `operation` is:
  /// communicator, operation, operand and result. Ends with the first failure.
  template <typename CallT>
  Status forEachStage(const ddphook_collective_t &operation, const void *in,
                      void *out, const CallT &call) const;

  GroupMembers members;
  /// Of a hierarchical group with all-reduces: what this rank has of an array
  /// meanwhile. Collectives run one after the other, so one share is enough.
  DeviceMemory share;
  /// The parts of the plan's collectives over this group that are dealt.
  std::map<size_t, DealtParts> dealt;
  /// All ranks; not connected where only levels are used, or nothing is.
  Communicator all;
  /// The ranks of this node, and those of this position on all nodes.
  Communicator node, across;
};

} // namespace ddphook

#endif // DDPHOOK_RUNTIME_SRC_MODULE_MODULE_GROUPS_H
