// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The bits depend on every rounding, so single-precision arithmetic is spelled
// out: each fma is one, nothing else may be contracted into one (this file is
// compiled with -ffp-contract=off), and logarithm, sine and cosine are the
// polynomials of PyTorch's vector kernels. For f64 both use the C library.

#include "base/random.h"

#include <algorithm>
#include <cmath>
#include <cstring>

using namespace ddphook;

/// The numbers of a block: eight radii and eight angles.
static constexpr int64_t blockSize = 16;
/// PyTorch adds the mean, which turns -0 into +0.
static constexpr float mean = 0;
static constexpr double pi = 3.14159265358979323846;

// On x86-64 the single-precision kernels exist twice: where the processor has
// fma, the second version computes eight at a time. That is six times as fast
// and gives the same bits, as an fma does everywhere.
#if defined(__x86_64__)
#define DDPHOOK_FMA_TARGET __attribute__((target("avx2,fma")))
#endif
#define DDPHOOK_INLINE __attribute__((always_inline)) static inline

namespace {

/// The Mersenne twister MT19937, whose stream numpy and PyTorch share.
class MersenneTwister {
public:
  static constexpr uint32_t size = 624;

  explicit MersenneTwister(uint32_t seed) : position(size) {
    words[0] = seed;
    for (uint32_t i = 1; i < size; ++i)
      words[i] = 1812433253u * (words[i - 1] ^ (words[i - 1] >> 30)) + i;
  }
  explicit MersenneTwister(const int32_t *generator)
      : position(static_cast<uint32_t>(generator[size])) {
    std::memcpy(words, generator, sizeof(words));
  }

  void store(int32_t *generator) const {
    std::memcpy(generator, words, sizeof(words));
    generator[size] = static_cast<int32_t>(position);
  }

  uint32_t next() {
    if (position == size)
      twist();
    uint32_t y = words[position++];
    y ^= y >> 11;
    y ^= (y << 7) & 0x9d2c5680u;
    y ^= (y << 15) & 0xefc60000u;
    return y ^ (y >> 18);
  }

private:
  void twist() {
    constexpr uint32_t shift = 397;
    for (uint32_t i = 0; i < size; ++i) {
      uint32_t y = (words[i] & 0x80000000u) |
                   (words[i + 1 < size ? i + 1 : 0] & 0x7fffffffu);
      uint32_t far = words[i + shift < size ? i + shift : i + shift - size];
      words[i] = far ^ (y >> 1) ^ ((y & 1) ? 0x9908b0dfu : 0u);
    }
    position = 0;
  }

  uint32_t words[size];
  uint32_t position;
};

} // namespace

/// Draws numpy's `randint(1000000000)`: masked bits, redrawn if too large.
static uint32_t drawSeed(MersenneTwister &generator) {
  uint32_t value;
  do
    value = generator.next() & 0x3fffffffu;
  while (value > 999999999u);
  return value;
}

/// Returns the natural logarithm of a normal number in (0, 1].
DDPHOOK_INLINE float logarithm(float argument) {
  uint32_t bits;
  std::memcpy(&bits, &argument, sizeof(bits));
  // argument = m · 2^e with m in [0.5, 1).
  float e = static_cast<float>(static_cast<int>(bits >> 23) - 126);
  bits = (bits & 0x007fffffu) | 0x3f000000u;
  float x;
  std::memcpy(&x, &bits, sizeof(x));
  // Branches would keep the compiler from vectorizing the block.
  const bool isSmall = x < 0.707106781186547524f;
  e -= isSmall ? 1.0f : 0.0f;
  const float m = x;
  x = x - 1.0f;
  x = isSmall ? x + m : x;
  const float z = x * x;
  float y = 7.0376836292e-2f;
  for (float c : {-1.1514610310e-1f, 1.1676998740e-1f, -1.2420140846e-1f,
                  1.4249322787e-1f, -1.6668057665e-1f, 2.0000714765e-1f,
                  -2.4999993993e-1f, 3.3333331174e-1f})
    y = __builtin_fmaf(y, x, c);
  y = y * x;
  y = __builtin_fmaf(y, z, e * -2.12194440e-4f);
  y = __builtin_fmaf(-z, 0.5f, y);
  x = x + y;
  return __builtin_fmaf(e, 0.693359375f, x);
}

/// Computes sine and cosine of an angle from 0 to 2π.
DDPHOOK_INLINE void sineAndCosine(float x, float *sine, float *cosine) {
  const int j = (static_cast<int>(x * 1.27323954473516f) + 1) & ~1;
  const float y = static_cast<float>(j);
  // Subtracts y·π/4 in three parts.
  x = __builtin_fmaf(y, -0.78515625f, x);
  x = __builtin_fmaf(y, -2.4187564849853515625e-4f, x);
  x = __builtin_fmaf(y, -3.77489497744594108e-8f, x);
  const float z = x * x;
  float p = __builtin_fmaf(2.443315711809948e-5f, z, -1.388731625493765e-3f);
  p = __builtin_fmaf(p, z, 4.166664568298827e-2f);
  p = p * z;
  p = __builtin_fmaf(p, z, -(z * 0.5f));
  p = p + 1.0f;
  float q = __builtin_fmaf(-1.9515295891e-4f, z, 8.3321608736e-3f);
  q = __builtin_fmaf(q, z, -1.6666654611e-1f);
  q = q * z;
  q = __builtin_fmaf(q, x, x);
  const float s = (j & 2) ? p : q;
  const float c = (j & 2) ? q : p;
  *sine = (j & 4) ? -s : s;
  *cosine = (~(j - 2) & 4) ? -c : c;
}

/// Turns sixteen uniform numbers into normal ones.
DDPHOOK_INLINE void transformBlock(float *block) {
  for (int i = 0; i < 8; ++i) {
    float sine, cosine;
    const float radius = std::sqrt(-2.0f * logarithm(1.0f - block[i]));
    sineAndCosine(6.283185307179586f * block[i + 8], &sine, &cosine);
    block[i] = radius * cosine + mean;
    block[i + 8] = radius * sine + mean;
  }
}

#if defined(DDPHOOK_FMA_TARGET)
DDPHOOK_FMA_TARGET static void transformWithFma(float *block) {
  transformBlock(block);
}
#endif

static void transform(float *block) {
#if defined(DDPHOOK_FMA_TARGET)
  static const bool hasFma =
      __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  if (hasFma)
    return transformWithFma(block);
#endif
  transformBlock(block);
}

static void transform(double *block) {
  for (int i = 0; i < 8; ++i) {
    const double radius = std::sqrt(-2.0 * std::log(1.0 - block[i]));
    const double angle = 2.0 * pi * block[i + 8];
    block[i] = radius * std::cos(angle) + mean;
    block[i + 8] = radius * std::sin(angle) + mean;
  }
}

static uint16_t toBfloat16(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1)) >> 16);
}

/// Rounds a number below 65504, as all normal numbers drawn here are, to f16.
/// It computes both cases, because mispredicted branches between them are slow.
static uint16_t toHalf(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  const uint32_t sign = (bits >> 16) & 0x8000u;
  bits &= 0x7fffffffu;
  // Subnormal case: adding 0.5 rounds to a multiple of 2^-24.
  const float shifted = std::fabs(value) + 0.5f;
  uint32_t subnormal;
  std::memcpy(&subnormal, &shifted, sizeof(shifted));
  subnormal -= 0x3f000000u;
  const uint32_t normal =
      (bits + 0xfffu + ((bits >> 13) & 1) - 0x38000000u) >> 13;
  return static_cast<uint16_t>(sign |
                               (bits < 0x38800000u ? subnormal : normal));
}

namespace {

/// PyTorch's CPU generator, after `manual_seed`.
class NormalSource {
public:
  explicit NormalSource(uint32_t seed) : twister(seed) {}

  /// Draws the values of `randn(count)`.
  template <typename T>
  void draw(T *out, int64_t count) {
    if (count < blockSize) {
      for (int64_t i = 0; i < count; ++i)
        out[i] = static_cast<T>(single());
      return;
    }
    fill(out, count);
    for (int64_t i = 0; i + blockSize <= count; i += blockSize)
      transform(out + i);
    if (count % blockSize != 0) {
      T *last = out + count - blockSize;
      fill(last, blockSize);
      transform(last);
    }
  }
  /// Draws numbers of a 16-bit type. `round` rounds them from single precision,
  /// even if numbers are drawn one by one in double precision.
  template <typename Round>
  void draw(uint16_t *out, int64_t count, Round &&round) {
    if (count < blockSize) {
      for (int64_t i = 0; i < count; ++i)
        out[i] = round(static_cast<float>(single()));
      return;
    }
    for (int64_t begin = 0; begin < count; begin += blockSize) {
      // The last block overlaps the one before, and overwrites its numbers.
      uint16_t *place = out + std::min(begin, count - blockSize);
      float block[blockSize];
      fill(block, blockSize);
      transform(block);
      for (int64_t i = 0; i < blockSize; ++i)
        place[i] = round(block[i]);
    }
  }

private:
  void fill(float *out, int64_t count) {
    for (int64_t i = 0; i < count; ++i)
      out[i] = static_cast<float>(twister.next() & 0xffffffu) * 0x1p-24f;
  }
  void fill(double *out, int64_t count) {
    for (int64_t i = 0; i < count; ++i)
      out[i] = uniform();
  }
  double uniform() {
    uint64_t bits = uint64_t(twister.next()) << 32;
    bits |= twister.next();
    return static_cast<double>(bits & ((uint64_t(1) << 53) - 1)) * 0x1p-53;
  }

  /// Short draws produce pairs. The second number is kept for the next draw.
  double single() {
    if (hasCached) {
      hasCached = false;
      return cached + mean;
    }
    const double u1 = uniform();
    const double u2 = uniform();
    const double radius = std::sqrt(-2.0 * std::log1p(-u2));
    const double angle = 2.0 * pi * u1;
    cached = radius * std::sin(angle);
    hasCached = true;
    return radius * std::cos(angle) + mean;
  }

  MersenneTwister twister;
  double cached = 0;
  bool hasCached = false;
};

} // namespace

void ddphook::seedGenerator(uint32_t seed, int32_t *generator) {
  MersenneTwister(seed).store(generator);
}

bool ddphook::isGenerator(const int32_t *generator) {
  const int32_t position = generator[generatorElements - 1];
  return position >= 0 && position <= int32_t(MersenneTwister::size);
}

Status ddphook::drawNormal(int32_t *generator, const int64_t *draws,
                           int64_t drawCount, void *out, Dtype dtype) {
  if (!isGenerator(generator))
    return invalid("expected a random generator with a position from 0 to %u, "
                   "but got %d",
                   MersenneTwister::size, generator[generatorElements - 1]);
  for (int64_t i = 0; i < drawCount; ++i)
    if (draws[i] < 0)
      return invalid(
          concat("expected to draw at least 0 numbers, but got ", draws[i]));

  MersenneTwister seeds(generator);
  NormalSource source(drawSeed(seeds));
  seeds.store(generator);
  char *place = static_cast<char *>(out);
  for (int64_t i = 0; i < drawCount; ++i) {
    const int64_t count = draws[i];
    switch (dtype) {
    case Dtype::F16:
      source.draw(reinterpret_cast<uint16_t *>(place), count, toHalf);
      break;
    case Dtype::BF16:
      source.draw(reinterpret_cast<uint16_t *>(place), count, toBfloat16);
      break;
    case Dtype::F32:
      source.draw(reinterpret_cast<float *>(place), count);
      break;
    case Dtype::F64:
      source.draw(reinterpret_cast<double *>(place), count);
      break;
    }
    place += count * dtypeSize(dtype);
  }
  return Status::ok();
}
