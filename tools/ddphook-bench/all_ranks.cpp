//===- all_ranks.cpp - the group of a job's ranks -------------------------===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// See all_ranks.h.
//
//===----------------------------------------------------------------------===//
#include "all_ranks.h"

#include "job/context.h"

#include <numeric>
#include <vector>

using namespace ddphook;

Status bench::joinAllRanks(Context &context, const std::string &key,
                           bool isOneMachine, int64_t maxBytes,
                           ddphook_communicator_t **group) {
  const std::string proofKey = context.proofKey(key);
  std::vector<int32_t> ranks(static_cast<size_t>(context.worldSize()));
  std::iota(ranks.begin(), ranks.end(), 0);
  ddphook_communicator_config_t config = {};
  config.struct_size = sizeof(config);
  config.size = context.worldSize();
  config.rank = context.rank();
  config.world_ranks = ranks.data();
  config.one_machine = isOneMachine;
  config.max_wire_bytes = static_cast<uint64_t>(maxBytes);
  config.store = &context.storeTable();
  config.key = key.c_str();
  config.proof_key = reinterpret_cast<const unsigned char *>(proofKey.data());
  config.proof_key_size = proofKey.size();
  return context.call(
      &ddphook_backend_t::communicator_create,
      static_cast<const ddphook_communicator_config_t *>(&config), group);
}
