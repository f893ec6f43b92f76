// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Runs ranks as forked processes, and makes compiled modules by hand. Ranks
// report by text, because gtest's assertions do not cross processes.

#pragma once

#include "ddphook/runtime/runtime.h"

#include <functional>
#include <map>
#include <string>
#include <sys/types.h>
#include <utility>
#include <vector>

namespace ddphook::test {

/// A port on which nobody listens at the moment.
int freePort();

/// Deadline of jobs that are not about deadlines, in seconds: sanitizers and
/// other work on the machine make a test a hundred times slower.
inline constexpr double patientDeadline = 300;

/// How one rank's process ended.
struct RankResult {
  /// What its function returned; empty when it did not return.
  std::string text;
  /// Signal that killed it, or 0.
  int signal = 0;
  /// Seconds from the start of the job until it ended.
  double seconds = 0;
  /// It was still there at the end of the patience, and was killed then.
  bool isHung = false;
};

/// What runs in a rank's process; the text it returns is its result.
using RankFunction = std::function<std::string(int rank)>;

/// Forks a process per rank; all of them are gone when it returns, at the
/// latest after `patience` seconds. A rank that stops itself, `stoppedRank`, is
/// killed as soon as all others have ended.
std::vector<RankResult> runRanks(int ranks, const RankFunction &function,
                                 double patience = patientDeadline + 100,
                                 int stoppedRank = -1);

/// Options of rank `rank` in a job on this machine.
ddphook_options_t jobOptions(int rank, int worldSize, int port,
                             const char *transport,
                             double timeout = patientDeadline);

/// "OK", or the status' name, ": " and the last error.
std::string show(ddphook_status_t status);

/// One collective of a module made by hand.
struct TestCollective {
  TestCollective(int64_t count, std::string dtype = "f32",
                 std::string wireDtype = "", bool divide = false, int group = 0,
                 std::string encoding = "", int64_t block = 0)
      : count(count), dtype(std::move(dtype)), wireDtype(std::move(wireDtype)),
        divide(divide), group(group), encoding(std::move(encoding)),
        block(block) {}

  /// The same of another kind than an all-reduce.
  TestCollective as(std::string other, int from = 0) const {
    TestCollective result = *this;
    result.kind = std::move(other);
    result.root = from;
    return result;
  }

  /// The same, with codes that are rounded stochastically.
  TestCollective withStream(int64_t number) const {
    TestCollective result = *this;
    result.stream = number;
    return result;
  }

  int64_t count;
  std::string dtype;
  std::string wireDtype;
  bool divide;
  int group;
  std::string encoding;
  int64_t block;
  std::string kind = "all_reduce";
  int root = 0;
  int64_t stream = -1;
};

using Collectives = std::vector<TestCollective>;

/// A compiled module without compiled code: the test calls ddphook_rt_* itself.
class TestModule {
public:
  /// `groups` is the plan's list of process groups as JSON.
  explicit TestModule(
      const Collectives &collectives = {}, int64_t arenaBytes = 0,
      const std::string &groups =
          R"([{"name":"dp","size":0,"ranks":[],"placement":"","parent":"","topology":"flat"}])",
      const std::string &hook = "#ddp.allreduce");

  /// Replaces the plan.
  void setPlan(std::string text);

  /// Unloads it: a loaded module's description must outlive its context.
  ~TestModule();
  TestModule(const TestModule &) = delete;
  TestModule &operator=(const TestModule &) = delete;

  std::string plan;
  ddphook_module_t *handle = nullptr;
  ddphook_compiled_entry_t entry;
  ddphook_compiled_module_t compiled;
};

} // namespace ddphook::test
