// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Waits that are told, at times that the tests make up, lines that nobody
// reads, and warnings of environment variables.

#include "base/log.h"
#include "base/suggestion.h"
#include "base/wait_scope.h"
#include "job/settings.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

using namespace ddphook;
using namespace std::chrono_literals;

using Clock = WaitScope::Clock;

/// What a wait that began at `start` writes when it is polled at `times`.
static std::string poll(Clock::time_point start,
                        std::initializer_list<std::chrono::milliseconds> times,
                        bool isTold = true) {
  testing::internal::CaptureStderr();
  {
    WaitScope scope([] { return std::string("waiting for Godot"); }, isTold,
                    start);
    for (std::chrono::milliseconds time : times)
      WaitScope::poll(start + time);
  }
  return testing::internal::GetCapturedStderr();
}

TEST(WaitScope, PausesDouble) {
  const Clock::time_point start = Clock::now();
  EXPECT_EQ(poll(start, {0ms, 4999ms}), "");
  EXPECT_EQ(poll(start, {5000ms, 5001ms, 14s, 15s, 34999ms, 35s, 36s}),
            "ddphook: waiting for Godot, 5 s\n"
            "ddphook: waiting for Godot, 15 s\n"
            "ddphook: waiting for Godot, 35 s\n");
  // The pause counts from the line, whoever was late.
  EXPECT_EQ(poll(start, {12s, 15s, 21s, 22s}),
            "ddphook: waiting for Godot, 12 s\n"
            "ddphook: waiting for Godot, 22 s\n");
  EXPECT_EQ(poll(start, {1000s}, /*isTold=*/false), "");
}

TEST(WaitScope, ThePauseHasAnEnd) {
  const Clock::time_point start = Clock::now();
  testing::internal::CaptureStderr();
  {
    WaitScope scope([] { return std::string("w"); }, true, start);
    for (int second = 0; second <= 3600; ++second)
      WaitScope::poll(start + std::chrono::seconds(second));
  }
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "ddphook: w, 5 s\nddphook: w, 15 s\nddphook: w, 35 s\n"
            "ddphook: w, 75 s\nddphook: w, 155 s\nddphook: w, 315 s\n"
            "ddphook: w, 615 s\nddphook: w, 915 s\nddphook: w, 1215 s\n"
            "ddphook: w, 1515 s\nddphook: w, 1815 s\nddphook: w, 2115 s\n"
            "ddphook: w, 2415 s\nddphook: w, 2715 s\nddphook: w, 3015 s\n"
            "ddphook: w, 3315 s\n");
}

TEST(WaitScope, TheInnermostOneSpeaks) {
  const Clock::time_point start = Clock::now();
  EXPECT_EQ(WaitScope::due(), Clock::time_point::max());
  EXPECT_EQ(WaitScope::patienceMs(7), 7);
  testing::internal::CaptureStderr();
  {
    WaitScope outer([] { return std::string("outer"); }, true, start);
    EXPECT_EQ(WaitScope::due(), start + 5s);
    {
      WaitScope inner([] { return std::string("inner"); }, true, start + 3s);
      EXPECT_EQ(WaitScope::due(), start + 8s);
      WaitScope::poll(start + 8s);
      WaitScope silent([] { return std::string("silent"); }, false, start);
      EXPECT_EQ(WaitScope::due(), Clock::time_point::max());
      WaitScope::poll(start + 100s);
    }
    // A description that waits itself is not asked again.
    WaitScope asking(
        [&] {
          EXPECT_EQ(WaitScope::due(), Clock::time_point::max());
          WaitScope::poll(start + 1000s);
          return std::string("asking");
        },
        true, start);
    WaitScope::poll(start + 6s);
  }
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "ddphook: inner, 5 s\nddphook: asking, 6 s\n");
  EXPECT_EQ(WaitScope::due(), Clock::time_point::max());
}

TEST(WaitScope, PatienceEndsWhenALineIsDue) {
  WaitScope late([] { return std::string(); }, true, Clock::now() - 10s);
  EXPECT_EQ(WaitScope::patienceMs(1000000), 0);
  WaitScope fresh([] { return std::string(); });
  EXPECT_GT(WaitScope::patienceMs(1000000), 0);
  EXPECT_LE(WaitScope::patienceMs(1000000), 5000);
  EXPECT_EQ(WaitScope::patienceMs(0), 0);
}

TEST(Log, Levels) {
  EXPECT_EQ(parseLogLevel("error"), LogLevel::Error);
  EXPECT_EQ(parseLogLevel("warn"), LogLevel::Warn);
  EXPECT_EQ(parseLogLevel("info"), LogLevel::Info);
  for (const char *name : {"", "INFO", "infos", "inf", "2"})
    EXPECT_FALSE(parseLogLevel(name)) << name;
}

/// Replaces standard error with a pipe that nobody reads, and SIGPIPE ends the
/// process again.
static void breakStderr() {
  int ends[2];
  if (::pipe(ends) != 0 || ::dup2(ends[1], STDERR_FILENO) < 0)
    ::_exit(2);
  ::close(ends[0]);
  ::close(ends[1]);
  ::signal(SIGPIPE, SIG_DFL);
}

static bool isPending(int signal) {
  sigset_t pending;
  ::sigpending(&pending);
  return sigismember(&pending, signal) == 1;
}

TEST(Log, NobodyReadsStandardError) {
  EXPECT_EXIT(
      {
        breakStderr();
        log(LogLevel::Warn, "nobody reads this");
        WaitScope scope([] { return std::string("nor this"); }, true,
                        Clock::now() - 10s);
        WaitScope::poll();
        ::_exit(isPending(SIGPIPE) ? 3 : 0);
      },
      testing::ExitedWithCode(0), "");
}

/// The reader of the pipe is there, but stopped.
TEST(Log, APipeIsFull) {
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_NONBLOCK), 0);
  EXPECT_EXIT(
      {
        ::dup2(ends[1], STDERR_FILENO);
        while (::write(STDERR_FILENO, "x", 1) == 1) {
        }
        ::fcntl(STDERR_FILENO, F_SETFL, 0);
        ::signal(SIGALRM, SIG_DFL);
        ::alarm(60); // Ends the process if log() waits.
        log(LogLevel::Warn, "there is no room for this");
        ::_exit(0);
      },
      testing::ExitedWithCode(0), "");
  // Lines longer than a pipe takes at once arrive where there is room.
  char buffer[4096];
  while (::read(ends[0], buffer, sizeof(buffer)) > 0) {
  }
  const std::string text(10000, 'y');
  const int saved = ::dup(STDERR_FILENO);
  ::dup2(ends[1], STDERR_FILENO);
  log(LogLevel::Warn, text);
  ::dup2(saved, STDERR_FILENO);
  ::close(saved);
  std::string arrived;
  ssize_t got;
  while ((got = ::read(ends[0], buffer, sizeof(buffer))) > 0)
    arrived.append(buffer, static_cast<size_t>(got));
  EXPECT_EQ(arrived, "ddphook: " + text + "\n");
  ::close(ends[0]);
  ::close(ends[1]);
}

/// What the host program has blocked or has yet to take is left to it.
TEST(Log, TheHostsSignalsStayAsTheyAre) {
  EXPECT_EXIT(
      {
        breakStderr();
        sigset_t pipe;
        sigset_t mask;
        sigemptyset(&pipe);
        sigaddset(&pipe, SIGPIPE);
        ::pthread_sigmask(SIG_BLOCK, &pipe, nullptr);
        log(LogLevel::Warn, "nobody reads this");
        if (isPending(SIGPIPE))
          ::_exit(3);
        ::raise(SIGPIPE);
        log(LogLevel::Warn, "nobody reads this");
        ::pthread_sigmask(SIG_BLOCK, nullptr, &mask);
        ::_exit(isPending(SIGPIPE) && sigismember(&mask, SIGPIPE) == 1 &&
                        sigismember(&mask, SIGXFSZ) == 0
                    ? 0
                    : 4);
      },
      testing::ExitedWithCode(0), "");
}

TEST(SuggestName, TheNearest) {
  const std::vector<std::string_view> known = {"inputs",   "outputs",   "steps",
                                               "state-in", "state-out", "on"};
  EXPECT_EQ(suggestName("input", known), "inputs");
  EXPECT_EQ(suggestName("imputs", known), "inputs");
  EXPECT_EQ(suggestName("ouputs", known), "outputs");
  EXPECT_EQ(suggestName("step", known), "steps");
  EXPECT_EQ(suggestName("stateout", known), "state-out");
  // A part of a name.
  EXPECT_EQ(suggestName("state", known), "state-in");
  EXPECT_EQ(suggestName("number-of-steps", known), "steps");
  for (const char *other : {"", "x", "ab", "verbose", "number"})
    EXPECT_EQ(suggestName(other, known), "") << other;
}

TEST(Variables, UnknownOnes) {
  auto find = [](std::vector<const char *> environment) {
    environment.push_back(nullptr);
    return findUnknownVariables(environment.data());
  };
  using Lines = std::vector<std::string>;
  // What people write for DDPHOOK_TIMEOUT_S.
  EXPECT_EQ(find({"HOME=/", "DDPHOOK_TIMEOUT=5"}),
            (Lines{"unknown environment variable DDPHOOK_TIMEOUT, did you mean "
                   "DDPHOOK_TIMEOUT_S?"}));
  EXPECT_EQ(find({"DDPHOOK_SECRET=x", "DDPHOOK_IFNAME=eth0",
                  "DDPHOOK_TRANSPROT=shm"}),
            (Lines{"unknown environment variable DDPHOOK_SECRET, did you mean "
                   "DDPHOOK_JOB_SECRET?",
                   "unknown environment variable DDPHOOK_IFNAME, did you mean "
                   "DDPHOOK_SOCKET_IFNAME?",
                   "unknown environment variable DDPHOOK_TRANSPROT, did you "
                   "mean DDPHOOK_TRANSPORT?"}));
  EXPECT_EQ(find({"DDPHOOK_VERBOSITY=9", "DDPHOOK_=1"}),
            (Lines{"unknown environment variable DDPHOOK_VERBOSITY",
                   "unknown environment variable DDPHOOK_"}));
  // Those that are read, those of tests, those that are not set, and others'.
  EXPECT_EQ(find({"DDPHOOK_TIMEOUT_S=1", "DDPHOOK_LOG=warn", "DDPHOOK_RUN=/x",
                  "DDPHOOK_TEST_SEED=1", "DDPHOOK_NOTHING=", "DDPHOOK_NOTHING",
                  "XDDPHOOK_A=1", "ddphook_log=1"}),
            Lines());
}

// Sanitizers end a process that has no memory.
#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define NEEDS_MEMORY
#endif
#endif
#ifndef NEEDS_MEMORY
/// Keeps the compiler from dropping allocations.
static void *volatile kept;

/// Takes all memory that this process may have. Its stack cannot grow any more,
/// so it grows before.
static void takeAllMemory() {
  volatile char stack[1 << 18];
  for (size_t i = 0; i < sizeof(stack); i += 1024)
    stack[i] = 0;
  const rlimit none = {1, 1};
  ::setrlimit(RLIMIT_AS, &none);
  for (size_t bytes = size_t(1) << 20; bytes >= 16; bytes /= 2)
    while ((kept = std::malloc(bytes))) {
    }
}

TEST(Variables, WithoutMemoryTheWarningIsLost) {
  ASSERT_EQ(::setenv("DDPHOOK_TIMEOUT", "5", 1), 0);
  EXPECT_EXIT(
      {
        takeAllMemory();
        warnOfUnknownVariables();
        ::_exit(0);
      },
      testing::ExitedWithCode(0), "");
  ::unsetenv("DDPHOOK_TIMEOUT");
}
#endif
