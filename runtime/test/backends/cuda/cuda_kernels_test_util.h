// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What tests of CUDA kernels share. The same files are compiled against the
// emulated device, where they always run, and against the CUDA toolkit, where
// they need a GPU.

#pragma once

#include "base/dtype.h"

#include "gtest/gtest.h"
#include <cuda_runtime.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

namespace ddphook::cuda {

constexpr Dtype kTypes[] = {Dtype::F16, Dtype::BF16, Dtype::F32, Dtype::F64};

/// The bytes of an array on the host.
class HostArray {
public:
  explicit HostArray(Dtype type, int64_t n = 0)
      : type(type), n(n), bytes(static_cast<size_t>(n * dtypeSize(type))) {}

  void *data() { return bytes.data(); }
  const void *data() const { return bytes.data(); }
  int64_t size() const { return n; }
  Dtype dtype() const { return type; }

  uint64_t bits(int64_t i) const {
    uint64_t value = 0;
    std::memcpy(&value, at(i), elementSize());
    return value;
  }
  void setBits(int64_t i, uint64_t value) {
    std::memcpy(const_cast<char *>(at(i)), &value, elementSize());
  }
  /// Every element gets random bits, every second of them those of a number
  /// between -1 and 1.
  void fillWithBits(std::mt19937_64 &random) {
    for (int64_t i = 0; i < n; ++i)
      if (i % 2)
        setBits(i, random());
      else
        setBits(i, nearOne(random));
  }

  bool isNaN(int64_t i) const {
    const uint64_t x = bits(i);
    switch (type) {
    case Dtype::F16:
      return (x & 0x7fff) > 0x7c00;
    case Dtype::BF16:
      return (x & 0x7fff) > 0x7f80;
    case Dtype::F32:
      return (x & 0x7fffffff) > 0x7f800000;
    case Dtype::F64:
      return (x & ~0ull >> 1) > 0x7ffull << 52;
    }
    return false;
  }

  /// The first element whose bits differ, NaNs excepted, as a text; or nothing.
  std::string firstDifference(const HostArray &want) const {
    if (n != want.n || type != want.type)
      return "arrays of different kinds";
    for (int64_t i = 0; i < n; ++i)
      if (bits(i) != want.bits(i) && !(isNaN(i) && want.isNaN(i))) {
        char text[128];
        std::snprintf(text, sizeof(text),
                      "%s element %lld of %lld: expected bits %llx, got %llx",
                      dtypeName(type), static_cast<long long>(i),
                      static_cast<long long>(n),
                      static_cast<unsigned long long>(want.bits(i)),
                      static_cast<unsigned long long>(bits(i)));
        return text;
      }
    return "";
  }

private:
  size_t elementSize() const { return static_cast<size_t>(dtypeSize(type)); }
  const char *at(int64_t i) const {
    return bytes.data() + static_cast<size_t>(i) * elementSize();
  }
  uint64_t nearOne(std::mt19937_64 &random) const {
    const uint64_t r = random();
    switch (type) {
    case Dtype::F16:
      return (r & 0x83ff) | (8 + r % 7) << 10;
    case Dtype::BF16:
      return (r & 0x807f) | (120 + r % 7) << 7;
    case Dtype::F32:
      return (r & 0x807fffff) | (120 + r % 7) << 23;
    case Dtype::F64:
      return (r & 0x800fffffffffffff) | (1016 + r % 7) << 52;
    }
    return 0;
  }

  Dtype type;
  int64_t n;
  std::vector<char> bytes;
};

/// An array on the device, `shift` elements after an aligned address, between
/// bytes that must keep their value. It begins poisoned: all elements NaN.
class DeviceArray {
public:
  DeviceArray(Dtype type, int64_t n, int64_t shift = 0)
      : type(type), n(n), before(kGuard + shift * dtypeSize(type)),
        total(before + n * dtypeSize(type) + kGuard) {
    EXPECT_EQ(cudaMalloc(&base, static_cast<size_t>(total)), cudaSuccess);
    EXPECT_EQ(cudaMemset(base, kPoison, static_cast<size_t>(total)),
              cudaSuccess);
  }
  explicit DeviceArray(const HostArray &values, int64_t shift = 0)
      : DeviceArray(values.dtype(), values.size(), shift) {
    write(values);
  }
  ~DeviceArray() { EXPECT_EQ(cudaFree(base), cudaSuccess); }
  DeviceArray(const DeviceArray &) = delete;
  DeviceArray &operator=(const DeviceArray &) = delete;

  void *data() { return static_cast<char *>(base) + before; }
  void write(const HostArray &values) {
    if (n > 0)
      EXPECT_EQ(
          cudaMemcpy(data(), values.data(), bytes(), cudaMemcpyHostToDevice),
          cudaSuccess);
    // A graph's stream does not wait for what is still on its way.
    EXPECT_EQ(cudaStreamSynchronize(nullptr), cudaSuccess);
  }
  /// Waits for all kernels, checks the bytes around and gives the elements.
  HostArray read() { return readAs(type); }
  /// The same, as elements of another type of that size.
  HostArray readAs(Dtype type) {
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    std::vector<unsigned char> all(static_cast<size_t>(total));
    EXPECT_EQ(cudaMemcpy(all.data(), base, all.size(), cudaMemcpyDeviceToHost),
              cudaSuccess);
    const auto begin = static_cast<size_t>(before);
    for (size_t i = 0; i < all.size(); ++i)
      if ((i < begin || i >= begin + bytes()) && all[i] != kPoison) {
        ADD_FAILURE() << "a kernel wrote outside its array, at byte "
                      << static_cast<int64_t>(i) - before;
        break;
      }
    HostArray values(type, n);
    if (n > 0)
      std::memcpy(values.data(), all.data() + begin, bytes());
    return values;
  }

private:
  static constexpr int64_t kGuard = 256;
  static constexpr unsigned char kPoison = 0xff;
  size_t bytes() const { return static_cast<size_t>(n * dtypeSize(type)); }

  Dtype type;
  int64_t n, before, total;
  void *base = nullptr;
};

/// A counter or flag on the device.
template <class T>
class DeviceValue {
public:
  explicit DeviceValue(T value) {
    EXPECT_EQ(cudaMalloc(reinterpret_cast<void **>(&place), sizeof(T)),
              cudaSuccess);
    EXPECT_EQ(cudaMemcpy(place, &value, sizeof(T), cudaMemcpyHostToDevice),
              cudaSuccess);
  }
  ~DeviceValue() { EXPECT_EQ(cudaFree(place), cudaSuccess); }
  DeviceValue(const DeviceValue &) = delete;
  DeviceValue &operator=(const DeviceValue &) = delete;

  T *data() { return place; }
  T read() {
    T value = T();
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    EXPECT_EQ(cudaMemcpy(&value, place, sizeof(T), cudaMemcpyDeviceToHost),
              cudaSuccess);
    return value;
  }

private:
  T *place = nullptr;
};

/// Needs a device: without one it is skipped, or fails when one is required.
class CudaKernelTest : public testing::Test {
protected:
  void SetUp() override {
    int count = 0;
    const cudaError_t error = cudaGetDeviceCount(&count);
    if (error != cudaSuccess || count == 0) {
      const char *required = std::getenv("DDPHOOK_REQUIRE_GPU");
      if (required && std::string(required) == "1")
        FAIL() << "expected a CUDA device, but there is none";
      GTEST_SKIP() << "there is no CUDA device";
    }
    RecordProperty("seed", kSeed);
  }

  static constexpr int kSeed = 20251122;
  std::mt19937_64 random{kSeed};
  cudaStream_t stream = nullptr;
};

} // namespace ddphook::cuda
