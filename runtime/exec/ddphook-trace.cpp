// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// For jobs whose rank 0 could not merge the parts of a trace itself, and for a
// quick overview of where the time goes.

#include "run_options.h"
#include "runner.h"
#include "tool_version.h"
#include "trace/merge.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <fstream>
#include <map>
#include <string>
#include <utility>
#include <vector>

using namespace ddphook;
using nlohmann::json;

static const char toolName[] = "ddphook-trace";
static const char help[] = R"(usage: ddphook-trace TRACE.json [PART…] [flags]

Merges the parts of a trace that the ranks left, by default those next to it,
into TRACE.json, and prints where the time goes.

  --keep-parts       leave the parts that were merged
  --help, --version  print this, or versions
)";

/// Merges the given parts, or all that it finds.
static Status merge(const std::string &path,
                    const std::vector<std::string> &given, bool keepsParts) {
  const std::vector<std::string> parts =
      given.empty() ? trace::findParts(path) : given;
  if (parts.empty())
    return Status::ok();
  trace::MergeResult result;
  DDPHOOK_TRY(trace::mergeParts(parts, /*runId=*/"", path, &result));
  for (const std::string &problem : result.problems)
    std::fprintf(stderr, "%s: warning: %s\n", toolName, problem.c_str());
  if (!keepsParts)
    for (const std::string &part : result.merged)
      std::remove(part.c_str());
  return Status::ok();
}

namespace {

/// The sums over all events of a name, in microseconds.
struct Sum {
  int64_t count = 0;
  double total = 0, most = 0, waited = 0;
};

} // namespace

static std::string describe(const json &trace) {
  std::map<std::pair<std::string, std::string>, Sum> sums;
  double all = 0;
  for (const json &event : trace.at("traceEvents")) {
    if (event.at("ph") != "X")
      continue;
    const double time = event.at("dur");
    Sum &sum = sums[{event.at("cat"), event.at("name")}];
    ++sum.count;
    sum.total += time;
    sum.most = std::max(sum.most, time);
    sum.waited += event.at("args").value("wait_us", 0.0);
    if (event.at("cat") == "step")
      all += time;
  }
  std::vector<std::pair<std::pair<std::string, std::string>, Sum>> rows(
      sums.begin(), sums.end());
  std::sort(rows.begin(), rows.end(), [](const auto &a, const auto &b) {
    return a.second.total != b.second.total ? a.second.total > b.second.total
                                            : a.first < b.first;
  });
  const json &about = trace.at("ddphook");
  std::string text = concat("run ", about.at("run_id").get<std::string>(), ", ",
                            about.at("world_size").get<int>(), " ranks\n");
  text += formatText("%-11s %9s %11s %10s %10s %8s %11s  %s\n", "category",
                     "events", "total ms", "mean us", "most us", "of steps",
                     "waiting ms", "name");
  for (const auto &[key, sum] : rows)
    text += formatText(
        "%-11s %9" PRId64 " %11.3f %10.1f %10.1f %7.1f%% %11.3f  %.200s\n",
        key.first.c_str(), sum.count, sum.total / 1e3, sum.total / sum.count,
        sum.most, all > 0 ? 100 * sum.total / all : 0, sum.waited / 1e3,
        key.second.c_str());
  for (const json &rank : about.at("ranks"))
    if (const int64_t lost = rank.at("events_lost"))
      text += concat("rank ", rank.at("rank").get<int>(), ": ", lost,
                     " older events were overwritten\n");
  for (const json &failure : about.at("failures"))
    text += concat("rank ", failure.at("rank").get<int>(), " ",
                   failure.at("state").get<std::string>(), ": ",
                   failure.at("message").get<std::string>(), "\n");
  return text;
}

/// Returns a table of the trace, and a line for each failed or lost rank.
static Status summarize(const std::string &path, std::string *text) {
  std::ifstream file(path);
  if (!file)
    return systemError(errno, "cannot open '%s'", path.c_str());
  try {
    *text = describe(json::parse(file));
  } catch (const json::exception &exception) {
    return dataLoss("'%s' is not a ddphook trace: %s", path.c_str(),
                    exception.what());
  }
  return Status::ok();
}

int main(int argc, char **argv) try {
  std::vector<std::string> names;
  bool keepsParts = false;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "--help") {
      std::printf("%s", help);
      return 0;
    }
    if (argument == "--version") {
      std::printf("%s", describeVersion(toolName).c_str());
      return 0;
    }
    if (argument == "--keep-parts")
      keepsParts = true;
    else if (argument.size() > 1 && argument[0] == '-')
      return reportError(toolName,
                         invalid("unknown flag '%s'", argument.c_str()),
                         /*isUsage=*/true);
    else
      names.push_back(argument);
  }
  if (names.empty())
    return reportError(toolName, invalid("expected TRACE.json"),
                       /*isUsage=*/true);
  const std::string path = names.front();
  Status status = merge(path, {names.begin() + 1, names.end()}, keepsParts);
  std::string text;
  if (status.isOk())
    status = summarize(path, &text);
  if (!status.isOk())
    return reportError(toolName, status);
  std::printf("%s", text.c_str());
  return 0;
} catch (const std::exception &exception) {
  return reportError(toolName, Status(DDPHOOK_INTERNAL, exception.what()));
}
