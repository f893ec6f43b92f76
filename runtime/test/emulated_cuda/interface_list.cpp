// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Everything that the emulated headers repeat of the driver, NCCL and cuBLAS.
// A name that one of the sets lacks does not compile.

#include "interface_list.h"

#include <cublas_v2.h>
#include <cuda.h>
#include <nccl.h>

#include <cstddef>
#include <typeinfo>

#define CONSTANT(id) {#id, std::to_string(static_cast<long long>(id))},
// A function's mangled type holds the names of its parameters' types.
#define FUNCTION(id) {#id, typeid(decltype(&id)).name()},
#define MEMBER(type, id) {#type "." #id, std::to_string(offsetof(type, id))},

// cuBLAS overloads these two; the conversion picks the one with this type.
[[maybe_unused]] static cublasStatus_t (*const gemm)(
    cublasHandle_t, cublasOperation_t, cublasOperation_t, int, int, int,
    const void *, const void *, cudaDataType, int, const void *, cudaDataType,
    int, const void *, void *, cudaDataType, int, cublasComputeType_t,
    cublasGemmAlgo_t) = &cublasGemmEx;
[[maybe_unused]] static cublasStatus_t (*const batchedGemm)(
    cublasHandle_t, cublasOperation_t, cublasOperation_t, int, int, int,
    const void *, const void *, cudaDataType, int, long long, const void *,
    cudaDataType, int, long long, const void *, void *, cudaDataType, int,
    long long, int, cublasComputeType_t,
    cublasGemmAlgo_t) = &cublasGemmStridedBatchedEx;

// clang-format off
Interface INTERFACE_NAME() {
  return {
      CONSTANT(CUDA_SUCCESS)
      CONSTANT(CUDA_ERROR_INVALID_VALUE)
      CONSTANT(CUDA_ERROR_INVALID_DEVICE)
      FUNCTION(cuDevicePrimaryCtxGetState)
      CONSTANT(ncclSuccess)
      CONSTANT(ncclUnhandledCudaError)
      CONSTANT(ncclSystemError)
      CONSTANT(ncclInternalError)
      CONSTANT(ncclInvalidArgument)
      CONSTANT(ncclInvalidUsage)
      CONSTANT(ncclRemoteError)
      CONSTANT(ncclInProgress)
      CONSTANT(ncclNumResults)
      CONSTANT(ncclSum)
      CONSTANT(ncclProd)
      CONSTANT(ncclMax)
      CONSTANT(ncclMin)
      CONSTANT(ncclAvg)
      CONSTANT(ncclNumOps)
      CONSTANT(ncclMaxRedOp)
      CONSTANT(ncclInt8)
      CONSTANT(ncclUint8)
      CONSTANT(ncclInt32)
      CONSTANT(ncclUint32)
      CONSTANT(ncclInt64)
      CONSTANT(ncclUint64)
      CONSTANT(ncclFloat16)
      CONSTANT(ncclHalf)
      CONSTANT(ncclFloat32)
      CONSTANT(ncclFloat)
      CONSTANT(ncclFloat64)
      CONSTANT(ncclDouble)
      CONSTANT(ncclBfloat16)
      CONSTANT(ncclFloat8e4m3)
      CONSTANT(ncclFloat8e5m2)
      CONSTANT(ncclNumTypes)
      CONSTANT(CUBLAS_STATUS_SUCCESS)
      CONSTANT(CUBLAS_STATUS_NOT_INITIALIZED)
      CONSTANT(CUBLAS_STATUS_ALLOC_FAILED)
      CONSTANT(CUBLAS_STATUS_INVALID_VALUE)
      CONSTANT(CUBLAS_STATUS_ARCH_MISMATCH)
      CONSTANT(CUBLAS_STATUS_MAPPING_ERROR)
      CONSTANT(CUBLAS_STATUS_EXECUTION_FAILED)
      CONSTANT(CUBLAS_STATUS_INTERNAL_ERROR)
      CONSTANT(CUBLAS_STATUS_NOT_SUPPORTED)
      CONSTANT(CUBLAS_STATUS_LICENSE_ERROR)
      CONSTANT(CUBLAS_OP_N)
      CONSTANT(CUBLAS_OP_T)
      CONSTANT(CUBLAS_OP_C)
      CONSTANT(CUBLAS_POINTER_MODE_HOST)
      CONSTANT(CUBLAS_POINTER_MODE_DEVICE)
      CONSTANT(CUBLAS_ATOMICS_NOT_ALLOWED)
      CONSTANT(CUBLAS_ATOMICS_ALLOWED)
      CONSTANT(CUBLAS_DEFAULT_MATH)
      CONSTANT(CUBLAS_PEDANTIC_MATH)
      CONSTANT(CUBLAS_TF32_TENSOR_OP_MATH)
      CONSTANT(CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION)
      CONSTANT(CUBLAS_GEMM_DEFAULT)
      CONSTANT(CUBLAS_COMPUTE_16F)
      CONSTANT(CUBLAS_COMPUTE_16F_PEDANTIC)
      CONSTANT(CUBLAS_COMPUTE_32F)
      CONSTANT(CUBLAS_COMPUTE_32F_PEDANTIC)
      CONSTANT(CUBLAS_COMPUTE_64F)
      CONSTANT(CUBLAS_COMPUTE_64F_PEDANTIC)
      CONSTANT(CUBLAS_COMPUTE_32F_FAST_16F)
      CONSTANT(CUBLAS_COMPUTE_32F_FAST_16BF)
      CONSTANT(CUBLAS_COMPUTE_32F_FAST_TF32)
      CONSTANT(CUDA_R_32F)
      CONSTANT(CUDA_R_64F)
      CONSTANT(CUDA_R_16F)
      CONSTANT(CUDA_R_16BF)
      CONSTANT(NCCL_CONFIG_UNDEF_INT)
      CONSTANT(NCCL_UNIQUE_ID_BYTES)
      FUNCTION(ncclGetVersion)
      FUNCTION(ncclGetUniqueId)
      FUNCTION(ncclCommInitRank)
      FUNCTION(ncclCommInitRankConfig)
      FUNCTION(ncclCommInitRankScalable)
      FUNCTION(ncclCommFinalize)
      FUNCTION(ncclCommDestroy)
      FUNCTION(ncclCommAbort)
      FUNCTION(ncclCommGetAsyncError)
      FUNCTION(ncclCommCount)
      FUNCTION(ncclCommCuDevice)
      FUNCTION(ncclCommUserRank)
      FUNCTION(ncclMemAlloc)
      FUNCTION(ncclMemFree)
      FUNCTION(ncclCommRegister)
      FUNCTION(ncclCommDeregister)
      FUNCTION(ncclGroupStart)
      FUNCTION(ncclGroupEnd)
      FUNCTION(ncclAllReduce)
      FUNCTION(ncclReduceScatter)
      FUNCTION(ncclAllGather)
      FUNCTION(ncclBroadcast)
      FUNCTION(ncclSend)
      FUNCTION(ncclRecv)
      FUNCTION(ncclGetErrorString)
      FUNCTION(ncclGetLastError)
      FUNCTION(cublasCreate)
      FUNCTION(cublasDestroy)
      FUNCTION(cublasGetVersion)
      FUNCTION(cublasSetStream)
      FUNCTION(cublasSetWorkspace)
      FUNCTION(cublasSetPointerMode)
      FUNCTION(cublasSetAtomicsMode)
      FUNCTION(cublasSetMathMode)
      FUNCTION(cublasGetStatusName)
      FUNCTION(cublasGetStatusString)
      MEMBER(ncclConfig_t, size)
      MEMBER(ncclConfig_t, magic)
      MEMBER(ncclConfig_t, version)
      MEMBER(ncclConfig_t, blocking)
      MEMBER(ncclConfig_t, cgaClusterSize)
      MEMBER(ncclConfig_t, minCTAs)
      MEMBER(ncclConfig_t, maxCTAs)
      MEMBER(ncclConfig_t, netName)
      MEMBER(ncclConfig_t, splitShare)
      MEMBER(ncclConfig_t, trafficClass)
      MEMBER(ncclConfig_t, commName)
      MEMBER(ncclConfig_t, collnetEnable)
      MEMBER(ncclConfig_t, CTAPolicy)
      MEMBER(ncclConfig_t, shrinkShare)
      MEMBER(ncclConfig_t, nvlsCTAs)
      MEMBER(ncclConfig_t, nChannelsPerNetPeer)
      MEMBER(ncclConfig_t, nvlinkCentricSched)
      {"sizeof ncclConfig_t", std::to_string(sizeof(ncclConfig_t))},
      {"sizeof ncclUniqueId", std::to_string(sizeof(ncclUniqueId))},
  };
}
// clang-format on
