// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Devices with the figures of an H200, save for the memory's size. Nothing here
// is ever destroyed: streams' threads use it until the process ends.

#include "device.h"

#include "cuda.h"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

using namespace emulated_cuda;

long long emulated_cuda::environmentNumber(const char *name,
                                           long long otherwise) {
  const char *text = std::getenv(name);
  if (!text || !*text)
    return otherwise;
  char *end = nullptr;
  errno = 0;
  long long value = std::strtoll(text, &end, 10);
  if (errno || *end || value < 0) {
    std::fprintf(stderr,
                 "emulated CUDA: expected a number in %s, but got '%s'\n", name,
                 text);
    std::abort();
  }
  return value;
}

static Settings readSettings() {
  const char *order = std::getenv("EMULATED_CUDA_ORDER");
  if (order && std::strcmp(order, "reverse") != 0) {
    std::fprintf(stderr,
                 "emulated CUDA: expected EMULATED_CUDA_ORDER to be 'reverse', "
                 "but got '%s'\n",
                 order);
    std::abort();
  }
  return {static_cast<int>(environmentNumber("EMULATED_CUDA_DEVICES", 1)),
          static_cast<int>(
              environmentNumber("EMULATED_CUDA_DRIVER", CUDART_VERSION)),
          order != nullptr};
}

const Settings &emulated_cuda::settings() {
  static const Settings settings = readSettings();
  return settings;
}

std::mutex &emulated_cuda::hostMutex() {
  static auto *mutex = new std::mutex();
  return *mutex;
}

static std::vector<Device *> makeDevices() {
  std::vector<Device *> devices;
  const long long first = environmentNumber("EMULATED_CUDA_FIRST_DEVICE", 0);
  for (int i = 0; i < settings().devices; ++i) {
    auto *device = new Device();
    device->number = i;
    std::memcpy(device->uuid.bytes, "emulated-GPU", 12);
    const uint32_t gpu = static_cast<uint32_t>(first + i);
    std::memcpy(device->uuid.bytes + 12, &gpu, sizeof(gpu));
    device->memoryBytes = static_cast<size_t>(
        environmentNumber("EMULATED_CUDA_MEMORY", 1ll << 30));
    device->capability =
        static_cast<int>(environmentNumber("EMULATED_CUDA_CAPABILITY", 90));
    devices.push_back(device);
  }
  return devices;
}

Device *emulated_cuda::findDevice(int number) {
  static const auto *devices = new std::vector<Device *>(makeDevices());
  if (number < 0 || static_cast<size_t>(number) >= devices->size())
    return nullptr;
  return (*devices)[static_cast<size_t>(number)];
}

static thread_local int currentNumber = 0;
static thread_local cudaError_t lastError = cudaSuccess;

/// Why there is no usable device at all; or cudaSuccess.
static cudaError_t noDeviceError() {
  if (settings().devices == 0)
    return cudaErrorNoDevice;
  if (settings().driverVersion / 1000 < CUDART_VERSION / 1000)
    return cudaErrorInsufficientDriver;
  return cudaSuccess;
}

cudaError_t emulated_cuda::currentDevice(Device **device) {
  if (cudaError_t error = noDeviceError())
    return error;
  *device = findDevice(currentNumber);
  return cudaSuccess;
}

cudaError_t emulated_cuda::currentContext(Device **device) {
  if (cudaError_t error = currentDevice(device))
    return error;
  (*device)->hasContext = true;
  return cudaSuccess;
}

cudaError_t emulated_cuda::record(cudaError_t error) {
  if (error != cudaSuccess)
    lastError = error;
  return error;
}

cudaError_t emulated_cuda::recordUnlessFailed(const Device &device,
                                              cudaError_t error) {
  cudaError_t failure = device.failure;
  return record(failure != cudaSuccess ? failure : error);
}

extern "C" {

cudaError_t cudaGetLastError(void) {
  cudaError_t error = cudaPeekAtLastError();
  lastError = cudaSuccess;
  return error;
}

cudaError_t cudaPeekAtLastError(void) {
  Device *device = nullptr;
  if (!currentDevice(&device) && device->failure != cudaSuccess)
    return device->failure;
  return lastError;
}

#define EMULATED_CUDA_NAME(name, value, text)                                  \
  case name:                                                                   \
    return #name;
#define EMULATED_CUDA_TEXT(name, value, text)                                  \
  case name:                                                                   \
    return text;

const char *cudaGetErrorName(cudaError_t error) {
  switch (error) { EMULATED_CUDA_ERRORS(EMULATED_CUDA_NAME) }
  return "unrecognized error code";
}

const char *cudaGetErrorString(cudaError_t error) {
  switch (error) { EMULATED_CUDA_ERRORS(EMULATED_CUDA_TEXT) }
  return "unrecognized error code";
}

cudaError_t cudaGetDeviceCount(int *count) {
  *count = 0;
  if (cudaError_t error = noDeviceError())
    return record(error);
  *count = settings().devices;
  return cudaSuccess;
}

cudaError_t cudaSetDevice(int number) {
  if (cudaError_t error = noDeviceError())
    return record(error);
  Device *device = findDevice(number);
  if (!device)
    return record(cudaErrorInvalidDevice);
  currentNumber = number;
  device->hasContext = true;
  return recordUnlessFailed(*device, cudaSuccess);
}

cudaError_t cudaGetDevice(int *number) {
  Device *device;
  if (cudaError_t error = currentDevice(&device))
    return record(error);
  *number = device->number;
  return cudaSuccess;
}

CUresult cuDevicePrimaryCtxGetState(CUdevice number, unsigned *flags,
                                    int *active) {
  const Device *device = findDevice(number);
  if (!device)
    return CUDA_ERROR_INVALID_DEVICE;
  if (!flags || !active)
    return CUDA_ERROR_INVALID_VALUE;
  *flags = 0;
  *active = device->hasContext;
  return CUDA_SUCCESS;
}

cudaError_t
cudaGetDriverEntryPointByVersion(const char *symbol, void **function,
                                 unsigned version, unsigned long long flags,
                                 cudaDriverEntryPointQueryResult *status) {
  if (cudaError_t error = noDeviceError())
    return record(error);
  if (!symbol || !function || flags != cudaEnableDefault ||
      version > static_cast<unsigned>(settings().driverVersion))
    return record(cudaErrorInvalidValue);
  const bool isKnown = std::strcmp(symbol, "cuDevicePrimaryCtxGetState") == 0;
  *function =
      isKnown ? reinterpret_cast<void *>(&cuDevicePrimaryCtxGetState) : nullptr;
  if (status)
    *status = isKnown ? cudaDriverEntryPointSuccess
                      : cudaDriverEntryPointSymbolNotFound;
  return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int *version) {
  *version = settings().devices == 0 ? 0 : settings().driverVersion;
  return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest) {
  Device *device;
  if (cudaError_t error = currentContext(&device))
    return record(error);
  if (least)
    *least = 0;
  if (greatest)
    *greatest = -5;
  return cudaSuccess;
}

} // extern "C"
