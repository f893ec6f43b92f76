// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "base/wait_scope.h"

#include "base/log.h"

#include <algorithm>
#include <exception>
#include <utility>

using namespace ddphook;

/// Healthy jobs seldom wait longer, and people become impatient then.
static constexpr std::chrono::seconds firstPause(5);
static constexpr std::chrono::seconds longestPause(300);

static thread_local WaitScope *innermost = nullptr;

WaitScope::WaitScope(std::function<std::string()> describe, bool isTold,
                     Clock::time_point now)
    : describe(std::move(describe)), start(now), pause(firstPause),
      next(isTold && isLogged(LogLevel::Warn) ? now + firstPause
                                              : Clock::time_point::max()),
      outer(std::exchange(innermost, this)) {}

WaitScope::~WaitScope() { innermost = outer; }

WaitScope::Clock::time_point WaitScope::due() {
  return innermost ? innermost->next : Clock::time_point::max();
}

int WaitScope::patienceMs(int most) {
  const Clock::time_point end = due();
  if (end == Clock::time_point::max())
    return most;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(
      std::max(end - Clock::now(), Clock::duration::zero()));
  return static_cast<int>(std::min<int64_t>(left.count(), most));
}

void WaitScope::poll(Clock::time_point now) {
  if (due() > now)
    return;
  // Waits inside describe() are not logged and do not return here.
  WaitScope *const scope = std::exchange(innermost, nullptr);
  try {
    log(LogLevel::Warn,
        scope->describe() + ", " +
            std::to_string(std::chrono::duration_cast<std::chrono::seconds>(
                               now - scope->start)
                               .count()) +
            " s");
  } catch (const std::exception &) {
    // Without memory there is no line.
  }
  innermost = scope;
  scope->pause = std::min<Clock::duration>(2 * scope->pause, longestPause);
  scope->next = now + scope->pause;
}
