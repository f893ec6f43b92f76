// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Runs ranks as forked processes, and makes compiled modules by hand.

#include "job/job_test_util.h"

#include "base/deadline.h"
#include "plan/plan.h"
#include "store/socket.h"

#include <algorithm>
#include <chrono>
#include <fstream>
#include <poll.h>
#include <random>
#include <signal.h>
#include <stdexcept>
#include <sys/wait.h>
#include <unistd.h>

using namespace ddphook;
using namespace ddphook::test;

int test::freePort() {
  // Below the ports that the system gives to outgoing connections: one of these
  // could take it before the job does.
  int lowest = 0;
  std::ifstream("/proc/sys/net/ipv4/ip_local_port_range") >> lowest;
  if (lowest < 2048)
    throw std::runtime_error("no ports below those of outgoing connections");
  std::random_device random;
  std::uniform_int_distribution<int> draw(lowest / 2, lowest - 1);
  while (true) {
    FileDescriptor socket;
    int port = 0;
    if (listenOn("127.0.0.1", draw(random), &socket, &port).isOk())
      return port;
  }
}

/// LeakSanitizer's, where the test is built with it: not zero where memory is
/// lost, which it then describes.
extern "C" int checkForLeaks() __asm__("__lsan_do_recoverable_leak_check")
    __attribute__((weak));

/// Whether this process has lost memory. LeakSanitizer looks for that at the
/// end of a process that exits, which a rank does not. What a thread has that
/// is just ending may seem lost for a moment.
static bool hasLostMemory() {
  if (!checkForLeaks)
    return false;
  for (int i = 0; i < 50; ++i) {
    if (checkForLeaks() == 0)
      return false;
    ::usleep(20000);
  }
  return true;
}

static pid_t startRank(int rank, const RankFunction &function, int *output) {
  int ends[2];
  if (::pipe(ends) != 0)
    throw std::runtime_error("no pipe");
  pid_t process = ::fork();
  if (process == 0) {
    ::close(ends[0]);
    std::string text = function(rank);
    if (hasLostMemory())
      text = "lost memory";
    ssize_t written = ::write(ends[1], text.data(), text.size());
    // No destructors of the parent's objects, no second summary of gtest's.
    ::_exit(written == static_cast<ssize_t>(text.size()) ? 0 : 1);
  }
  ::close(ends[1]);
  *output = ends[0];
  return process;
}

std::vector<RankResult> test::runRanks(int ranks, const RankFunction &function,
                                       double patience, int stoppedRank) {
  auto begin = std::chrono::steady_clock::now();
  std::vector<pid_t> processes(ranks);
  std::vector<int> outputs(ranks);
  std::vector<RankResult> results(ranks);
  for (int rank = 0; rank < ranks; ++rank)
    processes[rank] = startRank(rank, function, &outputs[rank]);
  Deadline deadline = Deadline::after(patience);
  std::vector<bool> isGone(ranks);
  for (int left = ranks; left > 0;) {
    for (int rank = 0; rank < ranks; ++rank) {
      if (isGone[rank])
        continue;
      bool isAlone = left == 1 && rank == stoppedRank;
      if ((deadline.expired() || isAlone) && !results[rank].isHung) {
        results[rank].isHung = true;
        ::kill(processes[rank], SIGKILL);
      }
      int status = 0;
      if (::waitpid(processes[rank], &status, WNOHANG) != processes[rank])
        continue;
      isGone[rank] = true;
      --left;
      RankResult &result = results[rank];
      result.signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
      result.seconds = std::chrono::duration<double>(
                           std::chrono::steady_clock::now() - begin)
                           .count();
      char buffer[4096];
      ssize_t size;
      while ((size = ::read(outputs[rank], buffer, sizeof(buffer))) > 0)
        result.text.append(buffer, static_cast<size_t>(size));
      ::close(outputs[rank]);
    }
    // Ranks that are measured for minutes are disturbed by this process less
    // and less, and its times are still true to 1 %.
    const double elapsed = std::chrono::duration<double, std::micro>(
                               std::chrono::steady_clock::now() - begin)
                               .count();
    ::usleep(static_cast<useconds_t>(std::clamp(elapsed / 100, 500.0, 1e5)));
  }
  return results;
}

ddphook_options_t test::jobOptions(int rank, int worldSize, int port,
                                   const char *transport, double timeout) {
  ddphook_options_t options = {};
  options.struct_size = sizeof(options);
  options.transport = transport;
  options.timeout_s = timeout;
  options.rank = rank;
  options.world_size = worldSize;
  options.local_rank = rank;
  options.master_addr = "127.0.0.1";
  options.master_port = port;
  return options;
}

std::string test::show(ddphook_status_t status) {
  if (status == DDPHOOK_OK)
    return "OK";
  return std::string(ddphook_status_name(status)) + ": " + ddphook_last_error();
}

/// No test calls it: the ranks' code is in the tests themselves.
static ddphook_status_t invokeNothing(void *const *) {
  return DDPHOOK_UNSUPPORTED;
}

TestModule::TestModule(const Collectives &collectives, int64_t arenaBytes,
                       const std::string &groups, const std::string &hook) {
  plan = R"({"abi":10,"memory":"host","kernels":[],"process_groups":)" +
         groups +
         R"(,"buckets":[{"name":"b0","group":"dp","reduction":"mean",)"
         R"("dtype":"f32","shapes":[[3]],"gradients":[],"hook":")" +
         hook +
         R"(","wire_dtype":"","encoding":"","block":0,"wire_bytes":12,)"
         R"("state_bytes":0}],"states":[],)"
         R"("matrix_lists":[],"collectives":[)";
  for (size_t i = 0; i < collectives.size(); ++i) {
    const TestCollective &collective = collectives[i];
    plan += (i == 0 ? "" : ",");
    plan += R"({"kind":")" + collective.kind + R"(","bucket":"b0","group":)" +
            std::to_string(collective.group) + R"(,"count":)" +
            std::to_string(collective.count) + R"(,"dtype":")" +
            collective.dtype + R"(","wire_dtype":")" + collective.wireDtype +
            R"(","encoding":")" + collective.encoding + R"(","block":)" +
            std::to_string(collective.block) + R"(,"divide":)" +
            (collective.divide ? "true" : "false") + R"(,"root":)" +
            std::to_string(collective.root) + R"(,"error":"","stream":)" +
            std::to_string(collective.stream) + "}";
  }
  plan += R"(],"arena":{"bytes":)" + std::to_string(arenaBytes) +
          R"(,"alignment":64},"state_arena":{"bytes":0,"alignment":64},)"
          R"("entries":[{"name":"step","arguments":[],"results":[]}]})";
  setPlan(plan);
}

TestModule::~TestModule() {
  if (handle)
    (void)ddphook_module_unload(&compiled);
}

void TestModule::setPlan(std::string text) {
  plan = std::move(text);
  entry = {"step", invokeNothing};
  compiled = {};
  compiled.struct_size = sizeof(compiled);
  compiled.abi_version = DDPHOOK_ABI_VERSION;
  compiled.plan = plan.data();
  compiled.plan_size = plan.size();
  compiled.plan_hash = hashPlan(plan);
  compiled.handle = &handle;
  compiled.entry_count = 1;
  compiled.entries = &entry;
}
