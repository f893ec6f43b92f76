// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Every kernel on every instruction set that this processor has, bit by bit
// against a model that rounds doubles with nearbyint(). Bits equal means equal,
// or both NaN.

#include "backends/host/kernels_test_util.h"

#include <memory>

using namespace ddphook;
using namespace ddphook::host;

namespace {

constexpr Dtype kHalves[] = {Dtype::F16, Dtype::BF16};
constexpr int64_t kDivisors[] = {1,  2,  3,  4,  5,  6,  7,  8,  9,   10,  11,
                                 12, 13, 14, 15, 16, 24, 48, 64, 100, 1000};

class Kernels : public KernelTest {};

INSTANTIATE_TEST_SUITE_P(Targets, Kernels, testing::ValuesIn(targets()),
                         targetNameOf);

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
