// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The order of a device's work. On a GPU, it is a stream of this program, timed
// by the GPU's events, and work on it can be recorded. On other devices, the
// host's clock measures time.

#pragma once

#include "job/context.h"

#include <functional>
#include <memory>

namespace ddphook::bench {

using Body = std::function<Status()>;

/// Seconds per call: until the device was done, and until it returned.
struct CallTimes {
  double device = 0, host = 0;
};

class DeviceStream {
public:
  /// Redirects the work of the job's device, whose memory is not the host's,
  /// while the result lives.
  static Status open(Context &context, std::unique_ptr<DeviceStream> *stream);
  virtual ~DeviceStream() = default;

  /// Returns the mean of `calls` consecutive calls on an idle device.
  virtual Status time(const Body &body, int64_t calls, CallTimes *times);
  /// Records the device's work in a body; the replay enqueues it again, and is
  /// valid as long as the stream. Leaves it empty if the device has no graphs.
  virtual Status capture(const Body &, Body *) { return Status::ok(); }

protected:
  explicit DeviceStream(Context &context) : context(context) {}
  Context &context;
};

} // namespace ddphook::bench
