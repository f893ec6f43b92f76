// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Pipes, links, directories, files of other users, and directories that others
// can write to. What takes another user runs as root; a user who is not root
// opens what root's processes have made.

#include "files/open_file.h"

#include "trace/trace_test_util.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

using namespace ddphook;
using namespace ddphook::test;

namespace {

constexpr uid_t somebody = 12345;

/// Changes a file's owner; false if that takes privileges, or if this namespace
/// lacks the user.
bool give(const std::string &path, uid_t owner) {
  return ::chown(path.c_str(), owner, -1) == 0;
}

std::string openAs(NamedBy namedBy, const std::string &path,
                   int flags = O_RDONLY) {
  OpenFile file;
  return show(file.open(path, flags, namedBy));
}

class OpenFileTest : public testing::Test {
protected:
  OpenFileTest() { std::ofstream(path) << "content"; }

  /// What becomes of the file when it or its directory is somebody else's.
  std::string withOwner(const std::string &name, uid_t owner,
                        NamedBy namedBy = NamedBy::Runtime) {
    EXPECT_TRUE(give(name, owner));
    return openAs(namedBy, path);
  }

  TemporaryDirectory directory;
  const std::string path = directory.file("file");
  const std::string link = directory.file("link");
};

} // namespace

TEST_F(OpenFileTest, ItsBytes) {
  OpenFile file;
  ASSERT_EQ(show(file.open(path, O_RDONLY, NamedBy::Runtime)), "OK");
  ASSERT_EQ(file.size(), 7u);
  char text[4] = "";
  ASSERT_EQ(show(file.read(text, 3, 2)), "OK");
  EXPECT_STREQ(text, "nte");
  // Truncated under the reader.
  ASSERT_EQ(::truncate(path.c_str(), 3), 0);
  EXPECT_EQ(show(file.read(text, 3, 2)),
            "DATA_LOSS: '" + path + "': file ended early, at byte 3");
}

TEST_F(OpenFileTest, WhatIsNoFileOfItsOwn) {
  const std::string fifo = directory.file("fifo");
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  std::filesystem::create_symlink(path, link);
  std::filesystem::create_directory_symlink(directory.path,
                                            directory.file("way"));
  for (NamedBy namedBy : {NamedBy::User, NamedBy::Runtime}) {
    EXPECT_EQ(openAs(namedBy, fifo),
              "IO_ERROR: cannot read '" + fifo + "': not a regular file");
    expectContains(openAs(namedBy, fifo, O_WRONLY), "IO_ERROR: cannot open");
    expectContains(openAs(namedBy, "/dev/null", O_WRONLY),
                   "not a regular file");
    // Only the last component counts.
    EXPECT_EQ(openAs(namedBy, directory.file("way/file")), "OK");
  }
  EXPECT_EQ(openAs(NamedBy::User, link), "OK");
  EXPECT_EQ(openAs(NamedBy::Runtime, link),
            "IO_ERROR: cannot open '" + link + "': it is a symbolic link");
  std::filesystem::create_hard_link(path, directory.file("other"));
  EXPECT_EQ(openAs(NamedBy::Runtime, path), "OK");
  expectContains(openAs(NamedBy::Runtime, path, O_WRONLY), "it is a hard link");
}

TEST_F(OpenFileTest, OwnersOfFiles) {
  if (!give(path, somebody)) {
    EXPECT_EQ(openAs(NamedBy::Runtime, "/etc/passwd"), "OK");
    return;
  }
  EXPECT_EQ(withOwner(path, somebody),
            "IO_ERROR: cannot open '" + path + "': it belongs to user 12345");
  EXPECT_EQ(withOwner(path, somebody, NamedBy::User), "OK");
  // Some file systems give all files one owner.
  EXPECT_EQ(withOwner(directory.path, somebody), "OK");
  EXPECT_EQ(withOwner(path, 0), "OK");
}

TEST_F(OpenFileTest, DirectoriesThatOthersWriteTo) {
  const std::string inner = directory.file("inner");
  std::filesystem::create_directory(inner);
  std::filesystem::create_directory_symlink(inner, link);
  EXPECT_EQ(describeOtherWriters(inner), "");
  for (const std::string &open : {inner, directory.path}) {
    ASSERT_EQ(::chmod(open.c_str(), 0777), 0);
    for (const std::string &name : {inner, link})
      EXPECT_EQ(describeOtherWriters(name),
                "every user can write to '" + open + "'");
    ASSERT_EQ(::chmod(open.c_str(), 01777), 0);
    EXPECT_EQ(describeOtherWriters(inner), "");
  }
  if (!give(directory.path, somebody))
    return;
  EXPECT_EQ(describeOtherWriters(inner),
            "'" + directory.path + "' belongs to user 12345");
  testing::internal::CaptureStderr();
  for (int i = 0; i < 3; ++i)
    warnOfOtherWriters(inner, "the files");
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "ddphook: others can replace the files in '" + inner + "': '" +
                directory.path + "' belongs to user 12345\n");
}
