// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Most jobs have a fault. Deadlines are short only where one has to pass.

#include "backends/cuda/cuda_random_trouble.h"

#include <iterator>
#include <random>

using namespace ddphook::test;

namespace {
struct Fault {
  const char *name;
  int most;
  const char *cause;
  double timeout;
};
} // namespace

static const Fault faults[] = {
    {"malloc", 20, "bytes of device memory", 300},
    {"host_malloc", 8, "pinned memory", 300},
    {"launch", 40, "cudaErrorLaunchOutOfResources", 300},
    {"kernel", 40, "illegal memory access", 300},
    {"memcpy", 40, "illegal memory access", 300},
    {"nccl_init", 12, "injected: initialization failed", 300},
    {"nccl_init_stall", 12, "DEADLINE_EXCEEDED", 2},
    {"nccl_launch", 40, "injected: launch failed", 300},
    {"nccl_async", 40, "PEER_LOST", 300},
    {"nccl_stall", 40, "DEADLINE_EXCEEDED", 2},
};

static const char lacksMemory[] =
    "RESOURCE_EXHAUSTED: expected the caller's allocator to return";

Trouble ddphook::test::makeTrouble(uint64_t seed, const RandomJob &job) {
  std::mt19937_64 random(seed);
  auto draw = [&](size_t below) {
    return static_cast<size_t>(random() % below);
  };
  Trouble trouble;
  const size_t kind = draw(11);
  trouble.step = draw(job.steps.size());
  trouble.options = draw(2) == 0 ? "blocking=1" : "blocking=0";
  trouble.isLent = kind == 10 || draw(2) == 0;
  if (kind < 6) {
    const Fault &fault = faults[draw(std::size(faults))];
    trouble.fault = std::string(fault.name) + ":" +
                    std::to_string(1 + draw(static_cast<size_t>(fault.most)));
    trouble.cause = fault.cause;
    trouble.timeout = fault.timeout;
    // Of CUDA's memory it is then the allocator that hears.
    if (trouble.isLent && trouble.fault.find("malloc:") == 0)
      trouble.cause = lacksMemory;
  } else if (kind == 6) {
    trouble.told = static_cast<int>(draw(static_cast<size_t>(job.ranks)));
    trouble.microseconds = static_cast<int>(draw(3000));
    trouble.cause = "PEER_LOST: rank 9 was lost";
  } else if (kind == 7) {
    trouble.late = static_cast<int>(draw(static_cast<size_t>(job.ranks)));
    trouble.cause = "DEADLINE_EXCEEDED";
    trouble.timeout = 2;
  } else if (kind == 10) {
    trouble.failAt = 1 + static_cast<int64_t>(draw(40));
    trouble.cause = lacksMemory;
  }
  return trouble;
}
