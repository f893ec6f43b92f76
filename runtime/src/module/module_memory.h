// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The scratch arena and the states, at addresses that do not change.

#pragma once

#include "base/status.h"
#include "plan/plan.h"

#include <cstdlib>
#include <memory>
#include <vector>

namespace ddphook {
class Context;

class DeviceMemory {
public:
  DeviceMemory() = default;
  ~DeviceMemory();
  DeviceMemory(const DeviceMemory &) = delete;
  DeviceMemory &operator=(const DeviceMemory &) = delete;

  Status allocate(Context &context, const PlanArena &arena);
  char *get() const { return static_cast<char *>(memory); }

private:
  Context *context = nullptr;
  void *memory = nullptr;
  uint64_t bytes = 0;
};

/// Memory of a module's states, zeroed. Those of integer types are in host
/// memory, because compiled code branches on them; all others are the device's.
class StateMemory {
public:
  Status allocate(Context &context, const Plan &plan);
  char *get(size_t state) const { return places[state].address; }
  bool isOnHost(size_t state) const { return places[state].isOnHost; }

private:
  struct Free {
    void operator()(char *memory) const { std::free(memory); }
  };
  struct StateAddress {
    char *address;
    bool isOnHost;
  };

  Status allocateHost(const Plan &plan);

  /// The plan's arena. If this is host memory, it has all states.
  DeviceMemory device;
  /// The states that `device` does not have, contiguously.
  std::unique_ptr<char, Free> host;
  std::vector<StateAddress> places;
};

} // namespace ddphook
