// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Ranks leave a job and come back, are killed and started again, meet
// processes of the job's last life, and meet other jobs: nobody fails, and no
// job ends another one. `REJOIN_CYCLES=1000 ddphook-rejoin_test` runs the tests
// of lives for as long as a person wants.

#include "job/job_test_ranks.h"

#include "store/socket.h"

#include <atomic>
#include <cstdlib>
#include <random>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

using namespace ddphook;
using namespace ddphook::test;

namespace {

using RejoinTest = JobTest;
INSTANTIATE_TEST_SUITE_P(All, RejoinTest,
                         testing::Combine(testing::Values("shm", "gloo"),
                                          testing::Values(2, 3)),
                         nameOf);

int countCycles(int few) {
  const char *text = std::getenv("REJOIN_CYCLES");
  return text ? std::atoi(text) : few;
}

/// Joins, does one step and leaves.
std::string liveOnce(const ddphook_options_t &options) {
  TestModule module(Collectives{{100}});
  return withModule(options, module, [&](ddphook_context_t *) {
    std::vector<float> data(100, 1.0f);
    return step(module, data);
  });
}

/// What the processes of a test share.
class Shared {
public:
  Shared()
      : memory(::mmap(nullptr, sizeof(std::atomic<int>), PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS, -1, 0)),
        stage(*new (memory) std::atomic<int>(0)) {}
  ~Shared() { ::munmap(memory, sizeof(std::atomic<int>)); }
  Shared(const Shared &) = delete;
  Shared &operator=(const Shared &) = delete;

  void waitFor(int wanted) const {
    while (stage < wanted)
      sleepMs(1);
  }

private:
  void *const memory;

public:
  std::atomic<int> &stage;
};

} // namespace

/// Train, then evaluate: contexts follow each other in the same processes.
TEST_P(RejoinTest, RanksThatLeaveComeBack) {
  const int port = freePort(), ranks = world(), cycles = countCycles(20);
  auto results = runRanks(
      ranks,
      [&](int rank) {
        std::mt19937 random(static_cast<unsigned>(rank));
        for (int cycle = 0; cycle < cycles; ++cycle) {
          const std::string result =
              liveOnce(jobOptions(rank, ranks, port, transport()));
          if (result != "OK")
            return "cycle " + std::to_string(cycle) + ": " + result;
          ::usleep(random() % 3000);
        }
        return std::string("OK");
      },
      /*patience=*/patientDeadline + cycles);
  expectAll(results, "OK");
}

/// All ranks are killed at a random moment, joining or not, and started again
/// at once.
TEST_P(RejoinTest, RanksThatAreKilledAreStartedAgain) {
  const int port = freePort(), ranks = world(), cycles = countCycles(5);
  std::mt19937 random(20241128);
  for (int cycle = 0; cycle < cycles; ++cycle) {
    const auto moment = std::chrono::steady_clock::now() +
                        std::chrono::microseconds(random() % 100000);
    runRanks(ranks, [&](int rank) {
      std::thread killer([&] {
        std::this_thread::sleep_until(moment);
        ::kill(::getpid(), SIGKILL);
      });
      while (liveOnce(jobOptions(rank, ranks, port, transport())) == "OK") {
      }
      killer.join();
      return std::string("still here");
    });
    expectAll(runRanks(ranks,
                       [&](int rank) {
                         return liveOnce(
                             jobOptions(rank, ranks, port, transport()));
                       }),
              "OK");
    ASSERT_FALSE(HasFailure()) << "cycle " << cycle;
  }
}

/// A rank of the last life looks for a rank 0, finds that of the next one, and
/// is killed then; its successor takes its place.
TEST(Rejoin, ARankOfTheLastLifeMeetsTheNextOne) {
  const int port = freePort();
  Shared shared;
  auto results = runRanks(4, [&](int process) {
    const int rank = process == 3 ? 1 : process;
    if (process == 3)
      std::thread([&] {
        shared.waitFor(1);
        sleepMs(200);
        shared.stage = ::getpid();
        ::kill(::getpid(), SIGKILL);
      }).detach();
    if (process == 0) {
      shared.stage = 1;
    } else if (process != 3) {
      shared.waitFor(2);
      // A connection that is still alive would make the job complete.
      while (::kill(shared.stage, 0) == 0)
        sleepMs(1);
    }
    return liveOnce(jobOptions(rank, 3, port, "auto"));
  });
  EXPECT_EQ(results[3].signal, SIGKILL);
  results.pop_back();
  expectAll(results, "OK");
}

/// Another job that is given the port of one that runs.
TEST(Rejoin, AJobAtThePortOfAnotherOneDoesNotDisturbIt) {
  const int port = freePort();
  Shared shared;
  auto results = runRanks(4, [&](int process) {
    if (process >= 2) {
      shared.waitFor(1);
      const std::string result =
          liveOnce(jobOptions(process - 2, 2, port, "auto", 1));
      ++shared.stage;
      return result;
    }
    TestModule module(Collectives{{100}});
    return withModule(jobOptions(process, 2, port, "auto"), module,
                      [&](ddphook_context_t *context) {
                        for (;;) {
                          std::vector<float> data(100, 1.0f);
                          std::string result = step(module, data);
                          if (process == 0 && shared.stage == 0)
                            shared.stage = 1;
                          char isOver = shared.stage >= 3;
                          if (result == "OK")
                            result =
                                show(ddphook_broadcast(context, &isOver, 1, 0));
                          if (result != "OK" || isOver)
                            return result;
                        }
                      });
  });
  EXPECT_EQ(results[0].text, "OK");
  EXPECT_EQ(results[1].text, "OK");
  const std::string place = "127.0.0.1:" + std::to_string(port);
  EXPECT_EQ(results[2].text,
            "create IO_ERROR: the store of rank 0: " + place +
                ": cannot listen: Address already in use; another program or "
                "job has this port (DDPHOOK_PORT chooses another one)");
  expectContains(results[3].text,
                 "create BAD_ENVIRONMENT: rank 1 may not join rank 0 at " +
                     place +
                     ": rank 0 at this address belongs to another job, whose "
                     "ranks have all joined");
}

/// Every loopback address is one, IPv6's included.
TEST(Rejoin, JobsAtOtherLoopbackAddresses) {
  for (const char *address : {"127.9.8.7", "::1", "localhost"}) {
    FileDescriptor probe;
    int port = 0;
    if (address[0] == ':' && !listenOn(address, 0, &probe, &port).isOk())
      continue; // A machine without it.
    probe.reset();
    port = freePort();
    for (const char *transport : {"shm", "gloo"})
      expectAll(runRanks(2,
                         [&](int rank) {
                           ddphook_options_t options =
                               jobOptions(rank, 2, port, transport);
                           options.master_addr = address;
                           return liveOnce(options);
                         }),
                "OK");
  }
}
