//===- device_stream.h - time and graphs of a device's work -----*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The order in which a device works, as this program sees it. On a GPU it is a
// stream of this program's, whose own events tell the time, and work on it can
// be recorded; on any other device it is the host's clock.
//
//===----------------------------------------------------------------------===//
#ifndef DDPHOOK_BENCH_DEVICE_STREAM_H
#define DDPHOOK_BENCH_DEVICE_STREAM_H

#include "work_device.h"

#include <functional>

namespace ddphook::bench {

/// Seconds of one call: until the device had done it, and until it returned.
struct CallTimes {
  double device = 0;
  double host = 0;
};

/// Recorded work.
class DeviceGraph {
public:
  virtual ~DeviceGraph() = default;
  /// Lets the device do it again, in order with its other work.
  virtual Status launch() = 0;
};

class DeviceStream {
public:
  /// The device's work goes there as long as the result lives; one at a time.
  static Status open(WorkDevice &device, std::unique_ptr<DeviceStream> *stream);
  virtual ~DeviceStream() = default;

  /// The mean of `calls` calls, one behind the other, on an idle device.
  virtual Status time(const std::function<Status()> &body, int64_t calls,
                      CallTimes *times);
  /// Records what `body` lets the device do. Leaves `graph` empty where there
  /// are no graphs; the stream outlives it.
  virtual Status capture(const std::function<Status()> &body,
                         std::unique_ptr<DeviceGraph> *graph);

protected:
  explicit DeviceStream(WorkDevice &device) : device(device) {}
  WorkDevice &device;
};

} // namespace ddphook::bench

#endif // DDPHOOK_BENCH_DEVICE_STREAM_H
