// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A pause for a thread that polls memory that another thread writes.

#pragma once

namespace ddphook {

/// Gives the processor's other hardware thread and its memory time to progress.
inline void pauseProcessor() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

} // namespace ddphook
