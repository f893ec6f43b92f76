// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Modules whose arrays are in the device's memory, and their steps, for tests
// of jobs in which something fails.

#pragma once

#include "job/job_test_ranks.h"

#include <memory>
#include <string>

namespace ddphook::test {

/// A list of `groups` process groups of all ranks.
inline std::string groupsOf(int ranks, int groups) {
  std::string list;
  for (int i = 0; i < groups; ++i) {
    std::string one = groupOf(ranks);
    one = one.substr(1, one.size() - 2);
    if (i > 0)
      one.replace(one.find("dp"), 2, "dp" + std::to_string(i));
    list += (i > 0 ? "," : "") + one;
  }
  return "[" + list + "]";
}

/// A module that runs `collective` in each of `groups` groups of all ranks.
inline std::unique_ptr<TestModule>
deviceModule(int ranks, int groups, const TestCollective &collective) {
  Collectives collectives(static_cast<size_t>(groups), collective);
  for (int i = 0; i < groups; ++i)
    collectives[static_cast<size_t>(i)].group = i;
  auto module = std::make_unique<TestModule>(collectives, /*arenaBytes=*/0,
                                             groupsOf(ranks, groups));
  std::string plan = module->plan;
  const std::string memory = R"("memory":"host")";
  module->setPlan(
      plan.replace(plan.find(memory), memory.size(), R"("memory":"device")"));
  return module;
}

/// One step: the collective of each group, of an array in the device's memory.
inline std::string deviceStep(TestModule &module, int groups, const void *data,
                              void *result) {
  ddphook_status_t status = ddphook_rt_enter(module.handle, 0);
  if (status != DDPHOOK_OK)
    return show(status);
  for (int i = 0; i < groups; ++i)
    ddphook_rt_collective(module.handle, i, data, result, /*step=*/0);
  return show(ddphook_rt_leave(module.handle));
}

} // namespace ddphook::test
