//===- bench_collective.cpp - collectives of allreduce and hooks ----------===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// See bench_collective.h.
//
//===----------------------------------------------------------------------===//
#include "bench_collective.h"

using namespace ddphook;
using namespace ddphook::bench;

static constexpr int kRepetitions = 5;
static constexpr Wire kWires[] = {Wire::SharedMemory, Wire::Gloo};

static Status verify(const CollectiveWork &work, RankPool &pool,
                     TorchProcess *torch, Report &report) {
  const std::string where =
      work.name + ", " + std::to_string(pool.size()) + " ranks: ";
  RankPool::Answer shm, gloo;
  DDPHOOK_RETURN_IF_ERROR(
      pool.run(Wire::SharedMemory, work.desc, Caches::Warm, 1, &shm));
  DDPHOOK_RETURN_IF_ERROR(
      pool.run(Wire::Gloo, work.desc, Caches::Warm, 1, &gloo));
  report.verified(where + "same bits on all ranks",
                  shm.ranksAgree && gloo.ranksAgree);
  report.verified(where + "shared memory against Gloo",
                  shm.checksum == gloo.checksum);
  if (work.expected)
    report.verified(where + "against scalar code",
                    shm.checksum == *work.expected);
  if (torch) {
    TorchAnswer answer;
    DDPHOOK_RETURN_IF_ERROR(
        torch->run(work.torchJob, work.torchKind, Caches::Warm, 1, &answer));
    report.verified(where + "against PyTorch", shm.checksum == answer.checksum);
  }
  return Status::ok();
}

Status bench::measureCollectives(const std::vector<CollectiveWork> &works,
                                 RankPool &pool, TorchProcess *torch,
                                 int rounds, const std::vector<Caches> &modes,
                                 Section &section, Report &report) {
  for (const CollectiveWork &work : works)
    DDPHOOK_RETURN_IF_ERROR(verify(work, pool, torch, report));

  for (Caches caches : modes)
    for (const CollectiveWork &work : works) {
      Samples ours[2], theirs;
      for (int round = 0; round < rounds; ++round) {
        for (Wire wire : kWires) {
          RankPool::Answer answer;
          DDPHOOK_RETURN_IF_ERROR(
              pool.run(wire, work.desc, caches, kRepetitions, &answer));
          ours[static_cast<int>(wire)].add(answer.seconds);
        }
        if (torch) {
          TorchAnswer answer;
          DDPHOOK_RETURN_IF_ERROR(torch->run(work.torchJob, work.torchKind,
                                             caches, kRepetitions, &answer));
          theirs.add(answer.seconds);
        }
      }
      const double gloo = ours[static_cast<int>(Wire::Gloo)].median();
      for (Wire wire : kWires) {
        Result &result = section.add(work.name + ", " + wireName(wire), caches,
                                     work.desc.memoryBytes());
        result.samples = ours[static_cast<int>(wire)];
        const double median = result.samples.median();
        if (wire == Wire::SharedMemory)
          result.speedups.emplace_back("Gloo", gloo / median);
        if (torch)
          result.speedups.emplace_back("PyTorch", theirs.median() / median);
      }
      if (torch) {
        Result &baseline = section.add("  PyTorch: " + work.name, caches,
                                       work.desc.memoryBytes());
        baseline.samples = theirs;
      }
    }
  return Status::ok();
}
