// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A device, the streams on it, and which device a host thread uses.

#pragma once

#include "cuda_runtime_api.h"

#include <atomic>
#include <cstdint>
#include <mutex>
#include <set>
#include <string>

namespace emulated_cuda {

struct Device {
  int number = 0;
  cudaUUID_t uuid = {};
  size_t memoryBytes = 0;
  int capability = 0;

  /// Whether its primary context exists; it then stays.
  std::atomic<bool> hasContext{false};
  std::atomic<size_t> usedBytes{0};
  /// The error after which nothing runs any more; or cudaSuccess.
  std::atomic<cudaError_t> failure{cudaSuccess};

  /// Made when it is first used. Guarded by hostMutex(), as is `streams`.
  cudaStream_t legacy = nullptr;
  /// All others.
  std::set<cudaStream_t> streams;
};

/// Guards what the calls of host threads share: streams, events, captures. What
/// a stream's thread runs never takes it: it would order streams that the
/// program under test has to order by itself.
std::mutex &hostMutex();

/// What the environment asks for.
struct Settings {
  int devices;
  int driverVersion;
  bool isReversed;
};
const Settings &settings();

/// Null when there is no device of that number.
Device *findDevice(int number);

/// The device of the calling thread; an error when there is none.
cudaError_t currentDevice(Device **device);

/// The same for a call that needs the device's context, and makes it where
/// there is none: all but those that only ask about devices and errors.
cudaError_t currentContext(Device **device);

/// Remembers an error for cudaGetLastError() and gives it back.
cudaError_t record(cudaError_t error);

/// The same for what a failed device fails: all that waits for it or gives it
/// work.
cudaError_t recordUnlessFailed(const Device &device, cudaError_t error);

/// A number from the environment; a bad one ends the process.
long long environmentNumber(const char *name, long long otherwise);

} // namespace emulated_cuda
