// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The side of emulated_cuda/traffic.h that whoever runs a launch needs.

#pragma once

#include "emulated_cuda/traffic.h"

namespace emulated_cuda {

/// While it lives, a launch runs on this thread and is counted, if launches are
/// recorded.
class TrafficOfLaunch {
public:
  TrafficOfLaunch();
  ~TrafficOfLaunch();
  TrafficOfLaunch(const TrafficOfLaunch &) = delete;
  TrafficOfLaunch &operator=(const TrafficOfLaunch &) = delete;

private:
  Traffic traffic;
};

} // namespace emulated_cuda
