// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A rank that dies at any moment, a disk that is full for one of them: in the
// end there is the checkpoint from before or the new one, on all ranks the
// same.

#include "checkpoint/checkpoint_test_util.h"

#include <gtest/gtest.h>

#include <csignal>
#include <optional>
#include <sys/resource.h>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>

using namespace ddphook;
using namespace ddphook::test;

namespace {

class CheckpointCrashTest : public testing::Test {
protected:
  std::string save(StateModule &module, int salt, uint32_t flags = 0) {
    module.fill(salt);
    return show(ddphook_state_save(&module.compiled, pattern.c_str(), flags));
  }

  void expectSaved(int world, int salt) {
    EXPECT_EQ(
        runJob(world, [&](StateModule &module) { return save(module, salt); }),
        std::vector<std::string>(size_t(world), "OK"));
  }

  std::vector<std::string> load(int world) {
    return runJob(world, [&](StateModule &module) {
      module.fill(9999);
      std::string status = show(ddphook_state_load(
          &module.compiled, pattern.c_str(), DDPHOOK_STATE_STRICT, nullptr));
      return status == "OK" ? module.describe() : status;
    });
  }

  void expectLoaded(int world, int salt) {
    EXPECT_EQ(load(world),
              std::vector<std::string>(size_t(world), std::to_string(salt)));
  }

  /// The files' names and bytes.
  std::vector<std::string> snapshot() const {
    std::vector<std::string> files;
    for (const std::string &name : directory.list())
      files.push_back(name + "\n" + directory.read(name));
    return files;
  }

  /// What rank `rank`'s file is called before the save of the manifest in
  /// place is tidied up.
  std::string pendingName(int rank) const {
    const std::string text = directory.read("state.manifest.json");
    const std::string key = "\"generation\": \"";
    return "state." + std::to_string(rank) + ".pending-" +
           text.substr(text.find(key) + key.size(), 16);
  }

  TemporaryDirectory directory;
  const std::string pattern = directory.path("state.{rank}");
};

/// Kills its process after some time.
void killLater(int microseconds) {
  std::thread([microseconds] {
    ::usleep(static_cast<useconds_t>(microseconds));
    ::raise(SIGKILL);
  }).detach();
}

/// No file gets longer than this while it lives.
class FullDisk {
public:
  explicit FullDisk(rlim_t bytes) {
    ::getrlimit(RLIMIT_FSIZE, &unlimited);
    struct rlimit limit = {bytes, unlimited.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FullDisk() { ::setrlimit(RLIMIT_FSIZE, &unlimited); }

private:
  struct rlimit unlimited;
};

} // namespace

TEST_F(CheckpointCrashTest, RanksAreKilled) {
  const unsigned seed = 31337;
  RecordProperty("seed", static_cast<int>(seed));
  std::mt19937 random(seed);
  const int world = 3;
  int before = 0;
  expectSaved(world, before);
  for (int round = 0; round < 100; ++round) {
    // One rank, or all of them, as when a machine dies.
    const int victim = static_cast<int>(random() % (world + 1));
    const int delay = 200 + static_cast<int>(random() % 6000);
    std::vector<std::string> texts = runJob(world, [&](StateModule &module) {
      if (victim == world || victim == module.rankNumber())
        killLater(delay);
      // Salts go up to 99, and begin anew.
      for (int salt = before;; salt = (salt + 1) % 100) {
        std::string status = save(module, salt);
        if (status != "OK")
          return status;
      }
    });
    // A rank may be killed while another one has not quite loaded the module.
    for (const std::string &text : texts)
      EXPECT_TRUE(text.empty() || text.rfind("PEER_LOST", 0) == 0 ||
                  text.rfind("load PEER_LOST", 0) == 0)
          << text;
    texts = load(world);
    ASSERT_EQ(texts, std::vector<std::string>(world, texts[0]));
    ASSERT_EQ(texts[0].find_first_not_of("0123456789"), std::string::npos)
        << texts[0];
    before = std::stoi(texts[0]);
  }
  // Whatever was left is tidied up.
  expectSaved(world, 50);
  EXPECT_EQ(directory.list(),
            (std::vector<std::string>{"state.0", "state.1", "state.2",
                                      "state.manifest.json"}));
  expectLoaded(world, 50);
}

/// All orders in which a crash can leave files, made by hand.
TEST_F(CheckpointCrashTest, BetweenTheSteps) {
  const std::vector<std::string> names = {"state.0", "state.1"};
  auto readAll = [&] {
    std::vector<std::string> files;
    for (const std::string &name : names)
      files.push_back(directory.read(name));
    return files;
  };
  expectSaved(2, 1);
  const std::vector<std::string> oldFiles = readAll();
  const std::string oldManifest = directory.read("state.manifest.json");
  expectSaved(2, 2);
  const std::vector<std::string> newFiles = readAll();
  const std::string newManifest = directory.read("state.manifest.json");
  const std::string pending[] = {pendingName(0), pendingName(1)};

  // Before the manifest: the old one, whichever files of the new are there.
  directory.write("state.manifest.json", oldManifest);
  for (size_t rank : {0, 1}) {
    directory.write(names[rank], oldFiles[rank]);
    directory.write(pending[rank], newFiles[rank]);
  }
  expectLoaded(2, 1);
  std::filesystem::remove(directory.path(pending[1]));
  expectLoaded(2, 1);
  directory.write(pending[1], "half a fi");
  expectLoaded(2, 1);

  // After it: the new one, whichever files have their final name.
  directory.write("state.manifest.json", newManifest);
  directory.write(pending[1], newFiles[1]);
  expectLoaded(2, 2);
  directory.write(names[0], newFiles[0]);
  expectLoaded(2, 2);
  std::filesystem::remove(directory.path(pending[0]));
  expectLoaded(2, 2);

  // A later save that fails must not have touched what the manifest needs.
  EXPECT_EQ(runJob(2,
                   [&](StateModule &module) {
                     std::optional<FullDisk> disk;
                     if (module.rankNumber() == 1)
                       disk.emplace(1000);
                     return save(module, 3).substr(0, 8);
                   }),
            (std::vector<std::string>{"ABORTED:", "IO_ERROR"}));
  expectLoaded(2, 2);
  expectSaved(2, 4);
  EXPECT_EQ(
      directory.list(),
      (std::vector<std::string>{"state.0", "state.1", "state.manifest.json"}));
  expectLoaded(2, 4);
}

TEST_F(CheckpointCrashTest, TheDiskOfOneRankIsFull) {
  expectSaved(2, 1);
  const std::vector<std::string> before = snapshot();
  std::vector<std::string> texts = runJob(2, [&](StateModule &module) {
    std::string status;
    {
      std::optional<FullDisk> disk;
      if (module.rankNumber() == 1)
        disk.emplace(1000);
      status = save(module, 2);
    }
    // The job goes on, and the next save is as good as any.
    std::string loaded =
        show(ddphook_state_load(&module.compiled, pattern.c_str(), 0, nullptr));
    return status + "\n" + loaded + " " + module.describe() + "\n" +
           save(module, 3);
  });
  const std::string reason =
      "cannot write '" + directory.path("state.1.pending-");
  EXPECT_EQ(
      texts[0].find("ABORTED: rank 1 could not save its states: " + reason), 0u)
      << texts[0];
  EXPECT_EQ(texts[1].find("IO_ERROR: " + reason), 0u) << texts[1];
  EXPECT_NE(texts[1].find("': File too large\n"), std::string::npos);
  for (const std::string &text : texts)
    EXPECT_EQ(text.substr(text.find('\n')), "\nOK 1\nOK");
  expectLoaded(2, 3);
  EXPECT_EQ(directory.list().size(), before.size());
}

TEST_F(CheckpointCrashTest, TheDiskIsFullForAll) {
  expectSaved(2, 1);
  const std::vector<std::string> before = snapshot();
  for (const std::string &text : runJob(2, [&](StateModule &module) {
         FullDisk disk(1000);
         return save(module, 2);
       }))
    EXPECT_EQ(text.find("IO_ERROR: cannot write '"), 0u) << text;
  EXPECT_EQ(snapshot(), before);
  expectLoaded(2, 1);
}

TEST_F(CheckpointCrashTest, TheManifestCannotBeWritten) {
  ASSERT_EQ(::mkdir(directory.path("state.manifest.json").c_str(), 0700), 0);
  std::vector<std::string> texts = runJob(2, [&](StateModule &module) {
    return save(module, 1, DDPHOOK_STATE_REPLACE);
  });
  const std::string reason = "cannot write '" +
                             directory.path("state.manifest.json") +
                             "': not a regular file";
  EXPECT_EQ(texts, (std::vector<std::string>{
                       "IO_ERROR: " + reason,
                       "ABORTED: rank 0 could not save its states: " + reason +
                           " (IO_ERROR)"}));
  EXPECT_EQ(directory.list(), std::vector<std::string>{"state.manifest.json"});
}
