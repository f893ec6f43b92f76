// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// For jobs whose rank 0 could not merge the parts of a trace itself, and for a
// quick overview of where the time goes.

#include "run_options.h"
#include "runner.h"
#include "tool_version.h"
#include "trace/merge.h"
#include "trace_summary.h"

#include <cstdio>
#include <string>
#include <vector>

using namespace ddphook;

static const char toolName[] = "ddphook-trace";
static const char help[] =
    "usage: ddphook-trace TRACE.json [PART…] [flags]\n"
    "\n"
    "Merges the parts of a trace that the ranks left, by default those next to "
    "it,\n"
    "into TRACE.json, and prints where the time goes.\n"
    "\n"
    "  --keep-parts       leave the parts that were merged\n"
    "  --help, --version  print this, or versions\n";

/// Merges the given parts, or all that it finds.
static Status merge(const std::string &path,
                    const std::vector<std::string> &given, bool keepsParts) {
  const std::vector<std::string> parts =
      given.empty() ? trace::findParts(path) : given;
  if (parts.empty())
    return Status::ok();
  trace::MergeResult result;
  DDPHOOK_RETURN_IF_ERROR(
      trace::mergeParts(parts, /*runId=*/"", path, &result));
  for (const std::string &problem : result.problems)
    std::fprintf(stderr, "%s: warning: %s\n", toolName, problem.c_str());
  if (!keepsParts)
    for (const std::string &part : result.merged)
      std::remove(part.c_str());
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
      return reportError(
          toolName,
          Status(DDPHOOK_INVALID_ARGUMENT, "unknown flag '" + argument + "'"),
          /*isUsage=*/true);
    else
      names.push_back(argument);
  }
  if (names.empty())
    return reportError(toolName,
                       Status(DDPHOOK_INVALID_ARGUMENT, "expected TRACE.json"),
                       /*isUsage=*/true);
  const std::string path = names.front();
  Status status = merge(path, {names.begin() + 1, names.end()}, keepsParts);
  std::string text;
  if (status.isOk())
    status = summarizeTrace(path, &text);
  if (!status.isOk())
    return reportError(toolName, status);
  std::printf("%s", text.c_str());
  return 0;
} catch (const std::exception &exception) {
  return reportError(toolName, Status(DDPHOOK_INTERNAL, exception.what()));
}
