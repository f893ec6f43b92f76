// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Frameworks set flush-to-zero and denormals-are-zero on their threads, which
// changes the bits of small gradients. Every call that computes runs in the
// default environment and restores the caller's afterwards.

#pragma once

#include <cstdint>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace ddphook {

/// While it lives, rounds to nearest even, keeps subnormals and traps nothing.
class DefaultFloatingPoint {
public:
  DefaultFloatingPoint() : saved(read()) { write(defaultState); }
  ~DefaultFloatingPoint() { write(saved); }
  DefaultFloatingPoint(const DefaultFloatingPoint &) = delete;
  DefaultFloatingPoint &operator=(const DefaultFloatingPoint &) = delete;

private:
#if defined(__x86_64__)
  using State = unsigned;
  static constexpr State defaultState = 0x1f80;
  static State read() { return _mm_getcsr(); }
  static void write(State state) { _mm_setcsr(state); }
#elif defined(__aarch64__)
  using State = uint64_t;
  static constexpr State defaultState = 0;
  static State read() {
    State state;
    __asm__ volatile("mrs %0, fpcr" : "=r"(state));
    return state;
  }
  static void write(State state) {
    __asm__ volatile("msr fpcr, %0" : : "r"(state));
  }
#else
#error "teach floating_point.h this architecture's control register"
#endif

  State saved;
};

} // namespace ddphook
