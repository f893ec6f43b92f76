// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Affine codes of one bit. Compilers vectorise these loops over doubles: every
// element type's magnitudes are exact in f64, and the order of their sum is
// part of the format.

#include "encode.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

using namespace ddphook;
using namespace ddphook::host;

/// Elements processed together; they stay in the first-level cache.
static constexpr int64_t kTile = 512;

/// Calls fn(elements as f64, first index, count) for tiles of an array.
template <class Fn>
static void forTiles(const void *in, Dtype type, int64_t n, const Fn &fn) {
  alignas(64) double tile[kTile];
  for (int64_t begin = 0; begin < n; begin += kTile) {
    const int64_t count = std::min(kTile, n - begin);
    castArray(elementAt(in, type, begin), type, tile, Dtype::F64, count);
    fn(tile, begin, count);
  }
}

AffineScale host::findSignScale(const void *in, Dtype type, int64_t n) {
  // Element i is added to sum number i % 16.
  constexpr int64_t kSums = 16;
  static_assert(kTile % kSums == 0, "a tile begins with the first sum");
  double sums[kSums] = {};
  forTiles(in, type, n, [&](double *tile, int64_t, int64_t count) {
    // Padding the last tile with zeros changes no sum.
    std::fill(tile + count, tile + (count + kSums - 1) / kSums * kSums, 0.0);
    for (int64_t i = 0; i < count; i += kSums)
      for (int64_t k = 0; k < kSums; ++k)
        sums[k] += std::fabs(tile[i + k]);
  });
  double total = 0;
  for (const double sum : sums)
    total += sum;
  const float mean = static_cast<float>(total / static_cast<double>(n));
  // An infinite or NaN element makes the sum infinite or NaN.
  if (!std::isfinite(2 * mean))
    return {std::numeric_limits<float>::quiet_NaN(), 0};
  return {2 * mean, 0.5F};
}

void host::encodeSigns(const void *in, Dtype type, int64_t n, uint8_t *codes) {
  forTiles(in, type, n, [&](double *tile, int64_t begin, int64_t count) {
    std::fill(tile + count, tile + (count + 7) / 8 * 8, 0.0);
    for (int64_t i = 0; i < count; i += 8) {
      unsigned byte = 0;
      for (unsigned k = 0; k < 8; ++k)
        byte |= (tile[i + k] < 0 ? 0U : 1U) << k;
      codes[(begin + i) / 8] = static_cast<uint8_t>(byte);
    }
  });
}

void host::unpackSigns(const uint8_t *codes, int64_t n, uint8_t *bytes) {
  for (int64_t i = 0; i < n; i += 8) {
    const unsigned byte = codes[i / 8];
    uint8_t unpacked[8];
    for (unsigned k = 0; k < 8; ++k)
      unpacked[k] = static_cast<uint8_t>(byte >> k & 1U);
    std::memcpy(bytes + i, unpacked,
                static_cast<size_t>(std::min<int64_t>(8, n - i)));
  }
}
