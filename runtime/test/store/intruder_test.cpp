// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Jobs of several processes with one more that does not belong: it tries other
// secrets, plays back what a rank said, floods the store's port and stalls
// there. The job must not notice.

#include "job/job_test_ranks.h"

#include "store/store_protocol.h"
#include "store/tcp_store.h"

#include <atomic>
#include <cstdlib>
#include <deque>
#include <poll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

using namespace ddphook;
using namespace ddphook::test;

namespace {

constexpr const char *secretVariable = "DDPHOOK_JOB_SECRET";
constexpr const char *secret = "the secret of the tests";
constexpr int world = 3;

/// What the processes of a test share.
struct Shared {
  std::atomic<bool> hasBegun{false};
  std::atomic<bool> isOver{false};
};

/// Descriptors that a rank may have: few, for an intruder to take them.
constexpr rlim_t mostDescriptors = 256;

/// A rank's work: as long as the intruder is busy, what jobs do.
std::string work(int rank, int port, Shared &shared) {
  const rlimit limits = {mostDescriptors, mostDescriptors};
  if (::setrlimit(RLIMIT_NOFILE, &limits) != 0)
    return "cannot set the limit";
  ddphook_options_t options = jobOptions(rank, world, port, "gloo", 60);
  TestModule module(Collectives{{1000}});
  return withModule(options, module, [&](ddphook_context_t *context) {
    shared.hasBegun = true;
    for (;;) {
      std::vector<float> data(1000, 1.0f);
      std::string result = step(module, data);
      if (result != "OK")
        return result;
      char isOver = shared.isOver;
      ddphook_status_t status = ddphook_broadcast(context, &isOver, 1, 0);
      if (status != DDPHOOK_OK)
        return show(status);
      TestModule other(Collectives{{10}});
      status = ddphook_module_load(context, &other.compiled);
      if (status != DDPHOOK_OK)
        return show(status);
      if (isOver)
        return std::string("OK");
    }
  });
}

/// Runs the job with `intruder` beside it; checks that the job does not care.
void runWithIntruder(
    const std::function<std::string(int port, Shared &shared)> &intruder,
    const std::string &expected, const char *jobSecret = secret) {
  ::setenv(secretVariable, jobSecret, 1);
  void *memory = ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  Shared &shared = *new (memory) Shared;
  int port = freePort();
  auto results = runRanks(world + 1, [&](int rank) {
    if (rank < world)
      return work(rank, port, shared);
    std::string result = intruder(port, shared);
    shared.isOver = true;
    return result;
  });
  ::munmap(memory, sizeof(Shared));
  ::unsetenv(secretVariable);
  for (int rank = 0; rank < world; ++rank)
    EXPECT_EQ(texts(results)[rank], "OK") << "rank " << rank;
  EXPECT_EQ(texts(results)[world], expected);
}

Status connectRaw(int port, FileDescriptor *socket) {
  return connectOnce("127.0.0.1", port, Deadline::after(20), socket);
}

/// How an attempt to join under another secret ends.
std::string tryToJoin(int port, const std::string &otherSecret) {
  TcpStore::Options options;
  options.port = port;
  options.rank = 2;
  options.worldSize = world;
  options.secret = otherSecret;
  options.timeoutSeconds = 1;
  std::unique_ptr<TcpStore> store;
  Status status = TcpStore::connect(options, Deadline::after(1), &store);
  return std::string(ddphook_status_name(status.code())) + ": " +
         status.message();
}

} // namespace

TEST(Intruder, HasNoSecret) {
  runWithIntruder(
      [&](int port, Shared &) {
        // From before the job exists until it is complete.
        std::string result = tryToJoin(port, "");
        size_t colon = result.find(": it was");
        return colon == std::string::npos ? result : result.substr(colon);
      },
      ": it was started with a DDPHOOK_JOB_SECRET, but this rank without one");
}

TEST(Intruder, HasAnotherSecret) {
  runWithIntruder(
      [&](int port, Shared &) {
        std::string result = tryToJoin(port, "the secret of somebody else");
        size_t colon = result.find(": it was");
        return colon == std::string::npos ? result : result.substr(colon);
      },
      ": it was started with another DDPHOOK_JOB_SECRET");
}

/// Records what a rank says, between it and the store, and says it again.
TEST(Intruder, PlaysBackWhatARankSaid) {
  FileDescriptor listening;
  int proxyPort = 0;
  ASSERT_TRUE(listenOn("127.0.0.1", 0, &listening, &proxyPort).isOk());
  ::setenv(secretVariable, secret, 1);
  int port = freePort();
  constexpr int recorder = 2;
  // Released, so that the recorder's process has it.
  const int inherited = listening.release();
  auto results = runRanks(3, [&](int rank) {
    if (rank != recorder) {
      // Rank 1 takes the way that is listened to.
      ddphook_options_t options =
          jobOptions(rank, 2, rank == 1 ? proxyPort : port, "auto", 30);
      TestModule module;
      return withModule(options, module, [&](ddphook_context_t *context) {
        for (int i = 0; i < 30; ++i) {
          ddphook_status_t status = ddphook_barrier(context);
          if (status != DDPHOOK_OK)
            return show(status);
          sleepMs(20);
        }
        return std::string("OK");
      });
    }
    pollfd caller = {inherited, POLLIN, 0};
    ::poll(&caller, 1, 20000);
    FileDescriptor client(::accept(inherited, nullptr, nullptr)), server;
    while (!connectRaw(port, &server).isOk())
      sleepMs(10);
    std::string said;
    int replays = 0;
    std::string answers;
    for (;;) {
      pollfd ends[2] = {{client.get(), POLLIN, 0}, {server.get(), POLLIN, 0}};
      ::poll(ends, 2, 20000);
      char bytes[4096];
      bool isOver = false;
      for (int i : {0, 1}) {
        if (!ends[i].revents)
          continue;
        ssize_t size = ::recv(ends[i].fd, bytes, sizeof(bytes), MSG_DONTWAIT);
        if (size <= 0) {
          isOver = true;
          break;
        }
        if (i == 0)
          said.append(bytes, static_cast<size_t>(size));
        sendAll(ends[1 - i].fd, bytes, static_cast<size_t>(size),
                Deadline::after(20))
            .ignore();
      }
      if (isOver)
        break;
      size_t claim = AcceptingHandshake::claimSize(wire::Hello::size);
      if (said.size() <= claim || replays == 5)
        continue;
      // The rank was welcomed and has said more: all of it again, as it was.
      ++replays;
      FileDescriptor replay;
      if (!connectRaw(port, &replay).isOk())
        return std::string("cannot connect");
      sendAll(replay.get(), said.data(), said.size(), Deadline::after(20))
          .ignore();
      std::string answer(AcceptingHandshake::greetingSize +
                             AcceptingHandshake::verdictSize + 1,
                         '?');
      Status status = receiveAll(replay.get(), answer.data(), answer.size(),
                                 Deadline::after(20));
      // Greeting, refusal, end; or a reset on the way.
      answers += status.isOk() || status.code() == DDPHOOK_DEADLINE_EXCEEDED ||
                         answer[AcceptingHandshake::greetingSize] == 1
                     ? "let in "
                     : "refused ";
    }
    return answers;
  });
  ::close(inherited);
  ::unsetenv(secretVariable);
  EXPECT_EQ(texts(results)[0], "OK");
  EXPECT_EQ(texts(results)[1], "OK");
  EXPECT_EQ(texts(results)[recorder],
            "refused refused refused refused refused ");
}

TEST(Intruder, StallsHalfOpenWhileRanksJoin) {
  runWithIntruder(
      [&](int port, Shared &shared) {
        // As early as possible, and all the time until the job is there.
        std::deque<FileDescriptor> stalled;
        size_t connected = 0;
        while (!shared.hasBegun) {
          FileDescriptor socket;
          if (!connectRaw(port, &socket).isOk()) {
            sleepMs(1);
            continue;
          }
          ++connected;
          stalled.push_back(std::move(socket));
          if (stalled.size() > 300)
            stalled.pop_front();
        }
        return std::string(connected > 0 ? "stalled" : "never connected");
      },
      "stalled");
}

TEST(Intruder, FloodsThePort) {
  runWithIntruder(
      [&](int port, Shared &shared) {
        std::string noise(1000, '\x55');
        int rounds = 0;
        for (Deadline end = Deadline::after(20);
             !end.expired() && (!shared.hasBegun || rounds < 500);) {
          FileDescriptor socket;
          if (!connectRaw(port, &socket).isOk())
            continue;
          ::send(socket.get(), noise.data(), noise.size(),
                 MSG_NOSIGNAL | MSG_DONTWAIT);
          ++rounds;
        }
        return std::string(rounds >= 500 ? "flooded" : "too slow");
      },
      "flooded");
}

/// Where there is no secret, everybody can prove as much as a rank of another
/// job can.
TEST(Intruder, FloodsThePortWithProofs) {
  runWithIntruder(
      [&](int port, Shared &shared) {
        std::atomic<int> rounds{0};
        const Deadline end = Deadline::after(60);
        std::vector<std::thread> threads;
        for (int i = 0; i < 4; ++i)
          threads.emplace_back([&] {
            wire::Hello hello;
            hello.runId = wire::hashRunId("another job");
            std::deque<FileDescriptor> held;
            while (!end.expired() && (!shared.hasBegun || rounds < 2000)) {
              held.emplace_back();
              if (!connectRaw(port, &held.back()).isOk() ||
                  !proveOn(held.back().get(), wire::storeCredentials(""),
                           hello.encode(), Deadline::after(20))
                       .isOk())
                continue;
              ++rounds;
              if (held.size() > 200)
                held.pop_front();
            }
          });
        for (std::thread &thread : threads)
          thread.join();
        return std::string(rounds >= 2000 ? "flooded" : "too slow");
      },
      "flooded", /*jobSecret=*/"");
}

/// Ranks that disagree about the secret hear so, and rank 0 counts them.
TEST(JobSecret, IsTheSameEverywhere) {
  int port = freePort();
  auto results = runRanks(3, [&](int rank) {
    ::setenv(secretVariable, rank == 2 ? "something else entirely" : secret, 1);
    ddphook_options_t options = jobOptions(rank, 3, port, "auto", 2);
    TestModule module;
    return withModule(options, module,
                      [](ddphook_context_t *) { return std::string("in"); });
  });
  for (int rank : {0, 1}) {
    expectContains(results[rank].text, "1 of 3 ranks did not join within 2 s: "
                                       "rank 2; connections that lacked the "
                                       "job's secret: ");
    expectContains(results[rank].text, ", the last one from 127.0.0.1:");
  }
  expectContains(results[2].text,
                 "create BAD_ENVIRONMENT: rank 2 may not join rank 0 at "
                 "127.0.0.1:" +
                     std::to_string(port) +
                     ": it was started with another DDPHOOK_JOB_SECRET");
}

TEST(JobSecret, IsLongEnough) {
  ::setenv(secretVariable, "too short", 1);
  ddphook_context_t *context = nullptr;
  ddphook_options_t options = jobOptions(0, 2, freePort(), "auto", 1);
  EXPECT_EQ(show(ddphook_context_create(&options, &context)),
            "BAD_ENVIRONMENT: expected DDPHOOK_JOB_SECRET to have at least 16 "
            "characters, but got 9");
  ::unsetenv(secretVariable);
}
