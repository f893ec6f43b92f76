// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// cuBLAS stores matrices column by column, so it takes our row-major n x m
// matrix for its m x n transpose and computes transposed products:
//  Pᵀ = Qᵀ·Mᵀ,  Qᵀ = Pᵀ·M,  Mᵀ = Q·Pᵀ.
//
// All lists of a device share a handle, which is expensive; its stream and
// workspace are set before each product. Setting the stream resets the
// workspace, so that comes first. Handles are never destroyed: cuBLAS would
// wait for the device without a deadline.

#include "wide_products.h"

#include <cublas_v2.h>

#include <map>
#include <mutex>

using namespace ddphook;
using namespace ddphook::cuda;

/// For one thread at a time.
struct ddphook::cuda::Cublas {
  std::mutex mutex;
  cublasHandle_t handle = nullptr;
};

namespace {

constexpr size_t kWorkspaceBytes = size_t(8) << 20;

cudaDataType_t cublasType(Dtype type) {
  switch (type) {
  case Dtype::F16:
    return CUDA_R_16F;
  case Dtype::BF16:
    return CUDA_R_16BF;
  case Dtype::F32:
    return CUDA_R_32F;
  case Dtype::F64:
    return CUDA_R_64F;
  }
  return CUDA_R_32F;
}

/// 16-bit products may use their special units, which sum in f32; the pedantic
/// modes keep f32 and f64 off these.
cublasComputeType_t computeType(Dtype type) {
  switch (type) {
  case Dtype::F16:
  case Dtype::BF16:
    return CUBLAS_COMPUTE_32F;
  case Dtype::F32:
    return CUBLAS_COMPUTE_32F_PEDANTIC;
  case Dtype::F64:
    return CUBLAS_COMPUTE_64F_PEDANTIC;
  }
  return CUBLAS_COMPUTE_32F_PEDANTIC;
}

cudaError_t toCudaError(cublasStatus_t status) {
  switch (status) {
  case CUBLAS_STATUS_SUCCESS:
    return cudaSuccess;
  case CUBLAS_STATUS_ALLOC_FAILED:
    return cudaErrorMemoryAllocation;
  case CUBLAS_STATUS_INVALID_VALUE:
    return cudaErrorInvalidValue;
  case CUBLAS_STATUS_EXECUTION_FAILED:
    return cudaErrorLaunchFailure;
  case CUBLAS_STATUS_NOT_SUPPORTED:
  case CUBLAS_STATUS_ARCH_MISMATCH:
    return cudaErrorNotSupported;
  default:
    return cudaErrorUnknown;
  }
}

/// Returns the first failure of several calls.
cublasStatus_t firstOf(std::initializer_list<cublasStatus_t> statuses) {
  for (cublasStatus_t status : statuses)
    if (status != CUBLAS_STATUS_SUCCESS)
      return status;
  return CUBLAS_STATUS_SUCCESS;
}

Status failure(cublasStatus_t status) {
  return error(status == CUBLAS_STATUS_ALLOC_FAILED ? DDPHOOK_RESOURCE_EXHAUSTED
                                                    : DDPHOOK_UNSUPPORTED,
               "expected cuBLAS to start, but got %s",
               cublasGetStatusName(status));
}

/// Returns the current device's handle.
Status sharedCublas(Cublas **result) {
  static std::mutex mutex;
  static auto *known = new std::map<int, Cublas>();
  int device = 0;
  if (cudaError_t code = cudaGetDevice(&device))
    return error(DDPHOOK_INTERNAL, "expected a current device, but got %s",
                 cudaGetErrorName(code));
  const std::lock_guard<std::mutex> lock(mutex);
  Cublas &cublas = (*known)[device];
  *result = &cublas;
  if (cublas.handle)
    return Status::ok();
  cublasHandle_t created = nullptr;
  if (cublasStatus_t status = cublasCreate(&created))
    return failure(status);
  if (cublasStatus_t status = firstOf(
          {cublasSetAtomicsMode(created, CUBLAS_ATOMICS_NOT_ALLOWED),
           cublasSetMathMode(
               created, CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION)}))
    return failure(status);
  cublas.handle = created;
  return Status::ok();
}

} // namespace

Status WideProducts::create(Dtype type,
                            const std::vector<MatrixEntry> &matrices,
                            MemorySource &memory,
                            std::unique_ptr<WideProducts> *result) {
  std::unique_ptr<WideProducts> created(new WideProducts(type, matrices));
  DDPHOOK_TRY(sharedCublas(&created->cublas));
  DDPHOOK_TRY(created->workspace.allocate(memory, kWorkspaceBytes));
  *result = std::move(created);
  return Status::ok();
}

cudaError_t WideProducts::run(cudaStream_t stream,
                              const Product &product) const {
  if (product.m == 0 || product.n == 0)
    return cudaSuccess;
  if (product.k == 0)
    return cudaMemsetAsync(
        product.c, 0,
        static_cast<size_t>(product.m * product.n * dtypeSize(type)), stream);
  const float one = 1, zero = 0;
  const double wideOne = 1, wideZero = 0;
  const bool isWide = type == Dtype::F64;
  const cudaDataType_t elements = cublasType(type);
  auto toInt = [](int64_t value) { return static_cast<int>(value); };
  return toCudaError(cublasGemmEx(
      cublas->handle, product.isTransposedA ? CUBLAS_OP_T : CUBLAS_OP_N,
      product.isTransposedB ? CUBLAS_OP_T : CUBLAS_OP_N, toInt(product.m),
      toInt(product.n), toInt(product.k),
      isWide ? static_cast<const void *>(&wideOne) : &one, product.a, elements,
      toInt(product.leadingA), product.b, elements, toInt(product.leadingB),
      isWide ? static_cast<const void *>(&wideZero) : &zero, product.c,
      elements, toInt(product.m), computeType(type), CUBLAS_GEMM_DEFAULT));
}

cudaError_t WideProducts::multiply(cudaStream_t stream,
                                   ddphook_matmul_kind_t kind,
                                   const void *matrixIn, void *matrixOut,
                                   const void *pIn, void *pOut, const void *qIn,
                                   void *qOut) {
  const std::lock_guard<std::mutex> lock(cublas->mutex);
  if (cublasStatus_t status =
          firstOf({cublasSetStream(cublas->handle, stream),
                   cublasSetWorkspace(cublas->handle, workspace.get(),
                                      kWorkspaceBytes)}))
    return toCudaError(status);
  auto at = [&](auto *array, int64_t offset) {
    using Byte = std::conditional_t<
        std::is_const_v<std::remove_pointer_t<decltype(array)>>, const char,
        char>;
    return static_cast<Byte *>(array) + offset * dtypeSize(type);
  };
  for (const MatrixEntry &x : matrices) {
    Product product = {};
    switch (kind) {
    case DDPHOOK_MATMUL_P:
      product = {false,     false,
                 x.rank,    x.rows,
                 x.columns, at(qIn, x.qOffset),
                 x.rank,    at(matrixIn, x.offset),
                 x.columns, at(pOut, x.pOffset)};
      break;
    case DDPHOOK_MATMUL_Q:
      product = {false,     true,
                 x.rank,    x.columns,
                 x.rows,    at(pIn, x.pOffset),
                 x.rank,    at(matrixIn, x.offset),
                 x.columns, at(qOut, x.qOffset)};
      break;
    case DDPHOOK_MATMUL_M:
      product = {true,      false,
                 x.columns, x.rows,
                 x.rank,    at(qIn, x.qOffset),
                 x.rank,    at(pIn, x.pOffset),
                 x.rank,    at(matrixOut, x.offset)};
      break;
    }
    if (cudaError_t code = run(stream, product))
      return code;
  }
  return cudaSuccess;
}
