// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What tests of kernels share: a model of the element types that rounds doubles
// with nearbyint(), arrays that end at memory that may not be touched, and a
// fixture that runs on every instruction set that this processor has.

#pragma once

#include "kernels.h"

#include "hwy/highway.h"
#include "gtest/gtest.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <random>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>

namespace ddphook::host {

constexpr Dtype kTypes[] = {Dtype::F16, Dtype::BF16, Dtype::F32, Dtype::F64};

//===----------------------------------------------------------------------===//
// The model
//===----------------------------------------------------------------------===//

/// Fraction bits and smallest normal exponent of a 16-bit type.
struct Format {
  int fraction, minExponent, bias;
};

inline Format formatOf(Dtype type) {
  return type == Dtype::F16 ? Format{10, -14, 15} : Format{7, -126, 127};
}

inline double decode(Dtype type, uint16_t bits) {
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
inline uint16_t encode(Dtype type, float value) {
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

inline double readElement(Dtype type, const void *array, int64_t i) {
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
inline void writeElement(Dtype type, void *array, int64_t i, double value) {
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

inline double roundTo(Dtype type, double value) {
  double slot;
  writeElement(type, &slot, 0, value);
  return readElement(type, &slot, 0);
}

/// Rounds to what the type is computed in: float, or double for f64.
inline double computed(Dtype type, double value) {
  return type == Dtype::F64 ? value : static_cast<float>(value);
}

/// The float (double) operation, not yet rounded to a 16-bit type. Adding,
/// multiplying and dividing doubles that hold floats and rounding the result
/// to float is the float operation: 53 >= 2 * 24 + 2.
inline double divided(Dtype type, double a, int64_t by) {
  return computed(type, a / static_cast<double>(by));
}
inline double added(Dtype type, double a, double b) {
  return computed(type, a + b);
}
inline double scaled(Dtype type, double a, double factor) {
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

inline std::vector<int64_t> targets() {
  std::vector<int64_t> list = hwy::SupportedAndGeneratedTargets();
  // The fallback is always there, whatever the packaged library reports.
  if (std::find(list.begin(), list.end(), HWY_STATIC_TARGET) == list.end())
    list.push_back(HWY_STATIC_TARGET);
  return list;
}

/// Runs on the instruction set that is its parameter.
class KernelTest : public testing::TestWithParam<int64_t> {
protected:
  void SetUp() override {
    hwy::GetChosenTarget().Update(GetParam());
    ASSERT_STREQ(kernelTargetName(), hwy::TargetName(GetParam()));
    RecordProperty("seed", kSeed);
  }
  void TearDown() override { hwy::GetChosenTarget().DeInit(); }

  static constexpr uint32_t kSeed = 20240607;
  std::mt19937_64 random{kSeed};
};

inline std::string targetNameOf(const testing::TestParamInfo<int64_t> &info) {
  return hwy::TargetName(info.param);
}

} // namespace ddphook::host
