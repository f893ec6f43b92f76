// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Every rank computes all process groups from the plan and the nodes alone, so
// no messages are needed and all ranks get the same result.

#include "job/process_groups.h"

#include <algorithm>
#include <map>
#include <numeric>

using namespace ddphook;

/// Disjoint sets of ranks.
using RankSets = std::vector<std::vector<int>>;

/// Splits a set into the ranks of each node, as nodes first appear.
static RankSets splitByNode(const std::vector<int> &ranks,
                            const std::vector<NodeIdentity> &nodes) {
  std::map<std::string, size_t> numbers;
  RankSets sets;
  for (int rank : ranks) {
    auto [entry, isNew] = numbers.emplace(nodes[rank].node, sets.size());
    if (isNew)
      sets.emplace_back();
    sets[entry->second].push_back(rank);
  }
  return sets;
}

/// Finds the ranks of one set that have the same position on their nodes.
static Status splitAcrossNodes(const std::string &name,
                               const std::vector<int> &ranks,
                               const std::vector<NodeIdentity> &nodes,
                               RankSets *result) {
  RankSets byNode = splitByNode(ranks, nodes);
  size_t positions = byNode.front().size();
  for (const std::vector<int> &node : byNode)
    if (node.size() != positions)
      return invalid("process group '%s': expected equally many ranks on every "
                     "node, but got %zu (with rank %d) and %zu (with rank %d)",
                     name.c_str(), positions, byNode.front().front(),
                     node.size(), node.front());
  for (size_t position = 0; position < positions; ++position) {
    result->emplace_back();
    for (const std::vector<int> &node : byNode)
      result->back().push_back(node[position]);
  }
  return Status::ok();
}

static Status splitParent(const PlanProcessGroup &group, const RankSets &parent,
                          const std::vector<NodeIdentity> &nodes,
                          RankSets *result) {
  for (const std::vector<int> &ranks : parent) {
    switch (group.placement) {
    case GroupPlacement::Everyone:
      result->push_back(ranks);
      break;
    case GroupPlacement::IntraNode:
      for (std::vector<int> &set : splitByNode(ranks, nodes))
        result->push_back(std::move(set));
      break;
    case GroupPlacement::InterNode:
      DDPHOOK_TRY(splitAcrossNodes(group.name, ranks, nodes, result));
      break;
    }
  }
  return Status::ok();
}

/// Checks a listed partition against the job and against the parent's sets.
static Status checkListed(const PlanProcessGroup &group, const RankSets &parent,
                          int worldSize) {
  std::map<int, size_t> parentOf;
  for (size_t i = 0; i < parent.size(); ++i)
    for (int rank : parent[i])
      parentOf[rank] = i;
  size_t listed = 0;
  for (const std::vector<int> &set : group.ranks) {
    listed += set.size();
    for (int rank : set) {
      auto found = parentOf.find(rank);
      if (found == parentOf.end())
        return invalid(
            "process group '%s' has rank %d, but the job has only %d "
            "ranks",
            group.name.c_str(), rank, worldSize);
      if (found->second != parentOf[set.front()])
        return invalid(
            "process group '%s' has ranks %d and %d together, but its "
            "parent does not",
            group.name.c_str(), set.front(), rank);
    }
  }
  if (listed != static_cast<size_t>(worldSize))
    return invalid("process group '%s' lists %zu ranks, but the job has %d",
                   group.name.c_str(), listed, worldSize);
  return Status::ok();
}

static GroupMembers membersOf(int rank, const RankSets &sets,
                              const std::vector<NodeIdentity> &nodes) {
  GroupMembers members;
  for (const std::vector<int> &set : sets) {
    auto found = std::find(set.begin(), set.end(), rank);
    if (found == set.end())
      continue;
    members.ranks = set;
    members.index = static_cast<int>(found - set.begin());
    const std::string &mine = nodes[rank].memoryDomain;
    members.isOneMachine = std::all_of(set.begin(), set.end(), [&](int other) {
      return nodes[other].memoryDomain == mine;
    });
  }
  return members;
}

Status ddphook::resolveGroups(const Plan &plan, int rank,
                              const std::vector<NodeIdentity> &nodes,
                              std::vector<GroupMembers> *groups) {
  int worldSize = static_cast<int>(nodes.size());
  RankSets world(1, std::vector<int>(nodes.size()));
  std::iota(world.front().begin(), world.front().end(), 0);

  std::vector<RankSets> all;
  for (const PlanProcessGroup &group : plan.processGroups) {
    const RankSets &parent = group.parent ? all[*group.parent] : world;
    RankSets sets;
    if (!group.ranks.empty()) {
      DDPHOOK_TRY(checkListed(group, parent, worldSize));
      sets = group.ranks;
    } else {
      DDPHOOK_TRY(splitParent(group, parent, nodes, &sets));
    }
    // Check all sets, so that all ranks fail and not only those of one set.
    for (const std::vector<int> &set : sets)
      if (group.size != 0 && static_cast<int64_t>(set.size()) != group.size)
        return invalid(concat("process group '", group.name,
                              "' was compiled for ", group.size,
                              " ranks, but has ", set.size(), " in this job"));
    groups->push_back(membersOf(rank, sets, nodes));
    if (group.isHierarchical) {
      RankSets within, across;
      for (const std::vector<int> &set : sets) {
        for (std::vector<int> &node : splitByNode(set, nodes))
          within.push_back(std::move(node));
        DDPHOOK_TRY(splitAcrossNodes(group.name, set, nodes, &across));
      }
      groups->back().levels = {membersOf(rank, within, nodes),
                               membersOf(rank, across, nodes)};
    }
    all.push_back(std::move(sets));
  }
  return Status::ok();
}
