// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Lets a test stop a save in any of its system calls, or make the call fail.
// checkpoint_faults.cpp replaces these functions of the C library.

#pragma once

#include "checkpoint/checkpoint_test_util.h"

#include <gtest/gtest.h>

namespace ddphook::test {

/// A fault in one system call of the thread that arms it.
struct Fault {
  enum class Kind { StallBefore, StallAfter, FailBefore, FailAfter };
  Kind kind;
  /// The number of calls before it.
  int number;
  /// All later calls have the fault too.
  bool isLasting = false;
  /// Only calls that replace the manifest count.
  bool isOfManifest = false;
  /// The process forks a child before it stalls. The child lives until it reads
  /// a byte from `released`.
  bool forks = false;
  /// A stalled call writes a byte here, and goes on once it can read one.
  int arrived = -1, released = -1;

  bool hasHappened() const { return number < 0; }
};

/// The fault of this thread, if any.
extern thread_local Fault *armed;
/// True if the file system lacks flock(2), from the next job on.
extern bool hasNoLocks;
/// Receives a line for each system call of this thread that changes the disk,
/// unless it is null.
extern thread_local std::string *calls;

constexpr int world = 2;

/// Saves and loads states in a directory of its own.
class SaveTest : public testing::Test {
protected:
  std::string save(StateModule &module, int salt, uint32_t flags = 0) {
    module.fill(salt);
    return show(ddphook_state_save(&module.compiled, pattern.c_str(), flags));
  }

  std::string load(StateModule &module) {
    module.fill(9999);
    const std::string status = show(ddphook_state_load(
        &module.compiled, pattern.c_str(), DDPHOOK_STATE_STRICT, nullptr));
    return status == "OK" ? module.describe() : status;
  }

  static void expectAll(const std::vector<std::string> &texts,
                        const std::string &text) {
    EXPECT_EQ(texts, std::vector<std::string>(world, text));
  }
  void expectSaved(int salt) {
    expectAll(runJob(world, [&](StateModule &m) { return save(m, salt); }),
              "OK");
  }
  std::vector<std::string> load() {
    return runJob(world, [&](StateModule &module) { return load(module); });
  }
  void expectLoaded(int salt) { expectAll(load(), std::to_string(salt)); }

  void expectTidy() const {
    EXPECT_EQ(directory.list(),
              (std::vector<std::string>{"s.0", "s.1", "s.manifest.json"}));
  }

  TemporaryDirectory directory;
  const std::string pattern = directory.path("s.{rank}");
};

} // namespace ddphook::test
