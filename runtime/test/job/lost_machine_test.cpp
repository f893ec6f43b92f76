// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A machine that vanishes closes no connection: its peers hear nothing more.
// Here ranks cut connections by a filter on their sockets that drops whatever
// comes in, so the tests need neither several machines nor rights. All jobs run
// at the same time, because each of them takes 13 s or more.

#include "job/job_test_ranks.h"
#include "module/state_test_util.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <linux/filter.h>
#include <netinet/in.h>
#include <set>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace ddphook;
using namespace ddphook::test;

namespace {

constexpr int world = 3;
constexpr size_t mostPorts = 64;
/// A message of a ring has more than a connection holds.
constexpr int64_t kElements = 6 << 20;

/// What the ranks of a job share.
struct Shared {
  std::atomic<int> begun{0};
  std::atomic<int> listed{0};
  /// The ports of each rank's connections at its end.
  int ports[world][mostPorts];
};

using Work =
    std::function<std::string(int rank, ddphook_context_t *, TestModule &)>;

struct Job {
  std::string name;
  /// Rank `victim` is cut off from all others, or only from `other`; -1: none.
  int victim, other;
  /// What a rank does once it has joined and loaded its module, usually until
  /// it fails; empty if it cannot do that.
  Work work;
  /// What all ranks say.
  std::string expected;
  /// How many ranks join.
  int joining = world;
  double deadline = farDeadline;
  /// The rank that no other one can connect to.
  int unreachable = -1;
};

int portOf(int (*name)(int, sockaddr *, socklen_t *), int socket) {
  sockaddr_in address = {};
  socklen_t size = sizeof(address);
  const bool isKnown =
      name(socket, reinterpret_cast<sockaddr *>(&address), &size) == 0 &&
      address.sin_family == AF_INET;
  return isKnown ? ntohs(address.sin_port) : 0;
}

struct Connection {
  int socket, localPort, remotePort;
};

/// All of this process.
std::vector<Connection> connections() {
  std::vector<Connection> all;
  for (const auto &entry :
       std::filesystem::directory_iterator("/proc/self/fd")) {
    const int fd = std::atoi(entry.path().filename().c_str());
    if (const int remote = portOf(::getpeername, fd))
      all.push_back({fd, portOf(::getsockname, fd), remote});
  }
  return all;
}

void dropWhatComesIn(int socket) {
  sock_filter drop = BPF_STMT(BPF_RET | BPF_K, 0);
  const sock_fprog program = {1, &drop};
  if (::setsockopt(socket, SOL_SOCKET, SO_ATTACH_FILTER, &program,
                   sizeof(program)) != 0)
    std::abort();
}

/// Nobody can connect to this process.
bool isUnreachable = false;

/// Cuts this rank's ends of connections once all ranks have begun.
void cut(const Job &job, int rank, Shared &shared) {
  while (shared.begun < job.joining)
    sleepMs(10);
  sleepMs(500); // What they do then is under way.
  size_t count = 0;
  for (const Connection &connection : connections())
    shared.ports[rank][count++ % mostPorts] = connection.localPort;
  ++shared.listed;
  while (shared.listed < job.joining)
    sleepMs(10);
  auto belongsTo = [&](int owner, int port) {
    const int *begin = shared.ports[owner], *end = begin + mostPorts;
    return std::find(begin, end, port) != end;
  };
  for (const Connection &connection : connections()) {
    auto isBetween = [&](int a, int b) {
      return rank == a && belongsTo(b, connection.remotePort);
    };
    bool isCut = false;
    for (int peer = 0; peer < job.joining; ++peer)
      if (peer != job.victim && (job.other < 0 || peer == job.other))
        isCut =
            isCut || isBetween(job.victim, peer) || isBetween(peer, job.victim);
    if (isCut)
      dropWhatComesIn(connection.socket);
  }
}

std::string untilItFails(const std::function<std::string()> &call) {
  for (;;) {
    const std::string result = call();
    if (result != "OK")
      return result;
  }
}

std::string runRank(const Job &job, int rank, int port, Shared &shared) {
  if (rank >= job.joining)
    return job.expected;
  std::thread cutter;
  auto begin = [&] {
    ++shared.begun;
    if (job.victim >= 0)
      cutter = std::thread([&] { cut(job, rank, shared); });
  };
  // Those that wait for one that does not come have met by then.
  std::thread joined;
  if (job.joining < world)
    joined = std::thread([&] {
      while (connections().empty())
        sleepMs(10);
      begin();
    });
  isUnreachable = rank == job.unreachable;
  TestModule module(Collectives{{kElements}});
  setStates(module, powersgdStates());
  const std::string result =
      withModule(jobOptions(rank, world, port, "gloo", job.deadline), module,
                 [&](ddphook_context_t *context) {
                   begin();
                   return job.work(rank, context, module);
                 });
  for (std::thread *thread : {&joined, &cutter})
    if (thread->joinable())
      thread->join();
  return result;
}

std::string steps(int, ddphook_context_t *, TestModule &module) {
  std::vector<float> data(kElements, 1.0f);
  return untilItFails([&] { return step(module, data); });
}

std::string barriers(int, ddphook_context_t *context, TestModule &) {
  return untilItFails([&] { return show(ddphook_barrier(context)); });
}

std::string oneBarrier(int rank, ddphook_context_t *context, TestModule &) {
  if (rank == 1)
    sleepMs(5000);
  return show(ddphook_barrier(context));
}

std::string broadcasts(int, ddphook_context_t *context, TestModule &) {
  std::vector<float> data(kElements, 1.0f);
  return untilItFails([&] {
    return show(ddphook_broadcast(context, data.data(), 4 * kElements, 0));
  });
}

/// Where the job of the process `test` saves its states.
std::string directoryOf(pid_t test) {
  return testing::TempDir() + "lost_machine." + std::to_string(test);
}

std::string saves(int, ddphook_context_t *, TestModule &module) {
  const std::string pattern = directoryOf(::getppid()) + "/{rank}.safetensors";
  return untilItFails([&] {
    return show(ddphook_state_save(&module.compiled, pattern.c_str(),
                                   DDPHOOK_STATE_REPLACE));
  });
}

/// Longer than a machine may be silent.
constexpr int longMs = 17000;

/// The others' messages fill the connections.
std::string computesForLong(int rank, ddphook_context_t *, TestModule &module) {
  if (rank == 1)
    sleepMs(longMs);
  std::vector<float> data(kElements, 1.0f);
  return step(module, data);
}

std::string isStoppedForLong(int rank, ddphook_context_t *context,
                             TestModule &) {
  if (rank == 1) {
    const pid_t self = ::getpid();
    const pid_t alarm = ::fork();
    if (alarm == 0) {
      ::usleep(longMs * 1000);
      ::kill(self, SIGCONT);
      ::_exit(0);
    }
    ::kill(self, SIGSTOP);
    ::waitpid(alarm, nullptr, 0);
  }
  std::vector<float> data(kElements, 1.0f);
  return show(ddphook_broadcast(context, data.data(), 4 * kElements, 0));
}

void slowDown(int socket) {
  const uint32_t bytesPerSecond = 1 << 20;
  ::setsockopt(socket, SOL_SOCKET, SO_MAX_PACING_RATE, &bytesPerSecond,
               sizeof(bytesPerSecond));
}

/// Each of rank 0's connections moves a megabyte a second, and the deadline is
/// shorter than a broadcast takes over them.
std::string broadcastsSlowly(int rank, ddphook_context_t *context,
                             TestModule &) {
  if (rank == 0)
    for (const Connection &connection : connections())
      slowDown(connection.socket);
  std::vector<char> data(14 << 20, 1);
  return show(ddphook_broadcast(context, data.data(), data.size(), 0));
}

/// The same, but only rank 0's first connection, a control connection, is slow:
/// the rank at the end of the other one has to wait.
std::string broadcastsUnevenly(int rank, ddphook_context_t *context,
                               TestModule &) {
  if (rank == 0)
    slowDown(connections().front().socket);
  std::vector<char> data(14 << 20, 1);
  return show(ddphook_broadcast(context, data.data(), data.size(), 0));
}

const std::string silence = ": received nothing from 127.0.0.1:";
const std::string lost = " was lost" + silence;
const Job kJobs[] = {
    {"Steps", 1, -1, steps, lost},
    {"Barriers", 0, -1, barriers, lost},
    {"ABarrier", 1, -1, oneBarrier, lost},
    {"Broadcasts", 2, -1, broadcasts, lost},
    {"Saves", 1, -1, saves, lost},
    {"Joining", 1, -1, {}, lost, 2},
    {"Loading", -1, -1, {}, "rank 1, at 127.0.0.1 ", world, 20, 1},
    {"OneLink", 1, 2, steps, "the connection between rank "},
    {"Computing", -1, -1, computesForLong, "OK"},
    {"Stopped", -1, -1, isStoppedForLong, "OK"},
    {"SlowLink", -1, -1, broadcastsSlowly, "OK", world, 10},
    {"OneSlowLink", -1, -1, broadcastsUnevenly, "OK", world, 10},
};

/// On a busy machine, the system's own probes may be first to find the silence.
bool isExpected(const Job &job, const std::string &text) {
  return text.find(job.expected) != std::string::npos ||
         (job.expected == lost &&
          text.find("Connection timed out") != std::string::npos);
}

} // namespace

/// What the runtime calls in this program.
extern "C" int listen(int socket, int backlog) noexcept {
  if (isUnreachable)
    dropWhatComesIn(socket);
  return static_cast<int>(::syscall(SYS_listen, socket, backlog));
}

/// Nobody waits until the deadline for a peer whose machine is gone, but
/// everybody does for one that is there.
TEST(LostMachine, IsKnownInAllThatAJobDoes) {
  constexpr int jobs = std::size(kJobs);
  auto *shared = static_cast<Shared *>(
      ::mmap(nullptr, jobs * sizeof(Shared), PROT_READ | PROT_WRITE,
             MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  ASSERT_NE(shared, MAP_FAILED);
  std::set<int> ports;
  while (ports.size() < jobs)
    ports.insert(freePort());
  const std::vector<int> portOfJob(ports.begin(), ports.end());
  std::filesystem::create_directory(directoryOf(::getpid()));
  auto results = runRanks(jobs * world, [&](int process) {
    const int job = process / world;
    return runRank(kJobs[job], process % world, portOfJob[job], shared[job]);
  });
  for (int process = 0; process < jobs * world; ++process)
    EXPECT_TRUE(isExpected(kJobs[process / world], results[process].text))
        << kJobs[process / world].name << ", rank " << process % world << ": "
        << results[process].text << " after " << results[process].seconds
        << " s";
  std::filesystem::remove_all(directoryOf(::getpid()));
  ::munmap(shared, jobs * sizeof(Shared));
}
