// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Whole checkpoints: bit-exact, of other world sizes, damaged in every way, and
// calls that make no sense. checkpoint_crash_test.cpp has what goes wrong while
// saving, exec/test_exec_state.py files that other programs wrote.

#include "checkpoint/checkpoint_test_util.h"

#include "files/safetensors.h"

#include <gtest/gtest.h>

#include <climits>

using namespace ddphook;
using namespace ddphook::test;

namespace {

/// A directory for the checkpoint of jobs.
class CheckpointTest : public testing::Test {
protected:
  /// Saves value `salt` of every state on `world` ranks.
  void save(int world, int salt, uint32_t flags = 0) {
    EXPECT_EQ(runJob(world,
                     [&](StateModule &module) {
                       module.fill(salt);
                       return show(ddphook_state_save(&module.compiled,
                                                      pattern.c_str(), flags));
                     }),
              std::vector<std::string>(size_t(world), "OK"));
  }

  /// What a load gives on each rank: the error, or the value of its states. A
  /// failed load must not have changed any.
  std::vector<std::string> load(int world, uint32_t flags = 0) {
    return runJob(world, [&](StateModule &module) {
      module.fill(9999);
      std::string result = show(ddphook_state_load(
          &module.compiled, pattern.c_str(), flags, nullptr));
      if (result == "OK")
        return module.describe();
      return result + (module.describe() == "9999" ? "" : ", and changed");
    });
  }

  void expectLoad(int world, const std::string &result) {
    EXPECT_EQ(load(world), std::vector<std::string>(size_t(world), result));
  }

  /// A load on one rank fails, and leaves states as they are.
  void expectRefused(const std::string &message) {
    std::vector<std::string> result = load(1);
    EXPECT_EQ(result[0].substr(0, message.size()), message) << result[0];
    EXPECT_EQ(result[0].find(", and changed"), std::string::npos);
  }

  TemporaryDirectory directory;
  const std::string pattern = directory.path("state.{rank}.safetensors");
  const std::string file0 = directory.path("state.0.safetensors");
  const std::string manifest = directory.path("state.manifest.json");
};

} // namespace

TEST_F(CheckpointTest, KeepsEveryBit) {
  for (int world : {1, 2, 3}) {
    save(world, world);
    expectLoad(world, std::to_string(world));
  }
  // The job of three ranks has left its other files; nobody minds.
  save(1, 77);
  expectLoad(1, "77");
}

TEST_F(CheckpointTest, Files) {
  save(2, 5);
  EXPECT_EQ(directory.list(), (std::vector<std::string>{
                                  "state.0.safetensors", "state.1.safetensors",
                                  "state.manifest.json"}));
  SafetensorsReader reader;
  ASSERT_TRUE(reader.open(directory.path("state.1.safetensors")).isOk());
  EXPECT_EQ(reader.header().tensors.size(), 6u);
  EXPECT_EQ(reader.find("powersgd.iter")->type, TensorType::I64);
  EXPECT_EQ(reader.find("powersgd.iter")->shape, std::vector<int64_t>());
  EXPECT_EQ(reader.find("powersgd.generator")->type, TensorType::I32);
  EXPECT_EQ(reader.find("powersgd.generator")->shape,
            std::vector<int64_t>{625});
  // Of two shapes: flat.
  EXPECT_EQ(reader.find("b0.error")->shape, std::vector<int64_t>{620});
  EXPECT_EQ(reader.find("b0.q")->shape, (std::vector<int64_t>{20, 2}));
  EXPECT_EQ(reader.find("b1.q")->type, TensorType::BF16);
  EXPECT_EQ(reader.header().metadata.at("ddphook.rank"), "1");
  EXPECT_EQ(reader.header().metadata.at("ddphook.world_size"), "2");
}

TEST_F(CheckpointTest, OneRankNeedsNoPlaceForItsNumber) {
  const std::string plain = directory.path("all");
  EXPECT_EQ(runJob(1,
                   [&](StateModule &module) {
                     module.fill(3);
                     std::string saved = show(ddphook_state_save(
                         &module.compiled, plain.c_str(), 0));
                     module.fill(4);
                     std::string loaded = show(ddphook_state_load(
                         &module.compiled, plain.c_str(), 0, nullptr));
                     return saved + loaded + module.describe();
                   })[0],
            "OKOK3");
  EXPECT_EQ(directory.list(),
            (std::vector<std::string>{"all", "all.manifest.json"}));
  EXPECT_EQ(runJob(2,
                   [&](StateModule &module) {
                     return show(ddphook_state_save(&module.compiled,
                                                    plain.c_str(), 0));
                   })[1],
            "INVALID_ARGUMENT: expected {rank} in the pattern of a checkpoint "
            "of 2 ranks, but got '" +
                plain + "'");
}

/// A newer save takes the place of an older one, many times over.
TEST_F(CheckpointTest, ReplacesTheOneBefore) {
  EXPECT_EQ(runJob(2,
                   [&](StateModule &module) -> std::string {
                     for (int salt = 0; salt < 20; ++salt) {
                       module.fill(salt);
                       std::string status = show(ddphook_state_save(
                           &module.compiled, pattern.c_str(), 0));
                       if (status != "OK")
                         return status;
                     }
                     return "OK";
                   }),
            (std::vector<std::string>{"OK", "OK"}));
  expectLoad(2, "19");
  EXPECT_EQ(directory.list().size(), 3u);
}

TEST_F(CheckpointTest, AnotherWorldSize) {
  save(2, 12);
  for (int world : {1, 3}) {
    std::vector<std::string> results = runJob(world, [&](StateModule &module) {
      module.fill(9999);
      ddphook_state_info_t info = {};
      info.struct_size = sizeof(info);
      std::string status =
          show(ddphook_state_load(&module.compiled, pattern.c_str(), 0, &info));
      return status + " " + module.describe() + " of " +
             std::to_string(info.world_size) + ": " +
             std::to_string(info.loaded) + " loaded, " +
             std::to_string(info.zeroed) + " zeroed, " +
             std::to_string(info.kept) + " kept\n" + info.report;
    });
    for (const std::string &result : results)
      EXPECT_EQ(result,
                "OK 12 without errors of 2: 4 loaded, 2 zeroed, 0 kept\n"
                "state 'b0.error' of 'w', 'b' begins at zero\n"
                "state 'b1.error' of 'v' begins at zero\n");
    for (const std::string &result : load(world, DDPHOOK_STATE_STRICT))
      EXPECT_EQ(result, "FAILED_PRECONDITION: the checkpoint of '" + manifest +
                            "' has another world size: expected " +
                            std::to_string(world) + " ranks, but got 2");
  }
  // Rank 0's file is enough.
  std::filesystem::remove(directory.path("state.1.safetensors"));
  expectLoad(3, "12 without errors");
}

TEST_F(CheckpointTest, AnotherPlan) {
  save(1, 1);
  auto states = powersgdStates();
  states[3].method = "mean #ddp.other";
  auto other = [&](const std::function<std::string(StateModule &)> &body) {
    return runJob(1, body, states)[0];
  };
  EXPECT_EQ(other([&](StateModule &module) {
              return show(ddphook_state_load(&module.compiled, pattern.c_str(),
                                             0, nullptr));
            }),
            "PLAN_MISMATCH: the checkpoint of '" + manifest +
                "' belongs to another plan, and does not fit this one: its "
                "state 'powersgd.q' of gradient 'w' was kept for 'mean "
                "#ddp.powersgd', but the module has 'mean #ddp.other'");
  // A save of it would destroy the other's checkpoint.
  EXPECT_EQ(
      other([&](StateModule &module) {
        return show(ddphook_state_save(&module.compiled, pattern.c_str(), 0));
      }),
      "FAILED_PRECONDITION: '" + manifest +
          "' belongs to a checkpoint of another program; remove it, or save "
          "with DDPHOOK_STATE_REPLACE");
  expectLoad(1, "1");
  EXPECT_EQ(other([&](StateModule &module) {
              return show(ddphook_state_save(&module.compiled, pattern.c_str(),
                                             DDPHOOK_STATE_REPLACE));
            }),
            "OK");
  EXPECT_EQ(load(1)[0].find("PLAN_MISMATCH"), 0u);
}

/// What is in the place of a rank's file is found before anything is written.
TEST_F(CheckpointTest, PlaceOfAFileIsTaken) {
  std::filesystem::create_directory(file0);
  const std::string taken =
      "IO_ERROR: cannot write '" + file0 + "': not a regular file";
  EXPECT_EQ(runJob(2,
                   [&](StateModule &module) {
                     return show(ddphook_state_save(&module.compiled,
                                                    pattern.c_str(), 0));
                   }),
            (std::vector<std::string>{
                taken, "ABORTED: rank 0 could not save its states: cannot "
                       "write '" +
                           file0 + "': not a regular file (IO_ERROR)"}));
  EXPECT_EQ(directory.list(), std::vector<std::string>{"state.0.safetensors"});
}

TEST_F(CheckpointTest, NothingThere) {
  EXPECT_EQ(load(2)[1], "IO_ERROR: there is no checkpoint: '" + manifest +
                            "' does not exist");
  const std::string none = directory.path("none/{rank}");
  const std::vector<std::string> texts = runJob(2, [&](StateModule &module) {
    return show(ddphook_state_save(&module.compiled, none.c_str(), 0));
  });
  EXPECT_EQ(texts[0].find("IO_ERROR: cannot create '" +
                          directory.path("none/manifest.json.pending-")),
            0u)
      << texts[0];
}

TEST_F(CheckpointTest, AMissingFile) {
  save(2, 8);
  std::filesystem::remove(directory.path("state.1.safetensors"));
  const std::string message = "cannot open '" +
                              directory.path("state.1.safetensors") +
                              "': No such file or directory";
  EXPECT_EQ(load(2), (std::vector<std::string>{
                         "ABORTED: rank 1 could not load its states: " +
                             message + " (IO_ERROR)",
                         "IO_ERROR: " + message}));
}

TEST_F(CheckpointTest, ForeignFiles) {
  // The file of the other rank.
  save(2, 8);
  directory.write("state.1.safetensors", directory.read("state.0.safetensors"));
  EXPECT_EQ(load(2)[1],
            "DATA_LOSS: '" + directory.path("state.1.safetensors") +
                "': expected 'ddphook.rank' to be 1 in its metadata, but got "
                "'0'");
  // Of an earlier checkpoint.
  save(1, 1);
  const std::string old = directory.read("state.0.safetensors");
  save(1, 2);
  directory.write("state.0.safetensors", old);
  expectRefused("DATA_LOSS: '" + file0 +
                "' is not rank 0's file of the "
                "checkpoint of '" +
                manifest + "', but of another one");
  // One that some script wrote, beside a manifest.
  int64_t counter = 7;
  ASSERT_TRUE(writeSafetensors(
                  file0, {{"powersgd.iter", TensorType::I64, {}, &counter}})
                  .isOk());
  expectRefused("DATA_LOSS: '" + file0 +
                "' is not rank 0's file of the "
                "checkpoint of '" +
                manifest + "'");
}

/// Every byte of a checkpoint matters: any change is found.
TEST_F(CheckpointTest, FlippedBitsAndCuts) {
  save(1, 33);
  for (const char *name : {"state.0.safetensors", "state.manifest.json"}) {
    const std::string good = directory.read(name);
    std::vector<std::string> bad;
    // White space of the manifest may change.
    for (size_t at = 0; at < good.size(); at += good.size() / 150 + 1)
      if (!std::isspace(static_cast<unsigned char>(good[at])))
        for (char bit : {1, 64}) {
          bad.push_back(good);
          bad.back()[at] = static_cast<char>(bad.back()[at] ^ bit);
        }
    for (size_t size :
         {size_t(0), size_t(1), size_t(7), good.size() / 2, good.size() - 3})
      bad.push_back(good.substr(0, size));
    EXPECT_EQ(runJob(1,
                     [&](StateModule &module) -> std::string {
                       module.fill(9999);
                       for (size_t i = 0; i < bad.size(); ++i) {
                         directory.write(name, bad[i]);
                         ddphook_status_t status = ddphook_state_load(
                             &module.compiled, pattern.c_str(), 0, nullptr);
                         if (status != DDPHOOK_DATA_LOSS ||
                             module.describe() != "9999")
                           return std::string(name) + ", change " +
                                  std::to_string(i) + ": " + show(status) +
                                  ", " + module.describe();
                       }
                       directory.write(name, good);
                       return show(ddphook_state_load(&module.compiled,
                                                      pattern.c_str(), 0,
                                                      nullptr)) +
                              " " + module.describe();
                     })[0],
              "OK 33");
  }
}

TEST_F(CheckpointTest, OtherManifests) {
  save(1, 1);
  directory.write("state.manifest.json", "{}");
  expectRefused("DATA_LOSS: '" + manifest +
                "' is not the manifest of a checkpoint");
  // Somebody's file is not to be replaced.
  EXPECT_EQ(runJob(1,
                   [&](StateModule &module) {
                     return show(ddphook_state_save(&module.compiled,
                                                    pattern.c_str(), 0));
                   })[0],
            "DATA_LOSS: '" + manifest +
                "' is not the manifest of a checkpoint; remove it, or save "
                "with DDPHOOK_STATE_REPLACE");
  EXPECT_EQ(directory.read("state.manifest.json"), "{}");
  save(1, 2, DDPHOOK_STATE_REPLACE);
  expectLoad(1, "2");
  directory.write("state.manifest.json",
                  R"({"format":"ddphook checkpoint","version":1})");
  expectRefused("UNSUPPORTED: '" + manifest +
                "': expected a checkpoint of version 2, but got 1");
}

/// Whatever is in the manifest's place, a load gives an error.
TEST_F(CheckpointTest, NonsenseForAManifest) {
  save(1, 1);
  const std::string good = directory.read("state.manifest.json");
  const std::string deep(60000, '[');
  std::vector<std::string> bad = {
      "[]",
      "null",
      deep,
      R"({"format":"ddphook checkpoint"})",
      R"({"format":"ddphook checkpoint","version":)" + deep,
      R"({"format":"ddphook checkpoint","version":)" + deep +
          std::string(60000, ']') + "}",
      R"({"format":"ddphook checkpoint","version":1,"x":)" + deep +
          std::string(60000, ']') + "}",
      std::string(1 << 20, ' ')};
  const unsigned seed = 777;
  RecordProperty("seed", static_cast<int>(seed));
  std::mt19937 random(seed);
  const std::string alphabet = "{}[]\",:0123456789-.eE+trufalsn\\ \n\xff";
  for (int i = 0; i < 500; ++i) {
    std::string text = good;
    for (unsigned change = 0; change <= random() % 3; ++change) {
      const size_t at = random() % text.size();
      if (random() % 2)
        text[at] = alphabet[random() % alphabet.size()];
      else
        text.insert(at, text.substr(random() % text.size(), random() % 30));
    }
    bad.push_back(text);
  }
  EXPECT_EQ(runJob(1,
                   [&](StateModule &module) -> std::string {
                     int refused = 0;
                     for (const std::string &text : bad) {
                       directory.write("state.manifest.json", text);
                       module.fill(9999);
                       ddphook_status_t status = ddphook_state_load(
                           &module.compiled, pattern.c_str(), 0, nullptr);
                       const std::string value = module.describe();
                       if (status == DDPHOOK_OK ? value != "1"
                                                : value != "9999")
                         return text;
                       refused += status != DDPHOOK_OK;
                     }
                     // Changed white space is no damage.
                     return refused > 400 ? "fine" : "too few are refused";
                   })[0],
            "fine");
}

TEST_F(CheckpointTest, TwoModulesOfOneStateName) {
  ddphook_options_t options = jobOptions(0, 1, 0, "auto", 10);
  ddphook_context_t *context = nullptr;
  ASSERT_EQ(show(ddphook_context_create(&options, &context)), "OK");
  {
    StateModule first(0), second(0);
    ASSERT_EQ(show(ddphook_module_load(context, &first.compiled)), "OK");
    ASSERT_EQ(show(ddphook_module_load(context, &second.compiled)), "OK");
    auto save = [&](StateModule &module, uint32_t flags = 0) {
      return show(ddphook_state_save(&module.compiled, pattern.c_str(), flags));
    };
    first.fill(1);
    second.fill(2);
    EXPECT_EQ(save(first), "OK");
    for (uint32_t flags : {0, int(DDPHOOK_STATE_REPLACE)})
      EXPECT_EQ(save(second, flags),
                "FAILED_PRECONDITION: another loaded module, which also has a "
                "state 'powersgd.iter', saves to '" +
                    manifest + "'");
    EXPECT_EQ(
        show(ddphook_state_load(&second.compiled, pattern.c_str(), 0, nullptr)),
        "OK");
    EXPECT_EQ(second.describe(), "1");
    EXPECT_EQ(save(first), "OK");
    ASSERT_EQ(show(ddphook_module_unload(&first.compiled)), "OK");
    EXPECT_EQ(save(second), "OK");
  }
  ddphook_context_destroy(context);
}

TEST_F(CheckpointTest, BadCalls) {
  EXPECT_EQ(show(ddphook_state_save(nullptr, "x", 0)),
            "INVALID_ARGUMENT: expected a module, but got a null pointer");
  EXPECT_EQ(show(ddphook_state_load(nullptr, "x", 0, nullptr)),
            "INVALID_ARGUMENT: expected a module, but got a null pointer");
  StateModule unloaded(0);
  EXPECT_EQ(show(ddphook_state_save(&unloaded.compiled, "x", 0)),
            "FAILED_PRECONDITION: the module is not loaded");
  EXPECT_EQ(show(ddphook_state_load(&unloaded.compiled, "x", 0, nullptr)),
            "FAILED_PRECONDITION: the module is not loaded");
  auto call = [&](const std::function<ddphook_status_t(StateModule &)> &body) {
    return runJob(1,
                  [&](StateModule &module) { return show(body(module)); })[0];
  };
  EXPECT_EQ(call([](StateModule &m) {
              return ddphook_state_save(&m.compiled, nullptr, 0);
            }),
            "INVALID_ARGUMENT: expected a pattern of file names, but got a "
            "null pointer");
  EXPECT_EQ(call([](StateModule &m) {
              return ddphook_state_load(&m.compiled, "", 0, nullptr);
            }),
            "INVALID_ARGUMENT: expected a pattern of file names, but got an "
            "empty one");
  EXPECT_EQ(call([](StateModule &m) {
              return ddphook_state_save(&m.compiled, "", 0);
            }),
            "INVALID_ARGUMENT: expected a pattern of file names, but got an "
            "empty one");
  EXPECT_EQ(call([&](StateModule &m) {
              return ddphook_state_save(&m.compiled, pattern.c_str(), 2);
            }),
            "INVALID_ARGUMENT: expected no flags except DDPHOOK_STATE_REPLACE, "
            "but got 2");
  EXPECT_EQ(call([&](StateModule &m) {
              return ddphook_state_load(&m.compiled, pattern.c_str(), 17,
                                        nullptr);
            }),
            "INVALID_ARGUMENT: expected no flags except DDPHOOK_STATE_STRICT, "
            "DDPHOOK_STATE_PLAIN and DDPHOOK_STATE_PARTIAL, but got 17");
  EXPECT_EQ(call([&](StateModule &m) {
              return ddphook_state_load(
                  &m.compiled, pattern.c_str(),
                  DDPHOOK_STATE_STRICT | DDPHOOK_STATE_PARTIAL, nullptr);
            }),
            "INVALID_ARGUMENT: expected DDPHOOK_STATE_STRICT or "
            "DDPHOOK_STATE_PARTIAL, but got both");
  EXPECT_EQ(call([&](StateModule &m) {
              ddphook_state_info_t info = {};
              return ddphook_state_load(&m.compiled, pattern.c_str(), 0, &info);
            }),
            "INVALID_ARGUMENT: expected info.struct_size to be set, but got 0");
  for (bool isSave : {false, true})
    EXPECT_EQ(call([&](StateModule &m) {
                (void)ddphook_rt_enter(m.handle, 0);
                ddphook_status_t status =
                    isSave ? ddphook_state_save(&m.compiled, pattern.c_str(), 0)
                           : ddphook_state_load(&m.compiled, pattern.c_str(), 0,
                                                nullptr);
                (void)ddphook_rt_leave(m.handle);
                return status;
              }),
              "FAILED_PRECONDITION: an entry point is running");
  EXPECT_TRUE(directory.list().empty());
}

/// Ranks that make different calls fail together.
TEST_F(CheckpointTest, RanksDisagree) {
  save(2, 6);
  const int port = freePort();
  std::vector<std::string> texts;
  for (const RankResult &result : runRanks(2, [&](int rank) {
         return inJob(rank, 2, port, powersgdStates(), [&](StateModule &m) {
           return show(ddphook_state_load(&m.compiled, pattern.c_str(),
                                          rank ? DDPHOOK_STATE_STRICT : 0,
                                          nullptr));
         });
       }))
    texts.push_back(result.text);
  EXPECT_EQ(texts,
            (std::vector<std::string>{"INVALID_ARGUMENT: rank 1 loads states "
                                      "with different flags than rank 0",
                                      "INVALID_ARGUMENT: rank 0 loads states "
                                      "with different flags than rank 1"}));
}
