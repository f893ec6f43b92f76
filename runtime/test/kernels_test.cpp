//===- kernels_test.cpp - array kernels against a scalar model ------------===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Every kernel on every instruction set that this processor has, bit by bit
// against a model that rounds doubles with nearbyint(). Bits equal means equal,
// or both NaN.
//
//===----------------------------------------------------------------------===//
#include "kernels.h"

#include "hwy/highway.h"
#include "gtest/gtest.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <random>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>

using namespace ddphook;
using namespace ddphook::host;

namespace {

constexpr Dtype kTypes[] = {Dtype::F16, Dtype::BF16, Dtype::F32, Dtype::F64};
constexpr Dtype kHalves[] = {Dtype::F16, Dtype::BF16};
constexpr int64_t kDivisors[] = {1,  2,  3,  4,  5,  6,  7,  8,  9,   10,  11,
                                 12, 13, 14, 15, 16, 24, 48, 64, 100, 1000};
constexpr uint32_t kSeed = 20240607;

//===----------------------------------------------------------------------===//
// The model
//===----------------------------------------------------------------------===//

/// Fraction bits and smallest normal exponent of a 16-bit type.
struct Format {
  int fraction, minExponent, bias;
};

Format formatOf(Dtype type) {
  return type == Dtype::F16 ? Format{10, -14, 15} : Format{7, -126, 127};
}

double decode(Dtype type, uint16_t bits) {
  Format f = formatOf(type);
  int exponentMask = (1 << (15 - f.fraction)) - 1;
  int exponent = (bits >> f.fraction) & exponentMask;
  int fraction = bits & ((1 << f.fraction) - 1);
  double sign = bits & 0x8000 ? -1 : 1;
  if (exponent == exponentMask)
    return fraction ? std::numeric_limits<double>::quiet_NaN()
                    : sign * std::numeric_limits<double>::infinity();
  if (exponent == 0)
    return sign * std::ldexp(fraction, f.minExponent - f.fraction);
  return sign * std::ldexp(fraction + (1 << f.fraction),
                           exponent - f.bias - f.fraction);
}

/// Rounds a value that a float holds to a 16-bit type.
uint16_t encode(Dtype type, float value) {
  Format f = formatOf(type);
  uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  uint16_t infinity =
      static_cast<uint16_t>(((1 << (15 - f.fraction)) - 1) << f.fraction);
  if (std::isnan(value))
    return infinity | 1;
  double x = std::fabs(static_cast<double>(value));
  if (std::isinf(x))
    return sign | infinity;
  if (x == 0)
    return sign;
  int exponent = std::max(std::ilogb(x), f.minExponent);
  // Exact: a quotient by a power of two, far from the limits of doubles.
  double units = std::nearbyint(std::ldexp(x, f.fraction - exponent));
  // `units` carries into the exponent by itself, as the encoding does.
  int64_t biased = exponent - f.minExponent;
  int64_t bits = static_cast<int64_t>(units) + (biased << f.fraction);
  return sign | static_cast<uint16_t>(std::min<int64_t>(bits, infinity));
}

double readElement(Dtype type, const void *array, int64_t i) {
  switch (type) {
  case Dtype::F32:
    return static_cast<const float *>(array)[i];
  case Dtype::F64:
    return static_cast<const double *>(array)[i];
  default:
    return decode(type, static_cast<const uint16_t *>(array)[i]);
  }
}

/// Writes the value rounded to the type, to a 16-bit one through float.
void writeElement(Dtype type, void *array, int64_t i, double value) {
  switch (type) {
  case Dtype::F32:
    static_cast<float *>(array)[i] = static_cast<float>(value);
    return;
  case Dtype::F64:
    static_cast<double *>(array)[i] = value;
    return;
  default:
    static_cast<uint16_t *>(array)[i] = encode(type, static_cast<float>(value));
  }
}

double roundTo(Dtype type, double value) {
  double slot;
  writeElement(type, &slot, 0, value);
  return readElement(type, &slot, 0);
}

/// Rounds to what the type is computed in: float, or double for f64.
double computed(Dtype type, double value) {
  return type == Dtype::F64 ? value : static_cast<float>(value);
}

/// The float (double) operation, not yet rounded to a 16-bit type. Adding,
/// multiplying and dividing doubles that hold floats and rounding the result
/// to float is the float operation: 53 >= 2 * 24 + 2.
double divided(Dtype type, double a, int64_t by) {
  return computed(type, a / static_cast<double>(by));
}
double added(Dtype type, double a, double b) { return computed(type, a + b); }
double scaled(Dtype type, double a, double factor) {
  return computed(type, a * computed(type, factor));
}

//===----------------------------------------------------------------------===//
// Arrays
//===----------------------------------------------------------------------===//

/// An array that ends `gap` elements before memory that may not be touched,
/// between bytes that must keep their value.
class Array {
public:
  Array(Dtype type, int64_t n, int64_t gap = 0) : type(type), n(n) {
    size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    size_t size = static_cast<size_t>(dtypeSize(type));
    size_t bytes = static_cast<size_t>(n) * size;
    before = 64;
    after = static_cast<size_t>(gap) * size;
    size_t usable = (before + bytes + after + page - 1) / page * page;
    mapped = usable + page;
    base = static_cast<char *>(mmap(nullptr, mapped, PROT_READ | PROT_WRITE,
                                    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    EXPECT_NE(base, MAP_FAILED);
    EXPECT_EQ(mprotect(base + usable, page, PROT_NONE), 0);
    std::memset(base, kPoison, usable);
    start = base + usable - after - bytes;
  }
  Array(const Array &) = delete;
  Array &operator=(const Array &) = delete;
  ~Array() { munmap(base, mapped); }

  void *data() { return start; }
  const void *data() const { return start; }
  double operator[](int64_t i) const { return readElement(type, start, i); }
  void set(int64_t i, double value) { writeElement(type, start, i, value); }
  void setBits(int64_t i, uint64_t bits) {
    size_t size = static_cast<size_t>(dtypeSize(type));
    std::memcpy(start + static_cast<size_t>(i) * size, &bits, size);
  }
  void fill(std::mt19937_64 &random) {
    for (int64_t i = 0; i < n; ++i)
      setBits(i, random());
  }
  void copyFrom(const Array &other) {
    std::memcpy(start, other.start, static_cast<size_t>(n * dtypeSize(type)));
  }

  /// Elements equal expected(i) rounded to the type; the surroundings kept.
  void expect(const std::function<double(int64_t)> &expected) const {
    int wrong = 0;
    for (int64_t i = 0; i < n && wrong < 5; ++i) {
      double want = roundTo(type, expected(i)), got = (*this)[i];
      bool same =
          std::isnan(want) ? std::isnan(got) : std::memcmp(&want, &got, 8) == 0;
      if (!same) {
        ++wrong;
        ADD_FAILURE() << dtypeName(type) << " element " << i << " of " << n
                      << ": expected " << want << ", but got " << got;
      }
    }
    size_t bytes = static_cast<size_t>(n * dtypeSize(type));
    for (size_t k = 1; k <= before; ++k)
      ASSERT_EQ(start[-static_cast<ptrdiff_t>(k)], kPoison) << "written before";
    for (size_t k = 0; k < after; ++k)
      ASSERT_EQ(start[bytes + k], kPoison) << "written after";
  }

private:
  static constexpr char kPoison = 0x5a;
  Dtype type;
  int64_t n;
  char *base, *start;
  size_t before, after, mapped;
};

std::vector<int64_t> targets() {
  std::vector<int64_t> list = hwy::SupportedAndGeneratedTargets();
  // The fallback is always there, whatever the packaged library reports.
  if (std::find(list.begin(), list.end(), HWY_STATIC_TARGET) == list.end())
    list.push_back(HWY_STATIC_TARGET);
  return list;
}

class Kernels : public testing::TestWithParam<int64_t> {
protected:
  void SetUp() override {
    hwy::GetChosenTarget().Update(GetParam());
    ASSERT_STREQ(kernelTargetName(), hwy::TargetName(GetParam()));
    RecordProperty("seed", kSeed);
  }
  void TearDown() override { hwy::GetChosenTarget().DeInit(); }

  std::mt19937_64 random{kSeed};
};

INSTANTIATE_TEST_SUITE_P(Targets, Kernels, testing::ValuesIn(targets()),
                         [](const auto &info) {
                           return std::string(hwy::TargetName(info.param));
                         });

/// Floats at and next to every tie of both 16-bit types, and random ones.
void fillWithHardFloats(Array &array, int64_t n, std::mt19937_64 &random) {
  int64_t i = 0;
  auto put = [&](uint32_t bits) {
    ASSERT_LT(i, n);
    array.setBits(i++, bits);
  };
  for (uint32_t h = 0; h < 0x10000; ++h) {
    for (uint32_t low : {0u, 1u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu})
      put(h << 16 | low);
    float tie =
        static_cast<float>((decode(Dtype::F16, static_cast<uint16_t>(h)) +
                            decode(Dtype::F16, static_cast<uint16_t>(h + 1))) /
                           2);
    uint32_t bits;
    std::memcpy(&bits, &tie, 4);
    for (int delta : {-1, 0, 1})
      put(bits + static_cast<uint32_t>(delta));
  }
  for (float special :
       {65504.f, 65519.996f, 65520.f, 65535.f, 65536.f, 3e38f, 0x1p-24f,
        0x1p-25f, 0x1.000002p-25f, 0x1p-26f, 0x1p-133f, 0x1p-134f, 0x1p-149f}) {
    uint32_t bits;
    std::memcpy(&bits, &special, 4);
    put(bits);
    put(bits | 0x80000000u);
  }
  while (i < n)
    array.setBits(i++, static_cast<uint32_t>(random()));
}

constexpr int64_t kHardFloats = 1 << 20;

//===----------------------------------------------------------------------===//
// Tests
//===----------------------------------------------------------------------===//

TEST_P(Kernels, castsEveryHalf) {
  for (Dtype from : kHalves) {
    Array in(from, 0x10000);
    for (int64_t i = 0; i < 0x10000; ++i)
      in.setBits(i, static_cast<uint64_t>(i));
    for (Dtype to : kTypes) {
      Array out(to, 0x10000);
      castArray(in.data(), from, out.data(), to, 0x10000);
      out.expect([&](int64_t i) { return in[i]; });
    }
  }
}

TEST_P(Kernels, castsHardFloats) {
  Array in(Dtype::F32, kHardFloats);
  fillWithHardFloats(in, kHardFloats, random);
  for (Dtype to : kTypes) {
    Array out(to, kHardFloats);
    castArray(in.data(), Dtype::F32, out.data(), to, kHardFloats);
    out.expect([&](int64_t i) { return in[i]; });
  }
}

TEST_P(Kernels, castsDoublesThroughFloat) {
  constexpr int64_t n = kHardFloats;
  Array floats(Dtype::F32, n), in(Dtype::F64, n);
  fillWithHardFloats(floats, n, random);
  for (int64_t i = 0; i < n; ++i) {
    // Next to a float's tie, where two roundings differ from one; or anything.
    if (i % 2)
      in.set(i, std::nextafter(floats[i], i % 4 == 1 ? HUGE_VAL : -HUGE_VAL));
    else
      in.setBits(i, random());
  }
  for (Dtype to : kTypes) {
    Array out(to, n);
    castArray(in.data(), Dtype::F64, out.data(), to, n);
    out.expect([&](int64_t i) { return in[i]; });
  }
}

TEST_P(Kernels, everyLengthAndAlignment) {
  for (int64_t n = 0; n <= 130; ++n)
    for (Dtype from : kTypes)
      for (Dtype to : kTypes)
        for (int64_t gap : {0, 1, 3})
          for (Stores stores : {Stores::Cached, Stores::Streaming}) {
            Array in(from, n, gap), out(to, n, 3 - gap);
            in.fill(random);
            castArray(in.data(), from, out.data(), to, n, stores);
            out.expect([&](int64_t i) { return in[i]; });
          }
}

TEST_P(Kernels, dividesEveryHalf) {
  for (Dtype type : kHalves)
    for (int64_t divisor : kDivisors) {
      Array in(type, 0x10000), out(type, 0x10000);
      for (int64_t i = 0; i < 0x10000; ++i)
        in.setBits(i, static_cast<uint64_t>(i));
      divideArray(in.data(), out.data(), type, 0x10000, divisor);
      auto expected = [&](int64_t i) { return divided(type, in[i], divisor); };
      out.expect(expected);
      // In place.
      out.copyFrom(in);
      divideArray(out.data(), out.data(), type, 0x10000, divisor);
      out.expect(expected);
    }
}

TEST_P(Kernels, dividesAndScalesWideTypes) {
  constexpr int64_t n = 100003;
  for (Dtype type : {Dtype::F32, Dtype::F64}) {
    Array in(type, n);
    in.fill(random);
    for (int64_t divisor : kDivisors) {
      Array out(type, n);
      divideArray(in.data(), out.data(), type, n, divisor);
      out.expect([&](int64_t i) { return divided(type, in[i], divisor); });
    }
  }
  for (Dtype type : kTypes)
    for (double factor : {0.1, 1.0 / 3, -2.0, 0.0, 1e30}) {
      Array in(type, n), out(type, n);
      in.fill(random);
      scaleArray(in.data(), out.data(), type, n, factor);
      out.expect([&](int64_t i) { return scaled(type, in[i], factor); });
    }
}

TEST_P(Kernels, addsEveryHalf) {
  for (Dtype type : kHalves) {
    Array a(type, 0x10000), b(type, 0x10000), out(type, 0x10000);
    for (int64_t i = 0; i < 0x10000; ++i)
      a.setBits(i, static_cast<uint64_t>(i));
    for (uint64_t addend :
         {0x0000, 0x8000, 0x0001, 0x8001, 0x03ff, 0x0400, 0x3c00, 0x3f80,
          0xbc01, 0x5555, 0x7bff, 0x7f7f, 0x7c00, 0xff80, 0x7fff}) {
      for (int64_t i = 0; i < 0x10000; ++i)
        b.setBits(i, addend);
      addArrays(out.data(), a.data(), b.data(), type, 0x10000);
      out.expect([&](int64_t i) { return added(type, a[i], b[i]); });
    }
    b.fill(random);
    addArrays(b.data(), a.data(), b.data(), type, 0);
    addArrays(out.data(), a.data(), b.data(), type, 0x10000);
    out.expect([&](int64_t i) { return added(type, a[i], b[i]); });
  }
}

TEST_P(Kernels, compressesHardFloats) {
  Array in(Dtype::F32, kHardFloats);
  fillWithHardFloats(in, kHardFloats, random);
  for (Dtype wire : kHalves)
    for (int64_t divisor : {1, 2, 3, 14}) {
      Array out(wire, kHardFloats);
      compressArray(in.data(), Dtype::F32, out.data(), wire, kHardFloats,
                    divisor);
      out.expect([&](int64_t i) {
        return divided(wire, roundTo(wire, in[i]), divisor);
      });
    }
}

TEST_P(Kernels, compressesEveryPairOfTypes) {
  for (int64_t n : {0, 1, 33, 2500})
    for (Dtype from : kTypes)
      for (Dtype wire : kTypes)
        for (int64_t divisor : {1, 4, 7}) {
          Array in(from, n), out(wire, n, 1);
          in.fill(random);
          compressArray(in.data(), from, out.data(), wire, n, divisor);
          out.expect([&](int64_t i) {
            return divided(wire, roundTo(wire, in[i]), divisor);
          });
        }
}

TEST_P(Kernels, sumsRanksHopByHop) {
  for (int count : {1, 2, 3, 4, 5, 8, 64})
    for (int64_t n : {0, 1, 31, 130, 2500})
      for (Dtype wire : kTypes) {
        std::vector<std::unique_ptr<Array>> ranks;
        std::vector<const void *> sources;
        for (int k = 0; k < count; ++k) {
          ranks.push_back(std::make_unique<Array>(wire, n, k % 3));
          for (int64_t i = 0; i < n; ++i) // all bits, or near each other
            if (i % 2)
              ranks[k]->setBits(i, random());
            else
              ranks[k]->set(i, static_cast<double>(random() % 8191) / 4095 - 1);
          sources.push_back(ranks[k]->data());
        }
        std::vector<double> sums(static_cast<size_t>(n));
        for (int64_t i = 0; i < n; ++i) {
          double acc = (*ranks[0])[i];
          for (int k = 1; k < count; ++k)
            acc = roundTo(wire, added(wire, (*ranks[k])[i], acc));
          sums[static_cast<size_t>(i)] = acc;
        }
        auto expected = [&](int64_t i) { return sums[static_cast<size_t>(i)]; };
        for (Dtype to : kTypes)
          for (Stores stores : {Stores::Cached, Stores::Streaming}) {
            Array out(to, n, 2);
            sumRanksDecompress(sources.data(), count, wire, out.data(), to, n,
                               stores);
            out.expect(expected);
          }
        // Into one of the sources.
        Array &last = *ranks[static_cast<size_t>(count) - 1];
        sumRanks(sources.data(), count, last.data(), wire, n);
        last.expect(expected);
      }
}

TEST_P(Kernels, addsAndSubtracts) {
  for (Dtype type : kTypes)
    for (int64_t n : {0, 1, 31, 130, 2500}) {
      Array a(type, n, 1), b(type, n, 2), out(type, n, 3);
      for (int64_t i = 0; i < n; ++i) // all bits, or near each other
        for (Array *array : {&a, &b})
          if (i % 2)
            array->setBits(i, random());
          else
            array->set(i, static_cast<double>(random() % 8191) / 4095 - 1);
      addArrays(out.data(), a.data(), b.data(), type, n);
      out.expect([&](int64_t i) { return added(type, a[i], b[i]); });
      subtractArrays(out.data(), a.data(), b.data(), type, n);
      out.expect([&](int64_t i) { return added(type, a[i], -b[i]); });
      // Into one of the operands.
      Array first(type, n), second(type, n);
      first.copyFrom(a);
      subtractArrays(first.data(), first.data(), b.data(), type, n);
      first.expect([&](int64_t i) { return added(type, a[i], -b[i]); });
      second.copyFrom(b);
      subtractArrays(second.data(), a.data(), second.data(), type, n);
      second.expect([&](int64_t i) { return added(type, a[i], -b[i]); });
    }
}

TEST_P(Kernels, copies) {
  for (int64_t n : {0, 1, 7, 64, 255, 256, 1000, 100003})
    for (int64_t gap : {0, 1, 3})
      for (Stores stores : {Stores::Cached, Stores::Streaming}) {
        Array in(Dtype::F16, n, gap), out(Dtype::F16, n, 3 - gap);
        in.fill(random);
        copyBytes(out.data(), in.data(), 2 * n, stores);
        out.expect([&](int64_t i) { return in[i]; });
        if (n > 0) {
          EXPECT_EQ(
              std::memcmp(in.data(), out.data(), static_cast<size_t>(2 * n)),
              0);
        }
      }
}

/// Best of all is what a processor is given, not some fallback.
TEST(KernelDispatch, choosesTheBestTarget) {
  hwy::GetChosenTarget().DeInit();
  castArray(nullptr, Dtype::F32, nullptr, Dtype::F16, 0);
  EXPECT_STREQ(kernelTargetName(), hwy::TargetName(targets().front()));
}

} // namespace
