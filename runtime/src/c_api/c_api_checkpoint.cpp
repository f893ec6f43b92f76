//===- c_api_checkpoint.cpp - the checkpoint functions of runtime.h -------===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Checks arguments; the work is done in checkpoint_save.cpp and
// checkpoint_load.cpp.
//
//===----------------------------------------------------------------------===//
#include "c_api/c_api.h"

#include "checkpoint/checkpoint.h"

#include <algorithm>
#include <cstring>

using namespace ddphook;

ddphook_status_t ddphook_state_save(const ddphook_compiled_module_t *compiled,
                                    const char *pattern, uint32_t flags) {
  return publish([&] {
    if (!compiled)
      return nullArgument("a module");
    if (!pattern)
      return nullArgument("a pattern of file names");
    ddphook_module *module = moduleOf(compiled);
    return module ? saveStates(*module, pattern, flags) : notLoaded();
  });
}

ddphook_status_t ddphook_state_load(const ddphook_compiled_module_t *compiled,
                                    const char *pattern, uint32_t flags,
                                    ddphook_state_info_t *info) {
  return publish([&] {
    if (!compiled)
      return nullArgument("a module");
    if (!pattern)
      return nullArgument("a pattern of file names");
    if (info && info->struct_size < sizeof(size_t))
      return error(DDPHOOK_INVALID_ARGUMENT,
                   "expected info.struct_size to be set, but got %zu",
                   info->struct_size);
    ddphook_module *module = moduleOf(compiled);
    if (!module)
      return notLoaded();
    ddphook_state_info_t result = {};
    DDPHOOK_RETURN_IF_ERROR(loadStates(*module, pattern, flags, &result));
    if (info) {
      // A caller of another version has a shorter or a longer struct.
      const size_t size = info->struct_size;
      std::memset(info, 0, size);
      std::memcpy(info, &result, std::min(size, sizeof(result)));
      info->struct_size = size;
    }
    return Status::ok();
  });
}
