// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What the backend asks the driver itself, by way of
// cudaGetDriverEntryPointByVersion(): nothing links a driver.

#pragma once

typedef int CUdevice;

typedef enum cudaError_enum {
  CUDA_SUCCESS = 0,
  CUDA_ERROR_INVALID_VALUE = 1,
  CUDA_ERROR_INVALID_DEVICE = 101
} CUresult;

#ifdef __cplusplus
extern "C" {
#endif

CUresult cuDevicePrimaryCtxGetState(CUdevice dev, unsigned int *flags,
                                    int *active);

#ifdef __cplusplus
}
#endif
