// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A system call of a save fails, or nobody can tell whether it has worked. The
// last checkpoint that was saved still loads.

#include "checkpoint/checkpoint_faults.h"

using namespace ddphook;
using namespace ddphook::test;

using CheckpointFaultTest = SaveTest;

/// Each system call of each rank fails, before or after it has done its work.
TEST_F(CheckpointFaultTest, AnyCallFails) {
  expectSaved(1);
  std::vector<std::string> texts = runJob(world, [&](StateModule &module) {
    std::string kept = "1";
    int faults = 0;
    for (int rank = 0; rank < world; ++rank)
      for (Fault::Kind kind : {Fault::Kind::FailBefore, Fault::Kind::FailAfter})
        for (int number = 0; number < 12; ++number) {
          const std::string next = kept == "2" ? "3" : "2";
          Fault fault = {kind, number};
          if (module.rankNumber() == rank)
            armed = &fault;
          const std::string saved = save(module, std::stoi(next));
          armed = nullptr;
          faults += module.rankNumber() == rank && fault.hasHappened();
          const std::string loaded = load(module);
          if (loaded != next && (saved == "OK" || loaded != kept))
            return "rank " + std::to_string(rank) + ", call " +
                   std::to_string(number) + ": " + saved + ", " + loaded;
          kept = loaded;
        }
    return std::to_string(faults) + " faults, " + save(module, 4);
  });
  for (const std::string &text : texts)
    EXPECT_NE(text.find(" faults, OK"), std::string::npos) << text;
  expectLoaded(4);
  expectTidy();
}

/// The disk is gone in the middle of a save, so that nobody can tell what
/// became of the manifest.
TEST_F(CheckpointFaultTest, AllLaterCallsFail) {
  int kept = 1;
  expectSaved(kept);
  for (Fault::Kind kind : {Fault::Kind::FailBefore, Fault::Kind::FailAfter})
    for (int number = 0; number < 10; ++number) {
      const int next = kept % 90 + 1;
      runJob(world, [&](StateModule &module) {
        Fault fault = {kind, number, /*isLasting=*/true};
        if (module.rankNumber() == 0)
          armed = &fault;
        const std::string saved = save(module, next);
        armed = nullptr;
        return saved;
      });
      const std::vector<std::string> texts = load();
      SCOPED_TRACE(number);
      EXPECT_TRUE(texts[0] == std::to_string(kept) ||
                  texts[0] == std::to_string(next));
      expectAll(texts, texts[0]);
      if (HasFailure())
        return;
      kept = std::stoi(texts[0]);
    }
  expectSaved(99);
  expectTidy();
}

/// While the new manifest might be lost in a power failure, the old checkpoint
/// keeps its files.
TEST_F(CheckpointFaultTest, TheManifestMayBeLost) {
  const std::string message = "IO_ERROR: cannot write the directory of '" +
                              directory.path("s.manifest.json") +
                              "': Input/output error";
  std::vector<std::string> texts;
  for (int number = 0; number < 12; ++number) {
    expectSaved(1);
    const std::string old = directory.read("s.manifest.json");
    texts = runJob(world, [&](StateModule &module) {
      Fault fault = {Fault::Kind::FailBefore, number};
      if (module.rankNumber() == 0)
        armed = &fault;
      const std::string saved = save(module, 2);
      armed = nullptr;
      return saved;
    });
    if (texts[0] != message)
      continue;
    expectLoaded(2);
    directory.write("s.manifest.json", old);
    return expectLoaded(1);
  }
  FAIL() << texts[0];
}

/// What survives a power failure depends on that order.
TEST_F(CheckpointFaultTest, TheOrderOfSystemCalls) {
  expectSaved(1);
  const std::string leftover = "s.1.pending-00000000000000ab";
  directory.write(leftover, "of a save that was interrupted");
  const std::vector<std::string> texts = runJob(world, [&](StateModule &m) {
    std::string text;
    calls = &text;
    const std::string status = save(m, 2);
    calls = nullptr;
    return text + status;
  });
  const std::string file = "sync a file\nname a file\nsync the directory\n";
  EXPECT_EQ(texts[0], "name a file\n" + file +
                          "sync a file\nreplace s.manifest.json\n"
                          "sync the directory\nreplace s.0\nOK");
  EXPECT_EQ(texts[1], file + "remove " + leftover + "\nreplace s.1\nOK");
  expectTidy();
}
