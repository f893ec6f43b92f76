//===- pause.h - waiting for another processor ------------------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What a thread does between two looks at memory that another thread writes.
//
//===----------------------------------------------------------------------===//
#ifndef DDPHOOK_RUNTIME_SRC_BASE_PAUSE_H
#define DDPHOOK_RUNTIME_SRC_BASE_PAUSE_H

namespace ddphook {

/// Lets the processor's other thread and its memory get on for a moment.
inline void pauseProcessor() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

} // namespace ddphook

#endif // DDPHOOK_RUNTIME_SRC_BASE_PAUSE_H
