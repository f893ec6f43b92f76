// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Compares encoding, decoding and sums of codes with a scalar model in doubles,
// bit by bit, on every instruction set of the processor. The codes are those of
// docs/quantization.md; test/parity/test_quantization.py has other references.

#include "backends/host/kernels_test_util.h"
#include "encode.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <optional>

using namespace ddphook;
using namespace ddphook::host;

namespace {

class Codes : public KernelTest {};
INSTANTIATE_TEST_SUITE_P(Targets, Codes, testing::ValuesIn(targets()),
                         targetNameOf);

const Encoding kEncodings[] = {
    {Code::I8, 32},        {Code::I8, 256},    {Code::I4, 64}, {Code::I4, 96},
    {Code::F8E4M3FN, 256}, {Code::I8, 4096},   {Code::F16, 0}, {Code::BF16, 0},
    {Code::F8E5M2, 256},   {Code::F8E5M2, 32},
};
constexpr int64_t kCounts[] = {1, 2, 31, 32, 33, 255, 257, 1000, 5003};

/// What a code of f8E4M3FN or f8E5M2 stands for.
double fromF8(Code type, unsigned code) {
  const int places = type == Code::F8E5M2 ? 2 : 3;
  const int bias = type == Code::F8E5M2 ? 15 : 7;
  const int ones = type == Code::F8E5M2 ? 31 : 15;
  const int exponent = static_cast<int>(code >> places) & ones;
  const int fraction = static_cast<int>(code) & ((1 << places) - 1);
  const double sign = code & 0x80 ? -1 : 1;
  if (type == Code::F8E5M2 && exponent == ones && fraction == 0)
    return sign * std::numeric_limits<double>::infinity();
  if (exponent == ones && (type == Code::F8E5M2 || fraction == 7))
    return std::numeric_limits<double>::quiet_NaN();
  return sign * (exponent == 0 ? std::ldexp(fraction, 1 - bias - places)
                               : std::ldexp((1 << places) + fraction,
                                            exponent - bias - places));
}

/// The nearest number of that type, which has one as large; ties go to the even
/// one.
double roundToF8(Code type, double value) {
  double best = 0;
  unsigned bestCode = 0;
  const double magnitude = std::fabs(value);
  for (unsigned code = 0; std::isfinite(fromF8(type, code)); ++code) {
    const double left = std::fabs(fromF8(type, code) - magnitude);
    const double right = std::fabs(best - magnitude);
    if (left < right || (left == right && code % 2 == 0 && bestCode % 2 == 1)) {
      best = fromF8(type, code);
      bestCode = code;
    }
  }
  return std::copysign(best, value);
}

bool isF8(Code code) { return code == Code::F8E4M3FN || code == Code::F8E5M2; }

float largestOf(Code code) {
  switch (code) {
  case Code::I8:
    return 127;
  case Code::I4:
    return 7;
  case Code::F8E4M3FN:
    return 448;
  case Code::F8E5M2:
    return 57344;
  default:
    return 0;
  }
}

/// Philox4x32-10, as its authors' paper has it.
std::array<uint32_t, 4> philox(std::array<uint32_t, 4> x, uint64_t key) {
  auto key0 = static_cast<uint32_t>(key);
  auto key1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = 0xd2511f53ull * x[0], b = 0xcd9e8d57ull * x[2];
    x = {static_cast<uint32_t>(b >> 32) ^ x[1] ^ key0, static_cast<uint32_t>(b),
         static_cast<uint32_t>(a >> 32) ^ x[3] ^ key1,
         static_cast<uint32_t>(a)};
    key0 += 0x9e3779b9u;
    key1 += 0xbb67ae85u;
  }
  return x;
}

/// The random number, below 1, of element `i` of an array.
double randomOf(const Rounding &rounding, int64_t i) {
  const int64_t element = rounding.first + i;
  const std::array<uint32_t, 4> words = philox(
      {static_cast<uint32_t>(element / 4),
       static_cast<uint32_t>(element / 4 >> 32), rounding.step, rounding.lane},
      rounding.stream);
  return std::ldexp(words[static_cast<size_t>(element % 4)] >> 8, -24);
}

/// The number of the type below a magnitude or the one above, by chance.
double roundByChance(Code code, double value, double random) {
  const double magnitude = std::fabs(value);
  double lower = std::floor(magnitude), upper = lower + 1;
  if (isF8(code)) {
    unsigned number = 0;
    while (fromF8(code, number + 1) <= magnitude)
      ++number;
    lower = fromF8(code, number);
    upper = fromF8(code, number + 1);
  }
  const bool isUpper =
      magnitude > lower && random < (magnitude - lower) / (upper - lower);
  return std::copysign(isUpper ? upper : lower, value);
}

/// The elements that one block decodes to. Element i is number `first` + i.
std::vector<double> modelOfBlock(const std::vector<float> &block, Code code,
                                 const std::optional<Rounding> &rounding = {},
                                 int64_t first = 0) {
  std::vector<double> out;
  if (code == Code::F16 || code == Code::BF16) {
    const Dtype type = code == Code::F16 ? Dtype::F16 : Dtype::BF16;
    for (float x : block)
      out.push_back(roundTo(type, x));
    return out;
  }
  const float largest = largestOf(code);
  float most = 0;
  bool isFinite = true;
  for (float x : block) {
    isFinite &= std::isfinite(x);
    most = std::max(most, std::fabs(x));
  }
  const double scale = isFinite ? roundTo(Dtype::BF16, most / largest)
                                : std::numeric_limits<double>::quiet_NaN();
  for (float x : block) {
    double q = 0;
    if (scale > 0) {
      q = std::clamp(x / static_cast<float>(scale), -largest, largest);
      if (rounding)
        q = roundByChance(code, q, randomOf(*rounding, first));
      else
        q = isF8(code) ? roundToF8(code, q) : std::nearbyint(q);
      // A whole number has no sign of zero.
      q = isF8(code) ? q : q + 0.0;
    }
    out.push_back(static_cast<float>(q * scale));
    ++first;
  }
  return out;
}

std::vector<double> model(const std::vector<float> &values,
                          const Encoding &encoding,
                          const std::optional<Rounding> &rounding = {}) {
  const size_t size =
      encoding.block == 0 ? values.size() : static_cast<size_t>(encoding.block);
  std::vector<double> out;
  for (size_t i = 0; i < values.size(); i += size) {
    const size_t end = std::min(values.size(), i + size);
    for (double x :
         modelOfBlock({values.begin() + static_cast<ptrdiff_t>(i),
                       values.begin() + static_cast<ptrdiff_t>(end)},
                      encoding.code, rounding, static_cast<int64_t>(i)))
      out.push_back(x);
  }
  return out;
}

/// Codes and scales that end at memory that may not be touched.
struct Encoded {
  Encoded(const Encoding &encoding, int64_t n)
      : codes(Dtype::BF16, (encoding.codeBytes(n) + 1) / 2),
        scales(Dtype::BF16, encoding.scaleBytes(n) / 2) {}
  EncodedArray get() { return {codes.data(), scales.data()}; }

  Array codes, scales;
};

/// Values of all magnitudes, with blocks of zeros, of subnormals, of equal
/// elements, and with infinities and NaNs.
void fill(Array &array, int64_t n, Dtype type, unsigned seed) {
  std::mt19937_64 random(seed);
  for (int64_t i = 0; i < n; ++i) {
    const double sign = random() & 1 ? -1 : 1;
    const double unit = std::ldexp(static_cast<double>(random() >> 11), -53);
    double value = sign * unit;
    switch (i / 32 % 7) {
    case 0:
      value = 0 * sign;
      break;
    case 1:
      value *= type == Dtype::F16 ? 0x1p-20 : 0x1p-135;
      break;
    case 2:
      value = sign;
      break;
    case 3:
      value = std::ldexp(value, static_cast<int>(random() % 28) - 14);
      break;
    case 4:
      if (i % 700 == 0)
        value = random() & 1 ? std::numeric_limits<double>::infinity()
                             : std::numeric_limits<double>::quiet_NaN();
      break;
    default:
      break;
    }
    array.set(i, value);
  }
}

std::vector<float> toFloats(const Array &array, int64_t n) {
  std::vector<float> values;
  for (int64_t i = 0; i < n; ++i)
    values.push_back(static_cast<float>(array[i]));
  return values;
}

TEST_P(Codes, ComeBackAsTheModelSays) {
  unsigned seed = 20261123;
  for (const Encoding &encoding : kEncodings)
    for (Dtype type : kTypes)
      for (int64_t n : kCounts) {
        SCOPED_TRACE(encoding.describe() + " of " + std::to_string(n) +
                     ", seed " + std::to_string(seed));
        Array in(type, n), out(type, n), error(type, n);
        fill(in, n, type, seed++);
        Encoded encoded(encoding, n);
        encodeArray(in.data(), type, n, encoding, encoded.get());
        decodeArray(encoded.get(), encoding, n, out.data(), type);
        const std::vector<double> want = model(toFloats(in, n), encoding);
        auto at = [&](int64_t i) { return want[static_cast<size_t>(i)]; };
        out.expect(at);
        encodingError(in.data(), error.data(), type, n, encoding);
        error.expect([&](int64_t i) {
          return std::isfinite(at(i)) ? computed(type, in[i] - at(i)) : 0;
        });
        // In place.
        encodingError(in.data(), in.data(), type, n, encoding);
        in.expect([&](int64_t i) { return error[i]; });
        if (HasFailure())
          return;
      }
}

/// In the middle of a code and the next one, in units of the scale.
double middleAbove(Code code, unsigned number) {
  return isF8(code) ? (fromF8(code, number) + fromF8(code, number + 1)) / 2
                    : number + 0.5;
}

TEST_P(Codes, RoundWhatIsNextToTheMiddleOfTwoAsADivisionDoes) {
  const unsigned seed = 20261126;
  std::mt19937_64 random(seed);
  for (const Encoding &encoding : kEncodings) {
    const float largest = largestOf(encoding.code);
    if (largest == 0)
      continue;
    const int64_t n = encoding.block;
    for (int exponent = -140; exponent <= 110; ++exponent) {
      SCOPED_TRACE(encoding.describe() + ", scale near 2^" +
                   std::to_string(exponent) + ", seed " + std::to_string(seed));
      // A number of 8 bits: the scale of a block whose largest element is this
      // many times the largest code.
      const float scale =
          std::ldexp(static_cast<float>(128 + random() % 128), exponent - 7);
      std::vector<float> block = {scale * largest};
      while (block.size() < static_cast<size_t>(n)) {
        const auto number = static_cast<unsigned>(
            random() % (isF8(encoding.code) ? 120 : unsigned(largest)));
        float x =
            static_cast<float>(middleAbove(encoding.code, number) * scale);
        for (auto steps = random() % 3; steps > 0; --steps)
          x = std::nextafter(x, random() & 1 ? 0.0f : largest * scale);
        block.push_back(random() & 1 ? -x : x);
      }
      Array in(Dtype::F32, n), out(Dtype::F32, n);
      for (int64_t i = 0; i < n; ++i)
        in.set(i, block[static_cast<size_t>(i)]);
      Encoded encoded(encoding, n);
      encodeArray(in.data(), Dtype::F32, n, encoding, encoded.get());
      decodeArray(encoded.get(), encoding, n, out.data(), Dtype::F32);
      const std::vector<double> want = modelOfBlock(block, encoding.code);
      out.expect([&](int64_t i) { return want[static_cast<size_t>(i)]; });
      if (HasFailure())
        return;
    }
  }
}

TEST_P(Codes, AreAddedInOrder) {
  unsigned seed = 7;
  for (const Encoding &encoding : kEncodings)
    for (int ranks : {1, 2, 3, 5})
      for (int64_t n : {1, 33, 257, 5003}) {
        SCOPED_TRACE(encoding.describe() + " of " + std::to_string(n) +
                     ", ranks " + std::to_string(ranks));
        std::vector<std::unique_ptr<Encoded>> parts;
        std::vector<EncodedArray> sources;
        std::vector<float> total(static_cast<size_t>(n));
        for (int rank = 0; rank < ranks; ++rank) {
          Array in(Dtype::F32, n);
          fill(in, n, Dtype::F32, seed++);
          parts.push_back(std::make_unique<Encoded>(encoding, n));
          sources.push_back(parts.back()->get());
          encodeArray(in.data(), Dtype::F32, n, encoding, sources.back());
          const std::vector<double> part = model(toFloats(in, n), encoding);
          for (size_t i = 0; i < total.size(); ++i)
            total[i] =
                static_cast<float>(rank == 0 ? part[i] : total[i] + part[i]);
        }
        for (float &x : total)
          x /= static_cast<float>(ranks);
        const std::vector<double> want = model(total, encoding);
        // Into one of the sources.
        sumEncoded(sources.data(), ranks, encoding, n, ranks, sources.back());
        Array out(Dtype::F32, n);
        decodeArray(sources.back(), encoding, n, out.data(), Dtype::F32);
        out.expect([&](int64_t i) { return want[static_cast<size_t>(i)]; });
        if (HasFailure())
          return;
      }
}

/// Elements of long arrays, whose whole blocks kernels take together, but for
/// some: of zeros, of unusual scales, or of infinities.
void fillBlocks(Array &array, int64_t n, int64_t block,
                std::mt19937_64 &random) {
  const double infinity = std::numeric_limits<double>::infinity();
  const double factors[] = {0,        0x1p-80,  0x1p+100,
                            0x1p-140, infinity, -infinity};
  for (int64_t begin = 0; begin < n; begin += block) {
    const auto kind = random() % 64;
    for (int64_t i = begin; i < std::min(n, begin + block); ++i) {
      const double value = std::ldexp(static_cast<double>(random() >> 11), -52);
      array.set(i, (kind < 5 ? factors[kind] : 1) * (value - 1));
    }
  }
}

TEST_P(Codes, OfManyBlocksAreThoseOfEach) {
  unsigned seed = 20261127;
  for (const Encoding &encoding : kEncodings)
    for (int64_t n : {8192, 20001}) {
      SCOPED_TRACE(encoding.describe() + ", seed " + std::to_string(seed));
      std::mt19937_64 random(seed++);
      Encoded first(encoding, n), second(encoding, n), third(encoding, n);
      const EncodedArray sources[] = {first.get(), second.get(), third.get()};
      std::vector<float> total(static_cast<size_t>(n));
      Array in(Dtype::F32, n), out(Dtype::F32, n);
      for (int ranks = 1; ranks <= 3; ++ranks) {
        fillBlocks(in, n, std::max<int64_t>(encoding.block, 32), random);
        encodeArray(in.data(), Dtype::F32, n, encoding, sources[ranks - 1]);
        std::vector<double> want = model(toFloats(in, n), encoding);
        auto at = [&](int64_t i) { return want[static_cast<size_t>(i)]; };
        decodeArray(sources[ranks - 1], encoding, n, out.data(), Dtype::F32);
        out.expect(at);
        encodingError(in.data(), out.data(), Dtype::F32, n, encoding);
        out.expect([&](int64_t i) {
          return std::isfinite(at(i)) ? computed(Dtype::F32, in[i] - at(i)) : 0;
        });
        std::vector<float> mean;
        for (size_t i = 0; i < total.size(); ++i) {
          total[i] =
              static_cast<float>(ranks == 1 ? want[i] : total[i] + want[i]);
          mean.push_back(total[i] / static_cast<float>(ranks));
        }
        want = model(mean, encoding);
        Encoded sum(encoding, n);
        sumEncoded(sources, ranks, encoding, n, ranks, sum.get());
        decodeArray(sum.get(), encoding, n, out.data(), Dtype::F32);
        out.expect(at);
      }
    }
}

/// Known answers of the generator's authors (kat_vectors of Random123).
TEST(Philox, GivesTheKnownAnswers) {
  EXPECT_EQ(philox({0, 0, 0, 0}, 0),
            (std::array<uint32_t, 4>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c,
                                     0x9b00dbd8}));
  EXPECT_EQ(philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
                   0x299f31d0a4093822),
            (std::array<uint32_t, 4>{0xd16cfe09, 0x94fdcceb, 0x5001e420,
                                     0x24126ea1}));
}

/// The last one's counters wrap within the array.
const Rounding kRoundings[] = {{0, 0, 0, 0},
                               {0x6a09e667f3bcc908, 7, 3, 4096},
                               {~0ull, ~0u, ~0u, (int64_t{4} << 32) - 96}};

TEST_P(Codes, AreRoundedStochasticallyAsTheModelSays) {
  unsigned seed = 20261124;
  for (const Encoding &encoding : kEncodings) {
    if (encoding.kind() != CodeKind::SCALED)
      continue;
    for (const Rounding &rounding : kRoundings)
      for (int64_t n : {1, 33, 257, 5003}) {
        const Dtype type = kTypes[seed % std::size(kTypes)];
        SCOPED_TRACE(encoding.describe() + " of " + std::to_string(n) +
                     ", seed " + std::to_string(seed));
        Array in(type, n), out(type, n), error(type, n);
        fill(in, n, type, seed++);
        Encoded encoded(encoding, n);
        encodeArray(in.data(), type, n, encoding, encoded.get(), rounding);
        decodeArray(encoded.get(), encoding, n, out.data(), type);
        const std::vector<double> want =
            model(toFloats(in, n), encoding, rounding);
        auto at = [&](int64_t i) { return want[static_cast<size_t>(i)]; };
        out.expect(at);
        encodingError(in.data(), error.data(), type, n, encoding, rounding);
        error.expect([&](int64_t i) {
          return std::isfinite(at(i)) ? computed(type, in[i] - at(i)) : 0;
        });
        // The sum of one rank's codes: what they decode to is rounded.
        std::vector<float> decoded(want.begin(), want.end());
        const Rounding ofSum = {rounding.stream, rounding.step,
                                rounding.lane ^ 1, rounding.first};
        const EncodedArray source = encoded.get();
        sumEncoded(&source, 1, encoding, n, 3, encoded.get(), ofSum);
        for (float &x : decoded)
          x /= 3;
        const std::vector<double> sum = model(decoded, encoding, ofSum);
        Array total(Dtype::F32, n);
        decodeArray(encoded.get(), encoding, n, total.data(), Dtype::F32);
        total.expect([&](int64_t i) { return sum[static_cast<size_t>(i)]; });
        if (HasFailure())
          return;
      }
  }
}

/// Over many steps the mean of what an element becomes is the element: within
/// five standard errors, which one element in a million misses by chance.
TEST_P(Codes, AreUnbiasedWhenRoundedStochastically) {
  constexpr int64_t n = 64;
  constexpr unsigned steps = 4096;
  for (const Encoding &encoding :
       {Encoding{Code::I8, 64}, Encoding{Code::I4, 64},
        Encoding{Code::F8E4M3FN, 64}, Encoding{Code::F8E5M2, 64}}) {
    SCOPED_TRACE(encoding.describe());
    // A power of two as the scale: the largest element stays as it is.
    const float largest = largestOf(encoding.code);
    Array in(Dtype::F32, n), out(Dtype::F32, n);
    std::mt19937_64 random(5);
    for (int64_t i = 0; i < n; ++i)
      in.set(i, i == 0 ? largest
                       : std::ldexp(static_cast<double>(random() >> 11), -52) *
                                 largest -
                             largest);
    std::vector<double> sums(n), squares(n);
    Encoded encoded(encoding, n);
    for (unsigned step = 0; step < steps; ++step) {
      encodeArray(in.data(), Dtype::F32, n, encoding, encoded.get(),
                  Rounding{17, step, 1, 0});
      decodeArray(encoded.get(), encoding, n, out.data(), Dtype::F32);
      for (int64_t i = 0; i < n; ++i) {
        sums[static_cast<size_t>(i)] += out[i] - in[i];
        squares[static_cast<size_t>(i)] += (out[i] - in[i]) * (out[i] - in[i]);
      }
    }
    EXPECT_EQ(squares[0], 0);
    for (size_t i = 1; i < n; ++i)
      EXPECT_LT(std::fabs(sums[i]), 5 * std::sqrt(squares[i]) + 1e-6) << i;
  }
}

/// All patterns, those that nothing encodes to among them.
TEST_P(Codes, OfAllPatternsAreDecoded) {
  for (const Encoding &encoding :
       {Encoding{Code::I8, 256}, Encoding{Code::I4, 512},
        Encoding{Code::F8E4M3FN, 256}, Encoding{Code::F8E5M2, 256}}) {
    const int64_t n = 256 * 8 / codeBits(encoding.code);
    std::vector<uint8_t> codes(256);
    for (size_t i = 0; i < codes.size(); ++i)
      codes[i] = static_cast<uint8_t>(i);
    for (float scale : {1.0f, 0.75f, 0x1p-133f}) {
      uint16_t bits = encode(Dtype::BF16, scale);
      Array out(Dtype::F32, n);
      decodeArray({codes.data(), &bits}, encoding, n, out.data(), Dtype::F32);
      out.expect([&](int64_t i) -> double {
        double q = 0;
        if (encoding.code == Code::I8)
          q = static_cast<int8_t>(codes[static_cast<size_t>(i)]);
        else if (isF8(encoding.code))
          q = fromF8(encoding.code, codes[static_cast<size_t>(i)]);
        else
          q = static_cast<int8_t>(static_cast<uint8_t>(
                  codes[static_cast<size_t>(i / 2)] << (i % 2 == 0 ? 4 : 0))) >>
              4;
        return static_cast<float>(q * scale);
      });
    }
  }
}

/// Where a scale was rounded down as far as can be, the quotient of a block's
/// largest element is above the largest code.
TEST_P(Codes, OfLargestElementsAreTheLargest) {
  constexpr int64_t n = 160;
  for (const Encoding &encoding : kEncodings) {
    if (encoding.kind() != CodeKind::SCALED)
      continue;
    const float largest = largestOf(encoding.code);
    for (int exponent : {-70, -64, -7, 0, 57, 64})
      for (int significand = 128; significand < 256; ++significand) {
        const double scale = std::ldexp(significand, exponent);
        auto x = static_cast<float>(largest * scale * (1 + 0x1p-8));
        while (roundTo(Dtype::BF16, x / largest) > scale)
          x = std::nextafter(x, 0.0f);
        Array in(Dtype::F32, n), out(Dtype::F32, n);
        for (int64_t i = 0; i < n; ++i)
          in.set(i, i % 2 == 0 ? x : -x);
        Encoded encoded(encoding, n);
        encodeArray(in.data(), Dtype::F32, n, encoding, encoded.get());
        decodeArray(encoded.get(), encoding, n, out.data(), Dtype::F32);
        SCOPED_TRACE(encoding.describe() + ", scale " + std::to_string(scale));
        out.expect([&](int64_t i) {
          return i % 2 == 0 ? largest * scale : -largest * scale;
        });
        if (HasFailure())
          return;
      }
  }
}

/// To any address, with the same bits.
TEST_P(Codes, AreDecodedAroundTheCaches) {
  unsigned seed = 20261126;
  for (const Encoding &encoding : kEncodings)
    for (int64_t n : {1, 31, 1000, 1024, 5003})
      for (int64_t gap : {0, 1, 8, 16}) {
        SCOPED_TRACE(encoding.describe() + " of " + std::to_string(n) +
                     ", seed " + std::to_string(seed));
        const Dtype type = kTypes[seed % std::size(kTypes)];
        Array in(type, n), cached(type, n), streamed(type, n, gap);
        fill(in, n, type, seed++);
        Encoded encoded(encoding, n);
        encodeArray(in.data(), type, n, encoding, encoded.get());
        decodeArray(encoded.get(), encoding, n, cached.data(), type);
        decodeArray(encoded.get(), encoding, n, streamed.data(), type,
                    Stores::Streaming);
        streamed.expect([&](int64_t i) { return cached[i]; });
        if (HasFailure())
          return;
      }
}

TEST_P(Codes, AffineOnesComeBackAsTheModelSays) {
  unsigned seed = 11;
  for (int64_t n : {1, 3, 33, 512, 1001})
    for (bool isStrange : {false, true}) {
      SCOPED_TRACE("seed " + std::to_string(seed));
      Array in(Dtype::F32, n), out(Dtype::F32, n);
      std::mt19937_64 random(seed++);
      for (int64_t i = 0; i < n; ++i)
        in.set(i, std::ldexp(static_cast<double>(random() >> 40), -20) - 3);
      if (isStrange)
        in.set(n / 2, std::numeric_limits<double>::infinity());
      float low = 0, high = 0;
      for (float x : toFloats(in, n)) {
        low = std::min(low, x);
        high = std::max(high, x);
      }
      const float step = std::max((high - low) / 255, 0x1p-23f);
      const float zero = std::clamp(-std::nearbyint(low / step), 0.f, 255.f);
      const AffineScale scale =
          findAffineScale(Code::UI8, in.data(), Dtype::F32, n);
      std::vector<uint8_t> codes(static_cast<size_t>(n));
      encodeAffine(Code::UI8, in.data(), Dtype::F32, n, scale, codes.data());
      const uint8_t *sources[] = {codes.data(), codes.data()};
      const AffineScale scales[] = {scale, scale};
      averageAffine(Code::UI8, sources, scales, 2, n, 2, out.data(),
                    Dtype::F32);
      out.expect([&](int64_t i) -> double {
        if (isStrange)
          return std::numeric_limits<double>::quiet_NaN();
        const float x = static_cast<float>(in[i]);
        const float q = std::clamp(std::nearbyint(x / step) + zero, 0.f, 255.f);
        const float part = step * (q - zero);
        return (part + part) / 2;
      });
    }
}

} // namespace
