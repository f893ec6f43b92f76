// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The loader tells, for every module, where the initial values of its
// thread-local variables are and where the calling thread has them.

#include "module_shared.h"

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <link.h>

using namespace emulated_cuda;

namespace {
struct Search {
  uintptr_t begin;
  /// The calling thread's copy of what is at `begin`.
  char *copy;
};
} // namespace

static int findModule(dl_phdr_info *info, size_t, void *data) {
  Search &search = *static_cast<Search *>(data);
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr) &segment = info->dlpi_phdr[i];
    uintptr_t address = info->dlpi_addr + segment.p_vaddr;
    if (segment.p_type != PT_TLS || search.begin < address ||
        search.begin >= address + segment.p_memsz)
      continue;
    // Null while this thread has not used any of the module's variables.
    if (info->dlpi_tls_data)
      search.copy =
          static_cast<char *>(info->dlpi_tls_data) + (search.begin - address);
    return 1;
  }
  return 0;
}

void emulated_cuda::poisonModuleShared(const char *begin, const char *end) {
  if (begin == end)
    return;
  // A thread's copies do not move.
  struct Known {
    const char *begin;
    char *copy;
  };
  static thread_local Known known = {nullptr, nullptr};
  if (known.begin != begin) {
    Search search = {reinterpret_cast<uintptr_t>(begin), nullptr};
    if (!dl_iterate_phdr(findModule, &search)) {
      std::fprintf(stderr, "emulated CUDA: no module holds the __shared__ "
                           "variables of a kernel\n");
      std::abort();
    }
    if (!search.copy)
      return;
    known = {begin, search.copy};
  }
  std::memset(known.copy, 0xff, static_cast<size_t>(end - begin));
}
