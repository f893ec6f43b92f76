// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "job/settings.h"

#include "base/log.h"
#include "base/packed_texts.h"
#include "base/suggestion.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <mutex>
#include <string_view>
#include <unistd.h>

using namespace ddphook;

/// The text alternates names and values. The version comes first: if it
/// differs, the other settings may be different ones.
std::string ddphook::printSettings(const Bootstrap &place,
                                   const ddphook_backend_t &backend) {
  std::vector<std::string> texts = {"the runtime's version", DDPHOOK_VERSION,
                                    "DDPHOOK_BACKEND",       place.backend,
                                    "DDPHOOK_TRANSPORT",     place.transport};
  std::map<std::string, std::string> options;
  for (const std::string &entry : splitAtCommas(place.backendOptions)) {
    const size_t equals = entry.find('=');
    if (equals != std::string::npos)
      options[entry.substr(0, equals)] = entry.substr(equals + 1);
  }
  if (backend.agreed_options)
    for (const std::string &name : splitAtCommas(backend.agreed_options)) {
      auto found = options.find(name);
      texts.push_back("the backend's option " + name);
      texts.push_back(found == options.end() ? "" : found->second);
    }
  return packTexts(texts);
}

static std::string showSetting(const std::string &value) {
  return value.empty() ? "not set" : "'" + value + "'";
}

Status ddphook::compareSettings(const std::vector<std::string> &ofRanks) {
  const std::vector<std::string> first = unpackTexts(ofRanks[0]);
  for (size_t rank = 1; rank < ofRanks.size(); ++rank) {
    if (ofRanks[rank] == ofRanks[0])
      continue;
    const std::vector<std::string> other = unpackTexts(ofRanks[rank]);
    for (size_t i = 1; i < std::min(first.size(), other.size()); i += 2)
      if (first[i] != other[i])
        return badEnvironment(
            "the ranks' settings differ: %s is %s on rank 0, but %s "
            "on rank %zu",
            first[i - 1].c_str(), showSetting(first[i]).c_str(),
            showSetting(other[i]).c_str(), rank);
    return dataLoss("rank %zu sent malformed settings", rank);
  }
  return Status::ok();
}

static constexpr std::string_view prefix = "DDPHOOK_";
/// The prefix of the tests' variables.
static constexpr std::string_view testPrefix = "DDPHOOK_TEST_";

/// The names in docs/environment.md, without the prefix. They are repeated from
/// where they are read, because a library cannot know what will be read later.
static constexpr std::string_view runtimeNames[] = {"BACKEND",
                                                    "BACKEND_OPTIONS",
                                                    "FLIGHT_RECORDER",
                                                    "JOB_SECRET",
                                                    "LOG",
                                                    "METRICS",
                                                    "METRICS_ERRORS",
                                                    "METRICS_INTERVAL",
                                                    "METRICS_NON_FINITE",
                                                    "NODE",
                                                    "NUM_THREADS",
                                                    "PORT",
                                                    "RUN_ID",
                                                    "SOCKET_IFNAME",
                                                    "TIMEOUT_S",
                                                    "TRACE",
                                                    "TRACE_EVENTS",
                                                    "TRANSPORT"};

/// Names that the Python package, tests and scripts read or a build may set.
static constexpr std::string_view otherNames[] = {
    "ALL_MUTANTS",  "BUILD_DIR",   "CACHE_DIR",    "CC",
    "CUDA_ROOT",    "EXEC",        "EXEC_MODULES", "FUZZ_SEEDS",
    "GPU_BUDGET_S", "LIBRARY_DIR", "LIT",          "NCCL_ROOT",
    "OPT",          "REQUIRE_GPU", "RT",           "RUN"};

std::vector<std::string>
ddphook::findUnknownVariables(const char *const *environment) {
  const std::vector<std::string_view> known(std::begin(runtimeNames),
                                            std::end(runtimeNames));
  std::vector<std::string> lines;
  for (; environment && *environment; ++environment) {
    const std::string_view entry = *environment;
    const size_t equals = entry.find('=');
    if (entry.substr(0, prefix.size()) != prefix ||
        entry.substr(0, testPrefix.size()) == testPrefix ||
        equals == std::string_view::npos || equals + 1 == entry.size())
      continue;
    const std::string_view name =
        entry.substr(prefix.size(), equals - prefix.size());
    if (std::find(known.begin(), known.end(), name) != known.end() ||
        std::find(std::begin(otherNames), std::end(otherNames), name) !=
            std::end(otherNames))
      continue;
    std::string line = "unknown environment variable ";
    line += entry.substr(0, equals);
    const std::string_view meant = suggestName(name, known);
    if (!meant.empty())
      line.append(", did you mean ").append(prefix).append(meant).append("?");
    lines.push_back(std::move(line));
  }
  return lines;
}

void ddphook::warnOfUnknownVariables() {
  static std::once_flag once;
  // Without memory pthread_once(), a function in C, ends the process when an
  // exception passes through it.
  std::call_once(once, [] {
    ignoreExceptions([] {
      for (const std::string &line : findUnknownVariables(environ))
        log(LogLevel::Warn, line);
    });
  });
}
