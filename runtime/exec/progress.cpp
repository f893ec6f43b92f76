// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Decides when and how to write.

#include "progress.h"

#include "numbers.h"

#include <cstdio>
#include <unistd.h>

using namespace ddphook;

/// Shorter runs show nothing.
static constexpr std::chrono::seconds firstPause(1);
static constexpr std::chrono::milliseconds terminalPause(250);
static constexpr std::chrono::seconds linePause(10);

Progress::Progress(const char *toolName, const RunOptions &options)
    : toolName(toolName), steps(options.steps),
      isTerminal(::isatty(STDERR_FILENO) == 1),
      isShown(options.progress == ProgressMode::On ||
              (options.progress == ProgressMode::Auto && isTerminal &&
               !options.isQuiet)),
      next(Clock::now() + firstPause) {}

Progress::~Progress() {
  if (hasLine)
    std::fputs("\r\033[K", stderr);
}

void Progress::show(const std::string &text) {
  if (isTerminal) {
    // Leave the cursor at the start of the line, so that any other output
    // replaces the line.
    std::fprintf(stderr, "\r\033[K%s: %s\r", toolName, text.c_str());
    hasLine = true;
  } else {
    std::fprintf(stderr, "%s: %s\n", toolName, text.c_str());
  }
  std::fflush(stderr);
}

/// Returns "step 7 of 9, 1.5 ms a step, 3 s left".
std::string Progress::describe(int64_t step, Clock::time_point now) const {
  std::string text =
      "step " + std::to_string(step) + " of " + std::to_string(steps);
  if (step <= firstStep)
    return text;
  const double seconds =
      std::chrono::duration<double>(now - firstTime).count() /
      static_cast<double>(step - firstStep);
  return text + ", " + printMilliseconds(seconds) + " a step, " +
         printDuration(seconds * static_cast<double>(steps - step)) + " left";
}

void Progress::update(int64_t step) {
  if (!isShown)
    return;
  const Clock::time_point now = Clock::now();
  if (firstStep < 0 && step >= 0) {
    firstStep = step;
    firstTime = now;
  }
  // Until then the runtime says for whom it waits.
  if (now < next || step < 0)
    return;
  next = now + (isTerminal ? Clock::duration(terminalPause) : linePause);
  show(describe(step, now));
}

void Progress::finish() {
  // On a terminal the summary follows.
  if (isShown && !isTerminal)
    show(std::to_string(steps) + " of " + std::to_string(steps) +
         " steps are done");
}
