// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Chooses the status that says what the caller can do next.

#include "cuda_error.h"

using namespace ddphook;
using namespace ddphook::cuda;

static ddphook_status_t codeOf(cudaError_t error) {
  switch (error) {
  case cudaErrorMemoryAllocation:
    return DDPHOOK_RESOURCE_EXHAUSTED;
  case cudaErrorInsufficientDriver:
  case cudaErrorNoDevice:
  case cudaErrorNoKernelImageForDevice:
  case cudaErrorUnsupportedPtxVersion:
  case cudaErrorNotSupported:
  case cudaErrorSystemDriverMismatch:
    return DDPHOOK_UNSUPPORTED;
  case cudaErrorStreamCaptureUnsupported:
  case cudaErrorStreamCaptureInvalidated:
  case cudaErrorStreamCaptureMerge:
  case cudaErrorStreamCaptureUnmatched:
  case cudaErrorStreamCaptureUnjoined:
  case cudaErrorStreamCaptureIsolation:
  case cudaErrorStreamCaptureImplicit:
  case cudaErrorStreamCaptureWrongThread:
  case cudaErrorCapturedEvent:
    return DDPHOOK_FAILED_PRECONDITION;
  default:
    return DDPHOOK_INTERNAL;
  }
}

Status cuda::toStatus(cudaError_t error, const char *what) {
  if (error == cudaSuccess)
    return Status::ok();
  (void)cudaGetLastError();
  return ddphook::error(codeOf(error), "%s: %s (%s)", what,
                        cudaGetErrorString(error), cudaGetErrorName(error));
}

static ddphook_status_t codeOf(ncclResult_t result) {
  switch (result) {
  case ncclRemoteError:
    return DDPHOOK_PEER_LOST;
  case ncclSystemError:
    return DDPHOOK_IO_ERROR;
  case ncclInvalidUsage:
    return DDPHOOK_FAILED_PRECONDITION;
  default:
    return DDPHOOK_INTERNAL;
  }
}

Status cuda::toStatus(ncclResult_t result, ncclComm_t communicator,
                      const char *what) {
  if (result == ncclSuccess)
    return Status::ok();
  // The last error is NCCL's line for the latest warning of this thread or
  // communicator; empty if NCCL gave no details.
  const char *detail = ncclGetLastError(communicator);
  const bool hasDetail = detail && detail[0] != '\0';
  return error(codeOf(result), "%s: NCCL: %s%s%s", what,
               ncclGetErrorString(result), hasDetail ? ": " : "",
               hasDetail ? detail : "");
}

std::string cuda::cudaVersionText(int version) {
  return std::to_string(version / 1000) + '.' +
         std::to_string(version % 1000 / 10);
}

std::string cuda::ncclVersionText(int version) {
  return std::to_string(version / 10000) + '.' +
         std::to_string(version % 10000 / 100) + '.' +
         std::to_string(version % 100);
}
