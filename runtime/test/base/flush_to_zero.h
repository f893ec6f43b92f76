// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The mode that frameworks set on their threads.

#pragma once

#include <cstdint>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace ddphook {

/// While it lives, this thread treats subnormals as zero.
class FlushToZero {
public:
  FlushToZero() : saved(read()) { write(saved | bits); }
  ~FlushToZero() { write(saved); }
  FlushToZero(const FlushToZero &) = delete;
  FlushToZero &operator=(const FlushToZero &) = delete;

  /// True if this thread is in the mode.
  static bool isOn() { return (read() & bits) == bits; }

private:
#if defined(__x86_64__)
  static constexpr uint64_t bits = 0x8040; // FTZ and DAZ
  static uint64_t read() { return _mm_getcsr(); }
  static void write(uint64_t state) {
    _mm_setcsr(static_cast<unsigned>(state));
  }
#elif defined(__aarch64__)
  static constexpr uint64_t bits = 1 << 24; // FZ
  static uint64_t read() {
    uint64_t state;
    __asm__ volatile("mrs %0, fpcr" : "=r"(state));
    return state;
  }
  static void write(uint64_t state) {
    __asm__ volatile("msr fpcr, %0" : : "r"(state));
  }
#else
#error "expected x86-64 or AArch64"
#endif

  uint64_t saved;
};

} // namespace ddphook
