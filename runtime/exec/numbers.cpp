// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "numbers.h"

#include "base/status.h"

#include <algorithm>
#include <cmath>
#include <iterator>

using namespace ddphook;

std::string ddphook::printBytes(double bytes) {
  const char *const units[] = {"bytes", "kB", "MB", "GB", "TB", "PB", "EB"};
  size_t unit = 0;
  // Numbers that three digits would round up to a thousand use the next unit.
  while (bytes >= (unit == 0 ? 1000 : 999.5) && unit + 1 < std::size(units)) {
    bytes /= 1000;
    ++unit;
  }
  return formatText("%.3g %s", bytes, units[unit]);
}

std::string ddphook::printMilliseconds(double seconds) {
  return formatText(seconds < 0.1 ? "%.3g ms" : "%.0f ms", seconds * 1e3);
}

std::string ddphook::printDuration(double seconds) {
  if (seconds < 9.95)
    return formatText("%.2g s", seconds);
  // Longer than anybody waits, and the limit of an integer.
  const int64_t whole = std::llround(std::min(seconds, 1e15));
  if (whole < 60)
    return std::to_string(whole) + " s";
  if (whole < 3600)
    return concat(whole / 60, " min ", whole % 60, " s");
  return concat(whole / 3600, " h ", whole % 3600 / 60, " min");
}

std::string ddphook::printCount(int64_t count, const std::string &what) {
  return concat(count, " ", what, count == 1 ? "" : "s");
}
