//===- module_groups.cpp - process groups of a module ---------------------===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A hierarchical all-reduce of n elements on K nodes with L ranks each:
//
//   reduce_scatter   of L ranks    n elements, as they are in memory
//   all_reduce       of K ranks    a share, in the wire type
//   all_gather       of L ranks    the shares, as they are in memory
//
//===----------------------------------------------------------------------===//
#include "module/module_groups.h"

#include "base/floating_point.h"
#include "base/wait_scope.h"
#include "job/context.h"
#include "plan/plan.h"

#include <algorithm>

using namespace ddphook;

Communicator::~Communicator() {
  if (communicator)
    context->backend().communicator_destroy(context->device(), communicator);
}

Status Communicator::join(Context &newContext, const GroupMembers &members,
                          const std::string &what, const std::string &key,
                          uint64_t maxWireBytes, uint64_t maxEncodedBytes) {
  context = &newContext;
  ranks = static_cast<int64_t>(members.ranks.size());
  // The sets of one group are apart; their first ranks tell them apart.
  const std::string ownKey = key + "/" + std::to_string(members.ranks.front());
  const std::vector<int32_t> worldRanks(members.ranks.begin(),
                                        members.ranks.end());
  ddphook_communicator_config_t config = {};
  config.struct_size = sizeof(config);
  config.size = static_cast<int32_t>(worldRanks.size());
  config.rank = members.index;
  config.world_ranks = worldRanks.data();
  config.one_machine = members.isOneMachine;
  config.max_wire_bytes = maxWireBytes;
  config.max_encoded_bytes = maxEncodedBytes;
  config.store = &context->storeTable();
  config.key = ownKey.c_str();
  const std::string proofKey = context->proofKey(ownKey);
  config.proof_key = reinterpret_cast<const unsigned char *>(proofKey.data());
  config.proof_key_size = proofKey.size();
  // For backends that say nothing themselves.
  WaitScope scope([&] {
    return "rank " + std::to_string(context->rank()) + " is waiting for " +
           what + " to connect";
  });
  Status status = context->call(&ddphook_backend_t::communicator_create,
                                &config, &communicator);
  return withContext(std::move(status), what);
}

Status ModuleGroup::connect(Context &context, const Plan &plan, size_t number,
                            const std::string &prefix) {
  const PlanProcessGroup &group = plan.processGroups[number];
  const std::string key = prefix + std::to_string(number);
  uint64_t largest = 0, largestInNode = 0, largestAcross = 0;
  int64_t shareBytes = 0;
  bool usesAll = false, usesLevels = false, hasCodes = false;
  for (const PlanCollective &collective : plan.collectives) {
    if (collective.group != number)
      continue;
    hasCodes |= collective.encoding.has_value();
    auto grow = [](uint64_t &bytes, const PlanCollective &by, int64_t ranks) {
      bytes = std::max(bytes, static_cast<uint64_t>(by.wholeWireBytes(ranks)));
    };
    if (!group.isHierarchical || collective.kind != CollectiveKind::AllReduce) {
      usesAll = true;
      grow(largest, collective, size());
      continue;
    }
    usesLevels = true;
    const auto ranks = static_cast<int64_t>(members.levels[0].ranks.size());
    PlanCollective inNode = collective, across = collective;
    inNode.kind = CollectiveKind::ReduceScatter;
    inNode.wireDtype.reset();
    inNode.encoding.reset();
    across.count = partElements(collective.count, ranks);
    grow(largestInNode, inNode, ranks);
    grow(largestAcross, across,
         static_cast<int64_t>(members.levels[1].ranks.size()));
    shareBytes =
        std::max(shareBytes, across.count * dtypeSize(collective.dtype));
  }
  const std::string what = "process group '" + group.name + "'";
  if (usesAll)
    DDPHOOK_RETURN_IF_ERROR(
        all.join(context, members, what, key, largest, hasCodes ? largest : 0));
  if (!usesLevels)
    return Status::ok();
  // A cache line.
  constexpr int64_t alignment = 64;
  DDPHOOK_RETURN_IF_ERROR(share.allocate(context, {shareBytes, alignment}));
  DDPHOOK_RETURN_IF_ERROR(node.join(context, members.levels[0],
                                    what + " within its node", key + "/node",
                                    largestInNode, /*maxEncodedBytes=*/0));
  return across.join(context, members.levels[1], what + " across nodes",
                     key + "/across", largestAcross,
                     hasCodes ? largestAcross : 0);
}

template <typename CallT>
Status ModuleGroup::forEachStage(const ddphook_collective_t &operation,
                                 const void *in, void *out,
                                 const CallT &call) const {
  if (!across.get() || operation.kind != DDPHOOK_ALL_REDUCE)
    return call(all, operation, in, out);
  const GroupMembers &nodeMembers = members.levels[0];
  const auto ranks = static_cast<int64_t>(nodeMembers.ranks.size());
  if (ranks == 1)
    return call(across, operation, in, out);
  ddphook_collective_t inNode = operation;
  inNode.wire_dtype = -1;
  inNode.encoding = 0;
  inNode.block = 0;
  inNode.rounding = {};
  inNode.error = nullptr;
  // Then nobody is left, and nothing to round.
  if (members.levels[1].ranks.size() == 1 && operation.wire_dtype < 0 &&
      operation.encoding == 0)
    return call(node, inNode, in, out);
  ddphook_collective_t scatter = inNode, gather = inNode, reduce = operation;
  scatter.kind = DDPHOOK_REDUCE_SCATTER;
  gather.kind = DDPHOOK_ALL_GATHER;
  gather.divide = 0;
  const ElementRange part = partOf(operation.count, ranks, nodeMembers.index);
  reduce.count = part.size();
  reduce.rounding.share = nodeMembers.index;
  if (operation.error)
    reduce.error = static_cast<char *>(operation.error) +
                   part.begin * dtypeSize(static_cast<Dtype>(operation.dtype));
  char *memory = share.get();
  DDPHOOK_RETURN_IF_ERROR(call(node, scatter, in, memory));
  DDPHOOK_RETURN_IF_ERROR(call(across, reduce, memory, memory));
  return call(node, gather, memory, out);
}

std::vector<CollectiveStage>
ModuleGroup::stagesOf(const ddphook_collective_t &operation) const {
  std::vector<CollectiveStage> stages;
  forEachStage(
      operation, nullptr, nullptr,
      [&](const Communicator &ranks, const ddphook_collective_t &stage,
          const void *, void *) {
        PlanCollective described;
        described.kind = *collectiveKindFromAbi(stage.kind);
        described.count = stage.count;
        described.dtype = static_cast<Dtype>(stage.dtype);
        described.wireDtype = dtypeFromAbi(stage.wire_dtype);
        described.encoding = encodingFromAbi(stage.encoding, stage.block);
        stages.push_back({described.kind, described.wireBytes(ranks.size())});
        return Status::ok();
      })
      .ignore();
  return stages;
}

Status ModuleGroup::run(Context &context, const ddphook_collective_t &operation,
                        const void *in, void *out) const {
  DefaultFloatingPoint environment;
  return forEachStage(operation, in, out,
                      [&](const Communicator &ranks,
                          const ddphook_collective_t &stage, const void *from,
                          void *to) {
                        return context.call(&ddphook_backend_t::collective,
                                            ranks.get(), &stage, from, to);
                      });
}

Status ModuleGroup::start(Context &context,
                          const ddphook_collective_t &operation, const void *in,
                          void *out, int64_t *ticket) const {
  DefaultFloatingPoint environment;
  // They run in this order: the last one's ticket is that of all.
  return forEachStage(
      operation, in, out,
      [&](const Communicator &ranks, const ddphook_collective_t &stage,
          const void *from, void *to) {
        return context.call(&ddphook_backend_t::collective_start, ranks.get(),
                            &stage, from, to, ticket);
      });
}
