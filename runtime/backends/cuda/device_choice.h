// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Finds the GPU of a rank, or says why there is none.

#pragma once

#include "base/status.h"

#include <cuda_runtime_api.h>

#include <optional>
#include <string>

namespace ddphook::cuda {

struct DeviceChoice {
  /// CUDA's number for it in this process.
  int number = 0;
  /// 32 hexadecimal digits that identify the GPU.
  std::string uuid;
  /// Ten times the compute capability: 90 for sm_90.
  int capability = 0;
};

/// Chooses the GPU with number `wanted`, otherwise the only GPU, otherwise that
/// of `localRank`. UNSUPPORTED if there is no GPU or no driver, or if it is too
/// old. INVALID_ARGUMENT if there is no GPU with that number.
Status chooseDevice(int localRank, std::optional<int> wanted,
                    DeviceChoice *choice);

} // namespace ddphook::cuda
