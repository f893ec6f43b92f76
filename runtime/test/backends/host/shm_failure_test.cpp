// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Ranks that never come, disagree, leave, abort, are killed, are stopped and
// resume, or find no memory: as threads where that is enough, else as
// processes. What all-reduces compute is in shm_test.cpp.

#include "shm_group.h"

#include "gtest/gtest.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstring>
#include <fstream>
#include <functional>
#include <string>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

using namespace ddphook;
using namespace ddphook::host;

namespace {

double secondsNow() {
  return std::chrono::duration<double>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

/// Runs fn(rank) in one thread per rank.
void onRanks(int size, const std::function<void(int)> &fn) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank)
    threads.emplace_back(fn, rank);
  for (std::thread &thread : threads)
    thread.join();
}

TEST(ShmGroup, rejectsBadRanks) {
  MemoryStore store;
  std::unique_ptr<ShmGroup> group;
  for (auto [rank, size] : {std::pair(0, 0), {-1, 2}, {2, 2}})
    EXPECT_EQ(ShmGroup::create(store, "g", {rank, size}, 1, &group).code(),
              DDPHOOK_INVALID_ARGUMENT);
  ASSERT_TRUE(ShmGroup::create(store, "g", {0, 1}, 1, &group).isOk());
  float x = 1;
  EXPECT_EQ(group->run({-1, Dtype::F32, {}, false}, &x, &x).code(),
            DDPHOOK_INVALID_ARGUMENT);
}

TEST(ShmGroup, rankNeverComes) {
  MemoryStore store;
  std::unique_ptr<ShmGroup> group;
  double start = secondsNow();
  Status status = ShmGroup::create(store, "g", {0, 2}, 0.2, &group);
  EXPECT_EQ(status.code(), DDPHOOK_DEADLINE_EXCEEDED) << status.message();
  EXPECT_LT(secondsNow() - start, 20);
  EXPECT_EQ(group, nullptr);
}

TEST(ShmGroup, differentDescriptions) {
  for (int size : {2, 3}) {
    MemoryStore store;
    std::atomic<int> mismatches{0};
    onRanks(size, [&](int rank) {
      std::unique_ptr<ShmGroup> group;
      ASSERT_TRUE(
          ShmGroup::create(store, "g", {rank, size}, 20, &group).isOk());
      std::vector<float> x(100 + static_cast<size_t>(rank == 1));
      Status status =
          group->run({static_cast<int64_t>(x.size()), Dtype::F32, {}, true},
                     x.data(), x.data());
      ASSERT_FALSE(status.isOk());
      if (status.code() == DDPHOOK_PLAN_MISMATCH) {
        ++mismatches;
        EXPECT_NE(status.message().find("101 elements of f32"),
                  std::string::npos)
            << status.message();
      } else {
        EXPECT_EQ(status.code(), DDPHOOK_ABORTED) << status.message();
      }
      // And every later call fails at once.
      EXPECT_EQ(
          group->run({1, Dtype::F32, {}, false}, x.data(), x.data()).code(),
          status.code());
    });
    EXPECT_GE(mismatches, 1);
  }
}

TEST(ShmGroup, differentKinds) {
  MemoryStore store;
  std::atomic<int> mismatches{0};
  onRanks(3, [&](int rank) {
    std::unique_ptr<ShmGroup> group;
    ASSERT_TRUE(ShmGroup::create(store, "g", {rank, 3}, 20, &group).isOk());
    std::vector<float> in(9), out(9);
    CollectiveDesc desc;
    desc.count = 9;
    desc.kind = rank == 1 ? DDPHOOK_BROADCAST : DDPHOOK_ALL_TO_ALL;
    desc.root = rank == 1 ? 2 : 0;
    Status status = group->run(desc, in.data(), out.data());
    ASSERT_FALSE(status.isOk());
    mismatches += status.code() == DDPHOOK_PLAN_MISMATCH;
    for (const char *part :
         {"broadcast of 9 elements of f32 as f32, from rank 2",
          "all-to-all of 9 elements of f32 as f32"})
      EXPECT_NE(status.message().find(part), std::string::npos)
          << status.message();
  });
  EXPECT_GE(mismatches, 1);
}

TEST(ShmGroup, abortReachesAllRanks) {
  MemoryStore store;
  onRanks(3, [&](int rank) {
    std::unique_ptr<ShmGroup> group;
    ASSERT_TRUE(ShmGroup::create(store, "g", {rank, 3}, 60, &group).isOk());
    float x = 0;
    if (rank == 2) {
      usleep(50000);
      group->abort();
      group->abort();
    }
    double start = secondsNow();
    Status status = group->run({1, Dtype::F32, {}, false}, &x, &x);
    EXPECT_EQ(status.code(), DDPHOOK_ABORTED);
    EXPECT_LT(secondsNow() - start, 20);
    if (rank != 2) {
      EXPECT_NE(status.message().find("rank 2"), std::string::npos)
          << status.message();
    }
  });
}

TEST(ShmGroup, abortOfAGroupOfOne) {
  MemoryStore store;
  std::unique_ptr<ShmGroup> group;
  ASSERT_TRUE(ShmGroup::create(store, "g", {0, 1}, 1, &group).isOk());
  group->abort();
  float x = 0;
  EXPECT_EQ(group->run({1, Dtype::F32, {}, false}, &x, &x).code(),
            DDPHOOK_ABORTED);
}

TEST(ShmGroup, leavingIsNoticed) {
  MemoryStore store;
  onRanks(2, [&](int rank) {
    std::unique_ptr<ShmGroup> group;
    ASSERT_TRUE(ShmGroup::create(store, "g", {rank, 2}, 60, &group).isOk());
    float x = 1;
    // The last collective before leaving succeeds on both ranks.
    ASSERT_TRUE(group->run({1, Dtype::F32, {}, false}, &x, &x).isOk());
    EXPECT_EQ(x, 2);
    if (rank == 1)
      return;
    Status status = group->run({1, Dtype::F32, {}, false}, &x, &x);
    EXPECT_EQ(status.code(), DDPHOOK_PEER_LOST);
    EXPECT_NE(status.message().find("rank 1"), std::string::npos)
        << status.message();
  });
}

/// Ranks 5, 3 and 7 of a job: who leaves, who does not come, and who does
/// something else.
TEST(ShmGroup, peersHaveTheNumbersOfTheJob) {
  auto failWith = [](const std::function<Status(ShmGroup &, int)> &run,
                     double timeout) {
    MemoryStore store;
    std::atomic<int> ended{0};
    std::string messages[3];
    onRanks(3, [&](int rank) {
      std::unique_ptr<ShmGroup> group;
      ASSERT_TRUE(
          ShmGroup::create(store, "g", {rank, 3, {5, 3, 7}}, timeout, &group)
              .isOk());
      messages[rank] = run(*group, rank).message();
      // Whoever leaves does so at once.
      if (messages[rank].empty())
        return void(++ended);
      ++ended;
      while (ended < 3)
        usleep(1000);
    });
    return std::vector<std::string>(messages, messages + 3);
  };
  auto expectEither = [](const std::string &message, const std::string &cause,
                         const std::string &teller) {
    EXPECT_TRUE(message == cause ||
                message == teller + " failed first: " + cause)
        << message;
  };
  float x[3] = {}, y[3] = {};
  auto reduce = [&](ShmGroup &group, int rank) {
    return group.run({1, Dtype::F32, {}, false}, &x[rank], &y[rank]);
  };
  auto messages = failWith(
      [&](ShmGroup &group, int rank) {
        return rank == 2 ? Status::ok() : reduce(group, rank);
      },
      60);
  expectEither(messages[0], "rank 7 left the group", "rank 3");
  expectEither(messages[1], "rank 7 left the group", "rank 5");
  std::atomic<bool> isOver{false};
  messages = failWith(
      [&](ShmGroup &group, int rank) {
        if (rank != 2) {
          Status status = reduce(group, rank);
          isOver = true;
          return status;
        }
        while (!isOver)
          usleep(1000);
        return reduce(group, rank);
      },
      0.5);
  expectEither(messages[0], "rank 7 did not arrive within 0.5 s", "rank 3");
  expectEither(messages[1], "rank 7 did not arrive within 0.5 s", "rank 5");
  messages = failWith(
      [&](ShmGroup &group, int rank) {
        CollectiveDesc desc;
        desc.count = 1;
        desc.kind = DDPHOOK_BROADCAST;
        desc.root = rank == 1 ? 2 : 0;
        return group.run(desc, &x[rank], &y[rank]);
      },
      60);
  for (const std::string &message : messages) {
    EXPECT_NE(message.find("from rank 7"), std::string::npos) << message;
    EXPECT_NE(message.find("from rank 5"), std::string::npos) << message;
  }
}

/// A store for processes forked from one test, over one pipe per key would be
/// too much: values live in memory that the processes share.
class ForkStore : public Store {
public:
  ForkStore() {
    table = static_cast<Table *>(mmap(nullptr, sizeof(Table),
                                      PROT_READ | PROT_WRITE,
                                      MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  }
  ~ForkStore() override { munmap(table, sizeof(Table)); }

  Status set(const std::string &key, const std::string &value) override {
    Entry &entry = table->entries[table->used.fetch_add(1)];
    std::snprintf(entry.key, sizeof(entry.key), "%s", key.c_str());
    std::snprintf(entry.value, sizeof(entry.value), "%s", value.c_str());
    entry.ready.store(true, std::memory_order_release);
    return Status::ok();
  }
  Status get(const std::string &key, const Deadline &deadline,
             std::string *value) override {
    for (;;) {
      for (Entry &entry : table->entries)
        if (entry.ready.load(std::memory_order_acquire) && key == entry.key) {
          *value = entry.value;
          return Status::ok();
        }
      if (deadline.expired())
        return error(DDPHOOK_DEADLINE_EXCEEDED, "no '%s'", key.c_str());
      usleep(100);
    }
  }
  Status exists(const std::string &, bool *) override {
    return error(DDPHOOK_UNSUPPORTED, "not needed here");
  }
  Status add(const std::string &, int64_t, int64_t *) override {
    return error(DDPHOOK_UNSUPPORTED, "not needed here");
  }
  Status erase(const std::string &) override { return Status::ok(); }

private:
  struct Entry {
    std::atomic<bool> ready;
    char key[64], value[512];
  };
  struct Table {
    std::atomic<int> used;
    Entry entries[64];
  };
  Table *table;
};

/// What a forked rank tells the test: filled in shared memory.
struct Report {
  std::atomic<bool> ready;
  std::atomic<int64_t> done;
  int code;
  double time;
  char message[256];
};

class ShmProcesses : public testing::Test {
protected:
  void SetUp() override {
    reports = static_cast<Report *>(mmap(nullptr, sizeof(Report) * kMaxRanks,
                                         PROT_READ | PROT_WRITE,
                                         MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  }
  void TearDown() override {
    for (pid_t pid : pids) {
      kill(pid, SIGKILL);
      waitpid(pid, nullptr, 0);
    }
    munmap(reports, sizeof(Report) * kMaxRanks);
  }

  /// Starts ranks that reduce until something fails, then report.
  void start(int size, double timeout, int64_t n, int64_t limit = -1) {
    for (int rank = 0; rank < size; ++rank) {
      pid_t pid = fork();
      ASSERT_GE(pid, 0);
      if (pid == 0) {
        loop(rank, size, timeout, n, limit);
        _exit(0);
      }
      pids.push_back(pid);
    }
  }

  void loop(int rank, int size, double timeout, int64_t n, int64_t limit) {
    Report &report = reports[rank];
    std::unique_ptr<ShmGroup> group;
    Status status = ShmGroup::create(store, "g", {rank, size}, timeout, &group);
    std::vector<float> x(static_cast<size_t>(n));
    for (int64_t i = 0; status.isOk() && i != limit; ++i) {
      std::fill(x.begin(), x.end(), 1.0f);
      status =
          group->run({n, Dtype::F32, Dtype::F16, true}, x.data(), x.data());
      // Success means the right sums, whatever happens to other ranks.
      if (status.isOk() &&
          std::any_of(x.begin(), x.end(), [](float v) { return v != 1; }))
        status = Status(DDPHOOK_DATA_LOSS, "wrong sums");
      report.done.store(i + 1);
    }
    report.time = secondsNow();
    report.code = status.code();
    std::snprintf(report.message, sizeof(report.message), "%s",
                  status.message().c_str());
    report.ready.store(true, std::memory_order_release);
    // Alive, but not in the group: death must not be what others notice.
    pause();
  }

  bool waitFor(const std::function<bool()> &condition, double seconds = 20) {
    for (double end = secondsNow() + seconds; secondsNow() < end; usleep(200))
      if (condition())
        return true;
    return false;
  }
  bool running(int size) {
    return waitFor([&] {
      for (int rank = 0; rank < size; ++rank)
        if (reports[rank].done.load() < 5)
          return false;
      return true;
    });
  }
  bool ready(int rank) {
    return waitFor([&] { return reports[rank].ready.load(); });
  }

  static constexpr int kMaxRanks = 8;
  ForkStore store;
  Report *reports;
  std::vector<pid_t> pids;
};

TEST_F(ShmProcesses, killedRankIsNamed) {
  start(2, 60, 1 << 18);
  ASSERT_TRUE(running(2));
  kill(pids[1], SIGKILL);
  double killed = secondsNow();
  ASSERT_TRUE(ready(0));
  EXPECT_EQ(reports[0].code, DDPHOOK_PEER_LOST) << reports[0].message;
  EXPECT_NE(std::strstr(reports[0].message, "rank 1"), nullptr)
      << reports[0].message;
  RecordProperty("ms_until_noticed",
                 std::to_string((reports[0].time - killed) * 1e3));
  EXPECT_LT(reports[0].time - killed, 5); // a bound for any machine; see above
}

TEST_F(ShmProcesses, killedRankOfFourStopsAll) {
  start(4, 60, 1 << 16);
  ASSERT_TRUE(running(4));
  kill(pids[2], SIGKILL);
  bool named = false;
  for (int rank : {0, 1, 3}) {
    ASSERT_TRUE(ready(rank));
    EXPECT_TRUE(reports[rank].code == DDPHOOK_PEER_LOST ||
                reports[rank].code == DDPHOOK_ABORTED)
        << reports[rank].message;
    EXPECT_NE(std::strstr(reports[rank].message, "rank 2"), nullptr)
        << reports[rank].message;
    named |= reports[rank].code == DDPHOOK_PEER_LOST;
  }
  EXPECT_TRUE(named);
}

TEST_F(ShmProcesses, stoppedRankMeetsTheDeadlineAndIsFenced) {
  constexpr double timeout = 2;
  start(2, timeout, 1 << 18);
  ASSERT_TRUE(running(2));
  kill(pids[1], SIGSTOP);
  double stopped = secondsNow();
  ASSERT_TRUE(ready(0));
  EXPECT_EQ(reports[0].code, DDPHOOK_DEADLINE_EXCEEDED) << reports[0].message;
  EXPECT_NE(std::strstr(reports[0].message, "rank 1"), nullptr);
  EXPECT_GE(reports[0].time - stopped, timeout * 0.9);
  RecordProperty("ms_after_deadline",
                 std::to_string((reports[0].time - stopped - timeout) * 1e3));
  kill(pids[1], SIGCONT);
  ASSERT_TRUE(ready(1));
  EXPECT_EQ(reports[1].code, DDPHOOK_ABORTED) << reports[1].message;
  EXPECT_NE(std::strstr(reports[1].message, "rank 0 failed first"), nullptr)
      << reports[1].message;
}

/// The bytes that a process has mapped of files whose names begin like this.
static long mappedBytes(pid_t pid, const std::string &name) {
  std::ifstream maps("/proc/" + std::to_string(pid) + "/maps");
  long sum = 0;
  for (std::string line; std::getline(maps, line);) {
    unsigned long begin, end;
    if (line.find(" " + name) != std::string::npos &&
        std::sscanf(line.c_str(), "%lx-%lx", &begin, &end) == 2)
      sum += static_cast<long>(end - begin);
  }
  return sum;
}

// The segment has no name in a file system: the kernel frees it when the last
// rank that has mapped it is gone.
TEST_F(ShmProcesses, leavesNothingBehind) {
  start(4, 60, 1 << 16);
  ASSERT_TRUE(running(4));
  for (pid_t pid : pids) {
    EXPECT_GE(mappedBytes(pid, "/memfd:ddphook (deleted)"), 3'000'000);
    EXPECT_EQ(mappedBytes(pid, "/dev/shm/"), 0);
  }
  EXPECT_EQ(mappedBytes(getpid(), "/memfd:ddphook"), 0);
}

/// Each in a process of its own, since limits cannot be raised again.
Status createUnderLimit(int resource, rlim_t limit) {
  int channel[2];
  EXPECT_EQ(pipe(channel), 0);
  pid_t pid = fork();
  if (pid == 0) {
    rlimit lower{limit, limit};
    setrlimit(static_cast<__rlimit_resource>(resource), &lower);
    MemoryStore store;
    std::unique_ptr<ShmGroup> group;
    Status status = ShmGroup::create(store, "g", {0, 2}, 0.5, &group);
    std::string text = std::to_string(status.code()) + " " + status.message();
    ssize_t written = write(channel[1], text.data(), text.size());
    _exit(written < 0);
  }
  close(channel[1]);
  char text[512] = {};
  ssize_t size = read(channel[0], text, sizeof(text) - 1);
  close(channel[0]);
  waitpid(pid, nullptr, 0);
  EXPECT_GT(size, 0);
  return Status(static_cast<ddphook_status_t>(std::atoi(text)), text);
}

TEST(ShmLimits, noMemory) {
  Status status = createUnderLimit(RLIMIT_FSIZE, 1 << 20);
  EXPECT_EQ(status.code(), DDPHOOK_RESOURCE_EXHAUSTED) << status.message();
}

TEST(ShmLimits, noFileDescriptors) {
  Status status = createUnderLimit(RLIMIT_NOFILE, 3);
  EXPECT_EQ(status.code(), DDPHOOK_RESOURCE_EXHAUSTED) << status.message();
}

/// A rank that fails while joining is named on all others at once.
TEST(ShmGroup, failureToJoinReachesAllRanks) {
  MemoryStore store;
  ASSERT_TRUE(store
                  .set("g/rank1", std::to_string(DDPHOOK_RESOURCE_EXHAUSTED) +
                                      " no memory")
                  .isOk());
  std::unique_ptr<ShmGroup> group;
  Status status = ShmGroup::create(store, "g", {0, 2}, 30, &group);
  EXPECT_EQ(status.code(), DDPHOOK_RESOURCE_EXHAUSTED);
  EXPECT_EQ(status.message(), "rank 1: no memory");
}

TEST(ShmGroup, otherMachine) {
  MemoryStore store;
  ASSERT_TRUE(store.set("g/segment", "0 1 3 1 2 another-boot/pid:[1]").isOk());
  std::unique_ptr<ShmGroup> group;
  Status status = ShmGroup::create(store, "g", {1, 2}, 1, &group);
  EXPECT_EQ(status.code(), DDPHOOK_UNSUPPORTED) << status.message();
}

} // namespace
