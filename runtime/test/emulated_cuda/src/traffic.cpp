// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The launches that are recorded. Counting itself is in intrinsics.h.

#include "traffic.h"

#include "race_detector.h"

#include <mutex>
#include <utility>

using namespace emulated_cuda;

__thread Traffic *emulated_cuda::runningTraffic = nullptr;

namespace {
struct Records {
  std::mutex mutex;
  bool isOn = false;
  std::vector<Traffic> launches;
};
} // namespace

static Records &records() {
  static auto *records = new Records();
  return *records;
}

TrafficOfLaunch::TrafficOfLaunch() {
  race_detector::Hide hide;
  std::lock_guard<std::mutex> lock(records().mutex);
  if (records().isOn)
    runningTraffic = &traffic;
}

TrafficOfLaunch::~TrafficOfLaunch() {
  if (!runningTraffic)
    return;
  runningTraffic = nullptr;
  race_detector::Hide hide;
  std::lock_guard<std::mutex> lock(records().mutex);
  if (records().isOn)
    records().launches.push_back(traffic);
}

void emulated_cuda::recordTraffic(bool on) {
  std::lock_guard<std::mutex> lock(records().mutex);
  records().isOn = on;
  records().launches.clear();
}

std::vector<Traffic> emulated_cuda::takeTraffic() {
  std::lock_guard<std::mutex> lock(records().mutex);
  return std::exchange(records().launches, {});
}
