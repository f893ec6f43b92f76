// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Uses a counter-based generator (the SplitMix64 finaliser over key and
// position) with Box–Muller on top of it.

#include "random_tensor.h"

#include <algorithm>
#include <cmath>

using namespace ddphook;

static uint64_t mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
  x = (x ^ x >> 27) * 0x94d049bb133111ebu;
  return x ^ x >> 31;
}

namespace {

class Generator {
public:
  explicit Generator(const RandomKey &key)
      : stream(mix(mix(mix(mix(key.seed) + static_cast<uint64_t>(key.rank)) +
                       static_cast<uint64_t>(key.step)) +
                   key.argument)) {}

  uint64_t bits() { return mix(stream + position++); }

  double normal() {
    if (hasSpare) {
      hasSpare = false;
      return spare;
    }
    double radius = std::sqrt(-2.0 * std::log(uniform()));
    double angle = 2.0 * M_PI * uniform();
    spare = radius * std::sin(angle);
    hasSpare = true;
    return radius * std::cos(angle);
  }

private:
  /// Returns a number in (0, 1], so that its logarithm is finite.
  double uniform() {
    return (static_cast<double>(bits() >> 11) + 1.0) * 0x1p-53;
  }

  uint64_t stream;
  uint64_t position = 0;
  double spare = 0;
  bool hasSpare = false;
};

} // namespace

/// Returns the bits of `value` in a binary 16-bit format, without overflow
/// handling: normal numbers from Box–Muller on 53 bits are below 9 in
/// magnitude.
static uint16_t encodeHalf(double value, int mantissaBits, int minExponent) {
  if (value == 0)
    return 0;
  int exponent = std::max(std::ilogb(value), minExponent);
  // The quotient has the implicit bit, and a carry increments the exponent.
  auto quotient = static_cast<uint32_t>(
      std::nearbyint(std::ldexp(std::fabs(value), mantissaBits - exponent)));
  uint32_t bits =
      (static_cast<uint32_t>(exponent - minExponent) << mantissaBits) +
      quotient;
  return static_cast<uint16_t>(bits | (std::signbit(value) ? 0x8000u : 0u));
}

template <typename T, typename Draw>
static void fill(void *data, uint64_t count, Draw draw) {
  T *out = static_cast<T *>(data);
  std::generate(out, out + count, [&] { return static_cast<T>(draw()); });
}

void ddphook::fillRandom(const RandomKey &key, TensorType type, uint64_t count,
                         void *data) {
  Generator generator(key);
  auto normal = [&] { return generator.normal(); };
  auto integer = [&] { return generator.bits() >> 61; };
  switch (type) {
  case TensorType::F64:
    return fill<double>(data, count, normal);
  case TensorType::F32:
    return fill<float>(data, count, normal);
  case TensorType::F16:
    return fill<uint16_t>(data, count,
                          [&] { return encodeHalf(normal(), 10, -14); });
  case TensorType::BF16:
    return fill<uint16_t>(data, count,
                          [&] { return encodeHalf(normal(), 7, -126); });
  case TensorType::I64:
    return fill<uint64_t>(data, count, integer);
  case TensorType::I32:
    return fill<uint32_t>(data, count, integer);
  case TensorType::I16:
    return fill<uint16_t>(data, count, integer);
  case TensorType::I8:
  case TensorType::U8:
    return fill<uint8_t>(data, count, integer);
  case TensorType::Bool:
    return fill<uint8_t>(data, count, [&] { return generator.bits() >> 63; });
  }
}
