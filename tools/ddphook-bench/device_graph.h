//===- device_graph.h - recorded work of a device ---------------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A CUDA graph of what a backend does, where this program was built with the
// CUDA toolkit and the device is a GPU.
//
//===----------------------------------------------------------------------===//
#ifndef DDPHOOK_BENCH_DEVICE_GRAPH_H
#define DDPHOOK_BENCH_DEVICE_GRAPH_H

#include "work_device.h"

#include <functional>

namespace ddphook::bench {

class DeviceGraph {
public:
  /// Records what `body` lets the device do. Stays empty where there are no
  /// graphs.
  static Status capture(WorkDevice &device, const std::function<Status()> &body,
                        std::unique_ptr<DeviceGraph> *graph);
  virtual ~DeviceGraph() = default;

  /// Lets the device do it again, in order with its other work.
  virtual Status launch() = 0;
};

} // namespace ddphook::bench

#endif // DDPHOOK_BENCH_DEVICE_GRAPH_H
