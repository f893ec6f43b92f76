//===- progress.cpp - how far a run has come ------------------------------===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Decides when to write, and how.
//
//===----------------------------------------------------------------------===//
#include "progress.h"

#include <cstdio>
#include <unistd.h>

using namespace ddphook;

/// Runs that end sooner show nothing.
static constexpr std::chrono::seconds firstPause(2);
static constexpr std::chrono::seconds terminalPause(1);
static constexpr std::chrono::seconds linePause(10);

Progress::Progress(const char *toolName, const RunOptions &options)
    : toolName(toolName), steps(options.steps),
      isTerminal(::isatty(STDERR_FILENO) == 1),
      isShown(options.progress == ProgressMode::On ||
              (options.progress == ProgressMode::Auto && isTerminal)),
      next(Clock::now() + firstPause) {}

Progress::~Progress() {
  if (hasLine)
    std::fputs("\r\033[K", stderr);
}

void Progress::show(const std::string &text) {
  if (isTerminal) {
    std::fprintf(stderr, "\r\033[K%s: %s", toolName, text.c_str());
    hasLine = true;
  } else {
    std::fprintf(stderr, "%s: %s\n", toolName, text.c_str());
  }
  std::fflush(stderr);
}

void Progress::update(int64_t step) {
  const Clock::time_point now = Clock::now();
  if (!isShown || now < next)
    return;
  next = now + (isTerminal ? terminalPause : linePause);
  show(step < 0
           ? "before the first step"
           : "step " + std::to_string(step) + " of " + std::to_string(steps));
}

void Progress::finish() {
  // A terminal shows by its prompt that the run is over.
  if (isShown && !isTerminal)
    show(std::to_string(steps) + " of " + std::to_string(steps) +
         " steps are done");
}
