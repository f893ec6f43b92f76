// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Splits loops over independent elements, or blocks of elements.

#pragma once

#include "thread_pool.h"

#include <algorithm>
#include <cstdint>

namespace ddphook::host {

/// Calls fn(first element, count) for ranges that cover an array, on several
/// threads if it is large. `bytes` are read and written per element.
template <class Fn>
void forRanges(ThreadPool &pool, int64_t count, int64_t bytes, const Fn &fn) {
  // For fewer bytes, waking a thread takes longer than it saves.
  constexpr int64_t leastBytes = 256 << 10;
  constexpr int64_t partsPerThread = 4, unit = 1024;
  const int threads = pool.threads();
  const int64_t parts =
      std::min(threads * partsPerThread, count * bytes / leastBytes);
  if (threads == 1 || parts < 2)
    return fn(0, count);
  const int64_t step = (count / parts + unit) / unit * unit;
  pool.run((count + step - 1) / step, [&](int64_t part, int) {
    const int64_t begin = part * step;
    fn(begin, std::min(step, count - begin));
  });
}

} // namespace ddphook::host
