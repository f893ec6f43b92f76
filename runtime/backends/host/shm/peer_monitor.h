// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Watches processes of this machine through pidfds, which are immune to the
// reuse of process IDs. A stopped process counts as alive.

#pragma once

#include "../group_place.h"
#include "base/status.h"

#include <sys/types.h>
#include <vector>

namespace ddphook::host {

class PeerMonitor {
public:
  PeerMonitor() = default;
  PeerMonitor(const PeerMonitor &) = delete;
  PeerMonitor &operator=(const PeerMonitor &) = delete;
  ~PeerMonitor();

  /// Starts to watch the processes, one per rank; this process itself is not
  /// watched. Returns UNSUPPORTED if the kernel has no pidfds.
  Status watch(const std::vector<pid_t> &pids, const GroupPlace &place);

  bool hasDied(int rank) const;

private:
  std::vector<int> files;
};

} // namespace ddphook::host
