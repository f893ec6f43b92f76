// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Allocates large blocks, which a step reads and writes whole.

#pragma once

#include "base/status.h"

#include <cstdint>

namespace ddphook::host {

/// Allocates zeroed, resident memory. It is at least page-aligned; from 4 MiB
/// on it is aligned to 2 MiB and uses huge pages where the kernel provides
/// them. `alignment` is a power of two of at most 2 MiB. Also returns
/// RESOURCE_EXHAUSTED if the machine could never hold `bytes`.
Status allocateMemory(uint64_t bytes, uint64_t alignment, void **memory);

/// Frees memory from allocateMemory(); `bytes` must be the same.
void freeMemory(void *memory, uint64_t bytes);

} // namespace ddphook::host
