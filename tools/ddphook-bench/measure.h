//===- measure.h - how ddphook-bench measures -------------------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Clock, caches, buffers, inputs and their expected results. What is measured
// is in the bench_*.cpp files.
//
//===----------------------------------------------------------------------===//
#ifndef DDPHOOK_BENCH_MEASURE_H
#define DDPHOOK_BENCH_MEASURE_H

#include "base/dtype.h"

#include <cstdint>
#include <string>
#include <vector>

namespace ddphook::bench {

/// Caches before a measurement: emptied, or as the one before left them.
enum class Caches { Cold, Warm };
const char *cachesName(Caches caches);

double now(); ///< Seconds of a steady clock.

/// Binds the calling thread to processor `index` modulo those it may use.
void pinTo(int index);

/// Twice the last-level cache: reading as much replaces what the caches hold.
int64_t flushBytes();

/// Replaces what the caches hold by other data.
class CacheFlusher {
public:
  CacheFlusher();
  void flush();

private:
  std::vector<char> other;
};

/// Resident memory on huge pages where there are some. It holds zeros, which
/// some processors write around the caches faster than other values: what
/// copies are measured with has to be filled.
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

/// Element `i` of a rank's gradient: even in (-1, 1), the same here and in
/// torch_hooks.py.
inline float inputElement(int64_t i, int rank) {
  uint32_t bits = static_cast<uint32_t>(i) * 2654435761u +
                  static_cast<uint32_t>(rank) * 40503u + 12345u;
  return static_cast<float>(static_cast<int32_t>(bits) * 0x1p-31);
}
void fillInput(float *x, int64_t n, int rank);

/// A number for the bits of an array, as in torch_hooks.py.
uint64_t checksum(const float *x, int64_t n);

/// What an array of `n` elements must hold, worked out by scalar code that
/// shares nothing with the kernels: `x` rounded to `type`. For values below the
/// overflow of f16.
float roundScalar(float x, Dtype type);

/// The checksum of a sum over two ranks in `wire`, halved before if `mean`.
uint64_t expectedOfTwo(int64_t n, Dtype wire, bool mean);

} // namespace ddphook::bench

#endif // DDPHOOK_BENCH_MEASURE_H
