//===- bench_collective.h - collectives of allreduce and hooks --*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Measures collectives alternately over several transports and in PyTorch.
//
//===----------------------------------------------------------------------===//
#ifndef DDPHOOK_BENCH_BENCH_COLLECTIVE_H
#define DDPHOOK_BENCH_BENCH_COLLECTIVE_H

#include "benches.h"
#include "rank_pool.h"

#include <optional>
#include <string>
#include <vector>

namespace ddphook::bench {

struct CollectiveWork {
  std::string name;
  host::CollectiveDesc desc;
  /// Checksum of the result if scalar code can compute it.
  std::optional<uint64_t> expected;
  /// The job and kind in torch_hooks.py.
  std::string torchJob, torchKind;
};

/// Verifies and measures every work over shared memory, over Gloo, and, when
/// `torch` is not null, in PyTorch; adds one line for each to `section`.
Status measureCollectives(const std::vector<CollectiveWork> &works,
                          RankPool &pool, TorchProcess *torch, int rounds,
                          const std::vector<Caches> &modes, Section &section,
                          Report &report);

} // namespace ddphook::bench

#endif // DDPHOOK_BENCH_BENCH_COLLECTIVE_H
