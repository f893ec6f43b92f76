// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Initial values of states, and access to their bytes, which may be in device
// memory. Random states are drawn in host memory and copied to the device once.

#include "module/module.h"

#include "base/floating_point.h"
#include "base/random.h"
#include "job/context.h"

#include <cstring>
#include <map>

using namespace ddphook;

Status ddphook::readState(const ddphook_module &module, size_t state,
                          int64_t offset, void *data, int64_t bytes) {
  if (bytes == 0)
    return Status::ok(); // memcpy() forbids null pointers even for 0 bytes
  const char *memory = module.states.get(state) + offset;
  if (module.states.isOnHost(state)) {
    std::memcpy(data, memory, bytes);
    return Status::ok();
  }
  return module.context.call(&ddphook_backend_t::memory_read, data, memory,
                             bytes);
}

Status ddphook::writeState(ddphook_module &module, size_t state, int64_t offset,
                           const void *data, int64_t bytes) {
  if (bytes == 0)
    return Status::ok();
  char *memory = module.states.get(state) + offset;
  if (module.states.isOnHost(state)) {
    std::memcpy(memory, data, bytes);
    return Status::ok();
  }
  return module.context.call(&ddphook_backend_t::memory_write, memory, data,
                             bytes);
}

Status ddphook::drawFirstValues(
    const Plan &plan, const std::function<Status(size_t, const void *)> &set) {
  DefaultFloatingPoint environment;
  std::map<size_t, std::vector<int32_t>> generators;
  for (size_t i = 0; i < plan.states.size(); ++i) {
    const PlanState &state = plan.states[i];
    if (state.init == StateInit::Mt19937) {
      std::vector<int32_t> &generator = generators[i];
      generator.resize(generatorElements);
      seedGenerator(state.seed, generator.data());
    } else if (state.init == StateInit::Normal) {
      std::vector<char> numbers(state.bytes);
      DDPHOOK_TRY(drawNormal(generators.at(*state.generator).data(),
                             state.draws.data(), state.draws.size(),
                             numbers.data(), *floatDtype(state.dtype)));
      if (!numbers.empty())
        DDPHOOK_TRY(set(i, numbers.data()));
    }
  }
  // Store the generators again, since numbers were drawn from them.
  for (const auto &[i, generator] : generators)
    DDPHOOK_TRY(set(i, generator.data()));
  return Status::ok();
}

Status ddphook::initialiseStates(ddphook_module &module) {
  return drawFirstValues(module.plan, [&](size_t i, const void *value) {
    return writeState(module, i, 0, value, module.plan.states[i].bytes);
  });
}
