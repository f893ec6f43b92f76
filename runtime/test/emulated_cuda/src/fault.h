// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// EMULATED_CUDA_FAULT is a list "NAME:N,NAME:N"; each fault happens once, at
// the N-th time (from 1) that this process comes to the point in question. N
// may be left out: 1. A name is followed by "@RANK" where only the process
// whose environment variable RANK has that value is meant ("exit@1:3").
//
//   malloc       cudaMalloc gives cudaErrorMemoryAllocation
//   host_malloc  cudaMallocHost and cudaHostAlloc do
//   launch       a kernel launch gives cudaErrorLaunchOutOfResources
//   kernel       a kernel's execution fails: every later call gives
//                cudaErrorIllegalAddress, and no operation runs any more
//   memcpy       as `kernel`, in an asynchronous copy
//   nccl_init    the initialization of a communicator gives ncclSystemError
//   nccl_init_exit    the process dies by SIGKILL inside it
//   nccl_init_stall   it never ends
//   nccl_launch  ncclAllReduce gives ncclInternalError
//   nccl_async   the collective stalls and ncclCommGetAsyncError gives
//                ncclRemoteError
//   nccl_stall   the collective stalls
//   nccl_corrupt the collective's first byte is wrong in the end
//   exit         the process dies by SIGKILL inside the collective
//
// A stalled collective ends when its communicator is aborted.

#pragma once

namespace emulated_cuda {

/// Counts, and tells whether this time is the one.
bool isFaultDue(const char *name);

} // namespace emulated_cuda
