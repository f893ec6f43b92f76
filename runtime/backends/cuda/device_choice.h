//===- device_choice.h - which GPU a process takes --------------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Finds the GPU of a rank and says why there is none.
//
//===----------------------------------------------------------------------===//
#ifndef DDPHOOK_RUNTIME_BACKENDS_CUDA_DEVICE_CHOICE_H
#define DDPHOOK_RUNTIME_BACKENDS_CUDA_DEVICE_CHOICE_H

#include "base/status.h"

#include <cuda_runtime_api.h>

#include <optional>
#include <string>

namespace ddphook::cuda {

struct DeviceChoice {
  /// CUDA's number of it in this process.
  int number = 0;
  /// 32 hexadecimal digits that no other GPU has.
  std::string uuid;
  /// Ten times the compute capability: 90 for sm_90.
  int capability = 0;
};

/// The GPU with number `wanted`, else the only one, else that of `localRank`.
/// UNSUPPORTED: there is no GPU, or no driver for it, or it is too old.
/// INVALID_ARGUMENT: there is none with that number.
Status chooseDevice(int localRank, std::optional<int> wanted,
                    DeviceChoice *choice);

} // namespace ddphook::cuda

#endif // DDPHOOK_RUNTIME_BACKENDS_CUDA_DEVICE_CHOICE_H
