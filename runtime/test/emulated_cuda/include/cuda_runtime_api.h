// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The part of the CUDA runtime, of NCCL and of cuBLAS that the CUDA backend
// uses, on host memory, for tests on machines without a GPU. The backend's
// sources, kernels included, compile against this directory unchanged.
//
// What it proves: logic and numerics. Every kernel really runs, thread by
// thread, with barriers, shared memory and warp shuffles; streams are threads,
// so that an event that is missing is a race which TSan sees; NCCL's calls move
// data between processes. What it does not prove: speed, anything about NCCL's
// or the driver's own code, the memory model between the blocks of a kernel
// (they run one after the other), the limits of registers and of occupancy.
//
// Where it is stricter than a device:
//   - a barrier or warp operation that can never complete ends the process with
//     the kernel's line, instead of hanging; so does a barrier that the threads
//     of a block reach at different lines.
//   - device memory and, with clang, shared memory begin as 0xff bytes.
//   - under TSan the threads of a block are threads: a barrier that is missing
//     is a race, in shared memory as in the device's.
//   - copies check that both ranges lie in one allocation each and that the
//     memory is of the kind that was said.
//   - every call makes the context of the thread's device, unless it only asks
//     about devices and errors; a device may make do without for some of them.
//   - bytes that cudaMemcpy() has read from pageable memory are always late.
//   - kernels in PTX are checked as EMULATED_CUDA_CHECKS says.
// Where it is laxer: host code that reads device memory is not caught, and
// neither is a race between two blocks of a launch of a kernel that was
// compiled for the host.
//
// Settings, from the environment:
//   EMULATED_CUDA_DEVICES=N       number of devices; 1 unless set, 0: no device
//   EMULATED_CUDA_FIRST_DEVICE=N  which GPU of the machine device 0 is: for its
//                                 UUID and PCI address; 0 unless set
//   EMULATED_CUDA_MEMORY=BYTES    memory of each device; 1 GiB unless set
//   EMULATED_CUDA_CAPABILITY=90   compute capability times ten
//   EMULATED_CUDA_DRIVER=13000    the driver's version
//   EMULATED_CUDA_ORDER=reverse   blocks, and threads that are ready, run from
//                                 the last to the first
//   EMULATED_CUDA_FAULT=LIST      faults to inject: see src/fault.h
//   EMULATED_CUDA_CHECKS=races    what is checked of accesses of kernels in
//   PTX: see
//                                 src/access_checks.h
//   EMULATED_CUDA_COUNTS=FILE     where the counts of kernels in PTX go: see
//                                 src/device_code.cpp
//   EMULATED_CUDA_SKIP=FILE:LINE  a barrier to leave out, in a file of PTX

#pragma once

#include "emulated_cuda/types.h"

#ifdef __cplusplus
#define EMULATED_CUDA_DEFAULT(value) = value
extern "C" {
#else
#define EMULATED_CUDA_DEFAULT(value)
#endif

// Devices.
cudaError_t cudaGetDeviceCount(int *count);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaGetDevice(int *device);
cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *prop, int device);
cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attr,
                                   int device);
cudaError_t cudaDeviceGetPCIBusId(char *pciBusId, int len, int device);
cudaError_t cudaDeviceGetStreamPriorityRange(int *leastPriority,
                                             int *greatestPriority);
cudaError_t cudaDeviceSynchronize(void);
cudaError_t cudaDriverGetVersion(int *driverVersion);
cudaError_t cudaRuntimeGetVersion(int *runtimeVersion);
cudaError_t cudaGetDriverEntryPointByVersion(
    const char *symbol, void **funcPtr, unsigned int cudaVersion,
    unsigned long long flags,
    enum cudaDriverEntryPointQueryResult *driverStatus
        EMULATED_CUDA_DEFAULT(NULL));

// Errors.
cudaError_t cudaGetLastError(void);
cudaError_t cudaPeekAtLastError(void);
const char *cudaGetErrorName(cudaError_t error);
const char *cudaGetErrorString(cudaError_t error);

// Memory.
cudaError_t cudaMalloc(void **devPtr, size_t size);
cudaError_t cudaFree(void *devPtr);
cudaError_t cudaMallocHost(void **ptr, size_t size);
cudaError_t cudaHostAlloc(void **pHost, size_t size, unsigned int flags);
cudaError_t cudaFreeHost(void *ptr);
cudaError_t cudaHostGetDevicePointer(void **pDevice, void *pHost,
                                     unsigned int flags);
cudaError_t cudaMemGetInfo(size_t *free, size_t *total);
cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *attributes,
                                     const void *ptr);
cudaError_t cudaMemcpy(void *dst, const void *src, size_t count,
                       enum cudaMemcpyKind kind);
cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t count,
                            enum cudaMemcpyKind kind,
                            cudaStream_t stream EMULATED_CUDA_DEFAULT(0));
cudaError_t cudaMemset(void *devPtr, int value, size_t count);
cudaError_t cudaMemsetAsync(void *devPtr, int value, size_t count,
                            cudaStream_t stream EMULATED_CUDA_DEFAULT(0));

// Streams.
cudaError_t cudaStreamCreate(cudaStream_t *pStream);
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *pStream,
                                      unsigned int flags);
cudaError_t cudaStreamCreateWithPriority(cudaStream_t *pStream,
                                         unsigned int flags, int priority);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamGetFlags(cudaStream_t hStream, unsigned int *flags);
cudaError_t cudaStreamGetPriority(cudaStream_t hStream, int *priority);
cudaError_t cudaStreamGetDevice(cudaStream_t hStream, int *device);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaStreamQuery(cudaStream_t stream);
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event,
                                unsigned int flags EMULATED_CUDA_DEFAULT(0));
cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t fn,
                               void *userData);

// Events.
cudaError_t cudaEventCreate(cudaEvent_t *event);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned int flags);
cudaError_t cudaEventRecord(cudaEvent_t event,
                            cudaStream_t stream EMULATED_CUDA_DEFAULT(0));
cudaError_t cudaEventQuery(cudaEvent_t event);
cudaError_t cudaEventSynchronize(cudaEvent_t event);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t start, cudaEvent_t end);

// Graphs.
cudaError_t cudaStreamBeginCapture(cudaStream_t stream,
                                   enum cudaStreamCaptureMode mode);
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *pGraph);
cudaError_t cudaStreamIsCapturing(cudaStream_t stream,
                                  enum cudaStreamCaptureStatus *pCaptureStatus);
cudaError_t
cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *mode);
cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *nodes,
                              size_t *numNodes);
cudaError_t
cudaGraphInstantiate(cudaGraphExec_t *pGraphExec, cudaGraph_t graph,
                     unsigned long long flags EMULATED_CUDA_DEFAULT(0));
cudaError_t cudaGraphUpload(cudaGraphExec_t graphExec, cudaStream_t stream);
cudaError_t cudaGraphLaunch(cudaGraphExec_t graphExec, cudaStream_t stream);
cudaError_t cudaGraphDestroy(cudaGraph_t graph);
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graphExec);

// Kernels.
cudaError_t cudaFuncSetAttribute(const void *func, enum cudaFuncAttribute attr,
                                 int value);
cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *attr,
                                  const void *func);
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(
    int *numBlocks, const void *func, int blockSize, size_t dynamicSMemSize);

// Loaded kernels. An error in their PTX shows when one is first used, not
// before.
cudaError_t cudaLibraryLoadData(cudaLibrary_t *library, const void *code,
                                enum cudaJitOption *jitOptions,
                                void **jitOptionsValues,
                                unsigned int numJitOptions,
                                enum cudaLibraryOption *libraryOptions,
                                void **libraryOptionValues,
                                unsigned int numLibraryOptions);
cudaError_t cudaLibraryUnload(cudaLibrary_t library);
cudaError_t cudaLibraryGetKernel(cudaKernel_t *pKernel, cudaLibrary_t library,
                                 const char *name);
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t *config,
                                const void *func, void **args);

#ifdef __cplusplus
}
#endif
#undef EMULATED_CUDA_DEFAULT
