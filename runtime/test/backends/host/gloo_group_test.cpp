// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How ranks of a group meet, and what can get between them: strangers, peers
// that never come, that vanish, or that do something else. What all-reduces
// compute is the business of host_backend_test.cpp.

#include "base/status_test_util.h"
#include "gloo/gloo_group.h"
#include "store/handshake.h"

#include <gtest/gtest.h>

#include <atomic>
#include <fstream>
#include <signal.h>
#include <sys/time.h>
#include <thread>
#include <unistd.h>

using namespace ddphook;
using namespace ddphook::test;
using namespace ddphook::host;

namespace {

/// One rank's end of a group.
struct Member {
  explicit Member(const std::string &proofKey = "proof key")
      : proofKey(proofKey) {
    EXPECT_EQ(show(GlooDevice::create("127.0.0.1", &device)), "OK");
  }

  std::string join(Store &store, const GroupPlace &place, double timeout = 30) {
    return show(GlooGroup::create(*device, store, "group", proofKey, place,
                                  timeout, &group));
  }
  std::string join(Store &store, int rank, int size, double timeout = 30) {
    return join(store, GroupPlace{rank, size}, timeout);
  }

  /// Adds up `values` over all ranks.
  std::string reduce(std::vector<float> &values) {
    CollectiveDesc desc;
    desc.count = static_cast<int64_t>(values.size());
    return show(group->run(desc, values.data(), values.data()));
  }

  std::string proofKey;
  std::unique_ptr<GlooDevice> device;
  std::unique_ptr<GlooGroup> group;
};

/// Runs `body` as every rank, on threads.
void runRanks(int size, const std::function<void(int)> &body) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank)
    threads.emplace_back([&, rank] { body(rank); });
  for (std::thread &thread : threads)
    thread.join();
}

/// Where rank 0 listens, as soon as it does.
int portOfRankZero(Store &store) {
  std::string address;
  EXPECT_EQ(show(store.get("group/address/0", Deadline::after(20), &address)),
            "OK");
  return std::atoi(address.c_str() + address.find(' '));
}

FileDescriptor connectTo(int port) {
  FileDescriptor socket;
  EXPECT_EQ(show(connectOnce("127.0.0.1", port, Deadline::after(20), &socket)),
            "OK");
  return socket;
}

/// The bytes in memory for each one that is used: sanitizers keep more.
#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
constexpr int64_t kResidentPerByte = 4;
#elif __has_feature(address_sanitizer)
constexpr int64_t kResidentPerByte = 2;
#else
constexpr int64_t kResidentPerByte = 1;
#endif
#else
constexpr int64_t kResidentPerByte = 1;
#endif

/// This process's memory.
int64_t residentBytes() {
  int64_t size = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> size >> resident;
  return resident * ::sysconf(_SC_PAGESIZE);
}

} // namespace

TEST(GlooGroup, ManyRanksMeet) {
  for (int size : {2, 3, 8}) {
    MemoryStore store;
    runRanks(size, [&](int rank) {
      Member member;
      ASSERT_EQ(member.join(store, rank, size), "OK");
      for (int round = 0; round < 5; ++round) {
        std::vector<float> values(1000, static_cast<float>(rank + round));
        ASSERT_EQ(member.reduce(values), "OK");
        float sum = static_cast<float>(size * (size - 1 + 2 * round)) / 2;
        ASSERT_EQ(values, std::vector<float>(1000, sum));
      }
    });
  }
}

/// Chunks are in memory for each rank, but only the parts that one has of them.
TEST(GlooGroup, MemoryForCodesDoesNotGrowWithTheRanks) {
  constexpr int kRanks = 8;
  constexpr int64_t kCount = 1 << 20;
  MemoryStore store;
  runRanks(kRanks, [&](int rank) {
    std::vector<float> values(kCount, 127.0f), few(1);
    Member member;
    ASSERT_EQ(member.join(store, rank, kRanks), "OK");
    // Everybody is there, and stays.
    ASSERT_EQ(member.reduce(few), "OK");
    const int64_t before = residentBytes();
    const CollectiveDesc desc(kCount, Dtype::F32, std::nullopt,
                              /*isMean=*/false, Encoding{Code::I8, 256});
    ASSERT_EQ(show(member.group->run(desc, values.data(), values.data())),
              "OK");
    if (rank == 0)
      EXPECT_LT(residentBytes() - before,
                kResidentPerByte * kRanks * 4 * kCount);
    ASSERT_EQ(member.reduce(few), "OK");
    EXPECT_EQ(values.back(), 127.0f * kRanks);
  });
}

TEST(GlooGroup, PiecesGiveTheBitsOfTheWhole) {
  for (auto [size, elements] :
       {std::pair<int, int64_t>(2, 500009), {3, 500009}, {4, 500009}, {2, 1}}) {
    MemoryStore store;
    runRanks(size, [&, size = size, elements = elements](int rank) {
      Member member;
      ASSERT_EQ(member.join(store, rank, size), "OK");
      const CollectiveDesc desc(elements, Dtype::F32, Dtype::F16,
                                /*isMean=*/true);
      std::vector<float> whole(elements), pieces;
      for (int64_t i = 0; i < elements; ++i)
        whole[static_cast<size_t>(i)] =
            static_cast<float>((i * 7919 + rank * 104729) % 65521) / 64;
      pieces = whole;
      ASSERT_EQ(show(member.group->run(desc, whole.data(), whole.data())),
                "OK");
      std::unique_ptr<PieceFlow> flow;
      ASSERT_EQ(show(PieceFlow::create(&flow)), "OK");
      const int64_t step = member.group->pieceElements(desc);
      const int64_t count = (elements + step - 1) / step;
      ASSERT_TRUE(count > 3 || elements == 1);
      std::thread first([&] {
        for (int64_t i = 0; i < count; ++i) {
          flow->makeReady();
          EXPECT_TRUE(flow->awaitFinished(i - 1));
        }
      });
      EXPECT_EQ(show(member.group->runInPieces(desc, pieces.data(),
                                               /*error=*/nullptr, *flow)),
                "OK");
      first.join();
      ASSERT_EQ(pieces, whole);
      EXPECT_TRUE(flow->awaitFinished(count));
    });
  }
}

TEST(GlooGroup, PiecesThatAreGivenUpEndAReduction) {
  MemoryStore store;
  runRanks(2, [&](int rank) {
    Member member;
    ASSERT_EQ(member.join(store, rank, 2), "OK");
    CollectiveDesc desc;
    desc.count = 500009;
    std::vector<float> values(500009);
    std::unique_ptr<PieceFlow> flow;
    ASSERT_EQ(show(PieceFlow::create(&flow)), "OK");
    flow->makeReady();
    flow->giveUp();
    const std::string shown = show(member.group->runInPieces(
        desc, values.data(), /*error=*/nullptr, *flow));
    EXPECT_NE(shown.find("the ranks of this node gave up"), std::string::npos)
        << shown;
    flow->end();
    EXPECT_FALSE(flow->awaitFinished(1));
    EXPECT_TRUE(flow->hasEnded());
  });
}

TEST(GlooGroup, StrangersGetNoConnectionAndDoNoHarm) {
  MemoryStore store;
  std::atomic<bool> isOver{false};
  std::thread strangers([&] {
    int port = portOfRankZero(store);
    std::vector<FileDescriptor> silent;
    for (int i = 0; i < 200; ++i)
      silent.push_back(connectTo(port));
    for (const char *key : {"", "another key"}) {
      FileDescriptor socket = connectTo(port);
      Credentials credentials = {key, *key != '\0',
                                 "ddphook group group rank 0"};
      EXPECT_EQ(proveOn(socket.get(), credentials, std::string(8, '\1'),
                        Deadline::after(20))
                    .code(),
                DDPHOOK_BAD_ENVIRONMENT);
    }
    std::string garbage(1 << 16, '\xff');
    FileDescriptor loud = connectTo(port);
    sendAll(loud.get(), garbage.data(), garbage.size(), Deadline::after(20))
        .ignore();
    isOver = true;
    // The rank comes only now; the silent ones are still there.
    Member member;
    ASSERT_EQ(member.join(store, 1, 2), "OK");
    std::vector<float> values(10, 1);
    EXPECT_EQ(member.reduce(values), "OK");
  });
  Member member;
  EXPECT_EQ(member.join(store, 0, 2), "OK");
  EXPECT_TRUE(isOver);
  std::vector<float> values(10, 2);
  EXPECT_EQ(member.reduce(values), "OK");
  EXPECT_EQ(values, std::vector<float>(10, 3));
  strangers.join();
}

TEST(GlooGroup, ARankWithAnotherKeyIsAStranger) {
  MemoryStore store;
  runRanks(2, [&](int rank) {
    Member member(rank == 0 ? "this job's" : "that job's");
    // Rank 1 hears why before rank 0 gives up, on a busy machine, too.
    std::string result = member.join(store, rank, 2, rank == 0 ? 4 : 3);
    expectContains(result,
                   "DEADLINE_EXCEEDED: connecting the ranks over TCP: ");
    expectContains(result, rank == 0 ? "rank 1 is missing"
                                     : "it was started with another");
  });
}

TEST(GlooGroup, NamesWhoNeverComes) {
  MemoryStore store;
  Member member;
  auto begin = Deadline::Clock::now();
  EXPECT_EQ(
      member.join(store, 0, 3, /*timeout=*/0.3),
      "DEADLINE_EXCEEDED: connecting the ranks over TCP: not all ranks of "
      "the group connected within 0.3 s: ranks 1, 2 are missing");
  EXPECT_LT(secondsSince(begin), 20);
}

/// Somebody is there, but says nothing: the rank before hangs in its debugger.
TEST(GlooGroup, NamesWhoDoesNotAnswer) {
  MemoryStore store;
  FileDescriptor listening;
  int port = 0;
  ASSERT_EQ(show(listenOn("127.0.0.1", 0, &listening, &port)), "OK");
  ASSERT_EQ(
      show(store.set("group/address/0", "127.0.0.1 " + std::to_string(port))),
      "OK");
  Member member;
  auto begin = Deadline::Clock::now();
  expectContains(member.join(store, 1, 2, /*timeout=*/0.3),
                 "DEADLINE_EXCEEDED: connecting the ranks over TCP: rank 0, "
                 "at 127.0.0.1 " +
                     std::to_string(port) + ", could not be reached");
  EXPECT_LT(secondsSince(begin), 20);
}

TEST(GlooGroup, ConnectingIsCalledOff) {
  FileDescriptor listening;
  int port = 0;
  ASSERT_EQ(show(listenOn("127.0.0.1", 0, &listening, &port)), "OK");
  // Rank 0 waits to be connected to, rank 1 for an answer, rank 2 between
  // attempts to reach a port where nobody listens.
  for (int rank : {0, 1, 2}) {
    MemoryStore store;
    if (rank == 2)
      listening.reset();
    ASSERT_EQ(
        show(store.set("group/address/0", "127.0.0.1 " + std::to_string(port))),
        "OK");
    Member member;
    std::thread other([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      member.device->abort();
    });
    auto begin = Deadline::Clock::now();
    expectContains(member.join(store, rank, 3, /*timeout=*/60),
                   "ABORTED: connecting the ranks over TCP: ");
    EXPECT_LT(secondsSince(begin), 20);
    other.join();
    // And so is every later one.
    expectContains(member.join(store, rank, 3, /*timeout=*/60), "ABORTED: ");
  }
}

/// The host program's own signals do not.
TEST(GlooGroup, SignalsDoNotCallItOff) {
  FileDescriptor listening;
  int port = 0;
  ASSERT_EQ(show(listenOn("127.0.0.1", 0, &listening, &port)), "OK");
  listening.reset();
  MemoryStore store;
  ASSERT_EQ(
      show(store.set("group/address/0", "127.0.0.1 " + std::to_string(port))),
      "OK");
  Member member;
  ::signal(SIGALRM, [](int) {});
  const itimerval often = {{0, 5000}, {0, 5000}}, never = {};
  ::setitimer(ITIMER_REAL, &often, nullptr);
  const std::string result = member.join(store, 1, 2, /*timeout=*/0.3);
  ::setitimer(ITIMER_REAL, &never, nullptr);
  ::signal(SIGALRM, SIG_DFL);
  expectContains(result, "could not be reached within 0.3 s: cannot connect: "
                         "Connection refused");
}

TEST(GlooGroup, APeerThatVanishesIsNamed) {
  MemoryStore store;
  runRanks(2, [&](int rank) {
    Member member;
    ASSERT_EQ(member.join(store, rank, 2), "OK");
    std::vector<float> values(1 << 20, 1);
    if (rank == 1)
      return;
    EXPECT_EQ(member.reduce(values),
              "PEER_LOST: all-reduce over TCP: rank 1 closed its connection");
    EXPECT_EQ(member.reduce(values),
              "PEER_LOST: all-reduce over TCP: rank 1 closed its connection");
  });
}

TEST(GlooGroup, APeerThatStopsIsNamed) {
  MemoryStore store;
  std::atomic<bool> isOver{false};
  runRanks(2, [&](int rank) {
    Member member;
    ASSERT_EQ(member.join(store, rank, 2, /*timeout=*/1), "OK");
    std::vector<float> values(1 << 20, 1);
    if (rank == 0) {
      EXPECT_EQ(member.reduce(values),
                "DEADLINE_EXCEEDED: all-reduce over TCP: rank 1 "
                "did not answer within 1 s");
      isOver = true;
    }
    while (!isOver)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
  });
}

/// Ranks 5, 3 and 7 of a job.
TEST(GlooGroup, PeersHaveTheNumbersOfTheJob) {
  auto placeOf = [](int rank) { return GroupPlace{rank, 3, {5, 3, 7}}; };
  {
    MemoryStore store;
    Member member;
    EXPECT_EQ(member.join(store, placeOf(0), /*timeout=*/0.2),
              "DEADLINE_EXCEEDED: connecting the ranks over TCP: not all ranks "
              "of the group connected within 0.2 s: ranks 3, 7 are missing");
  }
  MemoryStore store;
  std::atomic<bool> isOver{false};
  runRanks(3, [&](int rank) {
    Member member;
    const std::string joined = member.join(store, placeOf(rank), /*timeout=*/2);
    EXPECT_EQ(joined, "OK");
    if (joined != "OK")
      isOver = true;
    else if (rank == 0) {
      std::vector<float> values(1 << 20, 1);
      const std::string result = member.reduce(values);
      // Neither peer comes: one of them is named.
      EXPECT_TRUE(result == "DEADLINE_EXCEEDED: all-reduce over TCP: rank 3 "
                            "did not answer within 2 s" ||
                  result == "DEADLINE_EXCEEDED: all-reduce over TCP: rank 7 "
                            "did not answer within 2 s")
          << result;
      isOver = true;
    }
    while (!isOver)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
  });
  MemoryStore other;
  runRanks(3, [&](int rank) {
    Member member;
    ASSERT_EQ(member.join(other, placeOf(rank)), "OK");
    std::vector<float> values(1 << 20, 1);
    if (rank == 2)
      return;
    const std::string result = member.reduce(values);
    // Who has heard of it first leaves as well.
    EXPECT_TRUE(result == "PEER_LOST: all-reduce over TCP: rank 7 closed its "
                          "connection" ||
                result == "PEER_LOST: all-reduce over TCP: rank " +
                              std::to_string(rank == 0 ? 3 : 5) +
                              " closed its connection")
        << result;
  });
}

/// Plans are compared before; but nothing may crash if they were not.
TEST(GlooGroup, DifferentCountsAreAnError) {
  MemoryStore store;
  std::atomic<int> failures{0};
  runRanks(2, [&](int rank) {
    Member member;
    ASSERT_EQ(member.join(store, rank, 2, /*timeout=*/5), "OK");
    std::vector<float> values(rank == 0 ? 1000 : 2000, 1);
    std::string result = member.reduce(values);
    // The other one may only see that its peer is gone.
    EXPECT_NE(result, "OK");
    failures +=
        result.find("FAILED_PRECONDITION: all-reduce over TCP: expected "
                    "") == 0;
  });
  EXPECT_GE(failures.load(), 1);
}
