// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Prints three digits and a unit.

#pragma once

#include <cstdint>
#include <string>

namespace ddphook {

/// Returns "120 bytes" or "1.5 GB"; units are powers of 1000.
std::string printBytes(double bytes);

/// Returns "0.012 ms" or "1250 ms".
std::string printMilliseconds(double seconds);

/// Returns "0.25 s", "12 s", "3 min 5 s" or "2 h 7 min".
std::string printDuration(double seconds);

/// Returns "1 file" or "3 files".
std::string printCount(int64_t count, const std::string &what);

} // namespace ddphook
