//===- all_ranks.h - the group of a job's ranks -----------------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// For benchmarks that call a backend's collectives directly, without a module.
//
//===----------------------------------------------------------------------===//
#ifndef DDPHOOK_BENCH_ALL_RANKS_H
#define DDPHOOK_BENCH_ALL_RANKS_H

#include "base/status.h"
#include "ddphook/runtime/backend.h"

#include <cstdint>
#include <string>

namespace ddphook {
class Context;
} // namespace ddphook

namespace ddphook::bench {

/// Connects all ranks of a job; collective. Ranks of one machine may use shared
/// memory. No collective may send more than `maxBytes`. The caller destroys
/// `*group` before the context.
Status joinAllRanks(Context &context, const std::string &key, bool isOneMachine,
                    int64_t maxBytes, ddphook_communicator_t **group);

} // namespace ddphook::bench

#endif // DDPHOOK_BENCH_ALL_RANKS_H
