// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Both ways of writing a file, what is seen before it is complete, and what a
// killed writer leaves.

#include "exec/exec_test_util.h"
#include "files/atomic_file.h"

#include <gtest/gtest.h>

#include <csignal>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace ddphook;
using Names = std::vector<std::string>;

namespace {

/// With and without nameless files.
class AtomicFileTest : public testing::TestWithParam<bool> {
protected:
  void SetUp() override {
    int probe = ::open(directory.path("").c_str(), O_WRONLY | O_TMPFILE, 0600);
    if (probe < 0 && !isNamed())
      GTEST_SKIP() << "this file system has no nameless files";
    ::close(probe);
  }

  bool isNamed() const { return GetParam(); }

  Status write(const std::string &text) {
    AtomicFile file(path);
    DDPHOOK_TRY(file.open(isNamed()));
    DDPHOOK_TRY(file.write(text.data(), text.size()));
    return file.commit();
  }

  TemporaryDirectory directory;
  const std::string path = directory.path("out");
};

} // namespace

INSTANTIATE_TEST_SUITE_P(Ways, AtomicFileTest, testing::Bool(),
                         [](const testing::TestParamInfo<bool> &info) {
                           return info.param ? "Named" : "Nameless";
                         });

TEST_P(AtomicFileTest, AppearsAndIsReplaced) {
  for (const char *text : {"first", "second, longer", ""}) {
    Status status = write(text);
    ASSERT_TRUE(status.isOk()) << status.message();
    EXPECT_EQ(directory.list(), Names{"out"});
    EXPECT_EQ(directory.read("out"), text);
  }
}

TEST_P(AtomicFileTest, HonoursTheUmask) {
  mode_t old = ::umask(027);
  EXPECT_TRUE(write("x").isOk());
  ::umask(old);
  struct stat attributes;
  ASSERT_EQ(::stat(path.c_str(), &attributes), 0);
  EXPECT_EQ(attributes.st_mode & 0777, 0640u);
}

TEST_P(AtomicFileTest, IsInvisibleUntilCommitted) {
  directory.write("out", "old");
  {
    AtomicFile file(path);
    ASSERT_TRUE(file.open(isNamed()).isOk());
    ASSERT_TRUE(file.write("new", 3).isOk());
    EXPECT_EQ(directory.read("out"), "old");
    EXPECT_EQ(directory.list().size(), isNamed() ? 2u : 1u);
  }
  EXPECT_EQ(directory.list(), Names{"out"});
  EXPECT_EQ(directory.read("out"), "old");
}

TEST_P(AtomicFileTest, RefusesWhatIsNoRegularFile) {
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  EXPECT_EQ(write("x").message(),
            "cannot create '" + path + "': not a regular file");
  EXPECT_EQ(directory.list(), Names{"out"});
}

/// `ulimit -f`, without a trace in the signals of the host program.
TEST_P(AtomicFileTest, ALimitOnFilesIsAnError) {
  struct rlimit unlimited;
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &unlimited), 0);
  const struct rlimit limit = {100, unlimited.rlim_max};
  sigset_t set, old, pending, mask;
  sigemptyset(&set);
  sigaddset(&set, SIGXFSZ);
  for (const auto &[isBlocked, isPending] :
       {std::pair(false, false), std::pair(true, false),
        std::pair(true, true)}) {
    pthread_sigmask(isBlocked ? SIG_BLOCK : SIG_UNBLOCK, &set, &old);
    if (isPending)
      ::raise(SIGXFSZ);
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
    const Status status = write(std::string(200, 'x'));
    ::setrlimit(RLIMIT_FSIZE, &unlimited);
    EXPECT_EQ(status.message(), "cannot write '" + path + "': File too large");
    sigpending(&pending);
    EXPECT_EQ(sigismember(&pending, SIGXFSZ), isPending);
    if (isPending)
      sigwaitinfo(&set, nullptr);
    pthread_sigmask(SIG_SETMASK, &old, &mask);
    EXPECT_EQ(sigismember(&mask, SIGXFSZ), isBlocked);
  }
  EXPECT_EQ(directory.list(), Names{});
}

TEST_P(AtomicFileTest, FailsWhenTheNameIsTakenMeanwhile) {
  AtomicFile file(path);
  ASSERT_TRUE(file.open(isNamed()).isOk());
  ASSERT_EQ(::mkdir(path.c_str(), 0700), 0);
  EXPECT_EQ(file.commit().message(),
            "cannot create '" + path + "': Is a directory");
}

TEST_P(AtomicFileTest, LeavesNoNameOfItsOwnWhenKilled) {
  pid_t process = ::fork();
  if (process == 0) {
    AtomicFile file(path);
    file.open(isNamed()).ignore();
    file.write("x", 1).ignore();
    ::raise(SIGKILL);
  }
  ASSERT_EQ(::waitpid(process, nullptr, 0), process);
  EXPECT_EQ(directory.list(),
            isNamed() ? Names{"out.partial-" + std::to_string(process)}
                      : Names{});
  EXPECT_EQ(partialPath("out", process),
            "out.partial-" + std::to_string(process));
}
