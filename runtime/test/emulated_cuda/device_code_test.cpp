// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Kernels in PTX: what instructions compute, what is refused, and which faults
// of kernels end the process.

#include "cuda_runtime.h"
#include "device_array.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

using emulated_cuda_test::DeviceArray;

namespace {

constexpr unsigned kThreads = 64;

/// Returns a module whose kernel `test` computes %out (32 bits) from %a and %b,
/// which thread i loads from place i of two arrays.
std::string moduleOf(const std::string &body) {
  return R"(.version 8.0
.target sm_90
.address_size 64
.extern .shared .align 16 .b8 numbers[];
.entry test(.param .u64 test_a, .param .u64 test_b, .param .u64 test_out)
{
  .reg .pred %p<9>;
  .reg .b16 %h<9>;
  .reg .b32 %a, %b, %out, %i, %r<9>;
  .reg .b64 %at, %d<9>;
  mov.u32 %i, %tid.x;
  mul.wide.u32 %at, %i, 4;
  ld.param.u64 %d1, [test_a];
  add.s64 %d1, %d1, %at;
  ld.global.u32 %a, [%d1];
  ld.param.u64 %d2, [test_b];
  add.s64 %d2, %d2, %at;
  ld.global.u32 %b, [%d2];
)" + body +
         R"(
  ld.param.u64 %d3, [test_out];
  add.s64 %d3, %d3, %at;
  st.global.u32 [%d3], %out;
  ret;
}
)";
}

using Numbers = std::vector<unsigned>;

/// Runs a module of moduleOf() with a block of kThreads threads.
Numbers run(const std::string &body, const Numbers &a, const Numbers &b) {
  cudaLibrary_t library;
  cudaKernel_t kernel;
  EXPECT_EQ(cudaLibraryLoadData(&library, moduleOf(body).c_str(), nullptr,
                                nullptr, 0, nullptr, nullptr, 0),
            cudaSuccess);
  EXPECT_EQ(cudaLibraryGetKernel(&kernel, library, "test"), cudaSuccess);
  DeviceArray<unsigned> inA(a), inB(b), out(kThreads);
  void *pointers[] = {inA.data(), inB.data(), out.data()};
  void *arguments[] = {&pointers[0], &pointers[1], &pointers[2]};
  cudaLaunchConfig_t config = {};
  config.gridDim = 1;
  config.blockDim = kThreads;
  config.dynamicSmemBytes = 4 * kThreads;
  EXPECT_EQ(cudaLaunchKernelExC(&config, kernel, arguments), cudaSuccess);
  return out.read();
}

Numbers random(unsigned seed) {
  std::printf("seed %u\n", seed);
  std::mt19937 engine(seed);
  Numbers numbers(kThreads);
  for (unsigned &number : numbers)
    number = engine();
  // Some that floating-point and integer instructions treat differently.
  const unsigned special[] = {0,          1,          0x80000000, 0x7fffffff,
                              0xffffffff, 0x7f800000, 0x7fc00000, 0x3f800000};
  std::copy(std::begin(special), std::end(special), numbers.begin() + seed);
  return numbers;
}

float asFloat(unsigned bits) {
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}
unsigned bitsOf(float value) {
  unsigned bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return std::isnan(value) ? 0x7fffffff : bits;
}

/// The greater one; +0 is greater than -0.
float greater(float a, float b) {
  return a == b && std::signbit(a) ? b : std::fmax(a, b);
}

/// Compares an instruction's results with a model's.
template <typename Model>
void compare(const std::string &body, Model model) {
  const Numbers a = random(3), b = random(5), results = run(body, a, b);
  for (unsigned i = 0; i < kThreads; ++i)
    EXPECT_EQ(results[i], model(a[i], b[i]))
        << body << " of " << a[i] << " and " << b[i];
}

TEST(DeviceCode, IntegersWrapAndShift) {
  compare("mad.lo.s32 %out, %a, %b, %a;",
          [](unsigned a, unsigned b) { return a * b + a; });
  compare("mul.hi.s32 %out, %a, %b;", [](unsigned a, unsigned b) {
    return unsigned((int64_t(int(a)) * int(b)) >> 32);
  });
  compare("shr.s32 %out, %a, %b;", [](unsigned a, unsigned b) {
    return unsigned(int(a) >> std::min(b, 31u));
  });
  compare("shl.b32 %out, %a, %b;",
          [](unsigned a, unsigned b) { return b > 31 ? 0 : a << b; });
  compare("bfi.b32 %out, %a, %b, 7, 9;", [](unsigned a, unsigned b) {
    return (b & ~(511u << 7)) | ((a & 511) << 7);
  });
  compare("prmt.b32 %out, %a, %b, 0x4089;", [](unsigned a, unsigned b) {
    const unsigned sign0 = a & 0x80 ? 0xff : 0, sign1 = a & 0x8000 ? 0xff : 0;
    return sign1 | sign0 << 8 | (a & 0xff) << 16 | (b & 0xff) << 24;
  });
  compare("clz.b32 %out, %a;", [](unsigned a, unsigned) {
    unsigned count = 0;
    while (count < 32 && !(a >> (31 - count) & 1))
      ++count;
    return count;
  });
}

TEST(DeviceCode, FloatsRoundOnceAndHaveOneNaN) {
  compare("mul.rn.f32 %out, %a, %b;", [](unsigned a, unsigned b) {
    return bitsOf(asFloat(a) * asFloat(b));
  });
  compare("fma.rn.f32 %out, %a, %b, %a;", [](unsigned a, unsigned b) {
    return bitsOf(std::fma(asFloat(a), asFloat(b), asFloat(a)));
  });
  compare("max.f32 %out, %a, %b;", [](unsigned a, unsigned b) {
    return bitsOf(greater(asFloat(a), asFloat(b)));
  });
  compare("max.NaN.f32 %out, %a, %b;", [](unsigned a, unsigned b) {
    const float x = asFloat(a), y = asFloat(b);
    return bitsOf(std::isnan(x) || std::isnan(y) ? NAN : greater(x, y));
  });
  compare("cvt.rzi.s32.f32 %out, %a;", [](unsigned a, unsigned) {
    const double value = asFloat(a);
    return std::isnan(value)
               ? 0u
               : unsigned(int(
                     std::fmin(std::fmax(value, -2147483648.0), 2147483647.0)));
  });
  compare("setp.ltu.f32 %p1, %a, %b; selp.b32 %out, 1, 0, %p1;",
          [](unsigned a, unsigned b) {
            return unsigned(!(asFloat(a) >= asFloat(b)));
          });
  compare("cvt.rn.f16.f32 %h1, %a; cvt.f32.f16 %out, %h1;", [](unsigned a,
                                                               unsigned) {
    return bitsOf(static_cast<float>(static_cast<_Float16>(asFloat(a))));
  });
}

TEST(DeviceCode, LanesExchangeValues) {
  const Numbers a = random(7);
  const Numbers down = run("shfl.sync.down.b32 %out|%p1, %a, 5, 31, -1;", a, a);
  const Numbers index = run("shfl.sync.idx.b32 %out, %a, 3, 0x181f, -1;", a, a);
  const Numbers ballot = run("setp.lt.s32 %p1, %a, 0;"
                             "vote.sync.ballot.b32 %out, %p1, -1;",
                             a, a);
  for (unsigned i = 0; i < kThreads; ++i) {
    EXPECT_EQ(down[i], a[i % 32 + 5 > 31 ? i : i + 5]) << i;
    EXPECT_EQ(index[i], a[i / 8 * 8 + 3]) << i;
    EXPECT_EQ(ballot[i] >> i % 32 & 1, a[i] >> 31) << i;
  }
}

/// Stores %a in shared memory and loads the number of the opposite thread.
std::string exchange(const std::string &between) {
  return R"(
  mov.u32 %r1, numbers;
  mad.lo.s32 %r2, %i, 4, %r1;
  st.shared.u32 [%r2], %a;
  )" + between +
         R"(
  sub.s32 %r3, 63, %i;
  mad.lo.s32 %r3, %r3, 4, %r1;
  ld.shared.u32 %out, [%r3];)";
}

TEST(DeviceCode, ABarrierOrdersSharedMemory) {
  setenv("EMULATED_CUDA_CHECKS", "races", 1);
  const Numbers a = random(9), results = run(exchange("bar.sync 0;"), a, a);
  for (unsigned i = 0; i < kThreads; ++i)
    EXPECT_EQ(results[i], a[kThreads - 1 - i]);
}

TEST(DeviceCodeDeathTest, FaultsEndTheProcess) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  setenv("EMULATED_CUDA_CHECKS", "races", 1);
  const Numbers a = random(9);
  EXPECT_DEATH(run(exchange(""), a, a), "race in shared memory between warps");
  EXPECT_DEATH(run(exchange("bar.warp.sync -1;"), a, a),
               "race in shared memory between warps");
  EXPECT_DEATH(run("ld.param.u64 %d4, [test_out]; st.global.u32 [%d4], %a;"
                   "ld.global.u32 %out, [%d4];",
                   a, a),
               "race in global memory between lanes: the store of line");
  EXPECT_DEATH(run("ld.global.u32 %out, [%d1+256];", a, a),
               "in no memory of the device");
  EXPECT_DEATH(
      run("mov.u32 %r1, numbers; ld.shared.u32 %out, [%r1+256];", a, a),
      "in no memory of the device");
  EXPECT_DEATH(run("ld.global.u32 %out, [%d1+2];", a, a),
               "which is no multiple of that");
}

TEST(DeviceCode, AtomicOperationsAreNoRace) {
  setenv("EMULATED_CUDA_CHECKS", "races", 1);
  const Numbers a(kThreads, 3);
  const Numbers results =
      run("mov.u32 %r1, numbers; mad.lo.s32 %r2, %i, 4, %r1;"
          "st.shared.u32 [%r2], 0; bar.sync 0;"
          "atom.shared.add.u32 %out, [%r1+8], %a;",
          a, a);
  Numbers sorted = results;
  std::sort(sorted.begin(), sorted.end());
  for (unsigned i = 0; i < kThreads; ++i)
    EXPECT_EQ(sorted[i], 3 * i);
}

TEST(DeviceCode, WhatIsUnknownIsRefusedWhenItIsFirstUsed) {
  const struct {
    std::string text;
    cudaError_t error;
  } cases[] = {{"not PTX", cudaErrorInvalidKernelImage},
               {moduleOf("sin.approx.f32 %out, %a;"), cudaError_t(218)},
               {moduleOf("add.f32 %out, %a, %b;"), cudaError_t(218)},
               {moduleOf("@%p1 bar.sync 0;"), cudaError_t(218)}};
  for (const auto &[text, error] : cases) {
    cudaLibrary_t library;
    cudaKernel_t kernel;
    ASSERT_EQ(cudaLibraryLoadData(&library, text.c_str(), nullptr, nullptr, 0,
                                  nullptr, nullptr, 0),
              cudaSuccess);
    ASSERT_EQ(cudaLibraryGetKernel(&kernel, library, "test"), cudaSuccess);
    cudaFuncAttributes attributes;
    const void *function = reinterpret_cast<const void *>(kernel);
    EXPECT_EQ(cudaFuncGetAttributes(&attributes, function), error) << text;
    cudaLaunchConfig_t config = {};
    EXPECT_EQ(cudaLaunchKernelExC(&config, function, nullptr), error);
    EXPECT_EQ(cudaLibraryUnload(library), cudaSuccess);
  }
  cudaLibrary_t library;
  cudaKernel_t kernel;
  ASSERT_EQ(cudaLibraryLoadData(&library, moduleOf("mov.u32 %out, %a;").c_str(),
                                nullptr, nullptr, 0, nullptr, nullptr, 0),
            cudaSuccess);
  EXPECT_EQ(cudaLibraryGetKernel(&kernel, library, "another"),
            cudaErrorSymbolNotFound);
}

} // namespace
