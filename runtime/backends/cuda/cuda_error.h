//===- cuda_error.h - failures of CUDA and NCCL -----------------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The one place where error codes of CUDA and NCCL become statuses.
//
//===----------------------------------------------------------------------===//
#ifndef DDPHOOK_RUNTIME_BACKENDS_CUDA_CUDA_ERROR_H
#define DDPHOOK_RUNTIME_BACKENDS_CUDA_CUDA_ERROR_H

#include "base/status.h"

#include <cuda_runtime_api.h>
#include <nccl.h>

namespace ddphook::cuda {

/// What a call of the CUDA runtime returned; `what` says what it was for. Also
/// takes the error from the thread's memory, where the next launch would find
/// it.
Status toStatus(cudaError_t error, const char *what);

/// What a call of NCCL returned, or an asynchronous error. `communicator` may
/// be null. Not for ncclInProgress, which is no failure.
Status toStatus(ncclResult_t result, ncclComm_t communicator, const char *what);

/// "12.8" for 12080, as CUDA numbers its versions.
std::string cudaVersionText(int version);

/// "2.28.9" for 22809, as NCCL does.
std::string ncclVersionText(int version);

} // namespace ddphook::cuda

#endif // DDPHOOK_RUNTIME_BACKENDS_CUDA_CUDA_ERROR_H
