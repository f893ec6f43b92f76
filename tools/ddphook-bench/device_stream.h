//===- device_stream.h - time and graphs of a device's work -----*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The order of a device's work. On a GPU, it is a stream of this program, timed
// by the GPU's events, and work on it can be recorded. On other devices, the
// host's clock measures time.
//
//===----------------------------------------------------------------------===//
#ifndef DDPHOOK_BENCH_DEVICE_STREAM_H
#define DDPHOOK_BENCH_DEVICE_STREAM_H

#include "work_device.h"

#include <functional>

namespace ddphook::bench {

/// Seconds per call: until the device was done, and until it returned.
struct CallTimes {
  double device = 0;
  double host = 0;
};

/// Recorded work.
class DeviceGraph {
public:
  virtual ~DeviceGraph() = default;
  /// Enqueues the recorded work, in order with the device's other work.
  virtual Status launch() = 0;
};

class DeviceStream {
public:
  /// Redirects the device's work while the result lives; one at a time.
  static Status open(WorkDevice &device, std::unique_ptr<DeviceStream> *stream);
  virtual ~DeviceStream() = default;

  /// Returns the mean of `calls` consecutive calls on an idle device.
  virtual Status time(const std::function<Status()> &body, int64_t calls,
                      CallTimes *times);
  /// Records the device's work in `body`. Leaves `graph` empty if the device
  /// has no graphs; the stream must outlive it.
  virtual Status capture(const std::function<Status()> &body,
                         std::unique_ptr<DeviceGraph> *graph);

protected:
  explicit DeviceStream(WorkDevice &device) : device(device) {}
  WorkDevice &device;
};

} // namespace ddphook::bench

#endif // DDPHOOK_BENCH_DEVICE_STREAM_H
