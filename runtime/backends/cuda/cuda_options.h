// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The text "name=value,name=value" of ddphook_device_config_t. docs/cuda.md
// explains the names.

#pragma once

#include "base/status.h"

#include <nccl.h>

#include <optional>
#include <string>

namespace ddphook::cuda {

struct CudaOptions {
  /// The GPU's number among those visible to the process; if unset, by rank.
  std::optional<int> device;
  /// Priorities of the backend's compute stream and the communication stream;
  /// lower numbers go first. Values are clamped to the device's range.
  std::optional<int> computePriority;
  std::optional<int> commPriority;
  /// If not 0, device memory comes from NCCL and is registered with it.
  std::optional<int> registerMemory;
  /// If not 0, collectives wait on the caller's thread, inside NCCL.
  std::optional<int> blocking;
  /// If not 0, divides by the size of a group exactly, as the host does,
  /// instead of as PyTorch does on CUDA tensors.
  std::optional<int> exactDivision;
  /// Processes that provide a communicator's unique ids; if unset, by its size.
  std::optional<int> roots;
  /// Milliseconds between two checks of collectives in flight.
  std::optional<int> watchdogMs;

  /// NCCL's own options, except for those of ncclConfig().
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  std::string netName;

  // Settings that NCCL reads only from the environment.
  std::string algo;
  std::string proto;
  std::optional<int> nthreads;

  /// Returns the options that must agree on all ranks, comma-separated.
  static const char *agreedNames();

  /// Parses options; INVALID_ARGUMENT names the wrong entry and the known ones.
  static Status parse(const std::string &text, CudaOptions *options);

  /// True if communicators are blocking; NCCL's environment takes precedence
  /// over the configuration.
  bool isBlocking() const;

  bool dividesExactly() const { return exactDivision.value_or(0) != 0; }

  /// Returns a communicator's configuration. `name` and this object must
  /// outlive its use.
  ncclConfig_t ncclConfig(const std::string &name) const;

  /// Sets NCCL_ALGO and similar variables for this process, unless they are
  /// set. Only variables that are set before NCCL's first call have an effect.
  void exportEnvironment() const;
};

} // namespace ddphook::cuda
