//===- measure.h - how ddphook-bench measures -------------------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Clock, caches, buffers, inputs and their expected results. The bench_*.cpp
// files contain the measurements.
//
//===----------------------------------------------------------------------===//
#ifndef DDPHOOK_BENCH_MEASURE_H
#define DDPHOOK_BENCH_MEASURE_H

#include "base/dtype.h"

#include <cstdint>
#include <string>
#include <vector>

namespace ddphook::bench {

/// Caches before a measurement: flushed, or as the previous one left them.
enum class Caches { Cold, Warm };
const char *cachesName(Caches caches);

double now(); ///< Seconds of a steady clock.

/// Binds the calling thread to its allowed processor `index`, modulo.
void pinTo(int index);

/// Twice the last-level cache: reading that much replaces its contents.
int64_t flushBytes();

/// Replaces the contents of the caches.
class CacheFlusher {
public:
  CacheFlusher();
  void flush();

private:
  std::vector<char> other;
};

/// Resident memory, on huge pages if possible. It contains zeros, which some
/// processors write faster than other values: fill it before measuring copies.
class Buffer {
public:
  explicit Buffer(int64_t bytes);
  ~Buffer();
  Buffer(const Buffer &) = delete;
  Buffer &operator=(const Buffer &) = delete;

  template <class T>
  T *as() {
    return static_cast<T *>(memory);
  }

private:
  void *memory;
  uint64_t bytes;
};

/// Returns element `i` of a rank's gradient: uniform in (-1, 1), equal to that
/// of torch_hooks.py.
inline float inputElement(int64_t i, int rank) {
  uint32_t bits = static_cast<uint32_t>(i) * 2654435761u +
                  static_cast<uint32_t>(rank) * 40503u + 12345u;
  return static_cast<float>(static_cast<int32_t>(bits) * 0x1p-31);
}
void fillInput(float *x, int64_t n, int rank);

/// Returns a number for the bits of an array, as torch_hooks.py does.
uint64_t checksum(const float *x, int64_t n);

/// Rounds `x` to `type` in scalar code that is independent of the kernels, for
/// expected results. For values below the overflow of f16.
float roundScalar(float x, Dtype type);

/// Returns the checksum of a sum over two ranks in `wire`; `mean` halves first.
uint64_t expectedOfTwo(int64_t n, Dtype wire, bool mean);

} // namespace ddphook::bench

#endif // DDPHOOK_BENCH_MEASURE_H
