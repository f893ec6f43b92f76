// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "base/log.h"

#include "base/write_signals.h"

#include <algorithm>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <poll.h>
#include <unistd.h>

using namespace ddphook;

std::optional<LogLevel> ddphook::parseLogLevel(std::string_view name) {
  if (name == "error")
    return LogLevel::Error;
  if (name == "warn")
    return LogLevel::Warn;
  if (name == "info")
    return LogLevel::Info;
  return std::nullopt;
}

bool ddphook::isLogged(LogLevel level) {
  static const LogLevel wanted = [] {
    const char *value = std::getenv("DDPHOOK_LOG");
    return parseLogLevel(value ? value : "").value_or(LogLevel::Warn);
  }();
  return level != LogLevel::Error && level <= wanted;
}

/// Writes to standard error what it takes at once. A pipe takes PIPE_BUF bytes,
/// or waits for its reader, who may never read.
static void writeWithoutWaiting(std::string_view text) {
  const NoWriteSignals noSignals;
  const int file = ::fileno(stderr);
  pollfd ready = {file, POLLOUT, 0};
  while (!text.empty() && ::poll(&ready, 1, /*timeout=*/0) > 0) {
    const ssize_t put =
        ::write(file, text.data(), std::min<size_t>(text.size(), PIPE_BUF));
    if (put < 0)
      return;
    text.remove_prefix(static_cast<size_t>(put));
  }
}

void ddphook::log(LogLevel level, const std::string &text) {
  if (!isLogged(level))
    return;
  try {
    writeWithoutWaiting("ddphook: " + text + "\n");
  } catch (const std::bad_alloc &) {
    // The line is lost.
  }
}
