// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What a rank's child has of the rank: nothing by which the rank would seem to
// live on, and nothing that is in its way.

#include "job/job_test_ranks.h"
#include "store/socket.h"

#include <gtest/gtest.h>

#include <atomic>
#include <deque>
#include <fcntl.h>
#include <functional>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

using namespace ddphook;
using namespace ddphook::test;

namespace {

/// A process that runs `body`, and then waits to be killed.
class Child {
public:
  explicit Child(const std::function<int()> &body) {
    int ends[2];
    EXPECT_EQ(::pipe(ends), 0);
    process = ::fork();
    if (process == 0) {
      const int result = body();
      if (::write(ends[1], &result, sizeof(result)) < 0)
        ::_exit(1);
      for (;;)
        ::pause();
    }
    ::close(ends[1]);
    if (::read(ends[0], &result, sizeof(result)) != sizeof(result))
      result = -1;
    ::close(ends[0]);
  }
  ~Child() {
    ::kill(process, SIGKILL);
    ::waitpid(process, nullptr, 0);
  }

  /// What `body` has returned.
  int result = -1;

private:
  pid_t process;
};

/// Two connected sockets.
void connectPair(FileDescriptor *a, FileDescriptor *b) {
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  *a = FileDescriptor(ends[0]);
  *b = FileDescriptor(ends[1]);
}

bool isClosedByPeer(const FileDescriptor &socket) {
  char byte;
  return ::recv(socket.get(), &byte, 1, MSG_DONTWAIT) == 0;
}

} // namespace

TEST(FileDescriptor, AChildKeepsNoneOpen) {
  FileDescriptor a, b, moved, released;
  connectPair(&a, &b);
  connectPair(&moved, &released);
  FileDescriptor assigned = std::move(moved);
  const int plain = released.release();
  Child child([&] { return 0; });
  ASSERT_EQ(child.result, 0);
  EXPECT_FALSE(isClosedByPeer(b));
  a.reset();
  EXPECT_TRUE(isClosedByPeer(b));
  // The child has the one that nobody owned.
  ::close(plain);
  EXPECT_FALSE(isClosedByPeer(assigned));
}

TEST(FileDescriptor, TheirNumbersStayTakenInAChild) {
  FileDescriptor a, b;
  connectPair(&a, &b);
  Child child([&] {
    // Closing them closes no file that the child has opened.
    const int own = ::open("/dev/null", O_RDONLY);
    const bool isApart = own != a.get() && own != b.get();
    a.reset();
    b.reset();
    return isApart && ::fcntl(own, F_GETFD) >= 0 ? 0 : 1;
  });
  EXPECT_EQ(child.result, 0);
  EXPECT_FALSE(isClosedByPeer(b));
}

/// Lives until both other ranks have told that they have ended, or cannot any
/// more.
[[noreturn]] static void outlive(int endings) {
  ::alarm(static_cast<unsigned>(patientDeadline) + 200);
  char byte;
  for (int i = 0; i < 2; ++i)
    if (::read(endings, &byte, 1) != 1)
      break;
  ::_exit(0);
}

static void expectLossOf(int victim, const std::vector<RankResult> &results) {
  const std::string loss =
      "PEER_LOST: rank " + std::to_string(victim) + " was lost";
  for (int rank = 0; rank < 3; ++rank) {
    const std::string &text = results[static_cast<size_t>(rank)].text;
    if (rank != victim)
      expectContains(text, loss);
  }
}

/// Rank `victim` of three forks a process that survives it, and is killed.
static void expectLoss(const char *transport, int victim) {
  const int port = freePort();
  int endings[2];
  ASSERT_EQ(::pipe(endings), 0);
  const std::vector<RankResult> results = runRanks(3, [&](int rank) {
    const ddphook_options_t options = jobOptions(rank, 3, port, transport);
    ddphook_context_t *context = nullptr;
    ddphook_status_t status = ddphook_context_create(&options, &context);
    TestModule module(Collectives{{8, "f32"}});
    if (status == DDPHOOK_OK)
      status = ddphook_module_load(context, &module.compiled);
    if (status == DDPHOOK_OK)
      status = ddphook_barrier(context);
    if (status == DDPHOOK_OK && rank == victim) {
      if (::fork() == 0)
        outlive(endings[0]);
      ::kill(::getpid(), SIGKILL);
    }
    while (status == DDPHOOK_OK)
      status = ddphook_barrier(context);
    const std::string text = show(status);
    ddphook_context_destroy(context);
    return ::write(endings[1], "", 1) == 1 ? text : "the pipe is broken";
  });
  ::close(endings[0]);
  ::close(endings[1]);
  expectLossOf(victim, results);
}

TEST(ForkedRanks, TheDeathOfARankWhoseChildLives) {
  for (const char *transport : {"shm", "gloo"})
    for (int victim : {0, 2}) {
      SCOPED_TRACE(std::string(transport) + ", rank " + std::to_string(victim));
      expectLoss(transport, victim);
    }
}

namespace {

/// Two threads that fork all the time, processes that live for milliseconds.
class ForkStorm {
public:
  ForkStorm() {
    for (std::thread &thread : threads)
      thread = std::thread([this] { blow(); });
  }
  ~ForkStorm() {
    isOver = true;
    for (std::thread &thread : threads)
      thread.join();
  }
  int count() const { return forks; }

private:
  void blow() {
    std::deque<pid_t> alive;
    while (!isOver || !alive.empty()) {
      if (isOver || alive.size() >= 4) {
        ::waitpid(alive.front(), nullptr, 0);
        alive.pop_front();
        continue;
      }
      const int lifetime = forks++ % 7 * 1000;
      const pid_t process = ::fork();
      if (process == 0) {
        ::usleep(static_cast<useconds_t>(lifetime));
        ::_exit(0);
      }
      if (process > 0)
        alive.push_back(process);
    }
  }

  std::atomic<bool> isOver{false};
  std::atomic<int> forks{0};
  std::thread threads[2];
};

} // namespace

/// Three ranks step, leave and join again while they fork; then `victim` is
/// killed, and a child of its own lives on.
static void expectSteps(const char *transport, int victim) {
  const int ports[] = {freePort(), freePort()};
  int endings[2];
  ASSERT_EQ(::pipe(endings), 0);
  const std::vector<RankResult> results = runRanks(3, [&](int rank) {
    ForkStorm storm;
    std::string text = "OK";
    for (int round = 0; round < 2 && text == "OK"; ++round) {
      const ddphook_options_t options =
          jobOptions(rank, 3, ports[round], transport);
      TestModule module(Collectives{{1000, "f32"}});
      text = withModule(options, module, [&](ddphook_context_t *) {
        std::string result = "OK";
        for (int i = 0; i < 50 && result == "OK"; ++i) {
          std::vector<float> data(1000, static_cast<float>(i + rank));
          result = step(module, data);
          if (result == "OK" &&
              data != std::vector<float>(1000, static_cast<float>(3 * i + 3)))
            result = "wrong sum in step " + std::to_string(i);
        }
        if (round == 1 && rank == victim && result == "OK") {
          if (::fork() == 0)
            outlive(endings[0]);
          ::kill(::getpid(), SIGKILL);
        }
        while (round == 1 && result == "OK") {
          std::vector<float> data(1000);
          result = step(module, data);
        }
        return result;
      });
    }
    if (storm.count() < 10)
      text += ", and no storm";
    return ::write(endings[1], "", 1) == 1 ? text : "the pipe is broken";
  });
  ::close(endings[0]);
  ::close(endings[1]);
  expectLossOf(victim, results);
}

TEST(ForkedRanks, AStormOfForks) {
  for (const char *transport : {"shm", "gloo"})
    for (int victim : {0, 2}) {
      SCOPED_TRACE(std::string(transport) + ", rank " + std::to_string(victim));
      expectSteps(transport, victim);
    }
}
