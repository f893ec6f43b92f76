// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "module/module_memory.h"

#include "job/context.h"

#include <cstring>

using namespace ddphook;

DeviceMemory::~DeviceMemory() {
  if (memory)
    context->backend().memory_free(context->device(), memory, bytes);
}

Status DeviceMemory::allocate(Context &newContext, const PlanArena &arena) {
  context = &newContext;
  bytes = static_cast<uint64_t>(arena.bytes);
  return context->call(&ddphook_backend_t::memory_alloc, bytes,
                       static_cast<uint64_t>(arena.alignment), &memory);
}

Status StateMemory::allocateHost(const Plan &plan) {
  // A cache line in bytes; a state's alignment in the plan is smaller.
  constexpr size_t unit = 64;
  auto rounded = [](const PlanState &state) {
    return (static_cast<size_t>(state.bytes) + unit - 1) / unit * unit;
  };
  size_t bytes = 0;
  for (size_t i = 0; i < places.size(); ++i)
    if (places[i].isOnHost)
      bytes += rounded(plan.states[i]);
  if (bytes == 0)
    return Status::ok();
  host.reset(static_cast<char *>(std::aligned_alloc(unit, bytes)));
  if (!host)
    return error(DDPHOOK_RESOURCE_EXHAUSTED,
                 "cannot allocate %zu bytes for states", bytes);
  std::memset(host.get(), 0, bytes);
  char *next = host.get();
  for (size_t i = 0; i < places.size(); ++i) {
    if (!places[i].isOnHost)
      continue;
    places[i].address = next;
    next += rounded(plan.states[i]);
  }
  return Status::ok();
}

Status StateMemory::allocate(Context &context, const Plan &plan) {
  DDPHOOK_TRY(device.allocate(context, plan.stateArena));
  const bool isDeviceOnHost = context.backend().memory_is_host;
  for (const PlanState &state : plan.states)
    places.push_back({device.get() + state.offset,
                      isDeviceOnHost || !floatDtype(state.dtype)});
  return isDeviceOnHost ? Status::ok() : allocateHost(plan);
}
