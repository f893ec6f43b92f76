// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A warp encodes a block of at most kWarpBlock elements: it reads it for its
// scale and again, from a cache, for the codes. Longer blocks are cut into
// slices, one per thread block of two kernels. The first kernel finds the range
// of each slice; all thread blocks of the second combine these, which costs
// each of them a few KiB from the L2 cache and saves a launch between the two.

#include "affine.h"

#include "affine_codes.h"
#include "base/collective.h"

#include <algorithm>

using namespace ddphook;
using namespace ddphook::cuda;

namespace {

//===----------------------------------------------------------------------===//
// Kernels.
//===----------------------------------------------------------------------===//

/// The results for elements: codes with their scales, or the error.
struct Destination {
  unsigned char *codes;
  AffineScale *scales;
  void *lost;
};

/// Encodes elements begin … end - 1, all of one block, as thread number
/// `thread` of `kGroup` threads in whole warps.
template <class CodeT, class Element, int kGroup>
__device__ __forceinline__ void
encodeRange(const void *in, int64_t begin, int64_t end,
            const AffineScale &scale, bool isExact, const Destination &to,
            int thread) {
  for (int64_t first = begin; first < end; first += kGroup * kQuad) {
    const int64_t i = first + thread * kQuad;
    const int64_t left = end - i;
    const int count =
        left > kQuad ? kQuad : (left > 0 ? static_cast<int>(left) : 0);
    ComputeOf<Element> x[kQuad];
    loadElements<Element>(in, i, count, x);
    unsigned codes[kQuad];
#pragma unroll
    for (int v = 0; v < kQuad; ++v)
      codes[v] = CodeT::template encode<Element>(x[v], scale, isExact);
    if (!to.lost) {
      CodeT::store(codes, to.codes, i, count);
      continue;
    }
    float kept[kQuad];
#pragma unroll
    for (int v = 0; v < kQuad; ++v)
      kept[v] = addCode(0, codes[v], scale);
    storeLost<Element>(x, kept, to.lost, i, count);
  }
}

/// Encodes one block per warp.
template <class CodeT, class Element>
__global__ void __launch_bounds__(kAffineThreads, 4)
    encodeBlocks(const void *in, AffineCodes codes, Destination to) {
  const int64_t block =
      (int64_t(blockIdx.x) * kAffineThreads + threadIdx.x) / kLanes;
  if (block >= codes.blocks)
    return;
  const int64_t begin = block * codes.block;
  const int64_t left = codes.count - begin;
  const int64_t size = left < codes.block ? left : codes.block;
  const int lane = static_cast<int>(threadIdx.x % kLanes);
  const auto *x = static_cast<const ElemOf<Element> *>(in) + begin;
  // All lanes find the scale before anything is stored: `lost` may be `in`, and
  // shuffles do not order memory.
  const AffineScale scale =
      CodeT::template findScale<Element>(x, size, codes.isExact);
  __syncwarp();
  if (!to.lost && lane == 0)
    to.scales[block] = scale;
  encodeRange<CodeT, Element, kLanes>(in, begin, begin + size, scale,
                                      codes.isExact, to, lane);
}

/// How blocks are cut.
struct Slices {
  int slices;
  int64_t length;
};

/// The slice of a block that the calling thread block processes.
struct Slice {
  int64_t block;
  int number;
  int64_t begin, end;
};

/// Returns this thread block's slice; the grid covers blocks from `first` on.
__device__ __forceinline__ Slice sliceOfBlock(const AffineCodes &codes,
                                              const Slices &cut,
                                              int64_t first) {
  Slice slice;
  slice.number = static_cast<int>(blockIdx.x % unsigned(cut.slices));
  slice.block = first + blockIdx.x / unsigned(cut.slices);
  const int64_t begin = slice.block * codes.block;
  const int64_t end =
      begin + codes.block < codes.count ? begin + codes.block : codes.count;
  slice.begin = begin + slice.number * cut.length;
  slice.begin = slice.begin < end ? slice.begin : end;
  slice.end = slice.begin + cut.length < end ? slice.begin + cut.length : end;
  return slice;
}

template <class Element>
__global__ void __launch_bounds__(kAffineThreads)
    findRanges(const void *in, AffineCodes codes, Slices cut, int64_t first,
               Range *found) {
  const Slice slice = sliceOfBlock(codes, cut, first);
  const auto *x = static_cast<const ElemOf<Element> *>(in) + slice.begin;
  const Range own = findRange<Element, kAffineThreads>(
      x, slice.end - slice.begin, static_cast<int>(threadIdx.x));
  const Range all = Bytes::overBlock(own, dynamicShared<float>());
  if (threadIdx.x == 0)
    found[blockIdx.x] = all;
}

/// Finds the scales of `blocks` blocks from number `first` on, one per warp.
template <class Element>
__global__ void __launch_bounds__(kAffineThreads)
    findMagnitudes(const void *in, AffineCodes codes, Slices cut, int64_t first,
                   int64_t blocks, AffineScale *found) {
  const int64_t number =
      (int64_t(blockIdx.x) * kAffineThreads + threadIdx.x) / kLanes;
  if (number >= blocks)
    return;
  const int64_t begin = (first + number) * codes.block;
  const int64_t left = codes.count - begin;
  const auto *x = static_cast<const ElemOf<Element> *>(in) + begin;
  const AffineScale scale =
      findMagnitude<Element>(x, left < codes.block ? left : codes.block);
  if (threadIdx.x % kLanes == 0)
    found[number * cut.slices] = scale;
}

template <class CodeT, class Element>
__global__ void __launch_bounds__(kAffineThreads)
    encodeSlices(const void *in, AffineCodes codes, Slices cut, int64_t first,
                 const typename CodeT::Found *found, Destination to) {
  const Slice slice = sliceOfBlock(codes, cut, first);
  const AffineScale scale =
      CodeT::scaleOfSlices(found + (slice.block - first) * cut.slices,
                           cut.slices, dynamicShared<float>(), codes.isExact);
  if (!to.lost && slice.number == 0 && threadIdx.x == 0)
    to.scales[slice.block] = scale;
  encodeRange<CodeT, Element, kAffineThreads>(in, slice.begin, slice.end, scale,
                                              codes.isExact, to,
                                              static_cast<int>(threadIdx.x));
}

/// Quads per thread and elements per warp when codes are added.
constexpr int kQuads = 4;
constexpr int64_t kWarpElements = kQuads * kLanes * kQuad;

/// Finds the blocks of elements relative to an element at offset `within` in
/// block `first`.
struct BlocksFrom {
  int64_t first, within, block;

  /// Returns the block of the element `offset`, below kWarpElements, later.
  DDPHOOK_HOST_DEVICE int64_t at(int offset) const {
    const int64_t element = within + offset;
    if (element < block)
      return first;
    if (block >= kWarpElements)
      return first + 1;
    return first +
           static_cast<uint32_t>(element) / static_cast<uint32_t>(block);
  }
};

/// A warp processes kWarpElements elements, each lane every 32nd quad of them.
/// With four thread blocks per multiprocessor enough loads are in flight.
template <class CodeT, class Element>
__global__ void __launch_bounds__(kAffineThreads, 4)
    averageKernel(const unsigned char *in, int ranks, AffineCodes codes,
                  float divisor, void *out) {
  const int64_t warp =
      (int64_t(blockIdx.x) * kAffineThreads + threadIdx.x) / kLanes;
  const int64_t begin = warp * kWarpElements;
  if (begin >= codes.count)
    return;
  const int64_t left = codes.count - begin;
  const int size =
      static_cast<int>(left < kWarpElements ? left : kWarpElements);
  const int64_t first = begin / codes.block;
  const BlocksFrom blocks = {first, begin - first * codes.block, codes.block};
  const bool isOneBlock = blocks.at(size - 1) == first;
  const int lane = static_cast<int>(threadIdx.x % kLanes);
  float sums[kQuads][kQuad] = {};
  for (int k = 0; k < ranks; ++k) {
    const unsigned char *own = in + k * codes.bytes;
    const auto *scales =
        reinterpret_cast<const AffineScale *>(own + codes.scaleOffset);
    decltype(CodeT::load(own, 0)) quads[kQuads];
#pragma unroll
    for (int q = 0; q < kQuads; ++q) {
      const int i = (q * kLanes + lane) * kQuad;
      if (i < size)
        quads[q] = CodeT::load(own, begin + i);
    }
    auto add = [&](const auto &scaleAt) {
#pragma unroll
      for (int q = 0; q < kQuads; ++q) {
        const int i = (q * kLanes + lane) * kQuad;
#pragma unroll
        for (int v = 0; v < kQuad; ++v)
          if (i + v < size)
            sums[q][v] = addCode(sums[q][v], CodeT::at(quads[q], i, v),
                                 scaleAt(CodeT::kHasWholeQuads ? i : i + v));
      }
    };
    if (isOneBlock) {
      const AffineScale scale = scales[first];
      add([&](int) { return scale; });
    } else {
      add([&](int i) { return scales[blocks.at(i)]; });
    }
  }
#pragma unroll
  for (int q = 0; q < kQuads; ++q) {
    const int i = (q * kLanes + lane) * kQuad;
    if (i >= size)
      break;
#pragma unroll
    for (int v = 0; v < kQuad; ++v)
      sums[q][v] =
          codes.isExact ? sums[q][v] / divisor : sums[q][v] * (1 / divisor);
    storeElements<Element>(sums[q], out, begin + i, 0,
                           size - i < kQuad ? size - i : kQuad);
  }
}

//===----------------------------------------------------------------------===//
// Launches.
//===----------------------------------------------------------------------===//

/// The number of slices per launch, as the scratch has space for; at most 1024
/// per block, which 256 threads combine.
constexpr int64_t kMostFound = kAffineScratchBytes / int64_t{sizeof(Range)};
constexpr int64_t kMostSlices = 1024;
constexpr int64_t kLeastSlice = 4096;
static_assert(sizeof(Range) == sizeof(AffineScale),
              "either is found of a slice");

/// Cuts blocks into slices; all but the last start at whole packs and at whole
/// bytes of signs.
Slices cutBlocks(int64_t block) {
  constexpr int64_t unit = 64;
  const int64_t wanted =
      std::min(kMostSlices, partElements(block, kLeastSlice));
  const int64_t length = partElements(partElements(block, wanted), unit) * unit;
  return {static_cast<int>(partElements(block, length)), length};
}

int64_t blocksForWarps(int64_t warps) {
  return partElements(warps, kAffineThreads / kLanes);
}

template <class Element>
cudaError_t find(Bytes, cudaStream_t stream, const void *in,
                 const AffineCodes &codes, const Slices &cut, int64_t first,
                 int64_t blocks, Range *found) {
  return launch(stream, blocks * cut.slices, kAffineThreads,
                Bytes::kRoom * int64_t{sizeof(float)}, findRanges<Element>, in,
                codes, cut, first, found);
}

template <class Element>
cudaError_t find(Signs, cudaStream_t stream, const void *in,
                 const AffineCodes &codes, const Slices &cut, int64_t first,
                 int64_t blocks, AffineScale *found) {
  return launch(stream, blocksForWarps(blocks), kAffineThreads, 0,
                findMagnitudes<Element>, in, codes, cut, first, blocks, found);
}

template <class CodeT, class Element>
cudaError_t encode(cudaStream_t stream, const void *in,
                   const AffineCodes &codes, const Destination &to,
                   void *scratch) {
  if (codes.block <= kWarpBlock)
    return launch(stream, blocksForWarps(codes.blocks), kAffineThreads, 0,
                  encodeBlocks<CodeT, Element>, in, codes, to);
  auto *found = static_cast<typename CodeT::Found *>(scratch);
  const Slices cut = cutBlocks(codes.block);
  const int64_t most = kMostFound / cut.slices;
  for (int64_t first = 0; first < codes.blocks; first += most) {
    const int64_t blocks = std::min(most, codes.blocks - first);
    cudaError_t error =
        find<Element>(CodeT(), stream, in, codes, cut, first, blocks, found);
    if (error == cudaSuccess)
      error = launch(stream, blocks * cut.slices, kAffineThreads,
                     CodeT::kRoom * int64_t{sizeof(float)},
                     encodeSlices<CodeT, Element>, in, codes, cut, first, found,
                     to);
    if (error != cudaSuccess)
      return error;
  }
  return cudaSuccess;
}

/// Calls fn(CodeT(), Element()) with the classes of an affine code and a type.
template <class Fn>
cudaError_t withCodeAndElement(Code code, Dtype type, const Fn &fn) {
  return withElement(type, [&](auto element) {
    return code == Code::UI1 ? fn(Signs(), element) : fn(Bytes(), element);
  });
}

cudaError_t encode(cudaStream_t stream, const void *in, Dtype type,
                   const AffineCodes &codes, const Destination &to,
                   void *scratch) {
  if (codes.count == 0)
    return cudaSuccess;
  return withCodeAndElement(codes.code, type, [&](auto code, auto element) {
    return encode<decltype(code), decltype(element)>(stream, in, codes, to,
                                                     scratch);
  });
}

} // namespace

AffineCodes AffineCodes::of(const Encoding &encoding, int64_t count,
                            bool isExact) {
  constexpr int64_t unit = 16;
  const int64_t block = encoding.block == 0 ? count : encoding.block;
  AffineCodes codes = {encoding.code,
                       count,
                       std::min(block, count),
                       0,
                       0,
                       0,
                       isExact || encoding.code == Code::UI1};
  if (count == 0)
    return codes;
  codes.blocks = partElements(count, codes.block);
  codes.scaleOffset = partElements(encoding.codeBytes(count), unit) * unit;
  codes.bytes =
      codes.scaleOffset + partElements(encoding.scaleBytes(count), unit) * unit;
  return codes;
}

int64_t AffineCodes::mostBytes(int64_t mostBytes, int64_t ranks) {
  // Codes and scales may each be rounded up.
  return mostBytes + ranks * 2 * 16;
}

cudaError_t cuda::encodeAffine(cudaStream_t stream, const void *in,
                               Dtype inType, const AffineCodes &codes,
                               void *out, void *scratch) {
  auto *bytes = static_cast<unsigned char *>(out);
  const Destination to = {
      bytes, reinterpret_cast<AffineScale *>(bytes + codes.scaleOffset),
      nullptr};
  return encode(stream, in, inType, codes, to, scratch);
}

cudaError_t cuda::averageAffine(cudaStream_t stream, const void *in,
                                int64_t ranks, const AffineCodes &codes,
                                int64_t divisor, void *out, Dtype outType) {
  if (codes.count == 0)
    return cudaSuccess;
  return withCodeAndElement(codes.code, outType, [&](auto code, auto element) {
    return launch(
        stream, blocksForWarps(partElements(codes.count, kWarpElements)),
        kAffineThreads, 0, averageKernel<decltype(code), decltype(element)>,
        static_cast<const unsigned char *>(in), ranks, codes,
        static_cast<float>(divisor), out);
  });
}

cudaError_t cuda::affineError(cudaStream_t stream, const void *in, void *out,
                              Dtype type, const AffineCodes &codes,
                              void *scratch) {
  return encode(stream, in, type, codes, {nullptr, nullptr, out}, scratch);
}
