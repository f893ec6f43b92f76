//===- log.cpp - the runtime's log ----------------------------------------===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// See log.h.
//
//===----------------------------------------------------------------------===//
#include "base/log.h"

#include "base/write_signals.h"

#include <cstdio>
#include <cstdlib>

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

void ddphook::log(LogLevel level, const std::string &text) {
  const NoWriteSignals noSignals;
  if (isLogged(level))
    std::fprintf(stderr, "ddphook: %s\n", text.c_str());
}
