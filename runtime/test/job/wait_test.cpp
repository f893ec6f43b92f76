// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A rank that waits says for whom: while groups connect, in exchanges, and in
// collectives. The rank that it waits for comes when that has been said, so no
// test depends on how fast the machine is. When lines are due is log_test's
// business.

#include "gloo/gloo_group.h"
#include "job/store_collectives.h"
#include "shm/shm_group.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdio>
#include <functional>
#include <thread>
#include <unistd.h>

using namespace ddphook;
using namespace ddphook::host;

namespace {

/// Collects what the process writes on standard error.
class ErrorFile {
public:
  ErrorFile() : file(std::tmpfile()), saved(::dup(STDERR_FILENO)) {
    ::dup2(::fileno(file), STDERR_FILENO);
  }
  ~ErrorFile() {
    ::dup2(saved, STDERR_FILENO);
    ::close(saved);
    std::fclose(file);
  }
  std::string text() const {
    char buffer[65536];
    ssize_t size = ::pread(::fileno(file), buffer, sizeof(buffer), 0);
    return std::string(buffer, size > 0 ? static_cast<size_t>(size) : 0);
  }

private:
  std::FILE *const file;
  const int saved;
};

/// Runs `early` at once, and `late` when `line` has been written.
void expectTold(const std::string &line, const std::function<Status()> &early,
                const std::function<Status()> &late) {
  Status earlyStatus, lateStatus;
  std::atomic<bool> isOver{false};
  std::string text;
  {
    ErrorFile errors;
    std::thread waiting([&] {
      earlyStatus = early();
      isOver = true;
    });
    while (errors.text().find(line) == std::string::npos && !isOver)
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    lateStatus = late();
    waiting.join();
    text = errors.text();
  }
  EXPECT_NE(text.find("ddphook: " + line), std::string::npos) << text;
  EXPECT_TRUE(earlyStatus.isOk()) << earlyStatus.message();
  EXPECT_TRUE(lateStatus.isOk()) << lateStatus.message();
}

constexpr double timeout = 60;

struct Ring {
  Ring() { EXPECT_TRUE(GlooDevice::create("127.0.0.1", &device).isOk()); }
  Status join(Store &store, int rank, int size) {
    return GlooGroup::create(*device, store, "g", "proof key", {rank, size},
                             timeout, &group);
  }
  std::unique_ptr<GlooDevice> device;
  std::unique_ptr<GlooGroup> group;
};

CollectiveDesc floats(int64_t count) {
  CollectiveDesc desc;
  desc.count = count;
  return desc;
}

} // namespace

TEST(Waits, ForAPeerThatConnectsOverTcp) {
  MemoryStore store;
  Ring ring[2];
  expectTold(
      "rank 0 is waiting for rank 1 of 2 over TCP, ",
      [&] { return ring[0].join(store, 0, 2); },
      [&] { return ring[1].join(store, 1, 2); });
  float in[2][4] = {};
  expectTold(
      "rank 1 is waiting for rank 0 of 2 over TCP, ",
      [&] { return ring[1].group->run(floats(4), in[1], in[1]); },
      [&] { return ring[0].group->run(floats(4), in[0], in[0]); });
}

TEST(Waits, ForAPeerWhoseAddressIsMissing) {
  MemoryStore store;
  Ring ring[2];
  expectTold(
      "rank 1 is waiting for rank 0 of 2, ",
      [&] { return ring[1].join(store, 1, 2); },
      [&] { return ring[0].join(store, 0, 2); });
}

TEST(Waits, ForAPeerInSharedMemory) {
  MemoryStore store;
  std::unique_ptr<ShmGroup> group[2];
  auto join = [&](int rank) {
    return ShmGroup::create(store, "g", {rank, 2}, timeout, &group[rank]);
  };
  expectTold(
      "rank 1 is waiting for rank 0 of 2 in shared memory, ",
      [&] { return join(1); }, [&] { return join(0); });
  float in[2][4] = {};
  expectTold(
      "rank 0 is waiting for rank 1 of 2 in shared memory, ",
      [&] { return group[0]->run(floats(4), in[0], in[0]); },
      [&] { return group[1]->run(floats(4), in[1], in[1]); });
}

/// Ranks 6 and 4 of a job.
TEST(Waits, OfAPartOfTheJob) {
  auto placeOf = [](int rank) {
    return GroupPlace{rank, 2, {6, 4}, "process group 'pairs'"};
  };
  float in[2][4] = {};
  MemoryStore store;
  std::unique_ptr<ShmGroup> shm[2];
  auto join = [&](int rank) {
    return ShmGroup::create(store, "s", placeOf(rank), timeout, &shm[rank]);
  };
  expectTold(
      "rank 4 is waiting for rank 6 of process group 'pairs' in shared memory",
      [&] { return join(1); }, [&] { return join(0); });
  expectTold(
      "rank 6 is waiting for rank 4 of process group 'pairs' in shared memory",
      [&] { return shm[0]->run(floats(4), in[0], in[0]); },
      [&] { return shm[1]->run(floats(4), in[1], in[1]); });
  Ring ring[2];
  auto connect = [&](int rank) {
    return GlooGroup::create(*ring[rank].device, store, "g", "proof key",
                             placeOf(rank), timeout, &ring[rank].group);
  };
  expectTold(
      "rank 6 is waiting for rank 4 of process group 'pairs' over TCP",
      [&] { return connect(0); }, [&] { return connect(1); });
  expectTold(
      "rank 4 is waiting for rank 6 of process group 'pairs' over TCP",
      [&] { return ring[1].group->run(floats(4), in[1], in[1]); },
      [&] { return ring[0].group->run(floats(4), in[0], in[0]); });
}

TEST(Waits, InExchanges) {
  MemoryStore store;
  const Deadline deadline = Deadline::after(timeout);
  StoreCollectives exchange[3] = {{store, "e/", 0, 3, true},
                                  {store, "e/", 1, 3, true},
                                  {store, "e/", 2, 3, false}};
  auto enter = [&](int rank) {
    return exchange[rank].barrier("ddphook_barrier", deadline);
  };
  // Rank 1 has come, but only rank 0 can let it go on.
  expectTold(
      "rank 1 is waiting for ranks 0, 2 of 3 in ddphook_barrier, ",
      [&] { return enter(1); },
      [&] {
        std::thread silent([&] { EXPECT_TRUE(enter(2).isOk()); });
        Status status = enter(0);
        silent.join();
        return status;
      });
}
