// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Two lives of a job, or two jobs, that save to one place: one of them hangs in
// a system call, or its processes are killed. A checkpoint that loads is always
// there, and it is the right one.

#include "checkpoint/checkpoint_faults.h"

#include <csignal>
#include <filesystem>
#include <optional>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace ddphook;
using namespace ddphook::test;

namespace {

/// A job that goes on while the test does something else.
class BackgroundJob {
public:
  explicit BackgroundJob(
      const std::function<std::string(StateModule &)> &body) {
    const int port = freePort();
    for (int rank = 0; rank < world; ++rank) {
      processes[rank] = ::fork();
      if (processes[rank] != 0)
        continue;
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      const std::string text = inJob(rank, world, port, powersgdStates(), body);
      ::_exit(text == "OK" ? 0 : 1);
    }
  }
  ~BackgroundJob() {
    for (int rank = 0; rank < world; ++rank)
      kill(rank);
  }

  pid_t process(int rank) const { return processes[rank]; }
  void kill(int rank) {
    if (processes[rank] > 0)
      ::kill(processes[rank], SIGKILL);
    isOk(rank);
  }
  /// Waits for its end.
  bool isOk(int rank) {
    int status = 1;
    if (processes[rank] > 0)
      ::waitpid(processes[rank], &status, 0);
    processes[rank] = 0;
    return status == 0;
  }

private:
  pid_t processes[world];
};

/// A job that saves, one of whose ranks hangs in one of its system calls.
class StalledSave {
public:
  StalledSave(const std::function<std::string(StateModule &)> &save, int rank,
              Fault fault) {
    if (::pipe(arrived) != 0 || ::pipe(released) != 0)
      throw std::runtime_error("no pipe");
    fault.arrived = arrived[1];
    fault.released = released[0];
    job.emplace([&, fault](StateModule &module) mutable {
      if (module.rankNumber() == rank)
        armed = &fault;
      const std::string text = save(module);
      armed = nullptr;
      // Then the test learns at once that there is no such call.
      ::close(arrived[1]);
      return text;
    });
    ::close(arrived[1]);
    ::close(released[0]);
    char byte;
    isStalled = ::read(arrived[0], &byte, 1) == 1;
  }
  ~StalledSave() {
    job.reset();
    ::close(arrived[0]);
    ::close(released[1]);
  }

  void release() {
    const char byte = 0;
    EXPECT_EQ(::write(released[1], &byte, 1), 1);
  }

  std::optional<BackgroundJob> job;
  bool isStalled = false;

private:
  int arrived[2], released[2];
};

class CheckpointFenceTest : public SaveTest {
protected:
  /// The pending manifests.
  std::vector<std::string> claims() const {
    std::vector<std::string> found;
    for (const std::string &name : directory.list())
      if (name.rfind("s.manifest.json.", 0) == 0)
        found.push_back(directory.path(name));
    return found;
  }
  /// As if a save had begun an hour ago.
  void ageClaims() const {
    std::error_code gone;
    for (const std::string &path : claims())
      std::filesystem::last_write_time(
          path,
          std::filesystem::file_time_type::clock::now() - std::chrono::hours(1),
          gone);
  }

  /// Saves once others have missed their deadline. The rank that does not hang
  /// may still be making progress.
  std::string saveLater(StateModule &module, int salt) {
    while (true) {
      if (module.rankNumber() == 0)
        ageClaims();
      const std::string status = save(module, salt);
      if (status.find("is being saved by") == std::string::npos)
        return status;
    }
  }
};

} // namespace

/// Each system call of each rank takes very long. Meanwhile the job is started
/// again, and saves. `isBroken`: the other rank of the old life is gone.
TEST_F(CheckpointFenceTest, AStallAnywhereAndASecondLife) {
  int kept = 1, stalls = 0;
  expectSaved(kept);
  for (int rank = 0; rank < world; ++rank)
    for (int number = 0;; ++number) {
      bool isStalled = false;
      for (Fault::Kind kind :
           {Fault::Kind::StallBefore, Fault::Kind::StallAfter})
        for (bool isBroken : {false, true}) {
          const int old = kept % 90 + 1, next = old + 1;
          StalledSave stalled([&](StateModule &m) { return save(m, old); },
                              rank, {kind, number, false});
          isStalled = stalled.isStalled;
          if (!isStalled)
            break;
          SCOPED_TRACE("rank " + std::to_string(rank) + ", call " +
                       std::to_string(number) +
                       (kind == Fault::Kind::StallAfter ? ", after it" : "") +
                       (isBroken ? ", broken" : ""));
          ++stalls;
          if (isBroken)
            stalled.job->kill(1 - rank);
          const std::vector<std::string> texts =
              runJob(world, [&](StateModule &module) {
                const std::string before = load(module);
                const std::string saved = saveLater(module, next);
                return before + " " + saved + " " + load(module);
              });
          const std::string after = " OK " + std::to_string(next);
          EXPECT_TRUE(texts[0] == std::to_string(kept) + after ||
                      texts[0] == std::to_string(old) + after)
              << texts[0];
          expectAll(texts, texts[0]);
          stalled.release();
          for (int other = 0; other < world; ++other)
            stalled.job->isOk(other);
          kept = next;
          expectLoaded(kept);
          if (HasFailure())
            return;
        }
      if (isStalled)
        continue;
      kept = kept % 90 + 1; // what that job has saved
      expectLoaded(kept);
      break;
    }
  EXPECT_GE(stalls, 4 * 8);
  // No file stays for ever.
  expectSaved(99);
  expectTidy();
}

/// Within its deadline a save that hangs, in its first system call or in its
/// last one before the commit, is left alone, and named.
class NamedSaverTest : public CheckpointFenceTest,
                       public testing::WithParamInterface<bool> {};

TEST_P(NamedSaverTest, ASecondSaverIsToldOfTheFirst) {
  expectSaved(1);
  ::setenv("DDPHOOK_RUN_ID", "nightly", 1);
  Fault fault = {Fault::Kind::StallBefore, 0};
  fault.isOfManifest = GetParam();
  StalledSave first([&](StateModule &m) { return save(m, 2); },
                    fault.isOfManifest ? 0 : 1, fault);
  ASSERT_TRUE(first.isStalled);
  ASSERT_EQ(claims().size(), 1u);
  ::setenv("DDPHOOK_RUN_ID", "other", 1);
  std::vector<std::string> texts = runJob(world, [&](StateModule &module) {
    return save(module, 3) + "\n" + load(module);
  });
  ::unsetenv("DDPHOOK_RUN_ID");
  char host[256] = "";
  ::gethostname(host, sizeof(host) - 1);
  const std::string message =
      "'" + directory.path("s.manifest.json") + "' is being saved by process " +
      std::to_string(first.job->process(0)) + " on " + host +
      ", job run 'nightly', with a deadline of 300 s: save to another pattern, "
      "or end that save by "
      "removing '" +
      claims()[0] + "'";
  EXPECT_EQ(texts, (std::vector<std::string>{
                       "FAILED_PRECONDITION: " + message + "\n1",
                       "ABORTED: rank 0 could not save its states: " + message +
                           " (FAILED_PRECONDITION)\n1"}));
  first.release();
  EXPECT_TRUE(first.job->isOk(0) && first.job->isOk(1));
  expectLoaded(2);
  expectTidy();
}

INSTANTIATE_TEST_SUITE_P(All, NamedSaverTest, testing::Bool());

/// kill -9 ends a save at once, though a child that was forked meanwhile lives.
TEST_F(CheckpointFenceTest, AForkedChildIsNoSave) {
  expectSaved(1);
  Fault fault = {Fault::Kind::StallBefore, 0};
  fault.isOfManifest = fault.forks = true;
  StalledSave first([&](StateModule &m) { return save(m, 2); }, 0, fault);
  ASSERT_TRUE(first.isStalled);
  ASSERT_EQ(claims().size(), 1u);
  first.job->kill(0);
  expectSaved(3);
  first.release();
  first.job->isOk(1);
  expectLoaded(3);
}

/// kill -9 ends a save at once, though a rank of it still hangs.
TEST_F(CheckpointFenceTest, TheSaveOfADeadProcessIsOver) {
  expectSaved(1);
  StalledSave first([&](StateModule &m) { return save(m, 2); }, 1,
                    {Fault::Kind::StallBefore, 0});
  ASSERT_TRUE(first.isStalled);
  first.job->kill(0);
  expectSaved(3);
  first.release();
  first.job->isOk(1);
  expectLoaded(3);
}

/// Without locks a save is over when its deadline has passed.
TEST_F(CheckpointFenceTest, AFileSystemWithoutLocks) {
  expectSaved(1);
  hasNoLocks = true;
  {
    StalledSave first([&](StateModule &m) { return save(m, 2); }, 1,
                      {Fault::Kind::StallBefore, 0});
    ASSERT_TRUE(first.isStalled);
    first.job->kill(0);
    const std::string text =
        runJob(world, [&](StateModule &m) { return save(m, 3); })[0];
    EXPECT_NE(text.find("' is being saved by process "), std::string::npos)
        << text;
    ageClaims();
    expectSaved(4);
    first.release();
    first.job->isOk(1);
  }
  hasNoLocks = false;
  expectLoaded(4);
  expectSaved(5);
  expectTidy();
}

/// The lock of a process on another machine may be unknown here: that save is
/// taken over, and fails.
TEST_F(CheckpointFenceTest, AFileSystemWithLocalLocks) {
  expectSaved(1);
  hasNoLocks = true;
  StalledSave first([&](StateModule &m) { return save(m, 2); }, 1,
                    {Fault::Kind::StallBefore, 0});
  ASSERT_TRUE(first.isStalled);
  hasNoLocks = false;
  expectSaved(3);
  first.release();
  EXPECT_FALSE(first.job->isOk(0) || first.job->isOk(1));
  expectLoaded(3);
}

/// What the first message above advises.
TEST_F(CheckpointFenceTest, AClaimIsRemovedByHand) {
  expectSaved(1);
  StalledSave first([&](StateModule &m) { return save(m, 2); }, 1,
                    {Fault::Kind::StallBefore, 0});
  ASSERT_TRUE(first.isStalled);
  ASSERT_EQ(claims().size(), 1u);
  std::filesystem::remove(claims()[0]);
  first.release();
  EXPECT_FALSE(first.job->isOk(0) || first.job->isOk(1));
  expectLoaded(1);
  expectSaved(3);
  expectLoaded(3);
  expectTidy();
}

/// Jobs that take turns: none replaces what it does not know.
TEST_F(CheckpointFenceTest, AnotherJobHasSavedInBetween) {
  auto alone = [&](const std::function<std::string(StateModule &)> &body) {
    return inJob(0, 1, 0, powersgdStates(), body);
  };
  const std::string texts = alone([&](StateModule &first) {
    std::string text = save(first, 1);
    text += alone([&](StateModule &other) { return save(other, 2); });
    return text + save(first, 3) + load(first) +
           save(first, 4, DDPHOOK_STATE_REPLACE) + save(first, 5) + load(first);
  });
  EXPECT_EQ(texts, "OKOKFAILED_PRECONDITION: another job has replaced '" +
                       directory.path("s.manifest.json") +
                       "' since this one saved it: save to another pattern, or "
                       "with DDPHOOK_STATE_REPLACE2OKOK5");
}

/// Two jobs save all the time, and are killed.
TEST_F(CheckpointFenceTest, TwoSaversAreKilled) {
  const char *wanted = std::getenv("DDPHOOK_TEST_ROUNDS");
  const int rounds = wanted ? std::atoi(wanted) : 15;
  const unsigned seed = wanted ? std::random_device()() : 4711;
  std::printf("seed %u\n", seed);
  std::mt19937 random(seed);
  expectSaved(1);
  for (int round = 0; round < rounds; ++round) {
    auto saveForEver = [&](int first) {
      return [this, first](StateModule &module) {
        for (int salt = first;; salt = (salt + 2) % 100)
          save(module, salt, DDPHOOK_STATE_REPLACE);
        return std::string();
      };
    };
    BackgroundJob one(saveForEver(0)), two(saveForEver(1));
    ::usleep(20000 + random() % 60000);
    BackgroundJob *order[] = {&one, &two};
    if (random() % 2)
      std::swap(order[0], order[1]);
    for (BackgroundJob *job : order) {
      job->kill(static_cast<int>(random() % 2));
      ::usleep(random() % 5000);
    }
    for (BackgroundJob *job : order)
      for (int rank : {0, 1})
        job->kill(rank);
    const std::vector<std::string> texts = load();
    EXPECT_EQ(texts[0].find_first_not_of("0123456789"), std::string::npos);
    expectAll(texts, texts[0]);
    if (HasFailure())
      return;
  }
  expectSaved(50);
  expectLoaded(50);
  expectTidy();
}
