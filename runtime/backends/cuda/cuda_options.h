//===- cuda_options.h - options of the CUDA backend -------------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The text "name=value,name=value" of ddphook_device_config_t. docs/cuda.md
// lists the names with what they mean.
//
//===----------------------------------------------------------------------===//
#ifndef DDPHOOK_RUNTIME_BACKENDS_CUDA_CUDA_OPTIONS_H
#define DDPHOOK_RUNTIME_BACKENDS_CUDA_CUDA_OPTIONS_H

#include "base/status.h"

#include <nccl.h>

#include <optional>
#include <string>

namespace ddphook::cuda {

struct CudaOptions {
  /// Number of the GPU among those that the process sees; nothing: by rank.
  std::optional<int> device;
  /// Priorities of the own compute stream and of the communication stream;
  /// lower numbers go first. Values beyond the device's range are cut to it.
  std::optional<int> computePriority;
  std::optional<int> commPriority;
  /// Memory of the device comes from NCCL and is registered with it.
  std::optional<int> registerMemory;
  /// Collectives wait on the caller's thread, inside NCCL.
  std::optional<int> blocking;
  /// Processes that give a unique id to a communicator; nothing: by its size.
  std::optional<int> roots;
  /// Milliseconds between two looks at what is under way.
  std::optional<int> watchdogMs;

  // Fields of ncclConfig_t.
  std::optional<int> minCtas;
  std::optional<int> maxCtas;
  std::optional<int> cgaClusterSize;
  std::optional<int> splitShare;
  std::optional<int> trafficClass;
  std::optional<int> collnet;
  std::optional<int> ctaPolicy;
  std::optional<int> nvlsCtas;
  std::optional<int> channelsPerNetPeer;
  std::optional<int> nvlinkCentricSched;
  std::string netName;

  // What NCCL reads from the environment only.
  std::string algo;
  std::string proto;
  std::optional<int> nthreads;

  /// Those that all ranks have to give the same values, with commas in between.
  static const char *agreedNames();

  /// INVALID_ARGUMENT names the entry that is wrong, and what is known.
  static Status parse(const std::string &text, CudaOptions *options);

  /// Whether communicators are blocking: NCCL lets its environment decide
  /// before the configuration.
  bool isBlocking() const;

  /// A configuration with these values. `name` and this object must outlive
  /// its use.
  ncclConfig_t ncclConfig(const std::string &name) const;

  /// Sets NCCL_ALGO and its like for this process, unless they are set. Only
  /// what is set before NCCL's first call has an effect.
  void exportEnvironment() const;
};

} // namespace ddphook::cuda

#endif // DDPHOOK_RUNTIME_BACKENDS_CUDA_CUDA_OPTIONS_H
