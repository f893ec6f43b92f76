// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The options that DDPHOOK_BACKEND_OPTIONS passes to the host backend.

#pragma once

#include "base/status.h"

#include <string>

namespace ddphook::host {

/// Which started collectives run concurrently with the program, on a separate
/// thread: those of groups that span machines, all, or none. The others run on
/// the thread that starts them.
enum class AsyncProgress { Auto, Always, Never };

struct HostOptions {
  AsyncProgress asyncProgress = AsyncProgress::Auto;

  /// Parses "name=value,name=value"; INVALID_ARGUMENT says what is wrong.
  static Status parse(const std::string &text, HostOptions *options);
};

} // namespace ddphook::host
