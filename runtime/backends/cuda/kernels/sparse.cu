// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Kernels of `topk`: as on the host, the smallest selected magnitude is found
// digit by digit, from counts of each digit's values: magnitudes are ordered
// like their bits. Then each block counts the elements that it selects from its
// chunk, and moves them after those that earlier blocks select. Each range of
// the output is summed by one block, in the order of the parts.

#include "sparse.h"

#include "launch.h"
#include "reductions.h"

#include <algorithm>

using namespace ddphook;
using namespace ddphook::cuda;

namespace {

/// The magnitude bits from which on floats are not finite.
constexpr unsigned kInfinity = 0x7f800000;
constexpr int kThreads = 256;
/// Elements that a thread and a block process at once.
constexpr int kQuad = 4;
constexpr int kTile = kThreads * kQuad;
/// Elements of a sum that a block computes, and the parts that it searches for
/// its entries at once, with two threads each.
constexpr int64_t kSumRange = 32 * kThreads;
constexpr int kPartsAtOnce = kThreads / 2;

struct Digit {
  int shift, bits;
};

/// Returns the same digits as the host.
__host__ __device__ constexpr Digit digitOf(int number) {
  return number == 0   ? Digit{20, 11}
         : number == 1 ? Digit{10, 10}
                       : Digit{0, 10};
}

__host__ __device__ constexpr int valuesOf(int number) {
  return 1 << digitOf(number).bits;
}

/// Loads the bits of floats from element `i` on, but only `count` of them.
__device__ __forceinline__ void loadBits(const float *in, int64_t i,
                                         int64_t count, bool isAligned,
                                         unsigned (&bits)[kQuad]) {
  const unsigned *from = reinterpret_cast<const unsigned *>(in) + i;
  if (count >= kQuad) {
    const Pack<unsigned, kQuad> pack = loadPack<kQuad>(from, isAligned);
#pragma unroll
    for (int v = 0; v < kQuad; ++v)
      bits[v] = pack.elements[v];
    return;
  }
#pragma unroll
  for (int v = 0; v < kQuad; ++v)
    bits[v] = v < count ? from[v] : 0;
}

__device__ __forceinline__ unsigned magnitude(unsigned bits) {
  return bits & 0x7fffffffu;
}

/// Calls fn(i, bits, count) for each quad that begins within the block's chunk,
/// in all threads equally often; `count` excludes elements after the chunk.
template <class Fn>
__device__ __forceinline__ void forQuads(const float *in, int64_t n,
                                         int64_t chunk, const Fn &fn) {
  const int64_t begin = blockIdx.x * chunk;
  const int64_t end = begin + chunk < n ? begin + chunk : n;
  const bool isAligned = isAlignedForPacks<kQuad>(in);
  for (int64_t tile = begin; tile < end; tile += kTile) {
    const int64_t i = tile + kQuad * static_cast<int64_t>(threadIdx.x);
    const int64_t count = end - i;
    unsigned bits[kQuad];
    loadBits(in, i, count, isAligned, bits);
    fn(i, bits, count);
  }
}

/// Returns the sum of `value` over the block's earlier threads, and in `total`
/// that over all of them. All must call it. `room` is as for sumOverBlock().
__device__ unsigned sumBefore(unsigned value, unsigned *room, unsigned *total) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  const unsigned warp = threadIdx.x / 32;
  room += kMostSums;
  unsigned sum = value;
#pragma unroll
  for (int offset = 1; offset < 32; offset *= 2) {
    const unsigned other = __shfl_up_sync(kAllLanes, sum, offset);
    sum += lane >= offset ? other : 0;
  }
  if (lane == 31)
    room[warp] = sum;
  __syncthreads();
  unsigned before = 0, all = 0;
  for (unsigned w = 0; w < blockDim.x / 32; ++w) {
    before += w < warp ? room[w] : 0;
    all += room[w];
  }
  __syncthreads();
  *total = all;
  return before + sum - value;
}

//===----------------------------------------------------------------------===//
// The largest elements.
//===----------------------------------------------------------------------===//

/// Counts the values of a digit among magnitudes whose higher digits are the
/// known ones.
template <int kDigit>
__global__ void __launch_bounds__(kThreads)
    countKernel(const float *in, int64_t n, int64_t chunk,
                SparseScratch *scratch) {
  constexpr Digit kPlace = digitOf(kDigit);
  constexpr unsigned kValues = valuesOf(kDigit);
  unsigned *counts = dynamicShared<unsigned>();
  for (unsigned value = threadIdx.x; value < kValues; value += kThreads)
    counts[value] = 0;
  __syncthreads();
  constexpr int kAbove = kPlace.shift + kPlace.bits;
  const unsigned prefix = scratch->least >> kAbove;
  forQuads(in, n, chunk,
           [&](int64_t, const unsigned (&bits)[kQuad], int64_t count) {
#pragma unroll
             for (int v = 0; v < kQuad; ++v) {
               const unsigned m = magnitude(bits[v]);
               if (v < count && m >> kAbove == prefix)
                 atomicAdd(&counts[m >> kPlace.shift & (kValues - 1)], 1u);
             }
           });
  __syncthreads();
  for (unsigned value = threadIdx.x; value < kValues; value += kThreads)
    if (counts[value] > 0)
      atomicAdd(&scratch->counts[kDigit][value], counts[value]);
}

/// Finds the digit of the smallest selected magnitude, given how many of the
/// counted magnitudes are selected. Uses one block, whose threads have the
/// values from the largest on.
template <int kDigit>
__global__ void __launch_bounds__(kThreads)
    pickKernel(unsigned keep, SparseScratch *scratch) {
  constexpr unsigned kEach = valuesOf(kDigit) / kThreads;
  unsigned *room = dynamicShared<unsigned>();
  unsigned wanted = kDigit == 0 ? keep : scratch->ofLeast;
  const unsigned first = valuesOf(kDigit) - 1 - threadIdx.x * kEach;
  unsigned mine = 0;
  for (unsigned v = 0; v < kEach; ++v)
    mine += scratch->counts[kDigit][first - v];
  // All threads read `wanted` before the one that finds the digit writes.
  unsigned all;
  const unsigned before = sumBefore(mine, room, &all);
  if (before >= wanted || wanted - before > mine)
    return;
  wanted -= before;
  unsigned value = first;
  while (scratch->counts[kDigit][value] < wanted)
    wanted -= scratch->counts[kDigit][value--];
  scratch->least |= value << digitOf(kDigit).shift;
  scratch->ofLeast = wanted;
}

/// Counts the magnitudes of each chunk above the least one, and equal to it.
__global__ void __launch_bounds__(kThreads)
    sizeKernel(const float *in, int64_t n, int64_t chunk,
               SparseScratch *scratch) {
  const unsigned least = scratch->least;
  int sums[2] = {0, 0};
  forQuads(in, n, chunk,
           [&](int64_t, const unsigned (&bits)[kQuad], int64_t count) {
#pragma unroll
             for (int v = 0; v < kQuad; ++v) {
               const unsigned m = magnitude(bits[v]);
               sums[0] += v < count && m > least;
               sums[1] += v < count && m == least;
             }
           });
  sumOverBlock<2>(sums, dynamicShared<int>());
  if (threadIdx.x == 0) {
    scratch->above[blockIdx.x] = sums[0];
    scratch->equal[blockIdx.x] = sums[1];
  }
}

/// Moves what each chunk selects after what earlier chunks select; see
/// sparse.h.
__global__ void __launch_bounds__(kThreads)
    moveKernel(const float *in, int64_t n, int64_t chunk, int64_t keep,
               unsigned *values, float *rest, const SparseScratch *scratch) {
  const unsigned least = scratch->least;
  const unsigned ofLeast = scratch->ofLeast;
  int before[2] = {0, 0};
  for (unsigned c = threadIdx.x; c < blockIdx.x; c += kThreads) {
    before[0] += scratch->above[c];
    before[1] += scratch->equal[c];
  }
  sumOverBlock<2>(before, dynamicShared<int>());
  unsigned above = static_cast<unsigned>(before[0]);
  unsigned equal = static_cast<unsigned>(before[1]);
  int32_t *places = reinterpret_cast<int32_t *>(values) + keep;
  unsigned *left = reinterpret_cast<unsigned *>(rest);
  forQuads(in, n, chunk,
           [&](int64_t i, const unsigned (&bits)[kQuad], int64_t count) {
             // Both counts in one number: neither exceeds a tile.
             unsigned mine = 0;
#pragma unroll
             for (int v = 0; v < kQuad; ++v)
               if (v < count) {
                 const unsigned m = magnitude(bits[v]);
                 mine += m > least ? 1u << 16 : m == least ? 1u : 0u;
               }
             unsigned all;
             const unsigned sum =
                 sumBefore(mine, dynamicShared<unsigned>(), &all);
             unsigned myAbove = above + (sum >> 16);
             unsigned myEqual = equal + (sum & 0xffff);
#pragma unroll
             for (int v = 0; v < kQuad; ++v) {
               if (v >= count)
                 break;
               const unsigned m = magnitude(bits[v]);
               const bool isTaken =
                   m > least || (m == least && myEqual < ofLeast);
               if (isTaken) {
                 const unsigned at =
                     myAbove + (myEqual < ofLeast ? myEqual : ofLeast);
                 values[at] = bits[v];
                 places[at] = static_cast<int32_t>(i + v);
               }
               left[i + v] = isTaken || m >= kInfinity ? 0 : bits[v];
               myAbove += m > least;
               myEqual += m == least;
             }
             above += all >> 16;
             equal += all & 0xffff;
           });
}

//===----------------------------------------------------------------------===//
// Sums of the largest elements.
//===----------------------------------------------------------------------===//

/// Returns the position of the first ascending index that is not below `place`.
__device__ __forceinline__ int64_t lowerBound(const int32_t *places,
                                              int64_t keep, int64_t place) {
  int64_t first = 0, count = keep;
  while (count > 0) {
    const int64_t half = count / 2;
    if (places[first + half] < place) {
      first += half + 1;
      count -= half + 1;
    } else {
      count = half;
    }
  }
  return first;
}

__global__ void __launch_bounds__(kThreads)
    addKernel(const unsigned *entries, int64_t parts, int64_t keep, float *out,
              int64_t n, int32_t *fault) {
  const int64_t begin = blockIdx.x * kSumRange;
  const int64_t end = begin + kSumRange < n ? begin + kSumRange : n;
  auto valuesOf = [&](int64_t part) {
    return reinterpret_cast<const float *>(entries) + part * 2 * keep;
  };
  auto placesOf = [&](int64_t part) {
    return reinterpret_cast<const int32_t *>(entries) + (part * 2 + 1) * keep;
  };
  // Checks that the indices of each part ascend within 0 … n - 1, on which the
  // searches below rely.
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kThreads;
  for (int64_t i = blockIdx.x * static_cast<int64_t>(kThreads) + threadIdx.x;
       i < parts * keep; i += stride) {
    const int32_t *places = placesOf(i / keep);
    const int64_t own = i % keep;
    const int32_t place = places[own];
    if (place < 0 || place >= n || (own > 0 && places[own - 1] >= place))
      atomicOr(fault, 1);
  }
  for (int64_t i = begin + threadIdx.x; i < end; i += kThreads)
    out[i] = 0;
  int64_t *bounds = dynamicShared<int64_t>();
  for (int64_t first = 0; first < parts; first += kPartsAtOnce) {
    const int64_t number =
        parts - first < kPartsAtOnce ? parts - first : kPartsAtOnce;
    if (threadIdx.x < 2 * number)
      bounds[threadIdx.x] = lowerBound(placesOf(first + threadIdx.x / 2), keep,
                                       threadIdx.x % 2 == 0 ? begin : end);
    __syncthreads();
    for (int64_t part = 0; part < number; ++part) {
      const float *values = valuesOf(first + part);
      const int32_t *places = placesOf(first + part);
      for (int64_t i = bounds[2 * part] + threadIdx.x; i < bounds[2 * part + 1];
           i += kThreads) {
        const int32_t place = places[i];
        if (place >= begin && place < end)
          out[place] += values[i];
      }
      // Different threads have an element's entries in different parts.
      __syncthreads();
    }
  }
}

} // namespace

cudaError_t cuda::takeLargest(cudaStream_t stream, const float *in, int64_t n,
                              int64_t keep, void *entries, float *rest,
                              SparseScratch *scratch) {
  if (n == 0 || (keep == 0 && in == rest))
    return cudaSuccess;
  if (keep == 0)
    return cudaMemcpyAsync(rest, in, static_cast<size_t>(n) * sizeof(float),
                           cudaMemcpyDeviceToDevice, stream);
  const int64_t tiles = (n + kTile - 1) / kTile;
  const int64_t chunk =
      (tiles + kMostSparseChunks - 1) / kMostSparseChunks * kTile;
  const int64_t blocks = (n + chunk - 1) / chunk;
  const int64_t room = blockSumRoom(2) * static_cast<int64_t>(sizeof(int));
  cudaError_t error = cudaMemsetAsync(scratch, 0, sizeof(*scratch), stream);
  auto find = [&](auto count, auto pick, int values) {
    const auto bytes = static_cast<int64_t>(sizeof(unsigned)) * values;
    if (error == cudaSuccess)
      error =
          launch(stream, blocks, kThreads, bytes, count, in, n, chunk, scratch);
    if (error == cudaSuccess)
      error = launch(stream, 1, kThreads, room, pick, keep, scratch);
  };
  find(countKernel<0>, pickKernel<0>, valuesOf(0));
  find(countKernel<1>, pickKernel<1>, valuesOf(1));
  find(countKernel<2>, pickKernel<2>, valuesOf(2));
  if (error == cudaSuccess)
    error = launch(stream, blocks, kThreads, room, sizeKernel, in, n, chunk,
                   scratch);
  if (error == cudaSuccess)
    error = launch(stream, blocks, kThreads, room, moveKernel, in, n, chunk,
                   keep, static_cast<unsigned *>(entries), rest, scratch);
  return error;
}

cudaError_t cuda::addEntries(cudaStream_t stream, const void *entries,
                             int64_t parts, int64_t keep, float *out, int64_t n,
                             int32_t *fault) {
  const int64_t blocks = std::max<int64_t>(1, (n + kSumRange - 1) / kSumRange);
  return launch(stream, blocks, kThreads, kThreads * sizeof(int64_t), addKernel,
                static_cast<const unsigned *>(entries), parts, keep, out, n,
                fault);
}
