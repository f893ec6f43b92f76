// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// An array on the device, with blocking copies to and from it.

#pragma once

#include "cuda_runtime.h"

#include <gtest/gtest.h>

#include <vector>

namespace emulated_cuda_test {

template <typename T>
class DeviceArray {
public:
  explicit DeviceArray(size_t count) : count(count) {
    EXPECT_EQ(cudaMalloc(&memory, count * sizeof(T)), cudaSuccess);
  }
  explicit DeviceArray(const std::vector<T> &values)
      : DeviceArray(values.size()) {
    write(values);
  }
  ~DeviceArray() { EXPECT_EQ(cudaFree(memory), cudaSuccess); }

  T *data() const { return memory; }

  void write(const std::vector<T> &values) {
    EXPECT_EQ(cudaMemcpy(memory, values.data(), count * sizeof(T),
                         cudaMemcpyHostToDevice),
              cudaSuccess);
    // The copy may still be under way, and other streams do not wait for it.
    EXPECT_EQ(cudaStreamSynchronize(nullptr), cudaSuccess);
  }
  /// After everything that the blocking streams were given.
  std::vector<T> read() const {
    std::vector<T> values(count);
    EXPECT_EQ(cudaMemcpy(values.data(), memory, count * sizeof(T),
                         cudaMemcpyDeviceToHost),
              cudaSuccess);
    return values;
  }

  DeviceArray(const DeviceArray &) = delete;
  DeviceArray &operator=(const DeviceArray &) = delete;

private:
  T *memory = nullptr;
  size_t count;
};

} // namespace emulated_cuda_test
