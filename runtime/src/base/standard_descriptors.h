// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// In a program whose standard descriptors are closed, such as a daemon, the
// next files and sockets get their numbers and then receive whatever the
// program or a library prints. So the runtime keeps none of the three.

#pragma once

#include <cerrno>
#include <fcntl.h>
#include <unistd.h>

namespace ddphook {

/// Moves a newly opened descriptor to a number above 2 and returns it. If no
/// number is free, closes it and returns -1; errno says why.
inline int aboveStandard(int fd) {
  if (fd < 0 || fd > STDERR_FILENO)
    return fd;
  const int moved = ::fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
  const int reason = errno;
  ::close(fd);
  errno = reason;
  return moved;
}

} // namespace ddphook
