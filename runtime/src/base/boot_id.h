//===- boot_id.h - which run of which kernel this is ------------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The runtime and its shared-memory transport both use this. They are separate
// libraries, so all of it is in this header.
//
//===----------------------------------------------------------------------===//
#ifndef DDPHOOK_RUNTIME_SRC_BASE_BOOT_ID_H
#define DDPHOOK_RUNTIME_SRC_BASE_BOOT_ID_H

#include "base/status.h"

#include "base/standard_descriptors.h"
#include <cerrno>
#include <fcntl.h>
#include <string>
#include <unistd.h>

namespace ddphook {

/// What the kernel calls its present run; empty where it does not tell. Ranks
/// of one machine must not take each other for strangers because one of them
/// has no descriptor left: that is RESOURCE_EXHAUSTED.
inline Status readBootId(std::string *bootId) {
  bootId->clear();
  int file = aboveStandard(
      ::open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC));
  if (file < 0) {
    Status status = systemError(errno, "cannot identify the machine");
    return status.code() == DDPHOOK_RESOURCE_EXHAUSTED ? status : Status::ok();
  }
  char text[64];
  ssize_t size = ::read(file, text, sizeof(text));
  ::close(file);
  if (size > 0)
    bootId->assign(text, static_cast<size_t>(size));
  while (!bootId->empty() && bootId->back() == '\n')
    bootId->pop_back();
  return Status::ok();
}

} // namespace ddphook

#endif // DDPHOOK_RUNTIME_SRC_BASE_BOOT_ID_H
