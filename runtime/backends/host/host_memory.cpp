// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Maps memory and touches it; otherwise the first step would spend about 10 ms
// per 25 MiB on page faults, in the middle of a collective.

#include "host_memory.h"

#include <algorithm>
#include <cerrno>
#include <sys/mman.h>
#include <sys/sysinfo.h>
#include <unistd.h>

using namespace ddphook;
using namespace ddphook::host;

static constexpr uint64_t hugePage = uint64_t(2) << 20;
/// From this size on, huge pages are worth the rounding.
static constexpr uint64_t hugePageThreshold = uint64_t(4) << 20;

static uint64_t roundUp(uint64_t value, uint64_t unit) {
  return (value + unit - 1) / unit * unit;
}

static uint64_t pageSize() { return ::sysconf(_SC_PAGESIZE); }

/// Returns the bytes to map; never 0, so that every block has an address.
static uint64_t mappedSize(uint64_t bytes) {
  return bytes >= hugePageThreshold
             ? roundUp(bytes, hugePage)
             : roundUp(std::max<uint64_t>(bytes, 1), pageSize());
}

Status host::allocateMemory(uint64_t bytes, uint64_t alignment, void **memory) {
  struct sysinfo machine = {};
  // Linux would grant the addresses and kill the process when it touches them.
  if (::sysinfo(&machine) == 0) {
    uint64_t most =
        (uint64_t(machine.totalram) + machine.totalswap) * machine.mem_unit;
    if (bytes > most)
      return Status(DDPHOOK_RESOURCE_EXHAUSTED,
                    concat("expected to allocate at most the machine's ", most,
                           " bytes of memory, but got ", bytes));
  }
  uint64_t size = mappedSize(bytes);
  uint64_t unit = bytes >= hugePageThreshold ? hugePage : pageSize();
  unit = std::max(unit, alignment);
  // Map more than needed, then trim to the alignment.
  uint64_t total = size + unit - pageSize();
  void *mapped = ::mmap(nullptr, total, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED)
    return systemError(errno, "cannot allocate %llu bytes",
                       static_cast<unsigned long long>(bytes));
  char *begin = static_cast<char *>(mapped);
  char *aligned = reinterpret_cast<char *>(
      roundUp(reinterpret_cast<uint64_t>(begin), unit));
  if (aligned > begin)
    ::munmap(begin, static_cast<size_t>(aligned - begin));
  char *end = aligned + size;
  if (end < begin + total)
    ::munmap(end, static_cast<size_t>(begin + total - end));
  if (bytes >= hugePageThreshold)
    // Kernels without huge pages refuse; ordinary pages work too.
    (void)::madvise(aligned, size, MADV_HUGEPAGE);
  for (uint64_t offset = 0; offset < bytes; offset += pageSize())
    static_cast<volatile char *>(aligned)[offset] = 0;
  *memory = aligned;
  return Status::ok();
}

void host::freeMemory(void *memory, uint64_t bytes) {
  if (memory)
    ::munmap(memory, mappedSize(bytes));
}
