// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Products of small integers, which every order of additions gives exactly, and
// refusals.

#include "cublas_v2.h"
#include "cuda_bf16.h"
#include "cuda_fp16.h"
#include "device_array.h"

#include <gtest/gtest.h>

#include <functional>
#include <random>

using emulated_cuda_test::DeviceArray;

namespace {

constexpr unsigned seed = 4711;

class Cublas : public testing::Test {
protected:
  void SetUp() override {
    ASSERT_EQ(cublasCreate(&handle), CUBLAS_STATUS_SUCCESS);
    ASSERT_EQ(cudaStreamCreate(&stream), cudaSuccess);
    ASSERT_EQ(cublasSetStream(handle, stream), CUBLAS_STATUS_SUCCESS);
    ASSERT_EQ(cublasSetMathMode(handle, CUBLAS_PEDANTIC_MATH),
              CUBLAS_STATUS_SUCCESS);
    ASSERT_EQ(cublasSetAtomicsMode(handle, CUBLAS_ATOMICS_NOT_ALLOWED),
              CUBLAS_STATUS_SUCCESS);
  }
  void TearDown() override {
    EXPECT_EQ(cublasDestroy(handle), CUBLAS_STATUS_SUCCESS);
    EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
  }

  /// Multiplies batches of integer matrices and compares every element.
  /// `In`, `Out`: how elements lie in memory, with their conversions.
  template <typename In, typename Out, typename Scalar>
  void check(cudaDataType inType, cudaDataType outType,
             cublasComputeType_t compute, const std::function<In(int)> &toIn,
             const std::function<double(Out)> &fromOut,
             const std::function<Out(int)> &toOut) {
    std::mt19937 random(seed);
    auto number = [&] { return static_cast<int>(random() % 7) - 3; };
    constexpr int m = 5, n = 3, k = 4, batches = 2, extra = 2;
    for (bool isATransposed : {false, true}) {
      for (bool isBTransposed : {false, true}) {
        int lda = (isATransposed ? k : m) + extra;
        int ldb = (isBTransposed ? n : k) + extra;
        int ldc = m + extra;
        int strideA = lda * (isATransposed ? m : k) + 1;
        int strideB = ldb * (isBTransposed ? k : n) + 1;
        int strideC = ldc * n + 1;
        std::vector<int> a(batches * strideA), b(batches * strideB),
            c(batches * strideC);
        for (std::vector<int> *values : {&a, &b, &c})
          for (int &value : *values)
            value = number();
        auto convert = [](const std::vector<int> &values, auto &to, auto &out) {
          for (int value : values)
            out.push_back(to(value));
        };
        std::vector<In> inA, inB;
        std::vector<Out> inC;
        convert(a, toIn, inA);
        convert(b, toIn, inB);
        convert(c, toOut, inC);
        DeviceArray<In> deviceA(inA), deviceB(inB);
        DeviceArray<Out> deviceC(inC);
        Scalar alpha = 2, beta = -1;
        ASSERT_EQ(cublasGemmStridedBatchedEx(
                      handle, isATransposed ? CUBLAS_OP_T : CUBLAS_OP_N,
                      isBTransposed ? CUBLAS_OP_T : CUBLAS_OP_N, m, n, k,
                      &alpha, deviceA.data(), inType, lda, strideA,
                      deviceB.data(), inType, ldb, strideB, &beta,
                      deviceC.data(), outType, ldc, strideC, batches, compute,
                      CUBLAS_GEMM_DEFAULT),
                  CUBLAS_STATUS_SUCCESS);
        std::vector<Out> result = deviceC.read();
        for (int i = 0; i < batches * strideC; ++i) {
          int batch = i / strideC, column = i % strideC / ldc,
              row = i % strideC % ldc;
          double expected = c[i];
          if (row < m && column < n) {
            int sum = 0;
            for (int j = 0; j < k; ++j)
              sum += a[batch * strideA +
                       (isATransposed ? row * lda + j : j * lda + row)] *
                     b[batch * strideB +
                       (isBTransposed ? j * ldb + column : column * ldb + j)];
            expected = 2 * sum - c[i];
          }
          ASSERT_EQ(fromOut(result[i]), expected) << i;
        }
      }
    }
  }

  cublasHandle_t handle;
  cudaStream_t stream;
};

TEST_F(Cublas, MultipliesFloats) {
  check<float, float, float>(
      CUDA_R_32F, CUDA_R_32F, CUBLAS_COMPUTE_32F,
      [](int x) { return static_cast<float>(x); }, [](float x) { return x; },
      [](int x) { return static_cast<float>(x); });
}

TEST_F(Cublas, MultipliesDoubles) {
  check<double, double, double>(
      CUDA_R_64F, CUDA_R_64F, CUBLAS_COMPUTE_64F, [](int x) { return x; },
      [](double x) { return x; }, [](int x) { return x; });
}

TEST_F(Cublas, MultipliesHalves) {
  auto from = [](int x) { return __float2half_rn(static_cast<float>(x)); };
  check<__half, __half, float>(
      CUDA_R_16F, CUDA_R_16F, CUBLAS_COMPUTE_32F, from,
      [](__half x) { return __half2float(x); }, from);
  check<__half, float, float>(
      CUDA_R_16F, CUDA_R_32F, CUBLAS_COMPUTE_32F_PEDANTIC, from,
      [](float x) { return x; }, [](int x) { return static_cast<float>(x); });
}

TEST_F(Cublas, MultipliesBfloats) {
  auto from = [](int x) { return __float2bfloat16_rn(static_cast<float>(x)); };
  check<__nv_bfloat16, __nv_bfloat16, float>(
      CUDA_R_16BF, CUDA_R_16BF, CUBLAS_COMPUTE_32F, from,
      [](__nv_bfloat16 x) { return __bfloat162float(x); }, from);
  check<__nv_bfloat16, float, float>(
      CUDA_R_16BF, CUDA_R_32F, CUBLAS_COMPUTE_32F, from,
      [](float x) { return x; }, [](int x) { return static_cast<float>(x); });
}

TEST_F(Cublas, DoesNotReadWhatBetaZeroDrops) {
  DeviceArray<float> a(std::vector<float>{2}), b(std::vector<float>{3}), c(1);
  DeviceArray<float> scalars(std::vector<float>{4, 0});
  ASSERT_EQ(cublasSetPointerMode(handle, CUBLAS_POINTER_MODE_DEVICE),
            CUBLAS_STATUS_SUCCESS);
  ASSERT_EQ(cublasGemmEx(handle, CUBLAS_OP_N, CUBLAS_OP_N, 1, 1, 1,
                         scalars.data(), a.data(), CUDA_R_32F, 1, b.data(),
                         CUDA_R_32F, 1, scalars.data() + 1, c.data(),
                         CUDA_R_32F, 1, CUBLAS_COMPUTE_32F,
                         CUBLAS_GEMM_DEFAULT),
            CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(c.read()[0], 24);
}

TEST_F(Cublas, RefusesWhatIsWrong) {
  DeviceArray<float> data(16);
  float host[16] = {}, one = 1;
  auto multiply = [&](const void *a, int lda, cudaDataType type,
                      cublasComputeType_t compute) {
    return cublasGemmEx(handle, CUBLAS_OP_N, CUBLAS_OP_N, 4, 4, 4, &one, a,
                        type, lda, data.data(), CUDA_R_32F, 4, &one,
                        data.data(), CUDA_R_32F, 4, compute,
                        CUBLAS_GEMM_DEFAULT);
  };
  EXPECT_EQ(multiply(host, 4, CUDA_R_32F, CUBLAS_COMPUTE_32F),
            CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(multiply(data.data(), 3, CUDA_R_32F, CUBLAS_COMPUTE_32F),
            CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(multiply(data.data(), 5, CUDA_R_32F, CUBLAS_COMPUTE_32F),
            CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(multiply(data.data(), 4, CUDA_R_16F, CUBLAS_COMPUTE_32F),
            CUBLAS_STATUS_NOT_SUPPORTED);
  EXPECT_EQ(multiply(data.data(), 4, CUDA_R_32F, CUBLAS_COMPUTE_32F_FAST_TF32),
            CUBLAS_STATUS_NOT_SUPPORTED);
  EXPECT_EQ(cublasSetWorkspace(handle, host, 16), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(cublasSetWorkspace(handle, data.data(), 64), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(cublasSetStream(nullptr, stream), CUBLAS_STATUS_NOT_INITIALIZED);
}

} // namespace
