// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Writes the lines that DDPHOOK_LOG requests to standard error. Failures are
// not logged: they are statuses, which the caller prints.

#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace ddphook {

enum class LogLevel {
  Error, ///< Nothing: there are no lines about errors.
  Warn,  ///< The default: what a user must know.
  Info   ///< Reports as well.
};

/// Returns the level called "error", "warn" or "info".
std::optional<LogLevel> parseLogLevel(std::string_view name);

/// True if DDPHOOK_LOG, which is read once, requests lines of `level`. An
/// invalid value counts as the default here; findPlace() rejects it.
bool isLogged(LogLevel level);

/// Writes "ddphook: " and `text` as one line if lines of `level` are requested.
/// Never waits: what standard error does not take at once is lost.
void log(LogLevel level, const std::string &text);

} // namespace ddphook
