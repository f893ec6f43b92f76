// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// An element is infinite or NaN if all bits of its exponent are ones. Compilers
// vectorise these plain loops; the arrays are small or are read once.

#include "kernels.h"

#include <algorithm>
#include <cstring>

using namespace ddphook;

/// True if all exponent bits, `mask`, of some element are ones.
template <typename Bits>
static bool hasNonFinite(const void *in, int64_t n, Bits mask) {
  // Test a chunk at a time: the loop has no exit that would prevent
  // vectorisation, and a large array is not read to its end needlessly.
  constexpr int64_t chunk = 4096;
  auto *bytes = static_cast<const unsigned char *>(in);
  for (int64_t begin = 0; begin < n; begin += chunk) {
    int64_t end = std::min(n, begin + chunk);
    Bits found = 0;
    for (int64_t i = begin; i < end; ++i) {
      Bits bits;
      std::memcpy(&bits, bytes + i * int64_t(sizeof(Bits)), sizeof(Bits));
      found |= static_cast<Bits>((bits & mask) == mask);
    }
    if (found)
      return true;
  }
  return false;
}

bool ddphook::host::isFiniteArray(const void *in, Dtype type, int64_t n) {
  switch (type) {
  case Dtype::F16:
    return !hasNonFinite<uint16_t>(in, n, 0x7c00);
  case Dtype::BF16:
    return !hasNonFinite<uint16_t>(in, n, 0x7f80);
  case Dtype::F32:
    return !hasNonFinite<uint32_t>(in, n, 0x7f800000);
  case Dtype::F64:
    return !hasNonFinite<uint64_t>(in, n, 0x7ff0000000000000);
  }
  return false;
}
