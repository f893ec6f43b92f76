// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A status as text, what a message has to contain, and how long something took.

#pragma once

#include "base/deadline.h"
#include "base/status.h"

#include <gtest/gtest.h>

#include <chrono>
#include <string>

namespace ddphook::test {

/// "OK", or the status' name, ": " and the message.
inline std::string show(const Status &status) {
  return status.isOk() ? "OK"
                       : std::string(ddphook_status_name(status.code())) +
                             ": " + status.message();
}

inline void expectContains(const std::string &text, const std::string &part) {
  EXPECT_NE(text.find(part), std::string::npos)
      << "expected '" << part << "' in '" << text << "'";
}

inline double secondsSince(Deadline::Clock::time_point begin) {
  return std::chrono::duration<double>(Deadline::Clock::now() - begin).count();
}

} // namespace ddphook::test
