// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Every call becomes one operation of the handle's stream.

#include "cublas_v2.h"

#include "cuda_bf16.h"
#include "cuda_fp16.h"
#include "memory.h"
#include "stream.h"

#include <cstring>

using namespace emulated_cuda;

struct cublasContext {
  Device *device = nullptr;
  cudaStream_t stream = nullptr;
  cublasPointerMode_t pointerMode = CUBLAS_POINTER_MODE_HOST;
};

namespace {

struct Matrix {
  const void *data;
  cudaDataType type;
  int leading;
  long long stride;
  bool isTransposed;
};

struct Product {
  int m, n, k, batches;
  Matrix a, b, c;
  /// On the host their values, else where they are.
  double alpha, beta;
  const void *alphaAddress, *betaAddress;
};

} // namespace

static size_t sizeOf(cudaDataType type) {
  switch (type) {
  case CUDA_R_32F:
    return 4;
  case CUDA_R_64F:
    return 8;
  case CUDA_R_16F:
  case CUDA_R_16BF:
    return 2;
  }
  return 0;
}

static double load(const void *data, cudaDataType type, long long index) {
  const char *address = static_cast<const char *>(data) +
                        index * static_cast<long long>(sizeOf(type));
  unsigned short bits;
  float single;
  double wide;
  switch (type) {
  case CUDA_R_32F:
    std::memcpy(&single, address, sizeof(single));
    return single;
  case CUDA_R_64F:
    std::memcpy(&wide, address, sizeof(wide));
    return wide;
  case CUDA_R_16F:
    std::memcpy(&bits, address, sizeof(bits));
    return __half2float(__ushort_as_half(bits));
  case CUDA_R_16BF:
    std::memcpy(&bits, address, sizeof(bits));
    return __bfloat162float(__ushort_as_bfloat16(bits));
  }
  return 0;
}

static void store(void *data, cudaDataType type, long long index,
                  double value) {
  char *address =
      static_cast<char *>(data) + index * static_cast<long long>(sizeOf(type));
  float single = static_cast<float>(value);
  unsigned short bits;
  switch (type) {
  case CUDA_R_32F:
    std::memcpy(address, &single, sizeof(single));
    return;
  case CUDA_R_64F:
    std::memcpy(address, &value, sizeof(value));
    return;
  case CUDA_R_16F:
    bits = __half_as_ushort(__float2half_rn(single));
    break;
  case CUDA_R_16BF:
    bits = __bfloat16_as_ushort(__float2bfloat16_rn(single));
    break;
  }
  std::memcpy(address, &bits, sizeof(bits));
}

static double element(const Matrix &matrix, long long batch, int row,
                      int column) {
  if (matrix.isTransposed)
    std::swap(row, column);
  return load(matrix.data, matrix.type,
              batch * matrix.stride +
                  static_cast<long long>(column) * matrix.leading + row);
}

/// `T`: what sums are kept in.
template <typename T>
static void multiply(const Product &product) {
  T alpha = static_cast<T>(product.alpha), beta = static_cast<T>(product.beta);
  if (product.alphaAddress) {
    std::memcpy(&alpha, product.alphaAddress, sizeof(T));
    std::memcpy(&beta, product.betaAddress, sizeof(T));
  }
  for (long long batch = 0; batch < product.batches; ++batch) {
    for (int column = 0; column < product.n; ++column) {
      for (int row = 0; row < product.m; ++row) {
        T sum = 0;
        for (int i = 0; i < product.k; ++i)
          sum += static_cast<T>(element(product.a, batch, row, i)) *
                 static_cast<T>(element(product.b, batch, i, column));
        // C is not read where it does not count: it may hold anything.
        T result = alpha * sum;
        if (beta != 0)
          result +=
              beta * static_cast<T>(element(product.c, batch, row, column));
        store(const_cast<void *>(product.c.data), product.c.type,
              batch * product.c.stride +
                  static_cast<long long>(column) * product.c.leading + row,
              result);
      }
    }
  }
}

/// Whether the matrix, of `rows` x `columns` in memory, is what it should be.
static bool isValid(const Matrix &matrix, int rows, int columns, int batches) {
  if (matrix.leading < std::max(1, rows))
    return false;
  if (rows == 0 || columns == 0 || batches == 0)
    return true;
  long long last = (batches - 1) * matrix.stride +
                   static_cast<long long>(columns - 1) * matrix.leading + rows;
  return matrix.data && isDeviceRange(matrix.data, static_cast<size_t>(last) *
                                                       sizeOf(matrix.type));
}

static bool isSupported(const Product &product, cublasComputeType_t compute) {
  const cudaDataType in = product.a.type, out = product.c.type;
  if (product.b.type != in)
    return false;
  if (in == CUDA_R_64F)
    return out == in && (compute == CUBLAS_COMPUTE_64F ||
                         compute == CUBLAS_COMPUTE_64F_PEDANTIC);
  if (compute != CUBLAS_COMPUTE_32F && compute != CUBLAS_COMPUTE_32F_PEDANTIC)
    return false;
  return out == in || (in != CUDA_R_32F && out == CUDA_R_32F);
}

static cublasStatus_t submitProduct(cublasHandle_t handle, Product product,
                                    cublasComputeType_t compute,
                                    const void *alpha, const void *beta) {
  if (!handle)
    return CUBLAS_STATUS_NOT_INITIALIZED;
  if (product.m < 0 || product.n < 0 || product.k < 0 || product.batches < 0 ||
      !alpha || !beta)
    return CUBLAS_STATUS_INVALID_VALUE;
  if (!isSupported(product, compute))
    return CUBLAS_STATUS_NOT_SUPPORTED;
  const Matrix &a = product.a, &b = product.b;
  if (!isValid(a, a.isTransposed ? product.k : product.m,
               a.isTransposed ? product.m : product.k, product.batches) ||
      !isValid(b, b.isTransposed ? product.n : product.k,
               b.isTransposed ? product.k : product.n, product.batches) ||
      !isValid(product.c, product.m, product.n, product.batches))
    return CUBLAS_STATUS_INVALID_VALUE;
  const bool isDouble = product.c.type == CUDA_R_64F;
  if (handle->pointerMode == CUBLAS_POINTER_MODE_HOST) {
    cudaDataType scalar = isDouble ? CUDA_R_64F : CUDA_R_32F;
    product.alpha = load(alpha, scalar, 0);
    product.beta = load(beta, scalar, 0);
  } else {
    product.alphaAddress = alpha;
    product.betaAddress = beta;
  }
  cudaError_t error = submit(handle->stream, [=] {
    isDouble ? multiply<double>(product) : multiply<float>(product);
  });
  return error ? CUBLAS_STATUS_EXECUTION_FAILED : CUBLAS_STATUS_SUCCESS;
}

extern "C" {

cublasStatus_t cublasCreate(cublasHandle_t *handle) {
  Device *device;
  if (!handle)
    return CUBLAS_STATUS_INVALID_VALUE;
  if (currentContext(&device) || device->failure != cudaSuccess)
    return CUBLAS_STATUS_NOT_INITIALIZED;
  *handle = new cublasContext();
  (*handle)->device = device;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasDestroy(cublasHandle_t handle) {
  if (!handle)
    return CUBLAS_STATUS_NOT_INITIALIZED;
  // As on a device; not where the wait would never end.
  if (handle->device->failure == cudaSuccess)
    waitForDevice(handle->device);
  delete handle;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasGetVersion(cublasHandle_t handle, int *version) {
  if (!handle)
    return CUBLAS_STATUS_NOT_INITIALIZED;
  *version = 130000;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetStream(cublasHandle_t handle, cudaStream_t stream) {
  if (!handle)
    return CUBLAS_STATUS_NOT_INITIALIZED;
  handle->stream = stream;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetWorkspace(cublasHandle_t handle, void *workspace,
                                  size_t bytes) {
  if (!handle)
    return CUBLAS_STATUS_NOT_INITIALIZED;
  bool isAligned = reinterpret_cast<uintptr_t>(workspace) % 256 == 0;
  return isAligned && (bytes == 0 || isDeviceRange(workspace, bytes))
             ? CUBLAS_STATUS_SUCCESS
             : CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasSetPointerMode(cublasHandle_t handle,
                                    cublasPointerMode_t mode) {
  if (!handle)
    return CUBLAS_STATUS_NOT_INITIALIZED;
  handle->pointerMode = mode;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetAtomicsMode(cublasHandle_t handle,
                                    cublasAtomicsMode_t) {
  return handle ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_INITIALIZED;
}

cublasStatus_t cublasSetMathMode(cublasHandle_t handle, cublasMath_t) {
  return handle ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_INITIALIZED;
}

const char *cublasGetStatusName(cublasStatus_t status) {
  switch (status) {
  case CUBLAS_STATUS_SUCCESS:
    return "CUBLAS_STATUS_SUCCESS";
  case CUBLAS_STATUS_NOT_INITIALIZED:
    return "CUBLAS_STATUS_NOT_INITIALIZED";
  case CUBLAS_STATUS_ALLOC_FAILED:
    return "CUBLAS_STATUS_ALLOC_FAILED";
  case CUBLAS_STATUS_INVALID_VALUE:
    return "CUBLAS_STATUS_INVALID_VALUE";
  case CUBLAS_STATUS_ARCH_MISMATCH:
    return "CUBLAS_STATUS_ARCH_MISMATCH";
  case CUBLAS_STATUS_MAPPING_ERROR:
    return "CUBLAS_STATUS_MAPPING_ERROR";
  case CUBLAS_STATUS_EXECUTION_FAILED:
    return "CUBLAS_STATUS_EXECUTION_FAILED";
  case CUBLAS_STATUS_INTERNAL_ERROR:
    return "CUBLAS_STATUS_INTERNAL_ERROR";
  case CUBLAS_STATUS_NOT_SUPPORTED:
    return "CUBLAS_STATUS_NOT_SUPPORTED";
  case CUBLAS_STATUS_LICENSE_ERROR:
    return "CUBLAS_STATUS_LICENSE_ERROR";
  }
  return "CUBLAS_STATUS_UNKNOWN";
}

const char *cublasGetStatusString(cublasStatus_t status) {
  return cublasGetStatusName(status);
}

cublasStatus_t cublasGemmStridedBatchedEx(
    cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb,
    int m, int n, int k, const void *alpha, const void *A, cudaDataType Atype,
    int lda, long long strideA, const void *B, cudaDataType Btype, int ldb,
    long long strideB, const void *beta, void *C, cudaDataType Ctype, int ldc,
    long long strideC, int batchCount, cublasComputeType_t computeType,
    cublasGemmAlgo_t) {
  Product product = {};
  product.m = m;
  product.n = n;
  product.k = k;
  product.batches = batchCount;
  product.a = {A, Atype, lda, strideA, transa != CUBLAS_OP_N};
  product.b = {B, Btype, ldb, strideB, transb != CUBLAS_OP_N};
  product.c = {C, Ctype, ldc, strideC, false};
  return submitProduct(handle, product, computeType, alpha, beta);
}

cublasStatus_t cublasGemmEx(cublasHandle_t handle, cublasOperation_t transa,
                            cublasOperation_t transb, int m, int n, int k,
                            const void *alpha, const void *A,
                            cudaDataType Atype, int lda, const void *B,
                            cudaDataType Btype, int ldb, const void *beta,
                            void *C, cudaDataType Ctype, int ldc,
                            cublasComputeType_t computeType,
                            cublasGemmAlgo_t algo) {
  return cublasGemmStridedBatchedEx(handle, transa, transb, m, n, k, alpha, A,
                                    Atype, lda, 0, B, Btype, ldb, 0, beta, C,
                                    Ctype, ldc, 0, 1, computeType, algo);
}

} // extern "C"
