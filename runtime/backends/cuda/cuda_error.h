// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The only place where error codes of CUDA and NCCL become statuses.

#pragma once

#include "base/status.h"

#include <cuda_runtime_api.h>
#include <nccl.h>

namespace ddphook::cuda {

/// Converts the result of a CUDA runtime call; `what` describes its purpose.
/// Also clears the thread's last error, which the next launch would find
/// otherwise.
Status toStatus(cudaError_t error, const char *what);

/// Converts the result of an NCCL call, or an asynchronous error.
/// `communicator` may be null. Not for ncclInProgress, which is no failure.
Status toStatus(ncclResult_t result, ncclComm_t communicator, const char *what);

/// Returns "12.8" for CUDA's version number 12080.
std::string cudaVersionText(int version);

/// Returns "2.28.9" for NCCL's version number 22809.
std::string ncclVersionText(int version);

} // namespace ddphook::cuda
