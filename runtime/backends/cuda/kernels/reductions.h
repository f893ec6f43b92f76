// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Sums in a fixed order: over the lanes of a warp by halves, then over the
// warps from the first to the last.

#pragma once

#include "launch.h"

namespace ddphook::cuda {

constexpr unsigned kAllLanes = 0xffffffffu;

/// Sums kCount values, a power of two, over the lanes of a warp, all of which
/// must call it. Each lane gets max(1, kCount / 32) of the totals in values[0],
/// …, starting with the returned index. Lanes exchange halves of the values, so
/// this takes about kCount shuffles instead of five times as many; the order of
/// additions is the same for every kCount.
template <int kCount, class T>
__device__ __forceinline__ int sumOverLanes(T *values) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  int first = 0;
  int count = kCount;
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) {
    if (count > 1) {
      count /= 2;
      const bool isUpper = (lane & offset) != 0;
#pragma unroll
      for (int i = 0; i < kCount / 2; ++i) {
        if (i >= count)
          break;
        const T sent = isUpper ? values[i] : values[i + count];
        const T kept = isUpper ? values[i + count] : values[i];
        values[i] = kept + __shfl_xor_sync(kAllLanes, sent, offset);
      }
      first += isUpper ? count : 0;
    } else {
      values[0] += __shfl_xor_sync(kAllLanes, values[0], offset);
    }
  }
  return first;
}

/// True if this lane should write its totals of sumOverLanes(): if there are
/// more lanes than values, several lanes have the same ones.
template <int kCount>
__device__ __forceinline__ bool isWriterOfSums() {
  constexpr unsigned kSame = kCount >= 32 ? 1 : 32 / kCount;
  return threadIdx.x % kSame == 0;
}

/// The numbers of shared memory for the functions below: up to 32 results,
/// always at the start, and `count` for each of up to 32 warps. A barrier
/// prevents that a thread writes results while another still reads those of the
/// previous call.
constexpr int kMostSums = 32;
constexpr int blockSumRoom(int count) { return kMostSums + 32 * count; }

/// Sums kCount <= 32 values over all threads of the block, all of which must
/// call it and get the totals. `room` may be reused at once.
template <int kCount, class T>
__device__ void sumOverBlock(T (&values)[kCount], T *room) {
  static_assert(kCount <= kMostSums, "expected space for the results");
  T *totals = room;
  room += kMostSums;
  const int warp = static_cast<int>(threadIdx.x / 32);
  const int first = sumOverLanes<kCount>(values);
  if (isWriterOfSums<kCount>())
    room[warp * kCount + first] = values[0];
  __syncthreads();
  if (threadIdx.x < kCount) {
    T total = room[threadIdx.x];
    for (unsigned w = 1; w < blockDim.x / 32; ++w)
      total += room[w * kCount + threadIdx.x];
    totals[threadIdx.x] = total;
  }
  __syncthreads();
#pragma unroll
  for (int i = 0; i < kCount; ++i)
    values[i] = totals[i];
}

/// Sums like sumOverBlock(), with the same bits, for kernels that need several
/// sums in sequence: each takes one barrier. Every warp adds the warps' sums
/// itself, in alternating buffers, so that a sum is not overwritten while a
/// slow warp still reads the previous one.
template <class T, int kMost, int kThreads>
struct BlockSums {
  static constexpr int kTurn = kThreads / 32 * kMost;
  /// The size in numbers.
  static constexpr int kRoom = 2 * kTurn;

  /// All threads of the block must call it, and get the totals.
  template <int kCount>
  __device__ __forceinline__ void add(T (&values)[kCount]) {
    static_assert(kCount <= kMost, "expected space for the warps' sums");
    T *parts = room + turn * kTurn;
    turn ^= 1;
    const int warp = static_cast<int>(threadIdx.x / 32);
    const int first = sumOverLanes<kCount>(values);
    if (isWriterOfSums<kCount>())
      parts[warp * kCount + first] = values[0];
    __syncthreads();
    const int warps = static_cast<int>(blockDim.x / 32);
    const T *part = parts + threadIdx.x % kCount;
    T total = part[0];
#pragma unroll 4
    for (int w = 1; w < warps; ++w)
      total += part[w * kCount];
#pragma unroll
    for (int i = 0; i < kCount; ++i)
      values[i] = kCount == 1 ? total : __shfl_sync(kAllLanes, total, i);
  }

  T *room;
  int turn = 0;
};

/// Returns the largest of the threads' numbers, ignoring NaNs.
template <class T>
__device__ T maxOverBlock(T value, T *room) {
  room += kMostSums;
  for (int offset = 16; offset > 0; offset /= 2) {
    const T other = __shfl_xor_sync(kAllLanes, value, offset);
    value = other > value ? other : value;
  }
  if (threadIdx.x % 32 == 0)
    room[threadIdx.x / 32] = value;
  __syncthreads();
  for (unsigned w = 0; w < blockDim.x / 32; ++w)
    value = room[w] > value ? room[w] : value;
  __syncthreads();
  return value;
}

/// Finds the least of the threads' numbers and the smallest index that has it.
template <class T>
__device__ void minOverBlock(T &value, int64_t &index, T *room,
                             int64_t *indexRoom) {
  room += kMostSums;
  auto take = [&](T otherValue, int64_t otherIndex) {
    if (otherValue < value || (otherValue == value && otherIndex < index)) {
      value = otherValue;
      index = otherIndex;
    }
  };
  for (int offset = 16; offset > 0; offset /= 2) {
    const T otherValue = __shfl_xor_sync(kAllLanes, value, offset);
    const int64_t otherIndex =
        __shfl_xor_sync(kAllLanes, static_cast<long long>(index), offset);
    take(otherValue, otherIndex);
  }
  if (threadIdx.x % 32 == 0) {
    room[threadIdx.x / 32] = value;
    indexRoom[threadIdx.x / 32] = index;
  }
  __syncthreads();
  for (unsigned w = 0; w < blockDim.x / 32; ++w)
    take(room[w], indexRoom[w]);
  __syncthreads();
}

} // namespace ddphook::cuda
