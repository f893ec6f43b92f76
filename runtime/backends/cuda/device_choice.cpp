// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Only two errors mean that there is no GPU: no device, and no driver or one
// that is too old. All others are failures of the machine.

#include "device_choice.h"

#include "base/packed_texts.h"
#include "cuda_error.h"

using namespace ddphook;
using namespace ddphook::cuda;

/// The oldest major compute capability that kernels are built for.
static constexpr int leastMajor = 8;

static Status describeDriver() {
  int driver = 0;
  if (cudaDriverGetVersion(&driver) != cudaSuccess || driver == 0) {
    (void)cudaGetLastError();
    return error(DDPHOOK_UNSUPPORTED,
                 "no CUDA device: this machine has no NVIDIA driver "
                 "(cudaErrorInsufficientDriver)");
  }
  int runtime = 0;
  (void)cudaRuntimeGetVersion(&runtime);
  return error(DDPHOOK_UNSUPPORTED,
               "no CUDA device: expected a driver for CUDA %s or later, but "
               "got one for CUDA %s (cudaErrorInsufficientDriver)",
               cudaVersionText(runtime).c_str(),
               cudaVersionText(driver).c_str());
}

static Status countDevices(int *count) {
  cudaError_t found = cudaGetDeviceCount(count);
  if (found == cudaErrorInsufficientDriver) {
    (void)cudaGetLastError();
    return describeDriver();
  }
  if (found == cudaErrorNoDevice || (found == cudaSuccess && *count == 0)) {
    (void)cudaGetLastError();
    return error(DDPHOOK_UNSUPPORTED,
                 "no CUDA device: the driver shows no GPU to this process "
                 "(cudaErrorNoDevice); CUDA_VISIBLE_DEVICES may hide them");
  }
  return toStatus(found, "counting CUDA devices");
}

static Status pickNumber(int localRank, std::optional<int> wanted, int count,
                         int *number) {
  if (wanted && *wanted >= count)
    return invalid("option device: expected a GPU from 0 to %d, but got %d",
                   count - 1, *wanted);
  // Launchers that expose a single GPU to each process do not change the local
  // rank.
  if (!wanted && count > 1 && (localRank < 0 || localRank >= count))
    return invalid(
        "expected a GPU for local rank %d, but this process sees %d; "
        "the option device=N chooses one",
        localRank, count);
  *number = wanted ? *wanted : count == 1 ? 0 : localRank;
  return Status::ok();
}

Status cuda::chooseDevice(int localRank, std::optional<int> wanted,
                          DeviceChoice *choice) {
  int count = 0;
  DDPHOOK_TRY(countDevices(&count));
  DDPHOOK_TRY(pickNumber(localRank, wanted, count, &choice->number));
  cudaDeviceProp properties = {};
  DDPHOOK_TRY(toStatus(cudaGetDeviceProperties(&properties, choice->number),
                       "reading a GPU's properties"));
  choice->uuid = toHex({properties.uuid.bytes, sizeof(properties.uuid.bytes)});
  choice->capability = properties.major * 10 + properties.minor;
  if (properties.major < leastMajor)
    return error(DDPHOOK_UNSUPPORTED,
                 "expected a GPU of compute capability %d.0 or later, but GPU "
                 "%d (%s) has %d.%d",
                 leastMajor, choice->number, properties.name, properties.major,
                 properties.minor);
  return Status::ok();
}
