//===- work_device.h - memory and calls of a backend ------------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A backend that benchmarks call through its table, as the runtime does, and
// arrays in its memory.
//
//===----------------------------------------------------------------------===//
#ifndef DDPHOOK_BENCH_WORK_DEVICE_H
#define DDPHOOK_BENCH_WORK_DEVICE_H

#include "base/status.h"

#include "ddphook/runtime/backend.h"

#include <memory>
#include <string>
#include <vector>

namespace ddphook::bench {

class WorkDevice {
public:
  /// Opens device 0 of a backend; `threads` is for computing on a host.
  static Status open(const std::string &name, int threads,
                     std::unique_ptr<WorkDevice> *device);
  ~WorkDevice();
  WorkDevice(const WorkDevice &) = delete;
  WorkDevice &operator=(const WorkDevice &) = delete;

  const ddphook_backend_t &table() const { return *backend; }
  ddphook_device_t *get() const { return device; }

  /// Waits until all work has ended.
  Status synchronize() const;

private:
  WorkDevice() = default;

  const ddphook_backend_t *backend = nullptr;
  ddphook_device_t *device = nullptr;
};

/// An array in a device's memory.
class DeviceArray {
public:
  static Status allocate(WorkDevice &device, int64_t bytes,
                         std::unique_ptr<DeviceArray> *array);
  ~DeviceArray();
  DeviceArray(const DeviceArray &) = delete;
  DeviceArray &operator=(const DeviceArray &) = delete;

  template <class T>
  T *as() const {
    return static_cast<T *>(memory);
  }

  Status write(const void *host, int64_t size, int64_t offset = 0) const;
  Status read(void *host, int64_t size, int64_t offset = 0) const;
  Status fill(unsigned char byte) const;

private:
  explicit DeviceArray(WorkDevice &device) : device(device) {}

  WorkDevice &device;
  void *memory = nullptr;
  uint64_t bytes = 0;
};

} // namespace ddphook::bench

#endif // DDPHOOK_BENCH_WORK_DEVICE_H
