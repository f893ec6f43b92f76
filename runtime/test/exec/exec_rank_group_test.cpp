// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Ranks that fail, die, hang or lose their parent. Bodies use nothing of the
// runtime: this is about processes only.

#include "rank_group.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <mutex>
#include <stdexcept>
#include <string>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

using namespace ddphook;

namespace {

/// Memory that children and parent share.
template <typename T>
class Shared {
public:
  Shared() {
    void *memory = ::mmap(nullptr, sizeof(T), PROT_READ | PROT_WRITE,
                          MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
      throw std::runtime_error("cannot map shared memory");
    value = new (memory) T();
  }
  ~Shared() { ::munmap(value, sizeof(T)); }
  Shared(const Shared &) = delete;
  Shared &operator=(const Shared &) = delete;
  T *operator->() { return value; }
  T &operator*() { return *value; }

private:
  T *value;
};

struct ProcessPair {
  std::atomic<pid_t> of[2] = {};
};

class Stopwatch {
public:
  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() -
                                         start)
        .count();
  }

private:
  std::chrono::steady_clock::time_point start =
      std::chrono::steady_clock::now();
};

} // namespace

/// Waits until the process is gone (or a zombie of init), at most 10 s.
static bool isGone(pid_t process) {
  Stopwatch watch;
  while (watch.seconds() < 10) {
    if (::kill(process, 0) != 0)
      return true;
    ::usleep(10000);
  }
  return false;
}

static RankGroupResult
runGroup(int32_t ranks, std::function<Status(int32_t, RankReport &)> body,
         double stallSeconds = 60) {
  RankGroupOptions options;
  options.ranks = ranks;
  options.stallSeconds = stallSeconds;
  options.graceSeconds = 0.5;
  options.body = std::move(body);
  return runRankGroup(options);
}

[[noreturn]] static void hang() {
  while (true)
    ::pause();
}

TEST(RankGroup, RunsEveryRank) {
  Shared<std::atomic<int>> sum;
  RankGroupResult result = runGroup(4, [&](int32_t rank, RankReport &report) {
    report.progress(0);
    *sum += 1 << rank;
    return Status::ok();
  });
  EXPECT_TRUE(result.status.isOk()) << result.status.message();
  EXPECT_EQ(sum->load(), 15);
}

TEST(RankGroup, ReportsTheCauseAndNotItsConsequences) {
  // Rank 2 fails on its own account, but last.
  RankGroupResult result = runGroup(3, [](int32_t rank, RankReport &) {
    if (rank == 2) {
      ::usleep(100000);
      return Status(DDPHOOK_DATA_LOSS, "bad file");
    }
    return Status(rank ? DDPHOOK_PEER_LOST : DDPHOOK_DEADLINE_EXCEEDED, "peer");
  });
  EXPECT_EQ(result.status.code(), DDPHOOK_DATA_LOSS);
  EXPECT_EQ(result.status.message(), "rank 2: bad file");
}

TEST(RankGroup, PrefersWhatARankSawItself) {
  RankGroupResult result = runGroup(2, [](int32_t rank, RankReport &) {
    if (rank == 1)
      return Status(DDPHOOK_ABORTED, "rank 0 failed");
    ::usleep(100000);
    return Status(DDPHOOK_DEADLINE_EXCEEDED, "a peer did not come");
  });
  EXPECT_EQ(result.status.message(), "rank 0: a peer did not come");
}

TEST(RankGroup, ReportsTheEarliestOfEqualFailures) {
  RankGroupResult result = runGroup(3, [](int32_t rank, RankReport &) {
    ::usleep(rank == 1 ? 0 : 100000);
    return Status(DDPHOOK_PEER_LOST, "peer");
  });
  EXPECT_EQ(result.status.message(), "rank 1: peer");
}

TEST(RankGroup, EndsRanksThatWaitForAFailedOne) {
  Stopwatch watch;
  Shared<std::atomic<pid_t>> survivor;
  RankGroupResult result = runGroup(2, [&](int32_t rank, RankReport &) {
    if (rank == 0)
      return Status(DDPHOOK_INVALID_ARGUMENT, "wrong");
    *survivor = ::getpid();
    hang();
  });
  EXPECT_EQ(result.status.message(), "rank 0: wrong");
  EXPECT_LT(watch.seconds(), 10);
  EXPECT_NE(::kill(survivor->load(), 0), 0);
}

TEST(RankGroup, NamesTheSignalThatKilledARank) {
  RankGroupResult result = runGroup(2, [](int32_t rank, RankReport &report) {
    report.progress(7);
    if (rank == 1)
      ::raise(SIGKILL);
    hang();
    return Status::ok();
  });
  EXPECT_EQ(result.status.message(),
            "rank 1: was killed by signal 9 (Killed) in step 8");
}

TEST(RankGroup, NoticesARankThatExits) {
  RankGroupResult result =
      runGroup(1, [](int32_t, RankReport &) -> Status { ::_exit(0); });
  EXPECT_EQ(result.status.message(),
            "rank 0: exited with status 0 before the first step");
}

TEST(RankGroup, ReportsExceptions) {
  RankGroupResult result = runGroup(1, [](int32_t, RankReport &) -> Status {
    throw std::runtime_error("thrown");
  });
  EXPECT_EQ(result.status.message(), "rank 0: thrown");
  result = runGroup(
      1, [](int32_t, RankReport &) -> Status { throw std::bad_alloc(); });
  EXPECT_EQ(result.status.code(), DDPHOOK_RESOURCE_EXHAUSTED);
}

TEST(RankGroup, KillsARankThatHangs) {
  Stopwatch watch;
  RankGroupResult result = runGroup(
      2,
      [](int32_t rank, RankReport &report) {
        report.progress(0);
        // Rank 0 needs as long, but gets on.
        for (int64_t step = 1; rank == 0 && step < 20; ++step) {
          ::usleep(100000);
          report.progress(step);
        }
        if (rank == 1)
          hang();
        return Status::ok();
      },
      /*stallSeconds=*/1);
  EXPECT_EQ(result.status.code(), DDPHOOK_DEADLINE_EXCEEDED);
  EXPECT_EQ(result.status.message(),
            "rank 1: made no progress for 1 s in step 1 and was killed");
  EXPECT_LT(watch.seconds(), 10);
}

TEST(RankGroup, CleansUpAfterRanksThatDidNotFinish) {
  RankGroupOptions options;
  options.ranks = 3;
  options.graceSeconds = 0.5;
  options.body = [](int32_t rank, RankReport &report) {
    report.progress(rank + 10);
    if (rank == 2)
      ::raise(SIGKILL);
    return rank == 0 ? Status::ok() : Status(DDPHOOK_INTERNAL, "x");
  };
  std::vector<std::pair<int32_t, int64_t>> cleaned;
  options.cleanUp = [&](int32_t rank, pid_t process, int64_t step) {
    EXPECT_GT(process, 0);
    cleaned.push_back({rank, step});
  };
  EXPECT_FALSE(runRankGroup(options).status.isOk());
  std::sort(cleaned.begin(), cleaned.end());
  EXPECT_EQ(cleaned,
            (std::vector<std::pair<int32_t, int64_t>>{{1, 11}, {2, 12}}));
}

/// Runs a group of two hanging ranks in a child of the test; gives that child
/// and the ranks, once all of them run.
static pid_t startHangingGroup(ProcessPair &ranks, bool ignoresHangUp = false) {
  pid_t parent = ::fork();
  if (parent == 0) {
    if (ignoresHangUp)
      ::signal(SIGHUP, SIG_IGN);
    RankGroupResult result = runGroup(2, [&](int32_t rank, RankReport &) {
      ranks.of[rank] = ::getpid();
      hang();
      return Status::ok();
    });
    ::_exit(result.signal);
  }
  while (ranks.of[0] == 0 || ranks.of[1] == 0)
    ::usleep(1000);
  return parent;
}

TEST(RankGroup, EndsWithItsParent) {
  Shared<ProcessPair> ranks;
  pid_t parent = startHangingGroup(*ranks);
  ::kill(parent, SIGKILL);
  ASSERT_EQ(::waitpid(parent, nullptr, 0), parent);
  EXPECT_TRUE(isGone(ranks->of[0]));
  EXPECT_TRUE(isGone(ranks->of[1]));
}

TEST(RankGroup, EndsOnSignals) {
  for (int signal : {SIGINT, SIGTERM, SIGHUP}) {
    Shared<ProcessPair> ranks;
    pid_t parent = startHangingGroup(*ranks);
    ::kill(parent, signal);
    int waitStatus = 0;
    ASSERT_EQ(::waitpid(parent, &waitStatus, 0), parent);
    ASSERT_TRUE(WIFEXITED(waitStatus));
    EXPECT_EQ(WEXITSTATUS(waitStatus), signal);
    EXPECT_TRUE(isGone(ranks->of[0]));
    EXPECT_TRUE(isGone(ranks->of[1]));
  }
}

TEST(RankGroup, KeepsIgnoredSignalsIgnored) {
  Shared<ProcessPair> ranks;
  pid_t parent = startHangingGroup(*ranks, /*ignoresHangUp=*/true);
  ::kill(parent, SIGHUP);
  ::usleep(300000);
  EXPECT_EQ(::waitpid(parent, nullptr, WNOHANG), 0);
  ::kill(parent, SIGTERM);
  int waitStatus = 0;
  ASSERT_EQ(::waitpid(parent, &waitStatus, 0), parent);
  EXPECT_EQ(WEXITSTATUS(waitStatus), SIGTERM);
}

/// The caller's signal mask and actions are its own again afterwards.
TEST(RankGroup, LeavesSignalsAsTheyWere) {
  sigset_t before, after;
  ::sigprocmask(SIG_SETMASK, nullptr, &before);
  runGroup(1, [](int32_t, RankReport &) {
    return Status::ok();
  }).status.ignore();
  ::sigprocmask(SIG_SETMASK, nullptr, &after);
  for (int signal : {SIGCHLD, SIGINT, SIGTERM, SIGHUP})
    EXPECT_EQ(sigismember(&before, signal), sigismember(&after, signal));
}
