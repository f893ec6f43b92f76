// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A warp encodes a block: it reads it for the largest element and again, from a
// cache, for the codes. A sum is computed both times, which reads codes twice
// but needs no memory for the sums of a block.
//
// Kernels test element types at run time, uniformly in all threads: kernels for
// each pair of types and codes would be four times as many.

#include "encode.h"

#include "base/collective.h"
#include "codes.h"

#include <algorithm>

using namespace ddphook;
using namespace ddphook::cuda;

namespace {

constexpr int kThreads = 256;
constexpr int kLanes = 32;

/// The number of elements of a cast that a warp processes.
constexpr int64_t kCastBlock = 1024;

constexpr int64_t kPartAlignment = 16;

int64_t roundUp(int64_t n, int64_t unit) {
  return (n + unit - 1) / unit * unit;
}

//===----------------------------------------------------------------------===//
// Blocks.
//===----------------------------------------------------------------------===//

/// The block that a warp processes.
struct Block {
  /// Its first element in the array, and its size.
  int64_t begin;
  int size;
  /// Its number within its part, and the number of the part within the launch.
  int64_t number, part;
};

/// Finds block number `warp` of the parts from number `first` on; returns true
/// if it exists.
__device__ __forceinline__ bool findBlock(const EncodedParts &parts,
                                          int64_t first, int64_t warp,
                                          Block &block) {
  block.part = warp / parts.blocks;
  block.number = warp % parts.blocks;
  const int64_t begin = (first + block.part) * parts.part;
  const int64_t end =
      begin + parts.part < parts.count ? begin + parts.part : parts.count;
  block.begin = (begin / parts.block + block.number) * parts.block;
  if (begin >= end || block.begin >= end)
    return false;
  const int64_t left = parts.count - block.begin;
  block.size = static_cast<int>(left < parts.block ? left : parts.block);
  return true;
}

__device__ __forceinline__ int64_t warpOfThread() {
  return (int64_t(blockIdx.x) * kThreads + threadIdx.x) / kLanes;
}

/// Calls fn(i, count) for this thread's quads of a block: `count` elements from
/// element `i` of the block on.
template <class Fn>
__device__ __forceinline__ void forQuads(int size, const Fn &fn) {
  const int lane = static_cast<int>(threadIdx.x % kLanes);
  for (int i = lane * kQuad; i < size; i += kLanes * kQuad)
    fn(i, size - i < kQuad ? size - i : kQuad);
}

/// Returns the scale of a block; load(i, count, x) loads its elements.
template <class CodeT, class Load>
__device__ __forceinline__ uint16_t findScale(int size, const Load &load) {
  // Bits of magnitudes have the order of the floats, NaNs last.
  uint32_t most = 0;
  forQuads(size, [&](int i, int count) {
    float x[kQuad];
    load(i, count, x);
#pragma unroll
    for (int v = 0; v < kQuad; ++v) {
      const uint32_t magnitude = bitsOf(x[v]) & 0x7fffffffu;
      most = magnitude > most ? magnitude : most;
    }
  });
  for (int offset = kLanes / 2; offset > 0; offset /= 2) {
    const uint32_t other = __shfl_xor_sync(~0u, most, offset);
    most = other > most ? other : most;
  }
  return scaleOf<CodeT>(most);
}

/// Calls store(i, count, x) with the values to round to the codes of a block;
/// returns its scale.
template <class CodeT, class Load, class Store>
__device__ __forceinline__ uint16_t encodeBlock(const Block &block,
                                                const DeviceRounding &rounding,
                                                const Load &load,
                                                const Store &store) {
  uint16_t scale = 0;
  if constexpr (CodeT::kIsScaled)
    scale = findScale<CodeT>(block.size, load);
  const float factor = BF16::widen(scale);
  forQuads(block.size, [&](int i, int count) {
    float x[kQuad];
    load(i, count, x);
    if constexpr (CodeT::kIsScaled)
      quotientsOf<CodeT>(x, factor, rounding, block.begin + i);
    store(i, count, x);
  });
  return scale;
}

/// Decodes the codes from code `i` on of a block with the given scale.
template <class CodeT>
__device__ __forceinline__ void decodeQuad(const unsigned char *codes,
                                           int64_t i, int count, float scale,
                                           float (&x)[kQuad]) {
  CodeT::load(codes, i, count, x);
  if constexpr (CodeT::kIsScaled) {
#pragma unroll
    for (int v = 0; v < kQuad; ++v)
      x[v] *= scale;
  }
}

template <class CodeT>
__device__ __forceinline__ float
scaleAt(const EncodedParts &parts, const unsigned char *part, int64_t number) {
  if constexpr (!CodeT::kIsScaled)
    return 1;
  else
    return BF16::widen(
        reinterpret_cast<const uint16_t *>(part + parts.scaleOffset)[number]);
}

/// Encodes a block of a part.
template <class CodeT, class Load>
__device__ __forceinline__ void
encodeInto(const EncodedParts &parts, const Block &block,
           const DeviceRounding &rounding, const Load &load,
           unsigned char *part) {
  const int64_t first = block.number * parts.block;
  const uint16_t scale = encodeBlock<CodeT>(
      block, rounding, load, [&](int i, int count, const float (&x)[kQuad]) {
        CodeT::store(x, part, first + i, count);
      });
  if (CodeT::kIsScaled && threadIdx.x % kLanes == 0)
    reinterpret_cast<uint16_t *>(part + parts.scaleOffset)[block.number] =
        scale;
}

//===----------------------------------------------------------------------===//
// Kernels.
//===----------------------------------------------------------------------===//

template <class CodeT>
__global__ void __launch_bounds__(kThreads)
    encodeKernel(const void *in, Dtype type, EncodedParts parts, int64_t warps,
                 unsigned char *out, DeviceRounding rounding) {
  const int64_t warp = warpOfThread();
  Block block;
  if (warp >= warps || !findBlock(parts, /*first=*/0, warp, block))
    return;
  encodeInto<CodeT>(
      parts, block, rounding,
      [&](int i, int count, float (&x)[kQuad]) {
        loadQuad(in, type, block.begin + i, count, x);
      },
      out + block.part * parts.bytes);
}

template <class CodeT>
__global__ void __launch_bounds__(kThreads)
    sumKernel(const unsigned char *in, int ranks, EncodedParts parts,
              int64_t number, int64_t warps, float divisor, unsigned char *out,
              DeviceRounding rounding) {
  const int64_t warp = warpOfThread();
  Block block;
  if (warp >= warps || !findBlock(parts, number, warp, block))
    return;
  const int64_t first = block.number * parts.block;
  encodeInto<CodeT>(
      parts, block, rounding,
      [&](int i, int count, float (&sum)[kQuad]) {
        for (int k = 0; k < ranks; ++k) {
          const unsigned char *part = in + k * parts.bytes;
          float x[kQuad];
          decodeQuad<CodeT>(part, first + i, count,
                            scaleAt<CodeT>(parts, part, block.number), x);
#pragma unroll
          for (int v = 0; v < kQuad; ++v)
            sum[v] = k == 0 ? x[v] : sum[v] + x[v];
        }
#pragma unroll
        for (int v = 0; v < kQuad; ++v)
          sum[v] /= divisor;
      },
      out);
}

template <class CodeT>
__global__ void __launch_bounds__(kThreads)
    decodeKernel(const unsigned char *in, EncodedParts parts, int64_t first,
                 int64_t warps, void *out, Dtype type) {
  const int64_t warp = warpOfThread();
  Block block;
  if (warp >= warps || !findBlock(parts, first, warp, block))
    return;
  const unsigned char *part = in + block.part * parts.bytes;
  const float scale = scaleAt<CodeT>(parts, part, block.number);
  // If two parts share a block, each gets some of its elements.
  const int64_t begin = (first + block.part) * parts.part;
  const int64_t end = begin + parts.part;
  forQuads(block.size, [&](int i, int count) {
    float x[kQuad];
    decodeQuad<CodeT>(part, block.number * parts.block + i, count, scale, x);
    const int64_t element = block.begin + i;
    const int64_t skipped = begin > element ? begin - element : 0;
    const int64_t most = end - element < count ? end - element : count;
    if (skipped >= most)
      return;
    withElementOf(type, [&](auto to) {
      storeElements<decltype(to)>(x, out, element - first * parts.part,
                                  static_cast<int>(skipped),
                                  static_cast<int>(most));
    });
  });
}

template <class CodeT>
__global__ void __launch_bounds__(kThreads)
    errorKernel(const void *in, void *out, Dtype type, EncodedParts parts,
                int64_t warps, DeviceRounding rounding) {
  const int64_t warp = warpOfThread();
  Block block;
  if (warp >= warps || !findBlock(parts, /*first=*/0, warp, block))
    return;
  auto load = [&](int i, int count, float (&x)[kQuad]) {
    loadQuad(in, type, block.begin + i, count, x);
  };
  // All lanes find it first, because `out` may be `in`.
  float scale = 1;
  if constexpr (CodeT::kIsScaled)
    scale = BF16::widen(findScale<CodeT>(block.size, load));
  forQuads(block.size, [&](int i, int count) {
    float x[kQuad];
    load(i, count, x);
    if constexpr (CodeT::kIsScaled)
      quotientsOf<CodeT>(x, scale, rounding, block.begin + i);
#pragma unroll
    for (int v = 0; v < kQuad; ++v)
      x[v] = CodeT::kIsScaled ? CodeT::round(x[v]) * scale : CodeT::round(x[v]);
    withElementOf(type, [&](auto element) {
      ComputeOf<decltype(element)> from[kQuad];
      loadElements<decltype(element)>(in, block.begin + i, count, from);
      storeLost<decltype(element)>(from, x, out, block.begin + i, count);
    });
  });
}

//===----------------------------------------------------------------------===//
// Launches.
//===----------------------------------------------------------------------===//

/// Calls fn(CodeT()) with the class of a code without zero points.
template <class Fn>
cudaError_t withCode(Code code, const Fn &fn) {
  switch (code) {
  case Code::F16:
    return fn(CastCode<F16>());
  case Code::BF16:
    return fn(CastCode<BF16>());
  case Code::I8:
    return fn(CodeI8());
  case Code::I4:
    return fn(CodeI4());
  case Code::F8E4M3FN:
    return fn(CodeF8E4M3FN());
  case Code::F8E5M2:
    return fn(CodeF8E5M2());
  case Code::UI8:
  case Code::UI1:
    return cudaErrorInvalidValue;
  }
  return cudaErrorInvalidValue;
}

DeviceRounding toDevice(const std::optional<Rounding> &rounding) {
  if (!rounding)
    return {};
  return {true,
          {static_cast<uint32_t>(rounding->stream),
           static_cast<uint32_t>(rounding->stream >> 32)},
          rounding->step,
          rounding->lane,
          rounding->first};
}

int64_t blocksFor(int64_t warps) {
  constexpr int64_t perBlock = kThreads / kLanes;
  return (warps + perBlock - 1) / perBlock;
}

int64_t blockOf(const Encoding &encoding) {
  return encoding.kind() == CodeKind::CAST ? kCastBlock : encoding.block;
}

EncodedParts makeParts(const Encoding &encoding, int64_t count, int64_t part,
                       int64_t blocks) {
  EncodedParts parts = {encoding, count, part, blockOf(encoding), blocks, 0, 0};
  const int64_t elements = blocks * parts.block;
  parts.scaleOffset = roundUp(encoding.codeBytes(elements), kPartAlignment);
  parts.bytes = roundUp(parts.scaleOffset + encoding.scaleBytes(elements),
                        kPartAlignment);
  return parts;
}

} // namespace

EncodedParts EncodedParts::ofWholeBlocks(const Encoding &encoding,
                                         int64_t count, int64_t ranks) {
  const int64_t block = blockOf(encoding);
  const int64_t blocks = partElements(partElements(count, block), ranks);
  return makeParts(encoding, count, blocks * block, blocks);
}

EncodedParts EncodedParts::ofScatter(const Encoding &encoding, int64_t count,
                                     int64_t ranks) {
  const int64_t block = blockOf(encoding);
  const int64_t part = ddphook::partElements(count, ranks);
  // Parts that start within a block touch one more.
  const int64_t blocks =
      partElements(part, block) + (part % block != 0 && ranks > 1);
  return makeParts(encoding, count, part, blocks);
}

int64_t EncodedParts::mostBytes(int64_t mostBytes, int64_t ranks) {
  // Reserve three extra blocks per part: a partial block, a block shared with
  // the next part, and one for rounding. Casts use the longest block.
  constexpr int64_t blockBytes = std::max<int64_t>(
      Encoding::kMostBlock + sizeof(uint16_t), kCastBlock * sizeof(uint16_t));
  return mostBytes + ranks * (3 * blockBytes + 2 * kPartAlignment);
}

cudaError_t cuda::encodeParts(cudaStream_t stream, const void *in, Dtype inType,
                              const EncodedParts &parts, int64_t ranks,
                              void *out,
                              const std::optional<Rounding> &rounding) {
  const int64_t warps = parts.blocks * ranks;
  return withCode(parts.encoding.code, [&](auto code) {
    return launch(stream, blocksFor(warps), kThreads, 0,
                  encodeKernel<decltype(code)>, in, inType, parts, warps,
                  static_cast<unsigned char *>(out), toDevice(rounding));
  });
}

cudaError_t cuda::sumPart(cudaStream_t stream, const void *in, int64_t ranks,
                          const EncodedParts &parts, int64_t part,
                          int64_t divisor, void *out,
                          const std::optional<Rounding> &rounding) {
  return withCode(parts.encoding.code, [&](auto code) {
    return launch(stream, blocksFor(parts.blocks), kThreads, 0,
                  sumKernel<decltype(code)>,
                  static_cast<const unsigned char *>(in), ranks, parts, part,
                  parts.blocks, static_cast<float>(divisor),
                  static_cast<unsigned char *>(out), toDevice(rounding));
  });
}

cudaError_t cuda::decodeParts(cudaStream_t stream, const void *in,
                              const EncodedParts &parts, int64_t first,
                              int64_t number, void *out, Dtype outType) {
  const int64_t warps = parts.blocks * number;
  return withCode(parts.encoding.code, [&](auto code) {
    return launch(stream, blocksFor(warps), kThreads, 0,
                  decodeKernel<decltype(code)>,
                  static_cast<const unsigned char *>(in), parts, first, warps,
                  out, outType);
  });
}

cudaError_t cuda::encodingError(cudaStream_t stream, const void *in, void *out,
                                Dtype type, int64_t n, const Encoding &encoding,
                                const std::optional<Rounding> &rounding) {
  const EncodedParts all = EncodedParts::ofWholeBlocks(encoding, n, 1);
  return withCode(encoding.code, [&](auto code) {
    return launch(stream, blocksFor(all.blocks), kThreads, 0,
                  errorKernel<decltype(code)>, in, out, type, all, all.blocks,
                  toDevice(rounding));
  });
}
