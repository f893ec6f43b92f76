// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The flags of ddphook-exec and ddphook-run, good and bad.

#include "file_pattern.h"
#include "numbers.h"
#include "planned_files.h"
#include "run_options.h"
#include "summary.h"

#include <gtest/gtest.h>

#include <random>
#include <set>

using namespace ddphook;

using Strings = std::vector<std::string>;

TEST(RunOptions, AcceptsBothSpellings) {
  for (const Strings &arguments :
       {Strings{"m.so", "--entry=step", "--ranks=3", "--steps=2",
                "--inputs=a=b", "--outputs=o", "--device=cuda", "--other=1",
                "-x"},
        Strings{"--entry", "step", "--ranks", "3", "m.so", "--steps", "2",
                "--other=1", "--inputs", "a=b", "--outputs", "o", "--device",
                "cuda", "-x"}}) {
    RunOptions options;
    Strings rest;
    Status status = parseRunOptions(arguments, options, rest);
    ASSERT_TRUE(status.isOk()) << status.message();
    EXPECT_EQ(options.entry, "step");
    EXPECT_EQ(options.ranks, 3);
    EXPECT_EQ(options.steps, 2);
    EXPECT_EQ(options.inputs, "a=b");
    EXPECT_FALSE(options.randomSeed);
    EXPECT_EQ(options.outputs, "o");
    EXPECT_EQ(chooseDevice(options), "cuda");
    EXPECT_EQ(rest, (Strings{"m.so", "--other=1", "-x"}));
  }
}

TEST(RunOptions, HasDefaults) {
  RunOptions options;
  Strings rest;
  ASSERT_TRUE(parseRunOptions({"--entry=e"}, options, rest).isOk());
  EXPECT_FALSE(options.ranks);
  EXPECT_EQ(options.steps, 1);
  EXPECT_TRUE(options.inputs.empty());
  EXPECT_TRUE(options.outputs.empty());
  EXPECT_EQ(chooseDevice(options), "host");
}

TEST(RunOptions, AcceptsRandomInputs) {
  RunOptions options;
  Strings rest;
  Status status = parseRunOptions(
      {"--entry=e", "--inputs=random:18446744073709551615"}, options, rest);
  ASSERT_TRUE(status.isOk()) << status.message();
  EXPECT_EQ(options.randomSeed, 18446744073709551615u);
  EXPECT_TRUE(options.inputs.empty());
}

TEST(RunOptions, NamesEveryDefect) {
  const struct {
    Strings arguments;
    const char *message;
  } table[] = {
      {{}, "--entry=NAME is missing"},
      {{"--entry"}, "--entry needs a value"},
      {{"--entry="}, "--entry has an empty value"},
      {{"--entry=a", "--entry=a"}, "--entry is given twice"},
      {{"--ranks=0"},
       "expected --ranks to be a number from 1 to 1024, but got "
       "'0'"},
      {{"--ranks=1025"},
       "expected --ranks to be a number from 1 to 1024, but got '1025'"},
      {{"--ranks=-1"},
       "expected --ranks to be a number from 1 to 1024, but got '-1'"},
      {{"--ranks=2x"},
       "expected --ranks to be a number from 1 to 1024, but got '2x'"},
      {{"--ranks= 2"},
       "expected --ranks to be a number from 1 to 1024, but got ' 2'"},
      {{"--ranks=99999999999"},
       "expected --ranks to be a number from 1 to 1024, but got "
       "'99999999999'"},
      {{"--steps=0"}, "expected --steps to be a positive number, but got '0'"},
      {{"--steps=1.5"},
       "expected --steps to be a positive number, but got '1.5'"},
      {{"--inputs=random"},
       "expected --inputs=random:SEED with a seed from 0 to 2^64-1, but got "
       "'random'"},
      {{"--inputs=random:"},
       "expected --inputs=random:SEED with a seed from 0 to 2^64-1, but got "
       "'random:'"},
      {{"--inputs=random:-1"},
       "expected --inputs=random:SEED with a seed from 0 to 2^64-1, but got "
       "'random:-1'"},
      {{"--inputs=random:18446744073709551616"},
       "expected --inputs=random:SEED with a seed from 0 to 2^64-1, but got "
       "'random:18446744073709551616'"},
      {{"--state-in=strict:"}, "--state-in=strict: lacks a pattern of files"},
      {{"--free-space=maybe"},
       "expected --free-space to be check or ignore, but got 'maybe'"},
      {{"--progress=1"}, "expected --progress to be on or off, but got '1'"},
      {{"--state-in=partial:"}, "--state-in=partial: lacks a pattern of files"},
      {{"--state-out="}, "--state-out has an empty value"},
      {{"--quiet=on"}, "--quiet takes no value, but got '--quiet=on'"},
  };
  for (const auto &row : table) {
    RunOptions options;
    Strings rest;
    Status status = parseRunOptions(row.arguments, options, rest);
    EXPECT_EQ(status.code(), DDPHOOK_INVALID_ARGUMENT);
    EXPECT_EQ(status.message(), row.message);
  }
}

TEST(Patterns, Expand) {
  EXPECT_EQ(expandPattern("d/in.{rank}.{step}.{rank}{x}{rank", 3, 12),
            "d/in.3.12.3{x}{rank");
  EXPECT_EQ(expandPattern("", 0, 0), "");
}

TEST(Patterns, MustNotOverwrite) {
  auto check = [](const char *outputs, int64_t steps, int32_t worldSize,
                  const char *inputs = "in") {
    RunOptions options;
    options.outputs = outputs;
    options.inputs = inputs;
    options.steps = steps;
    return checkPatterns(options, worldSize).message();
  };
  EXPECT_EQ(check("", 2, 2), "");
  EXPECT_EQ(check("out", 1, 1), "");
  EXPECT_EQ(check("{rank}{step}", 2, 2), "");
  EXPECT_EQ(check("{rank}{step}", 11, 10), "");
  EXPECT_EQ(check("f{rank}{step}", 11, 12),
            "expected --outputs to give every file its own name, but with "
            "'f{rank}{step}' rank 1 in step 10 and rank 11 in step 0 both "
            "write 'f110'");
  EXPECT_EQ(check("{step}", 1, 2),
            "expected {rank} in --outputs with 2 ranks, but got '{step}'");
  EXPECT_EQ(check("{rank}", 3, 2),
            "expected {step} in --outputs with 3 steps, but got '{rank}'");
  EXPECT_EQ(check("f{rank}", 1, 2, "f{rank}"),
            "--outputs would overwrite --inputs 'f0'");
  EXPECT_EQ(check("d/../f1{step}", 8, 1, "./f17"),
            "--outputs would overwrite --inputs './f17'");
  EXPECT_EQ(check("f1{step}", 8, 1, "f18"), "");
}

/// A pattern of a few of the characters that can matter.
static std::string drawPattern(std::mt19937 &random) {
  const char *const parts[] = {"{rank}", "{step}", "0", "1", "2", "x"};
  std::string pattern;
  for (size_t count = random() % 5 + 1; count > 0; --count)
    pattern += parts[random() % std::size(parts)];
  return pattern;
}

TEST(Patterns, CollideAsTheirNamesDo) {
  std::mt19937 random(20261);
  int collisions = 0;
  for (int round = 0; round < 3000; ++round) {
    FileSet sets[2];
    for (FileSet &set : sets)
      set = {drawPattern(random), static_cast<int32_t>(random() % 14 + 1),
             static_cast<int64_t>(random() % 130 + 1)};
    std::set<std::string> names;
    for (int32_t rank = 0; rank < sets[0].ranks; ++rank)
      for (int64_t step = 0; step < sets[0].steps; ++step)
        names.insert(expandPattern(sets[0].pattern, rank, step));
    bool collide = false;
    for (int32_t rank = 0; rank < sets[1].ranks; ++rank)
      for (int64_t step = 0; step < sets[1].steps; ++step)
        collide |= names.count(expandPattern(sets[1].pattern, rank, step)) != 0;
    const std::string what = sets[0].pattern + " and " + sets[1].pattern;
    std::optional<Collision> found = findCollision(sets[0], sets[1]);
    EXPECT_EQ(found.has_value(), collide) << what;
    if (found) {
      ++collisions;
      EXPECT_EQ(
          expandPattern(sets[0].pattern, found->first.rank, found->first.step),
          expandPattern(sets[1].pattern, found->second.rank,
                        found->second.step))
          << what;
    }

    const FileSet &set = sets[0];
    if (set.pattern.find("{rank}") == std::string::npos ||
        set.pattern.find("{step}") == std::string::npos)
      continue;
    const bool isUnique =
        names.size() == static_cast<size_t>(set.ranks * set.steps);
    EXPECT_EQ(!findCollision(set).has_value(), isUnique) << set.pattern;
  }
  EXPECT_GT(collisions, 100);
}

TEST(FreeSpace, FilesThatCannotFit) {
  EntrySignature signature;
  EntryResult &result = signature.results.emplace_back();
  result.shape = {1 << 20};
  result.bytes = 4 << 20;
  RunOptions options;
  auto check = [&](int32_t ranks) {
    return compareWithFreeSpace(planFiles(options, signature, ranks)).status;
  };
  options.outputs = testing::TempDir() + "out.{rank}.{step}";
  EXPECT_TRUE(check(1).isOk());
  options.steps = int64_t(1) << 40;
  EXPECT_EQ(check(1024).code(), DDPHOOK_RESOURCE_EXHAUSTED);
  EXPECT_EQ(check(1024).message().find("the outputs need 4.73e+03 EB, but '"),
            0u)
      << check(1024).message();
  // States alone, and on the disk of the outputs.
  signature.stateCount = 1;
  signature.stateBytes = uint64_t(1) << 62;
  options.stateOut = testing::TempDir() + "state.{rank}";
  EXPECT_EQ(check(1024).message().find(
                "the outputs and states need 9.45e+03 EB, but '"),
            0u)
      << check(1024).message();
  options.outputs = "";
  EXPECT_EQ(check(1).message().find("the states need 4.61 EB, but '"), 0u)
      << check(1).message();
  // Then the run says what is wrong.
  options.stateOut = "/no/such/directory/{rank}";
  EXPECT_TRUE(check(1).isOk());
}

TEST(PlannedFiles, AreDescribed) {
  EntrySignature signature;
  EntryResult &result = signature.results.emplace_back();
  result.shape = {7};
  result.bytes = 28;
  RunOptions options;
  EXPECT_TRUE(planFiles(options, signature, 3).empty());
  options.outputs = "o.{rank}.{step}";
  options.steps = 4;
  options.stateOut = "s.{rank}";
  std::vector<PlannedFiles> files = planFiles(options, signature, 3);
  ASSERT_EQ(files.size(), 2u);
  EXPECT_EQ(describeFiles(files[0]), "12 files of " +
                                         printBytes(12 * files[0].fileBytes) +
                                         " in all as 'o.{rank}.{step}'");
  EXPECT_GT(files[0].fileBytes, 28);
  files[1].set.ranks = 1;
  files[1].fileBytes = 5000;
  EXPECT_EQ(describeFiles(files[1]), "1 file of 5 kB as 's.{rank}'");
}

TEST(Numbers, HaveThreeDigitsAndAUnit) {
  EXPECT_EQ(printBytes(0), "0 bytes");
  EXPECT_EQ(printBytes(999), "999 bytes");
  EXPECT_EQ(printBytes(1000), "1 kB");
  EXPECT_EQ(printBytes(999499), "999 kB");
  EXPECT_EQ(printBytes(999500), "1 MB");
  EXPECT_EQ(printBytes(1.234e9), "1.23 GB");
  EXPECT_EQ(printBytes(5e21), "5e+03 EB");
  EXPECT_EQ(printMilliseconds(12.3456e-6), "0.0123 ms");
  EXPECT_EQ(printMilliseconds(1.25), "1250 ms");
  EXPECT_EQ(printDuration(0.2512), "0.25 s");
  EXPECT_EQ(printDuration(9.96), "10 s");
  EXPECT_EQ(printDuration(59.4), "59 s");
  EXPECT_EQ(printDuration(185), "3 min 5 s");
  EXPECT_EQ(printDuration(7620), "2 h 7 min");
  EXPECT_EQ(printDuration(1e300), "277777777777 h 46 min");
  EXPECT_EQ(printCount(1, "file") + ", " + printCount(2, "file"),
            "1 file, 2 files");
}

TEST(StepTimes, Median) {
  auto median = [](std::initializer_list<double> times) {
    StepTimes steps;
    for (double time : times)
      steps.add(time);
    return steps.median();
  };
  EXPECT_EQ(median({}), 0);
  EXPECT_EQ(median({4}), 4);
  EXPECT_EQ(median({8, 1}), 4.5);
  EXPECT_EQ(median({9, 1, 2}), 2);
  EXPECT_EQ(median({9, 1, 2, 4}), 3);
  // Of many steps the last ones count.
  StepTimes steps;
  for (int i = 0; i < 1 << 20; ++i)
    steps.add(1);
  for (int i = 0; i < (1 << 19) + 1; ++i)
    steps.add(2);
  EXPECT_EQ(steps.median(), 2);
}

TEST(Summary, SaysWhatHappened) {
  RunOptions options;
  options.entry = "step";
  options.steps = 3;
  EntrySignature signature;
  Summary summary = {"tool", options, signature, 2, 1.5, {}};
  summary.figures.medianSeconds = 0.25;
  EXPECT_EQ(describeRun(summary),
            "tool: steps: 3 of 'step' on 2 ranks in 1.5 s, 250 ms each "
            "(median)\n"
            "tool: wire: no collectives\n");
  ddphook_stats_t &stats = summary.figures.stats;
  stats.collectives = 6;
  stats.wire_bytes = 1000;
  stats.uncompressed_bytes = 4500;
  signature.stateCount = 2;
  signature.stateBytes = 40;
  EXPECT_EQ(describeRun(summary),
            "tool: steps: 3 of 'step' on 2 ranks in 1.5 s, 250 ms each "
            "(median)\n"
            "tool: wire: 1 kB a rank in 6 collectives, uncompressed 4.5 kB, "
            "ratio 4.50\n"
            "tool: states: 2 of 40 bytes a rank\n");
  stats.elements_before_compression = 30;
  stats.elements_after_compression = 8;
  EXPECT_NE(describeRun(summary).find("ratio 4.50; compression_stats: rate "
                                      "3.75, numel 30 before, 8 after\n"),
            std::string::npos)
      << describeRun(summary);
}

TEST(RunOptions, SuggestsFlags) {
  EXPECT_EQ(unknownFlag("--input=3").message(),
            "unknown flag '--input=3', did you mean --inputs?");
  EXPECT_EQ(unknownFlag("-step").message(),
            "unknown flag '-step', did you mean --steps?");
  EXPECT_EQ(unknownFlag("--verbose").message(), "unknown flag '--verbose'");
  EXPECT_EQ(unknownFlag("--pipeline=x").message(),
            "unknown flag '--pipeline=x'");
  EXPECT_EQ(unknownFlag("--pipeline=x", {"ddp-pipeline"}).message(),
            "unknown flag '--pipeline=x', did you mean --ddp-pipeline?");
  EXPECT_EQ(unknownFlag("--=x").message(), "unknown flag '--=x'");
  RunOptions options;
  Strings rest;
  ASSERT_TRUE(parseRunOptions({"--quiet", "--entry=e"}, options, rest).isOk());
  EXPECT_TRUE(options.isQuiet);
  EXPECT_TRUE(rest.empty());
}

TEST(Patterns, States) {
  auto check = [](const char *in, const char *out, int32_t worldSize) {
    RunOptions options;
    options.outputs = "out{rank}{step}";
    options.inputs = "in";
    options.steps = 3;
    options.stateIn = in;
    options.stateOut = out;
    return checkPatterns(options, worldSize).message();
  };
  EXPECT_EQ(check("s", "s", 1), "");
  EXPECT_EQ(check("s", "", 2), "");
  EXPECT_EQ(check("s{rank}", "s{rank}", 2), "");
  EXPECT_EQ(check("", "s", 2),
            "expected {rank} in --state-out with 2 ranks, but got 's'");
  EXPECT_EQ(check("s{step}", "", 1),
            "expected no {step} in --state-in, but got 's{step}'");
  EXPECT_EQ(check("", "s{rank}{step}", 1),
            "expected no {step} in --state-out, but got 's{rank}{step}'");
  EXPECT_EQ(check("", "in", 1),
            "--state-out would overwrite other files of the run, 'in'");
  EXPECT_EQ(check("", "out{rank}2", 2),
            "--state-out would overwrite other files of the run, 'out02'");
  EXPECT_EQ(check("out01", "", 1),
            "--outputs would overwrite --state-in 'out01'");
}

TEST(RunOptions, States) {
  RunOptions options;
  Strings rest;
  ASSERT_TRUE(
      parseRunOptions({"--entry=a", "--state-in=x{rank}", "--state-out", "y"},
                      options, rest)
          .isOk());
  EXPECT_EQ(options.stateIn, "x{rank}");
  EXPECT_EQ(options.stateOut, "y");
  EXPECT_FALSE(options.isStateStrict);
  RunOptions strict;
  ASSERT_TRUE(
      parseRunOptions({"--entry=a", "--state-in=strict:x"}, strict, rest)
          .isOk());
  EXPECT_EQ(strict.stateIn, "x");
  EXPECT_TRUE(strict.isStateStrict);
  EXPECT_FALSE(strict.isStatePartial);
  RunOptions partial;
  ASSERT_TRUE(
      parseRunOptions({"--entry=a", "--state-in=partial:x"}, partial, rest)
          .isOk());
  EXPECT_EQ(partial.stateIn, "x");
  EXPECT_FALSE(partial.isStateStrict);
  EXPECT_TRUE(partial.isStatePartial);
}
