//===- ddphook-diff.cpp - compare plans and runs --------------------------===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Command line of the comparison; docs/reports.md is its guide. lib/Report does
// the work.
//
//===----------------------------------------------------------------------===//

#include "Input.h"
#include "ToolOptions.h"
#include "ddphook/Report/Difference.h"

#include "llvm/Support/CommandLine.h"

using namespace llvm;
using namespace mlir::ddp;

static cl::OptionCategory category("ddphook-diff options");
static cl::list<std::string> paths(cl::Positional, cl::desc("BEFORE AFTER"),
                                   cl::cat(category));
static cl::opt<double> tolerance(
    "tolerance", cl::init(10), cl::value_desc("percent"), cl::cat(category),
    cl::desc("Largest change in a time that is ignored (default 10)"));

/// Exit statuses, as diff's.
enum Status { Same = 0, Different = 1, Failed = 2 };

static int fail(const Twine &message) {
  errs() << "ddphook-diff: error: " << printable(message.str()) << '\n';
  return Failed;
}

/// Prints the differences. Fails if there is nothing to compare.
static Expected<Status> compare(const Input &before, const Input &after) {
  bool differs = false;
  if (before.plan && after.plan) {
    std::vector<std::string> lines = comparePlans(*before.plan, *after.plan);
    for (const std::string &line : lines)
      outs() << line << '\n';
    differs = !lines.empty();
  }
  if (before.times && after.times) {
    TimeComparison times = compareTimes(*before.times, *after.times, tolerance);
    outs() << times.text;
    differs |= times.differs;
  } else if (!before.plan || !after.plan) {
    return createStringError(
        "expected two plans or two traces, but got one of each");
  }
  return differs ? Different : Same;
}

int main(int argc, char **argv) {
  setVersionPrinter("ddphook-diff");
  if (!checkHelpIsMeant("ddphook-diff", ArrayRef(argv, argc)))
    return Failed;
  cl::HideUnrelatedOptions(category);
  if (!cl::ParseCommandLineOptions(
          argc, argv,
          "ddphook comparison of two plans or of two runs\n\n"
          "Files are reports (FILE.json of --ddp-plan-report), plans, modules "
          "with a plan, or traces.\n"
          "Exit status: 0 nothing differs, 1 something does, 2 an error.\n",
          &errs()))
    return Failed;
  if (paths.size() != 2)
    return fail("expected two files, but got " + Twine(paths.size()));
  if (!(tolerance >= 0))
    return fail("expected a tolerance of at least 0 percent");
  Expected<Input> before = readInput(paths[0]);
  if (!before)
    return fail(toString(before.takeError()));
  Expected<Input> after = readInput(paths[1]);
  if (!after)
    return fail(toString(after.takeError()));
  Expected<Status> status = compare(*before, *after);
  return status ? *status : fail(toString(status.takeError()));
}
