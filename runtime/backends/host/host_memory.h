//===- host_memory.h - memory for arenas ------------------------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Large blocks that a step reads and writes whole. Not for small objects.
//
//===----------------------------------------------------------------------===//
#ifndef DDPHOOK_RUNTIME_BACKENDS_HOST_HOST_MEMORY_H
#define DDPHOOK_RUNTIME_BACKENDS_HOST_HOST_MEMORY_H

#include "base/status.h"

#include <cstdint>

namespace ddphook::host {

/// Zeroed and resident memory, page-aligned at least; from 4 MiB on aligned to
/// 2 MiB and backed by huge pages where the kernel gives some. `alignment` is a
/// power of two of at most 2 MiB. RESOURCE_EXHAUSTED also when the machine
/// could never hold `bytes`.
Status allocateMemory(uint64_t bytes, uint64_t alignment, void **memory);

/// Frees memory of allocateMemory(), with the same `bytes`.
void freeMemory(void *memory, uint64_t bytes);

} // namespace ddphook::host

#endif // DDPHOOK_RUNTIME_BACKENDS_HOST_HOST_MEMORY_H
