// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A hierarchical all-reduce of n elements on K nodes with L ranks each:
//
//  reduce_scatter   of L ranks    n elements, as they are in memory
//  all_reduce       of K ranks    a part, in the wire type
//  all_gather       of L ranks    the parts, as they are in memory
//
// A backend may overlap the three (isStaged()). An all-reduce of parts that are
// assigned to the ranks of a node begins with the second stage. Parts need not
// be adjacent, and positions need not have equally many elements, so they are
// copied together and padded to the longest. The first stage is then a separate
// all-reduce with assigned parts over the ranks of a node: a reduce-scatter of
// parts of unequal size.

#include "module/module_groups.h"

#include "base/floating_point.h"
#include "base/wait_scope.h"
#include "job/context.h"
#include "plan/plan.h"

#include <algorithm>

using namespace ddphook;

void WireBytes::include(const PlanCollective &collective, int64_t ranks) {
  const auto bytes = static_cast<uint64_t>(collective.wholeWireBytes(ranks));
  onWire = std::max(onWire, bytes);
  if (!collective.encoding)
    return;
  encoded = std::max(encoded, bytes);
  if (collective.isAffine())
    gathered = std::max(gathered, bytes * static_cast<uint64_t>(ranks));
}

Communicator::~Communicator() {
  if (communicator)
    context->backend().communicator_destroy(context->device(), communicator);
}

Status Communicator::join(Context &newContext, const GroupMembers &members,
                          const std::string &what, const std::string &key,
                          const WireBytes &most) {
  context = &newContext;
  ranks = static_cast<int64_t>(members.ranks.size());
  // The rank sets of a group are disjoint; their first ranks identify them.
  const std::string ownKey = concat(key, "/", members.ranks.front());
  const std::vector<int32_t> worldRanks(members.ranks.begin(),
                                        members.ranks.end());
  ddphook_communicator_config_t config = {};
  config.struct_size = sizeof(config);
  config.size = static_cast<int32_t>(worldRanks.size());
  config.rank = members.index;
  config.world_ranks = worldRanks.data();
  if (ranks < context->worldSize())
    config.name = what.c_str();
  config.one_machine = members.isOneMachine;
  config.max_wire_bytes = most.onWire;
  config.max_encoded_bytes = most.encoded;
  config.max_gathered_bytes = most.gathered;
  config.store = &context->storeTable();
  config.key = ownKey.c_str();
  const std::string proofKey = context->proofKey(ownKey);
  config.proof_key = reinterpret_cast<const unsigned char *>(proofKey.data());
  config.proof_key_size = proofKey.size();
  // For backends that report nothing themselves.
  WaitScope scope([&] {
    return concat("rank ", context->rank(), " is waiting for ", what,
                  " to connect");
  });
  Status status = context->call(&ddphook_backend_t::communicator_create,
                                &config, &communicator);
  return withContext(std::move(status), what);
}

AssignedParts::AssignedParts(const Plan &plan, const PlanAssignment &assignment,
                             int64_t ranks)
    : ofPositions(static_cast<size_t>(ranks)) {
  const std::vector<int64_t> positions = plan.assignMembers(assignment, ranks);
  int64_t begin = 0;
  for (const PlanAssignment::Part &part : assignment.parts) {
    const int64_t end = begin + part.count;
    std::vector<ElementRange> &ranges = ofPositions[positions[part.member]];
    if (!ranges.empty() && ranges.back().end == begin)
      ranges.back().end = end;
    else if (part.count > 0)
      ranges.push_back({begin, end});
    begin = end;
  }
  int64_t reached = 0;
  for (int64_t position = 0; position < ranks; ++position) {
    most = std::max(most, countOf(position));
    ends.push_back(reached += countOf(position));
  }
}

int64_t AssignedParts::countOf(int64_t position) const {
  int64_t count = 0;
  for (const ElementRange &range : ofPositions[position])
    count += range.size();
  return count;
}

/// Memory of a position's parts starts at a cache line.
static constexpr int64_t shareAlignment = 64;

static int64_t roundToShare(int64_t bytes) {
  return (bytes + shareAlignment - 1) / shareAlignment * shareAlignment;
}

/// Prepares the parts of an assigned collective, and its needs of this group.
void ModuleGroup::prepareAssigned(const Plan &plan, size_t number,
                                  size_t collective, uint64_t *inNode,
                                  uint64_t *acrossNodes, int64_t *shareBytes) {
  const PlanCollective &one = plan.collectives[collective];
  if (one.group != number || !one.assignment)
    return;
  const AssignedParts &parts =
      assigned.try_emplace(collective, plan, *one.assignment, nodeRanks())
          .first->second;
  const int64_t bytes = one.bytesOf(parts.most);
  *inNode = std::max(*inNode, static_cast<uint64_t>(nodeRanks() * bytes));
  *acrossNodes = std::max(*acrossNodes, static_cast<uint64_t>(bytes));
  *shareBytes =
      std::max(*shareBytes, roundToShare(bytes) + nodeRanks() * bytes);
}

Status ModuleGroup::connect(Context &context, const Plan &plan, size_t number,
                            const std::string &prefix) {
  const PlanProcessGroup &group = plan.processGroups[number];
  const std::string key = prefix + std::to_string(number);
  WireBytes most, mostInNode, mostAcross;
  int64_t shareBytes = 0;
  bool usesAll = false, usesLevels = false;
  for (size_t i = 0; i < plan.collectives.size(); ++i)
    prepareAssigned(plan, number, i, &mostInNode.onWire, &mostAcross.onWire,
                    &shareBytes);
  if (!group.isHierarchical)
    most = mostInNode;
  for (const PlanCollective &collective : plan.collectives) {
    if (collective.group != number)
      continue;
    if (collective.assignment) {
      (group.isHierarchical ? usesLevels : usesAll) = true;
      continue;
    }
    if (!group.isHierarchical || !collective.is(CollectiveKind::AllReduce)) {
      usesAll = true;
      most.include(collective, size());
      continue;
    }
    usesLevels = true;
    const auto ranks = static_cast<int64_t>(members.levels[0].ranks.size());
    PlanCollective inNode = collective, across = collective;
    inNode.kind = DDPHOOK_REDUCE_SCATTER;
    inNode.wire_dtype = -1;
    inNode.encoding = 0;
    across.count = partElements(collective.count, ranks);
    mostInNode.include(inNode, ranks);
    // A staged reduction never has the whole part on the wire.
    if (!isStaged(context, collective))
      mostAcross.include(across, members.levels[1].ranks.size());
    shareBytes = std::max(shareBytes, across.bytesOf(across.count));
  }
  const std::string what = "process group '" + group.name + "'";
  if (usesAll)
    DDPHOOK_TRY(all.join(context, members, what, key, most));
  if (!usesLevels)
    return Status::ok();
  DDPHOOK_TRY(share.allocate(context, {shareBytes, shareAlignment}));
  DDPHOOK_TRY(node.join(context, members.levels[0], what + " within its node",
                        key + "/node", mostInNode));
  return across.join(context, members.levels[1], what + " across nodes",
                     key + "/across", mostAcross);
}

template <typename CallT>
Status ModuleGroup::forEachStage(const CollectiveOperation &operation,
                                 const void *in, void *out,
                                 const CallT &call) const {
  if (!across.get() || operation.kind != DDPHOOK_ALL_REDUCE)
    return call(all, operation, in, out);
  const GroupMembers &nodeMembers = members.levels[0];
  const auto ranks = static_cast<int64_t>(nodeMembers.ranks.size());
  if (ranks == 1)
    return call(across, operation, in, out);
  CollectiveOperation inNode = operation;
  inNode.wire_dtype = -1;
  inNode.encoding = 0;
  inNode.block = 0;
  inNode.rounding = {};
  inNode.error = nullptr;
  // Then no other node is left, and nothing to round.
  if (members.levels[1].ranks.size() == 1 && operation.wire_dtype < 0 &&
      operation.encoding == 0)
    return call(node, inNode, in, out);
  CollectiveOperation scatter = inNode, gather = inNode, reduce = operation;
  scatter.kind = DDPHOOK_REDUCE_SCATTER;
  gather.kind = DDPHOOK_ALL_GATHER;
  gather.divide = 0;
  const ElementRange part = partOf(operation.count, ranks, nodeMembers.index);
  reduce.count = part.size();
  reduce.rounding.share = nodeMembers.index;
  if (operation.error)
    reduce.error =
        static_cast<char *>(operation.error) + operation.bytesOf(part.begin);
  char *memory = share.get();
  DDPHOOK_TRY(call(node, scatter, in, memory));
  DDPHOOK_TRY(call(across, reduce, memory, memory));
  return call(node, gather, memory, out);
}

template <typename CallT, typename CopyInT, typename CopyOutT>
Status ModuleGroup::forEachAssignedStage(const AssignedParts &parts,
                                         const CollectiveOperation &operation,
                                         const void *in, void *out,
                                         const CallT &call,
                                         const CopyInT &copyIn,
                                         const CopyOutT &copyOut) const {
  const int64_t ranks = nodeRanks();
  if (members.levels.empty()) {
    CollectiveOperation scatter = operation;
    scatter.kind = DDPHOOK_REDUCE_SCATTER;
    scatter.part_ends = parts.ends.data();
    const int64_t begin = partOf(scatter.part_ends, nodePosition()).begin;
    return call(all, scatter, in,
                out ? static_cast<char *>(out) + operation.bytesOf(begin)
                    : nullptr);
  }
  // Parts that are assigned to a single rank need no gathering.
  if (ranks == 1)
    return call(across, operation, in, out);
  CollectiveOperation reduce = operation, gather = operation;
  reduce.count = parts.countOf(nodePosition());
  gather.kind = DDPHOOK_ALL_GATHER;
  gather.count = ranks * parts.most;
  if (gather.count == 0)
    return Status::ok();
  char *const own = share.get();
  const int64_t partBytes = operation.bytesOf(parts.most);
  char *const gathered = own + roundToShare(partBytes);
  DDPHOOK_TRY(copyIn(own));
  if (across.size() > 1 && reduce.count > 0)
    DDPHOOK_TRY(call(across, reduce, own, own));
  DDPHOOK_TRY(call(node, gather, own, gathered));
  for (int64_t position = 0; position < ranks; ++position)
    DDPHOOK_TRY(copyOut(position, gathered + position * partBytes));
  return Status::ok();
}

Status ModuleGroup::runAssigned(Context &context, size_t number,
                                const CollectiveOperation &operation,
                                const void *in, void *out) const {
  DefaultFloatingPoint environment;
  const AssignedParts &parts = assigned.at(number);
  const int64_t bytes = operation.bytesOf(1);
  auto forRanges = [&](int64_t position, const auto &copy) {
    int64_t place = 0;
    for (const ElementRange &range : parts.ofPositions[position]) {
      DDPHOOK_TRY(
          copy(range.begin * bytes, place * bytes, range.size() * bytes));
      place += range.size();
    }
    return Status::ok();
  };
  auto copyIn = [&](char *own) {
    return forRanges(nodePosition(), [&](int64_t at, int64_t to, int64_t size) {
      return context.call(&ddphook_backend_t::copy,
                          static_cast<const char *>(in) + at, own + to, size);
    });
  };
  auto copyOut = [&](int64_t position, const char *from) {
    return forRanges(position, [&](int64_t to, int64_t at, int64_t size) {
      return context.call(&ddphook_backend_t::copy, from + at,
                          static_cast<char *>(out) + to, size);
    });
  };
  return forEachAssignedStage(
      parts, operation, in, out,
      [&](const Communicator &ranks, const CollectiveOperation &stage,
          const void *from, void *to) {
        return context.call(&ddphook_backend_t::collective, ranks.get(), &stage,
                            from, to, /*ticket=*/nullptr);
      },
      copyIn, copyOut);
}

/// The size from which on overlapping is worthwhile.
static constexpr int64_t leastStagedBytes = 1 << 20;

bool ModuleGroup::isStaged(Context &context,
                           const CollectiveOperation &operation) const {
  return context.backend().collective_staged && !members.levels.empty() &&
         operation.is(CollectiveKind::AllReduce) && nodeRanks() > 1 &&
         members.levels[1].ranks.size() > 1 && !operation.isAffine() &&
         operation.bytesOf(partElements(operation.count, nodeRanks())) >=
             leastStagedBytes;
}

std::vector<CollectiveStage>
ModuleGroup::stagesOf(size_t number,
                      const CollectiveOperation &operation) const {
  std::vector<CollectiveStage> stages;
  auto describe = [&](const Communicator &ranks,
                      const CollectiveOperation &stage, const void *, void *) {
    const CollectiveKind kind = stage.collectiveKind();
    stages.push_back({kind, stage.wireBytesOf(inputElements(kind, stage.count,
                                                            ranks.size()))});
    return Status::ok();
  };
  if (const auto parts = assigned.find(number); parts != assigned.end())
    forEachAssignedStage(
        parts->second, operation, nullptr, nullptr, describe,
        [](char *) { return Status::ok(); },
        [](int64_t, const char *) { return Status::ok(); })
        .ignore();
  else
    forEachStage(operation, nullptr, nullptr, describe).ignore();
  return stages;
}

Status ModuleGroup::run(Context &context, const CollectiveOperation &operation,
                        const void *in, void *out, int64_t *ticket) const {
  DefaultFloatingPoint environment;
  if (isStaged(context, operation))
    return context.call(&ddphook_backend_t::collective_staged, node.get(),
                        across.get(), &operation, in, out, share.get(), ticket);
  // They run in this order, so the last one's ticket covers all.
  return forEachStage(
      operation, in, out,
      [&](const Communicator &ranks, const CollectiveOperation &stage,
          const void *from, void *to) {
        return context.call(&ddphook_backend_t::collective, ranks.get(), &stage,
                            from, to, ticket);
      });
}
