// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Names and numbers are CUDA 13's; real_headers_test.cpp compares them where a
// toolkit is installed. Of the large structs only the members that a program
// can use here are declared: their sizes are not CUDA's.

#pragma once

#include "emulated_cuda/vector_types.h"

#include <stddef.h>

typedef struct CUstream_st *cudaStream_t;
typedef struct CUevent_st *cudaEvent_t;
typedef struct CUgraph_st *cudaGraph_t;
typedef struct CUgraphExec_st *cudaGraphExec_t;
typedef struct CUgraphNode_st *cudaGraphNode_t;
typedef struct CUlib_st *cudaLibrary_t;
typedef struct CUkern_st *cudaKernel_t;
typedef void (*cudaHostFn_t)(void *userData);

#define CUDART_VERSION 13000

// Every error that the backend may see, here and on a device.
#define EMULATED_CUDA_ERRORS(X)                                                \
  X(cudaSuccess, 0, "no error")                                                \
  X(cudaErrorInvalidValue, 1, "invalid argument")                              \
  X(cudaErrorMemoryAllocation, 2, "out of memory")                             \
  X(cudaErrorInitializationError, 3, "initialization error")                   \
  X(cudaErrorCudartUnloading, 4, "driver shutting down")                       \
  X(cudaErrorInvalidConfiguration, 9, "invalid configuration argument")        \
  X(cudaErrorInvalidDevicePointer, 17, "invalid device pointer")               \
  X(cudaErrorInvalidMemcpyDirection, 21, "invalid copy direction for memcpy")  \
  X(cudaErrorInsufficientDriver, 35,                                           \
    "CUDA driver version is insufficient for CUDA runtime version")            \
  X(cudaErrorDevicesUnavailable, 46,                                           \
    "CUDA-capable device(s) is/are busy or unavailable")                       \
  X(cudaErrorInvalidDeviceFunction, 98, "invalid device function")             \
  X(cudaErrorNoDevice, 100, "no CUDA-capable device is detected")              \
  X(cudaErrorInvalidDevice, 101, "invalid device ordinal")                     \
  X(cudaErrorInvalidKernelImage, 200, "device kernel image is invalid")        \
  X(cudaErrorDeviceUninitialized, 201, "invalid device context")               \
  X(cudaErrorNoKernelImageForDevice, 209,                                      \
    "no kernel image is available for execution on the device")                \
  X(cudaErrorECCUncorrectable, 214, "uncorrectable ECC error encountered")     \
  X(cudaErrorUnsupportedPtxVersion, 222,                                       \
    "the provided PTX was compiled with an unsupported toolchain.")            \
  X(cudaErrorInvalidResourceHandle, 400, "invalid resource handle")            \
  X(cudaErrorIllegalState, 401,                                                \
    "the operation cannot be performed in the present state")                  \
  X(cudaErrorSymbolNotFound, 500, "named symbol not found")                    \
  X(cudaErrorNotReady, 600, "device not ready")                                \
  X(cudaErrorIllegalAddress, 700, "an illegal memory access was encountered")  \
  X(cudaErrorLaunchOutOfResources, 701,                                        \
    "too many resources requested for launch")                                 \
  X(cudaErrorLaunchTimeout, 702, "the launch timed out and was terminated")    \
  X(cudaErrorContextIsDestroyed, 709, "context is destroyed")                  \
  X(cudaErrorAssert, 710, "device-side assert triggered")                      \
  X(cudaErrorHostMemoryAlreadyRegistered, 712,                                 \
    "part or all of the requested memory range is already mapped")             \
  X(cudaErrorHostMemoryNotRegistered, 713,                                     \
    "pointer does not correspond to a registered memory region")               \
  X(cudaErrorMisalignedAddress, 716, "misaligned address")                     \
  X(cudaErrorLaunchFailure, 719, "unspecified launch failure")                 \
  X(cudaErrorNotPermitted, 800, "operation not permitted")                     \
  X(cudaErrorNotSupported, 801, "operation not supported")                     \
  X(cudaErrorSystemNotReady, 802, "system not yet initialized")                \
  X(cudaErrorSystemDriverMismatch, 803,                                        \
    "system has unsupported display driver / cuda driver combination")         \
  X(cudaErrorStreamCaptureUnsupported, 900,                                    \
    "operation not permitted when stream is capturing")                        \
  X(cudaErrorStreamCaptureInvalidated, 901,                                    \
    "operation failed due to a previous error during capture")                 \
  X(cudaErrorStreamCaptureMerge, 902,                                          \
    "operation would result in a merge of separate capture sequences")         \
  X(cudaErrorStreamCaptureUnmatched, 903,                                      \
    "capture was not ended in the same stream as it began")                    \
  X(cudaErrorStreamCaptureUnjoined, 904, "capturing stream has unjoined work") \
  X(cudaErrorStreamCaptureIsolation, 905,                                      \
    "dependency created on uncaptured work in another stream")                 \
  X(cudaErrorStreamCaptureImplicit, 906,                                       \
    "operation would make the legacy stream depend on a capturing blocking "   \
    "stream")                                                                  \
  X(cudaErrorCapturedEvent, 907,                                               \
    "operation not permitted on an event last recorded in a capturing stream") \
  X(cudaErrorStreamCaptureWrongThread, 908,                                    \
    "attempt to terminate a thread-local capture sequence from another "       \
    "thread")                                                                  \
  X(cudaErrorUnknown, 999, "unknown error")

#define EMULATED_CUDA_ENUMERATOR(name, value, text) name = value,
enum cudaError { EMULATED_CUDA_ERRORS(EMULATED_CUDA_ENUMERATOR) };
#undef EMULATED_CUDA_ENUMERATOR
typedef enum cudaError cudaError_t;

enum cudaMemcpyKind {
  cudaMemcpyHostToHost = 0,
  cudaMemcpyHostToDevice = 1,
  cudaMemcpyDeviceToHost = 2,
  cudaMemcpyDeviceToDevice = 3,
  cudaMemcpyDefault = 4
};

enum cudaMemoryType {
  cudaMemoryTypeUnregistered = 0,
  cudaMemoryTypeHost = 1,
  cudaMemoryTypeDevice = 2,
  cudaMemoryTypeManaged = 3
};

struct cudaPointerAttributes {
  enum cudaMemoryType type;
  int device;
  void *devicePointer;
  void *hostPointer;
};

enum cudaDriverEntryPointQueryResult {
  cudaDriverEntryPointSuccess = 0,
  cudaDriverEntryPointSymbolNotFound = 1,
  cudaDriverEntryPointVersionNotSufficent = 2
};
#define cudaEnableDefault 0x00

#define cudaStreamDefault 0x00
#define cudaStreamNonBlocking 0x01
#define cudaStreamLegacy ((cudaStream_t)0x1)
#define cudaStreamPerThread ((cudaStream_t)0x2)
#define cudaEventDefault 0x00
#define cudaEventBlockingSync 0x01
#define cudaEventDisableTiming 0x02
#define cudaEventInterprocess 0x04
#define cudaEventRecordDefault 0x00
#define cudaEventWaitDefault 0x00
#define cudaHostAllocDefault 0x00
#define cudaHostAllocPortable 0x01
#define cudaHostAllocMapped 0x02
#define cudaHostAllocWriteCombined 0x04

enum cudaStreamCaptureStatus {
  cudaStreamCaptureStatusNone = 0,
  cudaStreamCaptureStatusActive = 1,
  cudaStreamCaptureStatusInvalidated = 2
};
enum cudaStreamCaptureMode {
  cudaStreamCaptureModeGlobal = 0,
  cudaStreamCaptureModeThreadLocal = 1,
  cudaStreamCaptureModeRelaxed = 2
};

struct CUuuid_st {
  char bytes[16];
};
typedef struct CUuuid_st cudaUUID_t;

struct cudaDeviceProp {
  char name[256];
  cudaUUID_t uuid;
  size_t totalGlobalMem;
  size_t sharedMemPerBlock;
  int regsPerBlock;
  int warpSize;
  int maxThreadsPerBlock;
  int maxThreadsDim[3];
  int maxGridSize[3];
  int major;
  int minor;
  int multiProcessorCount;
  int integrated;
  int canMapHostMemory;
  int ECCEnabled;
  int pciBusID;
  int pciDeviceID;
  int pciDomainID;
  int asyncEngineCount;
  int unifiedAddressing;
  int memoryBusWidth;
  int l2CacheSize;
  int persistingL2CacheMaxSize;
  int maxThreadsPerMultiProcessor;
  int streamPrioritiesSupported;
  size_t sharedMemPerMultiprocessor;
  int regsPerMultiprocessor;
  int managedMemory;
  int concurrentKernels;
  int pageableMemoryAccess;
  size_t sharedMemPerBlockOptin;
  int maxBlocksPerMultiProcessor;
  int accessPolicyMaxWindowSize;
  size_t reservedSharedMemPerBlock;
};

enum cudaDeviceAttr {
  cudaDevAttrMaxThreadsPerBlock = 1,
  cudaDevAttrMaxSharedMemoryPerBlock = 8,
  cudaDevAttrWarpSize = 10,
  cudaDevAttrClockRate = 13,
  cudaDevAttrMultiProcessorCount = 16,
  cudaDevAttrIntegrated = 18,
  cudaDevAttrCanMapHostMemory = 19,
  cudaDevAttrComputeMode = 20,
  cudaDevAttrConcurrentKernels = 31,
  cudaDevAttrEccEnabled = 32,
  cudaDevAttrPciBusId = 33,
  cudaDevAttrPciDeviceId = 34,
  cudaDevAttrMemoryClockRate = 36,
  cudaDevAttrGlobalMemoryBusWidth = 37,
  cudaDevAttrL2CacheSize = 38,
  cudaDevAttrMaxThreadsPerMultiProcessor = 39,
  cudaDevAttrAsyncEngineCount = 40,
  cudaDevAttrUnifiedAddressing = 41,
  cudaDevAttrPciDomainId = 50,
  cudaDevAttrComputeCapabilityMajor = 75,
  cudaDevAttrComputeCapabilityMinor = 76,
  cudaDevAttrStreamPrioritiesSupported = 78,
  cudaDevAttrMaxSharedMemoryPerMultiprocessor = 81,
  cudaDevAttrMaxRegistersPerMultiprocessor = 82,
  cudaDevAttrManagedMemory = 83,
  cudaDevAttrPageableMemoryAccess = 88,
  cudaDevAttrCooperativeLaunch = 95,
  cudaDevAttrMaxSharedMemoryPerBlockOptin = 97,
  cudaDevAttrMaxBlocksPerMultiprocessor = 106,
  cudaDevAttrMaxPersistingL2CacheSize = 108,
  cudaDevAttrMaxAccessPolicyWindowSize = 109
};

enum cudaJitOption { cudaJitErrorLogBuffer = 5 };
enum cudaLibraryOption { cudaLibraryBinaryIsPreserved = 1 };

enum cudaFuncAttribute {
  cudaFuncAttributeMaxDynamicSharedMemorySize = 8,
  cudaFuncAttributePreferredSharedMemoryCarveout = 9
};

struct cudaFuncAttributes {
  size_t sharedSizeBytes;
  size_t constSizeBytes;
  size_t localSizeBytes;
  int maxThreadsPerBlock;
  int numRegs;
  int ptxVersion;
  int binaryVersion;
  int cacheModeCA;
  int maxDynamicSharedSizeBytes;
  int preferredShmemCarveout;
};

enum cudaAccessProperty {
  cudaAccessPropertyNormal = 0,
  cudaAccessPropertyStreaming = 1,
  cudaAccessPropertyPersisting = 2
};
struct cudaAccessPolicyWindow {
  void *base_ptr;
  size_t num_bytes;
  float hitRatio;
  enum cudaAccessProperty hitProp;
  enum cudaAccessProperty missProp;
};

typedef enum cudaLaunchAttributeID {
  cudaLaunchAttributeIgnore = 0,
  cudaLaunchAttributeAccessPolicyWindow = 1,
  cudaLaunchAttributeCooperative = 2,
  cudaLaunchAttributeProgrammaticStreamSerialization = 6,
  cudaLaunchAttributePriority = 8,
  cudaLaunchAttributePreferredSharedMemoryCarveout = 14
} cudaLaunchAttributeID;
typedef union cudaLaunchAttributeValue {
  char pad[64];
  struct cudaAccessPolicyWindow accessPolicyWindow;
  int cooperative;
  int programmaticStreamSerializationAllowed;
  int priority;
  unsigned int sharedMemCarveout;
} cudaLaunchAttributeValue;
typedef struct cudaLaunchAttribute_st {
  cudaLaunchAttributeID id;
  char pad[8 - sizeof(cudaLaunchAttributeID)];
  cudaLaunchAttributeValue val;
} cudaLaunchAttribute;

typedef struct cudaLaunchConfig_st {
  dim3 gridDim;
  dim3 blockDim;
  size_t dynamicSmemBytes;
  cudaStream_t stream;
  cudaLaunchAttribute *attrs;
  unsigned int numAttrs;
} cudaLaunchConfig_t;
