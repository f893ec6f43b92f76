// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Ranks as processes through the C ABI: peers that are killed or stopped, that
// fail, leave, or never come.

#include "job/job_test_ranks.h"

#include <array>
#include <cmath>
#include <cstring>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

using namespace ddphook;
using namespace ddphook::test;

using FailureTest = JobTest;
INSTANTIATE_TEST_SUITE_P(All, FailureTest,
                         testing::Combine(testing::Values("shm", "gloo"),
                                          testing::Values(2, 4)),
                         nameOf);

TEST_P(FailureTest, PeerIsKilledInACollective) {
  int port = freePort(), ranks = world();
  auto results = runRanks(ranks, [&](int rank) {
    TestModule module(Collectives{{1 << 20}});
    ddphook_options_t options =
        jobOptions(rank, ranks, port, transport(), farDeadline);
    return withModule(options, module, [&](ddphook_context_t *) {
      std::vector<float> data(1 << 20, 1.0f);
      std::string result = step(module, data);
      if (result != "OK")
        return result;
      if (rank == 1) {
        sleepMs(100);
        ::kill(::getpid(), SIGKILL);
      }
      result = step(module, data);
      // Every later call fails at once with the same.
      auto begin = std::chrono::steady_clock::now();
      std::string again = "enter ";
      if (step(module, data).substr(again.size()) != result)
        return std::string("the failure did not stay");
      if (std::chrono::steady_clock::now() - begin > std::chrono::seconds(20))
        return std::string("a later call waited");
      return result;
    });
  });
  EXPECT_EQ(results[1].signal, SIGKILL);
  for (int rank = 0; rank < ranks; ++rank) {
    if (rank == 1)
      continue;
    EXPECT_EQ(results[rank].text,
              "PEER_LOST: rank 1 was lost: its connection closed");
    EXPECT_LT(results[rank].seconds, results[1].seconds + room);
  }
}

TEST_P(FailureTest, RankZeroIsKilledInACollective) {
  int port = freePort(), ranks = world();
  auto results = runRanks(ranks, [&](int rank) {
    TestModule module(Collectives{{1000}});
    ddphook_options_t options =
        jobOptions(rank, ranks, port, transport(), farDeadline);
    return withModule(options, module, [&](ddphook_context_t *) {
      std::vector<float> data(1000, 1.0f);
      if (rank == 0) {
        sleepMs(100);
        ::kill(::getpid(), SIGKILL);
      }
      return step(module, data);
    });
  });
  for (int rank = 1; rank < ranks; ++rank) {
    expectContains(results[rank].text, "PEER_LOST: rank 0 was lost");
    EXPECT_LT(results[rank].seconds, results[0].seconds + room);
  }
}

TEST_P(FailureTest, PeerIsStoppedInACollective) {
  int port = freePort(), ranks = world();
  auto results = runRanks(
      ranks,
      [&](int rank) {
        TestModule module(Collectives{{1 << 18}});
        ddphook_options_t options =
            jobOptions(rank, ranks, port, transport(), 2);
        return withModule(options, module, [&](ddphook_context_t *context) {
          std::vector<float> data(1 << 18, 1.0f);
          std::string result = step(module, data);
          if (result != "OK")
            return result;
          result = show(ddphook_barrier(context));
          if (result != "OK")
            return result;
          if (rank == 1)
            ::kill(::getpid(), SIGSTOP);
          auto begin = std::chrono::steady_clock::now();
          result = step(module, data);
          double seconds = std::chrono::duration<double>(
                               std::chrono::steady_clock::now() - begin)
                               .count();
          return seconds < 2 + room ? result : "late: " + result;
        });
      },
      /*patience=*/30, /*stoppedRank=*/1);
  EXPECT_TRUE(results[1].isHung);
  int expired = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    if (rank == 1)
      continue;
    const std::string &text = results[rank].text;
    bool isExpired = text.find("DEADLINE_EXCEEDED: ") == 0;
    // Who does not hear of it in time, on a busy machine, has only seen that
    // another rank gave up.
    EXPECT_TRUE(isExpired || text.find("ABORTED: rank ") == 0 ||
                text.find("PEER_LOST: ") == 0)
        << text;
    expired += isExpired;
  }
  EXPECT_GE(expired, 1);
}

/// Those of which every rank needs something of every other one.
const char *const kExchanges[] = {"reduce_scatter", "all_gather", "all_to_all"};
constexpr int64_t kExchanged = 1 << 20;

TEST_P(FailureTest, PeerIsKilledInAnExchange) {
  for (const char *kind : kExchanges) {
    int port = freePort(), ranks = world();
    auto results = runRanks(ranks, [&](int rank) {
      const int64_t count = kExchanged * ranks;
      TestModule module(Collectives{TestCollective{count}.as(kind)}, 0,
                        groupOf(ranks));
      ddphook_options_t options =
          jobOptions(rank, ranks, port, transport(), farDeadline);
      return withModule(options, module, [&](ddphook_context_t *) {
        std::vector<float> in(static_cast<size_t>(count), 1.0f), out(in);
        std::string result = exchange(module, in.data(), out.data());
        if (result != "OK")
          return result;
        if (rank == 1) {
          sleepMs(100);
          ::kill(::getpid(), SIGKILL);
        }
        return exchange(module, in.data(), out.data());
      });
    });
    EXPECT_EQ(results[1].signal, SIGKILL);
    for (int rank = 0; rank < ranks; ++rank) {
      if (rank == 1)
        continue;
      EXPECT_EQ(results[rank].text,
                "PEER_LOST: rank 1 was lost: its connection closed")
          << kind;
      EXPECT_LT(results[rank].seconds, results[1].seconds + room);
    }
  }
}

/// The root of a broadcast waits for nobody over TCP: the others do. The
/// deadline is one that ranks on a busy machine come within before one is
/// stopped.
TEST_P(FailureTest, PeerIsStoppedInAnExchange) {
  const double deadline = 4;
  const int ranks = world();
  for (const char *kind : ranks == 2
                              ? std::array{"reduce_scatter", "all_gather"}
                              : std::array{"all_to_all", "broadcast"}) {
    const int port = freePort();
    const bool isBroadcast = kind == std::string("broadcast");
    auto results = runRanks(
        ranks,
        [&](int rank) {
          const int64_t count = kExchanged * ranks;
          TestModule module(
              Collectives{TestCollective{count}.as(kind, isBroadcast)}, 0,
              groupOf(ranks));
          ddphook_options_t options =
              jobOptions(rank, ranks, port, transport(), deadline);
          return withModule(options, module, [&](ddphook_context_t *context) {
            std::vector<float> in(static_cast<size_t>(count), 1.0f), out(in);
            std::string result = exchange(module, in.data(), out.data());
            if (result != "OK")
              return result;
            result = show(ddphook_barrier(context));
            if (result != "OK")
              return result;
            if (rank == 1)
              ::kill(::getpid(), SIGSTOP);
            auto begin = std::chrono::steady_clock::now();
            result = exchange(module, in.data(), out.data());
            double seconds = std::chrono::duration<double>(
                                 std::chrono::steady_clock::now() - begin)
                                 .count();
            return seconds < deadline + room ? result : "late: " + result;
          });
        },
        /*patience=*/30, /*stoppedRank=*/1);
    EXPECT_TRUE(results[1].isHung);
    int expired = 0;
    for (int rank = 0; rank < ranks; ++rank) {
      if (rank == 1)
        continue;
      const std::string &text = results[rank].text;
      bool isExpired = text.find("DEADLINE_EXCEEDED: ") == 0;
      // As of a rank that is stopped in a collective.
      EXPECT_TRUE(isExpired || text.find("ABORTED: rank ") == 0 ||
                  text.find("PEER_LOST: ") == 0)
          << kind << ": " << text;
      expired += isExpired;
    }
    EXPECT_GE(expired, 1) << kind;
  }
}

/// Codes travel in a protocol of their own.
const TestCollective kEncoded[] = {
    {3000001, "f32", "", true, 0, "i8", 256},
    {3000001, "f32", "", true, 0, "ui8", 0},
};

TEST_P(FailureTest, PeerIsKilledInAnEncodedCollective) {
  for (const TestCollective &collective : kEncoded) {
    int port = freePort(), ranks = world();
    auto results = runRanks(ranks, [&](int rank) {
      TestModule module(Collectives{collective});
      ddphook_options_t options =
          jobOptions(rank, ranks, port, transport(), farDeadline);
      return withModule(options, module, [&](ddphook_context_t *) {
        std::vector<float> data(3000001, 1.0f);
        std::string result = step(module, data);
        if (result != "OK")
          return result;
        // Somewhere within a step.
        std::thread killer;
        if (rank == 1)
          killer = std::thread([] {
            sleepMs(60);
            ::kill(::getpid(), SIGKILL);
          });
        while (result == "OK")
          result = step(module, data);
        if (rank == 1)
          killer.join();
        return result;
      });
    });
    EXPECT_EQ(results[1].signal, SIGKILL);
    for (int rank = 0; rank < ranks; ++rank) {
      if (rank == 1)
        continue;
      expectContains(results[rank].text, "PEER_LOST: rank 1 was lost");
      EXPECT_LT(results[rank].seconds, results[1].seconds + room);
    }
  }
}

TEST_P(FailureTest, BlocksDiffer) {
  for (const char *code : {"i8", "ui8"}) {
    int port = freePort(), ranks = world();
    auto results = runRanks(ranks, [&](int rank) {
      TestModule module(
          Collectives{{5000, "f32", "", true, 0, code, rank == 1 ? 64 : 32}});
      ddphook_options_t options =
          jobOptions(rank, ranks, port, transport(), farDeadline);
      return withModule(options, module, [&](ddphook_context_t *) {
        std::vector<float> data(5000, 1.0f);
        return step(module, data);
      });
    });
    for (const RankResult &result : results)
      expectContains(result.text, "PLAN_MISMATCH");
  }
}

TEST_P(FailureTest, PeerFailsBeforeACollective) {
  int port = freePort(), ranks = world();
  auto results = runRanks(ranks, [&](int rank) {
    TestModule module(Collectives{{1000}});
    ddphook_options_t options =
        jobOptions(rank, ranks, port, transport(), farDeadline);
    return withModule(options, module, [&](ddphook_context_t *) {
      std::vector<float> data(1000, 1.0f);
      if (rank == ranks - 1) {
        sleepMs(100);
        ddphook_status_t status = ddphook_rt_enter(module.handle, 0);
        if (status != DDPHOOK_OK)
          return show(status);
        ddphook_rt_collective(module.handle, 7, data.data(), data.data(),
                              /*step=*/0);
        // Skipped, and with that the array is untouched.
        ddphook_rt_scale(module.handle, 2, data.data(), data.data(), 1000,
                         DDPHOOK_F32);
        if (data[0] != 1.0f)
          return std::string("a call after a failure ran");
        return show(ddphook_rt_leave(module.handle));
      }
      return step(module, data);
    });
  });
  std::string cause =
      "ddphook_rt_collective: expected one of 1 collectives, but got 7";
  for (int rank = 0; rank < ranks - 1; ++rank) {
    EXPECT_EQ(results[rank].text, "ABORTED: rank " + std::to_string(ranks - 1) +
                                      " failed: " + cause +
                                      " (INVALID_ARGUMENT)");
    EXPECT_LT(results[rank].seconds, room);
  }
  EXPECT_EQ(results[ranks - 1].text, "INVALID_ARGUMENT: " + cause);
}

TEST(JobFailure, PeerIsKilledInABarrier) {
  int port = freePort();
  auto results = runRanks(3, [&](int rank) {
    TestModule module;
    ddphook_options_t options = jobOptions(rank, 3, port, "auto", farDeadline);
    return withModule(options, module, [&](ddphook_context_t *context) {
      if (rank == 2) {
        sleepMs(100);
        ::kill(::getpid(), SIGKILL);
      }
      return show(ddphook_barrier(context));
    });
  });
  for (int rank : {0, 1}) {
    EXPECT_EQ(results[rank].text,
              "PEER_LOST: rank 2 was lost: its connection closed");
    EXPECT_LT(results[rank].seconds, results[2].seconds + room);
  }
}

TEST(JobFailure, PeerIsStoppedInABarrier) {
  int port = freePort();
  auto results = runRanks(
      3,
      [&](int rank) {
        TestModule module;
        ddphook_options_t options = jobOptions(rank, 3, port, "auto", 2);
        return withModule(options, module, [&](ddphook_context_t *context) {
          if (rank == 2)
            ::kill(::getpid(), SIGSTOP);
          return show(ddphook_barrier(context));
        });
      },
      /*patience=*/30, /*stoppedRank=*/2);
  for (int rank : {0, 1}) {
    expectContains(results[rank].text, "1 of 3 ranks did not arrive");
    expectContains(results[rank].text, "rank 2");
    EXPECT_LT(results[rank].seconds, 2 + room);
  }
}

TEST(JobFailure, RankZeroIsStoppedInABarrier) {
  int port = freePort();
  auto results = runRanks(
      2,
      [&](int rank) {
        TestModule module;
        ddphook_options_t options = jobOptions(rank, 2, port, "auto", 2);
        return withModule(options, module, [&](ddphook_context_t *context) {
          if (rank == 0)
            ::kill(::getpid(), SIGSTOP);
          return show(ddphook_barrier(context));
        });
      },
      /*patience=*/30, /*stoppedRank=*/0);
  expectContains(results[1].text, "DEADLINE_EXCEEDED: ");
  EXPECT_LT(results[1].seconds, 2 + room);
}

TEST(JobFailure, PeerLeavesEarly) {
  int port = freePort();
  auto results = runRanks(2, [&](int rank) {
    TestModule module;
    ddphook_options_t options = jobOptions(rank, 2, port, "auto", farDeadline);
    return withModule(options, module, [&](ddphook_context_t *context) {
      return rank == 1 ? std::string("OK") : show(ddphook_barrier(context));
    });
  });
  EXPECT_EQ(results[0].text, "PEER_LOST: rank 1 has left the job");
  EXPECT_EQ(results[1].text, "OK");
}

/// Two "machines" of two ranks. Who waits in which stage when rank 3 leaves is
/// a matter of time, and so is who tells the others.
TEST(JobFailure, PeerLeavesAHierarchicalGroup) {
  int port = freePort();
  auto results = runRanks(4, [&](int rank) {
    ::setenv("DDPHOOK_NODE", rank < 2 ? "a" : "b", 1);
    TestModule module(
        Collectives{{1000}}, 0,
        R"([{"name":"dp","size":0,"ranks":[],"placement":"","parent":"","topology":"hierarchical"}])");
    ddphook_options_t options = jobOptions(rank, 4, port, "auto", farDeadline);
    return withModule(options, module, [&](ddphook_context_t *) {
      std::vector<float> data(1000, 1.0f);
      std::string result = step(module, data);
      return rank == 3 || result != "OK" ? result : step(module, data);
    });
  });
  const std::string inNode =
      "process group 'dp' within its node: rank 3 left the group";
  const std::string across = "process group 'dp' across nodes: all-reduce over "
                             "TCP: rank 3 closed its connection";
  EXPECT_EQ(results[3].text, "OK");
  for (int rank : {0, 1, 2}) {
    const std::string &text = results[rank].text;
    EXPECT_TRUE(text.find(inNode) != std::string::npos ||
                text.find(across) != std::string::npos ||
                text.find(": rank 3 has left the job") != std::string::npos)
        << text;
  }
}

TEST(JobFailure, RankZeroStaysUntilTheOthersLeft) {
  int port = freePort();
  auto results = runRanks(3, [&](int rank) {
    TestModule module;
    ddphook_options_t options = jobOptions(rank, 3, port, "auto", farDeadline);
    return withModule(options, module, [&](ddphook_context_t *context) {
      std::string result = show(ddphook_barrier(context));
      sleepMs(rank * 200);
      return result;
    });
  });
  expectAll(results, "OK");
  EXPECT_GE(results[0].seconds, 0.4);
}

TEST(JobFailure, MissingRank) {
  int port = freePort();
  auto results = runRanks(2, [&](int rank) {
    TestModule module;
    ddphook_options_t options = jobOptions(rank, 3, port, "auto", 3);
    return withModule(options, module,
                      [](ddphook_context_t *) { return std::string(); });
  });
  for (const RankResult &result : results) {
    expectContains(result.text, "1 of 3 ranks did not join within 3 s: rank 2");
    EXPECT_LT(result.seconds, 3 + room);
  }
}

TEST(JobFailure, MissingRankZero) {
  int port = freePort();
  auto results = runRanks(1, [&](int) {
    TestModule module;
    ddphook_options_t options = jobOptions(1, 2, port, "auto", 1);
    return withModule(options, module,
                      [](ddphook_context_t *) { return std::string(); });
  });
  expectContains(results[0].text,
                 "create DEADLINE_EXCEEDED: rank 1 could not join rank 0 at "
                 "127.0.0.1:" +
                     std::to_string(port) + " within 1 s: cannot connect: ");
  EXPECT_LT(results[0].seconds, 1 + room);
}

/// From the least with which rank 0 can listen to what is enough for all: every
/// rank says at once what is missing, or nothing is.
TEST_P(FailureTest, FewFileDescriptors) {
  const int ranks = world();
  int enough = 0;
  for (int spare = 4; spare < 20; ++spare) {
    int port = freePort();
    auto results = runRanks(ranks, [&](int rank) {
      int next = ::dup(0);
      ::close(next);
      rlimit limit = {static_cast<rlim_t>(next + spare),
                      static_cast<rlim_t>(next + spare)};
      if (::setrlimit(RLIMIT_NOFILE, &limit) != 0)
        return std::string("cannot set the limit");
      TestModule module(Collectives{{1000}});
      ddphook_options_t options =
          jobOptions(rank, ranks, port, transport(), farDeadline);
      return withModule(options, module, [&](ddphook_context_t *) {
        std::vector<float> data(1000, 1.0f);
        return step(module, data);
      });
    });
    bool isEnough = results[0].text == "OK";
    enough += isEnough;
    for (const RankResult &result : results) {
      EXPECT_LT(result.seconds, room) << spare << ": " << result.text;
      if (isEnough)
        EXPECT_EQ(result.text, "OK") << spare;
      else
        expectContains(result.text, "Too many open files");
    }
  }
  EXPECT_GT(enough, 0);
  EXPECT_LT(enough, 16);
}
