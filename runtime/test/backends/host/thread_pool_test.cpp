// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Loops of all lengths on pools of several sizes, busy and idle, and in a
// forked child.

#include "thread_pool.h"

#include "base/flush_to_zero.h"

#include "gtest/gtest.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <limits>
#include <numeric>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

using namespace ddphook;
using namespace ddphook::host;

namespace {

class ThreadPoolTest : public testing::TestWithParam<int> {};

INSTANTIATE_TEST_SUITE_P(Threads, ThreadPoolTest, testing::Values(1, 2, 3, 8));

/// Every part is done once, and its writes are seen when run() returns.
TEST_P(ThreadPoolTest, everyPartOnce) {
  ThreadPool pool(GetParam());
  EXPECT_EQ(pool.threads(), GetParam());
  for (int64_t parts : {int64_t(0), int64_t(1), int64_t(2), int64_t(3),
                        int64_t(7), int64_t(1000), ThreadPool::kMaxParts}) {
    std::vector<int> counts(static_cast<size_t>(parts), 0);
    pool.run(parts, [&](int64_t part, int) {
      ++counts[static_cast<size_t>(part)]; // not atomic: parts are separate
    });
    pool.run(
        parts, [&](int64_t part, int) { ++counts[static_cast<size_t>(part)]; },
        ThreadPool::Order::Backwards);
    EXPECT_TRUE(
        std::all_of(counts.begin(), counts.end(), [](int n) { return n == 2; }))
        << parts << " parts";
  }
}

/// Nobody else has a part's slot while it runs, so slots can own memory.
TEST_P(ThreadPoolTest, slotsAreExclusive) {
  ThreadPool pool(GetParam());
  std::vector<int64_t> sums(static_cast<size_t>(GetParam()), 0);
  for (int loop = 0; loop < 200; ++loop)
    pool.run(50, [&](int64_t part, int slot) {
      ASSERT_GE(slot, 0);
      ASSERT_LT(slot, GetParam());
      sums[static_cast<size_t>(slot)] += part;
    });
  EXPECT_EQ(std::accumulate(sums.begin(), sums.end(), int64_t(0)),
            200 * 49 * 50 / 2);
}

/// Loops that follow each other closely, so that threads are late for some, and
/// loops after a pause, when all sleep.
TEST_P(ThreadPoolTest, manyLoops) {
  ThreadPool pool(GetParam());
  std::vector<int64_t> values(5, 0);
  for (int64_t loop = 0; loop < 3000; ++loop) {
    if (loop % 500 == 0)
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    const auto parts = static_cast<int64_t>(loop % 6);
    pool.run(parts, [&](int64_t part, int) {
      values[static_cast<size_t>(part)] += loop;
    });
  }
  for (int64_t part = 0; part < 5; ++part) {
    int64_t expected = 0;
    for (int64_t loop = 0; loop < 3000; ++loop)
      expected += part < loop % 6 ? loop : 0;
    EXPECT_EQ(values[static_cast<size_t>(part)], expected);
  }
}

/// A part that throws ends its loop, and nothing else.
TEST_P(ThreadPoolTest, aPartThatThrows) {
  ThreadPool pool(GetParam());
  for (int64_t thrower = 0; thrower < 20; ++thrower) {
    EXPECT_ANY_THROW(pool.run(20, [&](int64_t part, int) {
      if (part == thrower)
        throw part;
    }));
    std::atomic<int> parts{0};
    pool.run(20, [&](int64_t, int) { ++parts; });
    EXPECT_EQ(parts, 20);
  }
}

/// A part that takes long: the calling thread has to sleep until it is done.
TEST_P(ThreadPoolTest, slowPart) {
  ThreadPool pool(GetParam());
  for (int loop = 0; loop < 5; ++loop) {
    std::vector<int> done(8, 0);
    pool.run(8, [&](int64_t part, int slot) {
      if (slot != 0)
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
      done[static_cast<size_t>(part)] = 1;
    });
    EXPECT_EQ(std::accumulate(done.begin(), done.end(), 0), 8);
  }
}

/// All of them take part when there is enough to do: none can end before all
/// have begun.
TEST_P(ThreadPoolTest, allThreadsTakePart) {
  ThreadPool pool(GetParam());
  std::atomic<int> begun{0};
  pool.run(GetParam(), [&](int64_t, int) {
    ++begun;
    while (begun < GetParam())
      std::this_thread::yield();
  });
  EXPECT_EQ(begun, GetParam());
}

/// Threads keep subnormals, whatever the thread has set that starts them.
TEST_P(ThreadPoolTest, keepsSubnormals) {
  ThreadPool pool(GetParam());
  std::atomic<int> begun{0}, kept{0};
  volatile float least = std::numeric_limits<float>::min();
  const FlushToZero flushing;
  pool.run(GetParam(), [&](int64_t, int slot) {
    ++begun;
    while (begun < GetParam())
      std::this_thread::yield();
    if (slot > 0)
      kept += least / 2 > 0;
  });
  EXPECT_EQ(kept, GetParam() - 1);
}

/// A forked child has no threads but its own. It computes and ends without
/// waiting for the others.
TEST_P(ThreadPoolTest, forkedChild) {
  auto pool = std::make_unique<ThreadPool>(GetParam());
  pool->run(100, [](int64_t, int) {});
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    int64_t sum = 0;
    pool->run(100, [&](int64_t part, int slot) { sum += part + slot; });
    pool.reset();
    _exit(sum == 4950 ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  // The parent's still work.
  std::atomic<int64_t> sum{0};
  pool->run(100, [&](int64_t part, int) { sum += part; });
  EXPECT_EQ(sum, 4950);
}

/// Idle threads do not use the processor, and do not keep their process alive.
TEST_P(ThreadPoolTest, idleThreadsSleep) {
  ThreadPool pool(GetParam());
  pool.run(100, [](int64_t, int) {});
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  auto processorTime = [] {
    timespec time = {};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) +
           1e-9 * static_cast<double>(time.tv_nsec);
  };
  const double before = processorTime();
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  EXPECT_LT(processorTime() - before, 0.25);
}

TEST(ThreadPoolExit, doesNotWaitForThreads) {
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    // Nobody destroys it; static, so that it is no leak either.
    static auto *const pool = new ThreadPool(4);
    pool->run(100, [](int64_t, int) {});
    std::exit(pool->threads() == 4 ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

} // namespace
