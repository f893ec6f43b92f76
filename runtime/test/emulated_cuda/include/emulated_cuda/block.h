// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Built-in variables, barriers, votes and warp shuffles. Every function that
// waits also takes its caller's place: a deadlock is reported with it, and so
// is a barrier that threads of one block reach at different places.

#pragma once

#include "emulated_cuda/vector_types.h"

#include <cstring>

// Not defined with a dynamic initializer, which is what __thread promises: its
// use costs no call.
extern __thread uint3 threadIdx;
extern __thread uint3 blockIdx;
extern __thread dim3 blockDim;
extern __thread dim3 gridDim;
constexpr int warpSize = 32;

namespace emulated_cuda {

enum class BarrierKind { Plain, Or, And, Count };

/// Where a kernel waits.
struct SourceLocation {
  const char *call;
  const char *file;
  int line;
};

int waitForBlock(BarrierKind kind, int predicate, const SourceLocation &place);

/// What the lanes of a warp gave to the operation that has just ended.
struct WarpValues {
  /// Lanes that took part.
  unsigned lanes;
  unsigned long long values[32];
};
/// Valid until the calling thread waits the next time.
const WarpValues &waitForWarp(unsigned mask, unsigned long long value,
                              const SourceLocation &place);

/// This thread's number within its warp.
unsigned laneId();

/// The dynamic shared memory of the calling thread's block, aligned to 128
/// bytes; null when the launch asked for none.
void *dynamicShared();

template <typename T>
unsigned long long toBits(T value) {
  static_assert(sizeof(T) <= sizeof(unsigned long long));
  unsigned long long bits = 0;
  std::memcpy(&bits, &value, sizeof(T));
  return bits;
}

template <typename T>
T shuffle(unsigned mask, T value, unsigned source,
          const SourceLocation &place) {
  const WarpValues &warp = waitForWarp(mask, toBits(value), place);
  // The value of a lane that takes no part is undefined.
  unsigned long long bits =
      warp.lanes >> source & 1 ? warp.values[source] : ~0ull;
  T result;
  std::memcpy(&result, &bits, sizeof(T));
  return result;
}

} // namespace emulated_cuda

/// Stands for `extern __shared__ unsigned char NAME[]`.
inline void *emulatedDynamicShared() { return emulated_cuda::dynamicShared(); }

#define EMULATED_CUDA_PLACE                                                    \
  const char *file = __builtin_FILE(), int line = __builtin_LINE()

inline void __syncthreads(EMULATED_CUDA_PLACE) {
  emulated_cuda::waitForBlock(emulated_cuda::BarrierKind::Plain, 0,
                              {"__syncthreads", file, line});
}
inline int __syncthreads_or(int predicate, EMULATED_CUDA_PLACE) {
  return emulated_cuda::waitForBlock(emulated_cuda::BarrierKind::Or, predicate,
                                     {"__syncthreads_or", file, line});
}
inline int __syncthreads_and(int predicate, EMULATED_CUDA_PLACE) {
  return emulated_cuda::waitForBlock(emulated_cuda::BarrierKind::And, predicate,
                                     {"__syncthreads_and", file, line});
}
inline int __syncthreads_count(int predicate, EMULATED_CUDA_PLACE) {
  return emulated_cuda::waitForBlock(emulated_cuda::BarrierKind::Count,
                                     predicate,
                                     {"__syncthreads_count", file, line});
}

inline void __syncwarp(unsigned mask = 0xffffffff, EMULATED_CUDA_PLACE) {
  emulated_cuda::waitForWarp(mask, 0, {"__syncwarp", file, line});
}
inline unsigned __ballot_sync(unsigned mask, int predicate,
                              EMULATED_CUDA_PLACE) {
  const emulated_cuda::WarpValues &warp = emulated_cuda::waitForWarp(
      mask, predicate != 0, {"__ballot_sync", file, line});
  unsigned result = 0;
  for (unsigned lane = 0; lane < 32; ++lane)
    if ((warp.lanes >> lane & 1) && warp.values[lane])
      result |= 1u << lane;
  return result;
}
inline int __any_sync(unsigned mask, int predicate, EMULATED_CUDA_PLACE) {
  return __ballot_sync(mask, predicate, file, line) != 0;
}
inline int __all_sync(unsigned mask, int predicate, EMULATED_CUDA_PLACE) {
  return __ballot_sync(mask, !predicate, file, line) == 0;
}

template <typename T>
T __shfl_sync(unsigned mask, T value, int source, int width = 32,
              EMULATED_CUDA_PLACE) {
  unsigned lane = emulated_cuda::laneId();
  unsigned in = static_cast<unsigned>(width) - 1;
  return emulated_cuda::shuffle(
      mask, value, (lane & ~in) | (static_cast<unsigned>(source) & in),
      {"__shfl_sync", file, line});
}
template <typename T>
T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32,
                 EMULATED_CUDA_PLACE) {
  unsigned lane = emulated_cuda::laneId();
  unsigned in = static_cast<unsigned>(width) - 1;
  unsigned source = (lane & in) >= delta ? lane - delta : lane;
  return emulated_cuda::shuffle(mask, value, source,
                                {"__shfl_up_sync", file, line});
}
template <typename T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32,
                   EMULATED_CUDA_PLACE) {
  unsigned lane = emulated_cuda::laneId();
  unsigned in = static_cast<unsigned>(width) - 1;
  unsigned source = (lane & in) + delta <= in ? lane + delta : lane;
  return emulated_cuda::shuffle(mask, value, source,
                                {"__shfl_down_sync", file, line});
}
template <typename T>
T __shfl_xor_sync(unsigned mask, T value, int laneMask, int width = 32,
                  EMULATED_CUDA_PLACE) {
  unsigned lane = emulated_cuda::laneId();
  unsigned in = static_cast<unsigned>(width) - 1;
  unsigned source = lane ^ static_cast<unsigned>(laneMask);
  // Lanes of earlier groups may be read, those of later groups may not.
  if (source > (lane | in))
    source = lane;
  return emulated_cuda::shuffle(mask, value, source & 31,
                                {"__shfl_xor_sync", file, line});
}

#undef EMULATED_CUDA_PLACE
