// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Checks arguments; checkpoint_save.cpp, checkpoint_load.cpp and
// checkpoint_copy.cpp do the work.

#include "c_api/c_api.h"

#include "checkpoint/checkpoint.h"

#include <algorithm>
#include <cstring>

using namespace ddphook;

ddphook_status_t ddphook_state_save(const ddphook_compiled_module_t *compiled,
                                    const char *pattern, uint32_t flags) {
  if (!compiled)
    return publishStatus(nullArgument("a module"));
  return publish(moduleOf(compiled), [&](ddphook_module &module) {
    return pattern ? saveStates(module, pattern, flags)
                   : nullArgument("a pattern of file names");
  });
}

/// Runs `body`, which fills an info, and copies that to the caller's.
template <typename Body>
static Status withInfo(ddphook_state_info_t *info, Body &&body) {
  if (info && info->struct_size < sizeof(size_t))
    return invalid("expected info.struct_size to be set, but got %zu",
                   info->struct_size);
  ddphook_state_info_t result = {};
  DDPHOOK_TRY(body(&result));
  if (info) {
    // A caller of another version has a shorter or a longer struct.
    const size_t size = info->struct_size;
    std::memset(info, 0, size);
    std::memcpy(info, &result, std::min(size, sizeof(result)));
    info->struct_size = size;
  }
  return Status::ok();
}

ddphook_status_t ddphook_state_load(const ddphook_compiled_module_t *compiled,
                                    const char *pattern, uint32_t flags,
                                    ddphook_state_info_t *info) {
  if (!compiled)
    return publishStatus(nullArgument("a module"));
  return publish(moduleOf(compiled), [&](ddphook_module &module) {
    if (!pattern)
      return nullArgument("a pattern of file names");
    return withInfo(info, [&](ddphook_state_info_t *result) {
      return loadStates(module, pattern, flags, result);
    });
  });
}

/// Finds the modules of a list.
static Status findModules(const ddphook_compiled_module_t *const *list,
                          size_t count, std::vector<ddphook_module *> *result) {
  if (!list && count > 0)
    return nullArgument("a list of modules");
  for (size_t i = 0; i < count; ++i) {
    if (!list[i])
      return nullArgument("a module");
    result->push_back(moduleOf(list[i]));
    if (!result->back())
      return notLoaded();
  }
  return Status::ok();
}

ddphook_status_t
ddphook_state_copy(const ddphook_compiled_module_t *const *from,
                   size_t fromCount, const ddphook_compiled_module_t *const *to,
                   size_t toCount, uint32_t flags, ddphook_state_info_t *info) {
  return publish([&] {
    std::vector<ddphook_module *> sources, destinations;
    DDPHOOK_TRY(findModules(from, fromCount, &sources));
    DDPHOOK_TRY(findModules(to, toCount, &destinations));
    if (destinations.empty())
      return invalid("expected a module to copy to, but got none");
    return destinations.front()->context.failIfThrown([&] {
      return withInfo(info, [&](ddphook_state_info_t *result) {
        return copyStates(sources, destinations, flags, result);
      });
    });
  });
}
