// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "job/processors.h"

#include <algorithm>
#include <fstream>
#include <map>
#include <sched.h>
#include <sstream>

using namespace ddphook;

/// No machine has more.
static constexpr int kMostProcessors = 1 << 16;

std::string ProcessorSet::toText() const {
  std::string text;
  for (size_t i = 0; i < processors.size();) {
    size_t last = i;
    while (last + 1 < processors.size() &&
           processors[last + 1] == processors[last] + 1)
      ++last;
    text += (text.empty() ? "" : ",") + std::to_string(processors[i]);
    if (last > i)
      text += "-" + std::to_string(processors[last]);
    i = last + 1;
  }
  return text;
}

std::optional<ProcessorSet> ProcessorSet::parse(const std::string &text) {
  ProcessorSet set;
  std::stringstream list(text);
  for (std::string item; std::getline(list, item, ',');) {
    int first = 0, last = 0, length = 0;
    const int size = static_cast<int>(item.size());
    if (std::sscanf(item.c_str(), "%5d-%5d%n", &first, &last, &length) != 2 ||
        length != size) {
      if (std::sscanf(item.c_str(), "%5d%n", &first, &length) != 1 ||
          length != size)
        return std::nullopt;
      last = first;
    }
    const int least = set.processors.empty() ? 0 : set.processors.back() + 1;
    if (first < least || last < first || last >= kMostProcessors)
      return std::nullopt;
    for (int number = first; number <= last; ++number)
      set.processors.push_back(number);
  }
  return set;
}

ProcessorSet ddphook::ownProcessors() {
  ProcessorSet set;
  // The kernel rejects a mask that is smaller than its own.
  for (int most = 1024; most <= kMostProcessors; most *= 2) {
    cpu_set_t *mask = CPU_ALLOC(most);
    if (!mask)
      break;
    const size_t bytes = CPU_ALLOC_SIZE(most);
    const bool isKnown = ::sched_getaffinity(0, bytes, mask) == 0;
    for (int i = 0; isKnown && i < most; ++i)
      if (CPU_ISSET_S(i, bytes, mask))
        set.processors.push_back(i);
    CPU_FREE(mask);
    if (isKnown)
      break;
  }
  return set;
}

std::optional<std::string> ddphook::readSmallFile(const std::string &path) {
  std::ifstream file(path);
  if (!file)
    return std::nullopt;
  std::stringstream content;
  content << file.rdbuf();
  return content.str();
}

std::optional<double> ddphook::processorQuota(const FileReader &read) {
  std::optional<std::string> groups = read("/proc/self/cgroup");
  if (!groups)
    return std::nullopt;
  std::stringstream lines(*groups);
  std::optional<double> least;
  for (std::string line; std::getline(lines, line);) {
    // "0::" is the cgroup v2 hierarchy. Limits of all groups above also apply.
    if (line.compare(0, 3, "0::") != 0)
      continue;
    std::string path = line.substr(3);
    for (;;) {
      double quota = 0, period = 0;
      std::optional<std::string> limit =
          read("/sys/fs/cgroup" + (path == "/" ? "" : path) + "/cpu.max");
      if (limit &&
          std::sscanf(limit->c_str(), "%lf %lf", &quota, &period) == 2 &&
          quota > 0 && period > 0)
        least = std::min(least.value_or(quota / period), quota / period);
      const size_t slash = path.rfind('/');
      if (path.empty() || slash == std::string::npos)
        break;
      path.resize(slash);
    }
  }
  return least;
}

int ddphook::threadShare(const std::vector<ProcessorSet> &ranks, size_t mine,
                         std::optional<double> quota) {
  std::map<int, int> users;
  for (const ProcessorSet &rank : ranks)
    for (int processor : rank.processors)
      ++users[processor];
  double share = 0;
  for (int processor : ranks[mine].processors)
    share += 1.0 / users[processor];
  if (quota)
    share = std::min(share, *quota / static_cast<double>(ranks.size()));
  // Three thirds of a processor are one, however their sum was rounded.
  return std::max(1, static_cast<int>(share + 1e-6));
}
