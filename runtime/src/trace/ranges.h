// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Exports the recorded events of steps as NVTX ranges: a profiler that has
// loaded itself into the process (NVTX_INJECTION64_PATH) shows them next to the
// device's work. Without a profiler there are none. NVTX consists of headers of
// the CUDA toolkit; a runtime without them says so if there is a profiler.

#pragma once

#include <cstdint>
#include <memory>
#include <string>

namespace ddphook::trace {

class Ranges {
public:
  /// Returns null if no profiler wants ranges.
  static std::unique_ptr<Ranges> create();
  virtual ~Ranges() = default;

  /// Assigns numbers from 0 to names. Other threads must not push meanwhile.
  virtual void add(const std::string &name) = 0;

  /// Begins a range on the calling thread; pop() ends the innermost one.
  virtual void push(uint32_t name) const = 0;
  virtual void pop() const = 0;
};

} // namespace ddphook::trace
