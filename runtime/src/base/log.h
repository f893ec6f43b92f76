//===- log.h - what the runtime says without being asked --------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Lines on standard error, as far as DDPHOOK_LOG wants them. Failures are no
// part of it: they are statuses, which the caller prints.
//
//===----------------------------------------------------------------------===//
#ifndef DDPHOOK_RUNTIME_SRC_BASE_LOG_H
#define DDPHOOK_RUNTIME_SRC_BASE_LOG_H

#include <optional>
#include <string>
#include <string_view>

namespace ddphook {

enum class LogLevel {
  Error, ///< Nothing: there are no lines about errors.
  Warn,  ///< The default: what a person has to know.
  Info   ///< Reports as well.
};

/// The level called "error", "warn" or "info".
std::optional<LogLevel> parseLogLevel(std::string_view name);

/// Whether DDPHOOK_LOG, which is read once, wants lines of `level`. A value
/// that is none counts as the default here; findPlace() refuses it.
bool isLogged(LogLevel level);

/// Writes "ddphook: " and `text` as one line, if lines of `level` are wanted.
void log(LogLevel level, const std::string &text);

} // namespace ddphook

#endif // DDPHOOK_RUNTIME_SRC_BASE_LOG_H
