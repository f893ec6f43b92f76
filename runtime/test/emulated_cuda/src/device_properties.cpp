// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The figures of an H200: a backend that sizes its launches by them gets the
// launches that it would get there.

#include "device.h"

#include <cstdio>
#include <cstring>

using namespace emulated_cuda;

static constexpr int multiprocessors = 132;
static constexpr int l2Bytes = 60 << 20;
static constexpr size_t sharedBytes = 48 << 10;
static constexpr size_t sharedOptinBytes = 227 << 10;
static constexpr size_t sharedMultiprocessorBytes = 228 << 10;

static int gpuNumber(const Device &device) {
  int number;
  std::memcpy(&number, device.uuid.bytes + 12, sizeof(number));
  return number;
}

/// Buses begin at 1 and repeat in another domain.
static int busOf(const Device &device) { return gpuNumber(device) % 255 + 1; }
static int domainOf(const Device &device) { return gpuNumber(device) / 255; }

extern "C" {

cudaError_t cudaGetDeviceProperties(cudaDeviceProp *prop, int number) {
  Device *device;
  if (cudaError_t error = currentDevice(&device))
    return record(error);
  device = findDevice(number);
  if (!device || !prop)
    return record(device ? cudaErrorInvalidValue : cudaErrorInvalidDevice);
  *prop = {};
  std::snprintf(prop->name, sizeof(prop->name), "Emulated CUDA device");
  prop->uuid = device->uuid;
  prop->totalGlobalMem = device->memoryBytes;
  prop->sharedMemPerBlock = sharedBytes;
  prop->regsPerBlock = 65536;
  prop->warpSize = 32;
  prop->maxThreadsPerBlock = 1024;
  prop->maxThreadsDim[0] = prop->maxThreadsDim[1] = 1024;
  prop->maxThreadsDim[2] = 64;
  prop->maxGridSize[0] = 2147483647;
  prop->maxGridSize[1] = prop->maxGridSize[2] = 65535;
  prop->major = device->capability / 10;
  prop->minor = device->capability % 10;
  prop->multiProcessorCount = multiprocessors;
  prop->canMapHostMemory = 1;
  prop->ECCEnabled = 1;
  prop->pciBusID = busOf(*device);
  prop->pciDomainID = domainOf(*device);
  prop->asyncEngineCount = 3;
  prop->unifiedAddressing = 1;
  prop->memoryBusWidth = 6144;
  prop->l2CacheSize = l2Bytes;
  prop->persistingL2CacheMaxSize = l2Bytes / 8 * 5;
  prop->maxThreadsPerMultiProcessor = 2048;
  prop->streamPrioritiesSupported = 1;
  prop->sharedMemPerMultiprocessor = sharedMultiprocessorBytes;
  prop->regsPerMultiprocessor = 65536;
  prop->managedMemory = 1;
  prop->concurrentKernels = 1;
  prop->sharedMemPerBlockOptin = sharedOptinBytes;
  prop->maxBlocksPerMultiProcessor = 32;
  prop->accessPolicyMaxWindowSize = 128 << 20;
  prop->reservedSharedMemPerBlock = 1024;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr attribute,
                                   int number) {
  cudaDeviceProp prop;
  if (!value)
    return record(cudaErrorInvalidValue);
  if (cudaError_t error = cudaGetDeviceProperties(&prop, number))
    return error;
  switch (attribute) {
  case cudaDevAttrMaxThreadsPerBlock:
    *value = prop.maxThreadsPerBlock;
    return cudaSuccess;
  case cudaDevAttrMaxSharedMemoryPerBlock:
    *value = static_cast<int>(prop.sharedMemPerBlock);
    return cudaSuccess;
  case cudaDevAttrWarpSize:
    *value = prop.warpSize;
    return cudaSuccess;
  case cudaDevAttrClockRate:
    *value = 1980000;
    return cudaSuccess;
  case cudaDevAttrMultiProcessorCount:
    *value = prop.multiProcessorCount;
    return cudaSuccess;
  case cudaDevAttrIntegrated:
  case cudaDevAttrComputeMode:
  case cudaDevAttrPciDeviceId:
  case cudaDevAttrPageableMemoryAccess:
    *value = 0;
    return cudaSuccess;
  case cudaDevAttrCanMapHostMemory:
  case cudaDevAttrConcurrentKernels:
  case cudaDevAttrEccEnabled:
  case cudaDevAttrUnifiedAddressing:
  case cudaDevAttrStreamPrioritiesSupported:
  case cudaDevAttrManagedMemory:
  case cudaDevAttrCooperativeLaunch:
    *value = 1;
    return cudaSuccess;
  case cudaDevAttrPciBusId:
    *value = prop.pciBusID;
    return cudaSuccess;
  case cudaDevAttrPciDomainId:
    *value = prop.pciDomainID;
    return cudaSuccess;
  case cudaDevAttrMemoryClockRate:
    *value = 3201000;
    return cudaSuccess;
  case cudaDevAttrGlobalMemoryBusWidth:
    *value = prop.memoryBusWidth;
    return cudaSuccess;
  case cudaDevAttrL2CacheSize:
    *value = prop.l2CacheSize;
    return cudaSuccess;
  case cudaDevAttrMaxThreadsPerMultiProcessor:
    *value = prop.maxThreadsPerMultiProcessor;
    return cudaSuccess;
  case cudaDevAttrAsyncEngineCount:
    *value = prop.asyncEngineCount;
    return cudaSuccess;
  case cudaDevAttrComputeCapabilityMajor:
    *value = prop.major;
    return cudaSuccess;
  case cudaDevAttrComputeCapabilityMinor:
    *value = prop.minor;
    return cudaSuccess;
  case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
    *value = static_cast<int>(prop.sharedMemPerMultiprocessor);
    return cudaSuccess;
  case cudaDevAttrMaxRegistersPerMultiprocessor:
    *value = prop.regsPerMultiprocessor;
    return cudaSuccess;
  case cudaDevAttrMaxSharedMemoryPerBlockOptin:
    *value = static_cast<int>(prop.sharedMemPerBlockOptin);
    return cudaSuccess;
  case cudaDevAttrMaxBlocksPerMultiprocessor:
    *value = prop.maxBlocksPerMultiProcessor;
    return cudaSuccess;
  case cudaDevAttrMaxPersistingL2CacheSize:
    *value = prop.persistingL2CacheMaxSize;
    return cudaSuccess;
  case cudaDevAttrMaxAccessPolicyWindowSize:
    *value = prop.accessPolicyMaxWindowSize;
    return cudaSuccess;
  }
  return record(cudaErrorInvalidValue);
}

/// For the GPU library, whose structure of properties is the toolkit's.
void emulatedIdentity(int number, char *name, char *uuid, size_t *memory) {
  cudaDeviceProp prop;
  if (cudaGetDeviceProperties(&prop, number))
    return;
  std::memcpy(name, prop.name, sizeof(prop.name));
  std::memcpy(uuid, prop.uuid.bytes, sizeof(prop.uuid.bytes));
  *memory = prop.totalGlobalMem;
}

cudaError_t cudaDeviceGetPCIBusId(char *text, int length, int number) {
  cudaDeviceProp prop;
  if (!text || length < 13)
    return record(cudaErrorInvalidValue);
  if (cudaError_t error = cudaGetDeviceProperties(&prop, number))
    return error;
  std::snprintf(text, static_cast<size_t>(length), "%04x:%02x:%02x.0",
                static_cast<unsigned>(prop.pciDomainID),
                static_cast<unsigned>(prop.pciBusID),
                static_cast<unsigned>(prop.pciDeviceID));
  return cudaSuccess;
}

} // extern "C"
