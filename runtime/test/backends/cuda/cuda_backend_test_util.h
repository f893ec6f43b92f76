//===- cuda_backend_test_util.h - a caller's streams and data ---*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What tests of the CUDA backend give it.
//
//===----------------------------------------------------------------------===//
#ifndef DDPHOOK_RUNTIME_TEST_BACKENDS_CUDA_CUDA_BACKEND_TEST_UTIL_H
#define DDPHOOK_RUNTIME_TEST_BACKENDS_CUDA_CUDA_BACKEND_TEST_UTIL_H

#include <gtest/gtest.h>

#include <cuda_runtime_api.h>

#include <cstdint>
#include <cstring>
#include <vector>

namespace ddphook::test {

/// A stream of the caller's, which no other one waits for.
class Stream {
public:
  Stream() {
    EXPECT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking),
              cudaSuccess);
  }
  ~Stream() { EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess); }
  Stream(const Stream &) = delete;
  Stream &operator=(const Stream &) = delete;
  cudaStream_t get() const { return stream; }

private:
  cudaStream_t stream = nullptr;
};

inline std::vector<char> toBytes(const std::vector<float> &values) {
  std::vector<char> bytes(values.size() * sizeof(float));
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

inline std::vector<char> filled(int64_t count, float value) {
  return toBytes(std::vector<float>(static_cast<size_t>(count), value));
}

} // namespace ddphook::test

#endif // DDPHOOK_RUNTIME_TEST_BACKENDS_CUDA_CUDA_BACKEND_TEST_UTIL_H
