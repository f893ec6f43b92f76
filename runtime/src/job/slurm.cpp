// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "job/slurm.h"

#include <algorithm>

using namespace ddphook;

std::string ddphook::firstHostOf(std::string_view list) {
  std::string host;
  // The result is the text before the first comma outside brackets, with each
  // bracket replaced by its first number, as written.
  while (!list.empty() && list[0] != ',') {
    if (list[0] != '[') {
      host += list[0];
      list.remove_prefix(1);
      continue;
    }
    const size_t close = list.find(']');
    const size_t end = std::min(list.find_first_of("-,]", 1), close);
    if (close == std::string_view::npos || end == 1 ||
        list.substr(1, end - 1).find_first_not_of("0123456789") !=
            std::string_view::npos)
      return "";
    host += list.substr(1, end - 1);
    list.remove_prefix(close + 1);
  }
  return host.find(']') == std::string::npos ? host : "";
}

int ddphook::portOfStep(unsigned long long job, unsigned long long step) {
  // A prime number of ports, and the factor that separates 300 jobs best.
  constexpr unsigned long long ports = 16381, factor = 12898;
  constexpr int first = 12000;
  return first +
         static_cast<int>((job % ports * factor + step % ports) % ports);
}
