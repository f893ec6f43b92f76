//===- rank_pool.h - ranks as processes that measure on command -*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A group of rank processes with all transports of the host backend. They wait
// for commands without using a processor, so that their measurements can
// alternate with others.
//
//===----------------------------------------------------------------------===//
#ifndef DDPHOOK_BENCH_RANK_POOL_H
#define DDPHOOK_BENCH_RANK_POOL_H

#include "base/status.h"
#include "collective_desc.h"
#include "measure.h"

#include <cstdint>
#include <memory>
#include <sys/types.h>
#include <vector>

namespace ddphook::bench {

enum class Wire { SharedMemory, Gloo };
const char *wireName(Wire wire);

class RankPool {
public:
  struct Command;

  struct Answer {
    /// Per repetition, of the slowest rank.
    std::vector<double> seconds;
    /// The checksum of the result on rank 0, after one run on fresh input.
    uint64_t checksum = 0;
    /// True if all ranks had those bits.
    bool ranksAgree = true;
    /// PowerSGD: fingerprints of the result and of rank 0's error.
    std::vector<double> values;
  };

  /// Starts `size` processes with buckets of up to `elements` f32, each bound
  /// to a processor.
  static Status start(int size, int64_t elements,
                      std::unique_ptr<RankPool> *pool);
  ~RankPool();

  int size() const { return static_cast<int>(ranks.size()); }

  /// Reduces the bucket, filled with the input, in place: once to check its
  /// bits and then `repetitions` times to measure. A description of a 16-bit
  /// type without wire reduces the input cast to that type.
  Status run(Wire wire, const host::CollectiveDesc &desc, Caches caches,
             int repetitions, Answer *answer);

  /// Runs a compressed step of PowerSGD on layers with as many elements as the
  /// pool was started with: once to check it and then `repetitions` times to
  /// measure. Every rank has a different gradient.
  Status runPowerSgd(Wire wire, int64_t rank, Caches caches, int repetitions,
                     Answer *answer);

private:
  struct Rank {
    pid_t pid;
    int toChild, fromChild;
  };

  RankPool() = default;
  Status ask(const Command &command, Answer *answer);

  std::vector<Rank> ranks;
};

} // namespace ddphook::bench

#endif // DDPHOOK_BENCH_RANK_POOL_H
