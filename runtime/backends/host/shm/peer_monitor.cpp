// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "peer_monitor.h"

#include "base/file_descriptor.h"
#include <cerrno>
#include <cstring>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

using namespace ddphook;
using namespace ddphook::host;

PeerMonitor::~PeerMonitor() {
  for (int file : files)
    if (file >= 0)
      close(file);
}

Status PeerMonitor::watch(const std::vector<pid_t> &pids,
                          const GroupPlace &place) {
  files.assign(pids.size(), -1);
  for (size_t rank = 0; rank < pids.size(); ++rank) {
    if (pids[rank] == getpid())
      continue;
    files[rank] =
        aboveStandard(static_cast<int>(syscall(SYS_pidfd_open, pids[rank], 0)));
    if (files[rank] >= 0)
      continue;
    if (errno == ESRCH)
      return error(DDPHOOK_PEER_LOST, "%s (process %ld) died",
                   place.nameOf(static_cast<int>(rank)).c_str(),
                   static_cast<long>(pids[rank]));
    if (errno == ENOSYS || errno == EPERM)
      return error(DDPHOOK_UNSUPPORTED,
                   "cannot watch other processes with pidfd_open: %s",
                   std::strerror(errno));
    return systemError(errno, "cannot watch process %ld",
                       static_cast<long>(pids[rank]));
  }
  return Status::ok();
}

bool PeerMonitor::hasDied(int rank) const {
  int file = files[static_cast<size_t>(rank)];
  pollfd request{file, POLLIN, 0};
  return file >= 0 && poll(&request, 1, 0) > 0;
}
