// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// cudaGetDeviceProperties() with the toolkit's structure, of which the fields
// that the programs read have values.

#include <cuda_runtime_api.h>

extern "C" void emulatedIdentity(int device, char *name, char *uuid,
                                 size_t *memory);

extern "C" cudaError_t cudaGetDeviceProperties(cudaDeviceProp *properties,
                                               int device) {
  *properties = {};
  const struct {
    cudaDeviceAttr attribute;
    int *value;
  } fields[] = {
      {cudaDevAttrComputeCapabilityMajor, &properties->major},
      {cudaDevAttrComputeCapabilityMinor, &properties->minor},
      {cudaDevAttrMultiProcessorCount, &properties->multiProcessorCount},
      {cudaDevAttrWarpSize, &properties->warpSize},
      {cudaDevAttrMaxThreadsPerBlock, &properties->maxThreadsPerBlock},
      {cudaDevAttrL2CacheSize, &properties->l2CacheSize},
      {cudaDevAttrGlobalMemoryBusWidth, &properties->memoryBusWidth},
      {cudaDevAttrPciBusId, &properties->pciBusID},
      {cudaDevAttrPciDomainId, &properties->pciDomainID},
      {cudaDevAttrPciDeviceId, &properties->pciDeviceID},
  };
  for (const auto &field : fields)
    if (cudaError_t error =
            cudaDeviceGetAttribute(field.value, field.attribute, device))
      return error;
  emulatedIdentity(device, properties->name, properties->uuid.bytes,
                   &properties->totalGlobalMem);
  return cudaSuccess;
}
