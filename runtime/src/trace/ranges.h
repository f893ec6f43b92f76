//===- ranges.h - what a rank does, for profilers ---------------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What is recorded of steps, as ranges of NVTX: a profiler that has loaded
// itself into the process (NVTX_INJECTION64_PATH) shows them beside what the
// device does. Without one there are none. NVTX is headers of the CUDA toolkit;
// a runtime that was built without them says so where a profiler asks.
//
//===----------------------------------------------------------------------===//
#ifndef DDPHOOK_RUNTIME_SRC_TRACE_RANGES_H
#define DDPHOOK_RUNTIME_SRC_TRACE_RANGES_H

#include <cstdint>
#include <memory>
#include <string>

namespace ddphook::trace {

class Ranges {
public:
  /// Null where no profiler wants any.
  static std::unique_ptr<Ranges> create();
  virtual ~Ranges() = default;

  /// Gives names numbers from 0. Not while other threads push.
  virtual void add(const std::string &name) = 0;

  /// Begins a range on the calling thread; pop() ends its innermost one.
  virtual void push(uint32_t name) const = 0;
  virtual void pop() const = 0;
};

} // namespace ddphook::trace

#endif // DDPHOOK_RUNTIME_SRC_TRACE_RANGES_H
