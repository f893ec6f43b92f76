//===- host_options.h - options of the host backend -------------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What DDPHOOK_BACKEND_OPTIONS says to the host backend.
//
//===----------------------------------------------------------------------===//
#ifndef DDPHOOK_RUNTIME_BACKENDS_HOST_HOST_OPTIONS_H
#define DDPHOOK_RUNTIME_BACKENDS_HOST_HOST_OPTIONS_H

#include "base/status.h"

#include <string>

namespace ddphook::host {

/// Which collectives that were started run beside the program, on a thread of
/// their own: those of groups that span machines, all, or none. The others run
/// where they are started.
enum class AsyncProgress { Auto, Always, Never };

struct HostOptions {
  AsyncProgress asyncProgress = AsyncProgress::Auto;

  /// Reads "name=value,name=value"; INVALID_ARGUMENT names what is wrong.
  static Status parse(const std::string &text, HostOptions *options);
};

} // namespace ddphook::host

#endif // DDPHOOK_RUNTIME_BACKENDS_HOST_HOST_OPTIONS_H
