// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The runtime and its shared-memory transport both use this. They are separate
// libraries, so all of it is in this header.

#pragma once

#include "base/file_descriptor.h"
#include "base/status.h"

#include <cerrno>
#include <fcntl.h>
#include <string>
#include <unistd.h>

namespace ddphook {

/// Returns the failure of a system call that should identify the machine, or OK
/// if `errorNumber` means that this kernel never does. A rank without
/// descriptors must not take the other ranks of its machine for strangers.
inline Status identityFailure(int errorNumber) {
  Status status = systemError(errorNumber, "cannot identify the machine");
  return errorNumber == EIO || status.code() == DDPHOOK_RESOURCE_EXHAUSTED
             ? status
             : Status::ok();
}

/// Reads the boot id, which identifies the kernel's present run, if any.
inline Status readBootId(std::string *bootId) {
  bootId->clear();
  int file = aboveStandard(
      ::open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC));
  if (file < 0)
    return identityFailure(errno);
  char text[64];
  const ssize_t size = ::read(file, text, sizeof(text));
  const int reason = errno;
  ::close(file);
  if (size < 0)
    return identityFailure(reason);
  bootId->assign(text, static_cast<size_t>(size));
  while (!bootId->empty() && bootId->back() == '\n')
    bootId->pop_back();
  return Status::ok();
}

/// Reads the name and number of one of this process's namespaces, such as
/// "/proc/self/ns/pid"; empty if the kernel does not provide them.
inline Status readNamespace(const char *path, std::string *name) {
  char target[64];
  const ssize_t size = ::readlink(path, target, sizeof(target));
  name->clear();
  if (size < 0)
    return identityFailure(errno);
  name->assign(target, static_cast<size_t>(size));
  return Status::ok();
}

} // namespace ddphook
