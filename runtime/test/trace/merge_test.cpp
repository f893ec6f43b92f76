// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Traces are read by a JSON parser that is not ours. Ranks that died, clocks
// that differ, names that do harm, parts of other jobs, and whose turn it was
// when ranks diverge.

#include "trace/trace_test_util.h"

#include "trace/clock.h"
#include "trace/divergence.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace ddphook;
using namespace ddphook::test;
using namespace ddphook::trace;
using nlohmann::json;

namespace {

/// A rank that is made up, with a part beside `path`.
struct Rank {
  Rank(const std::string &path, const PartIdentity &identity) {
    std::unique_ptr<RankRecording> part;
    file = partPath(path, identity.rank);
    EXPECT_EQ(show(RankRecording::create(identity, 256, file, &part)), "OK");
    recorder.open(std::move(part));
  }

  /// A step with a kernel in it.
  void step(const std::string &name = "train") {
    recorder.beginStep(recorder.addName(Name(Category::Step, name)));
    {
      Scope scope(recorder, Function::cast);
    }
    recorder.endStep();
  }

  /// An event at a time of the rank's own clock.
  void at(int64_t begin) {
    Ring &ring = recorder.ring(Lane::Steps);
    ring.begin(static_cast<uint32_t>(Function::add), begin);
    ring.end();
  }

  void close() { recorder.part()->close(/*isRemote=*/false); }

  Recorder recorder;
  std::string file;
};

} // namespace

TEST(Merge, AllRanksInOneFile) {
  TemporaryDirectory directory;
  const std::string path = directory.file("trace.json");
  std::vector<std::unique_ptr<Rank>> ranks;
  for (int rank = 0; rank < 3; ++rank) {
    ranks.push_back(std::make_unique<Rank>(path, identity(rank, 3)));
    ranks.back()->step();
    ranks.back()->recorder.part()->close(/*isRemote=*/true);
  }
  MergeResult result;
  ASSERT_EQ(show(mergeParts(findParts(path), "run", path, &result)), "OK");
  EXPECT_TRUE(result.problems.empty());
  EXPECT_EQ(result.merged.size(), 3u);
  const json trace = readJson(path);
  EXPECT_EQ(trace["displayTimeUnit"], "ms");
  const json &about = trace["ddphook"];
  EXPECT_EQ(about["version"], 1);
  EXPECT_EQ(about["run_id"], "run");
  EXPECT_EQ(about["world_size"], 3);
  EXPECT_TRUE(about["failures"].empty());
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(about["ranks"][rank]["rank"], rank);
    EXPECT_EQ(about["ranks"][rank]["state"], "closed");
    EXPECT_EQ(about["ranks"][rank]["events_lost"], 0);
    const auto events = eventsOf(trace, "X", rank);
    ASSERT_EQ(events.size(), 2u);
    // The outer event first.
    EXPECT_EQ(events[0]["cat"], "step");
    EXPECT_EQ(events[0]["name"], "train");
    EXPECT_EQ(events[1]["cat"], "kernel");
    EXPECT_EQ(events[1]["name"], "cast");
    EXPECT_EQ(events[1]["args"]["step"], 1);
    EXPECT_GE(events[1]["ts"], events[0]["ts"]);
    EXPECT_EQ(events[0]["tid"], 0);
    const auto names = eventsOf(trace, "M", rank);
    ASSERT_EQ(names.size(), 3u);
    EXPECT_EQ(names[0]["name"], "process_name");
    EXPECT_EQ(names[0]["args"]["name"],
              "rank " + std::to_string(rank) + " (host)");
    EXPECT_EQ(names[1]["args"]["name"], "steps");
    EXPECT_EQ(names[2]["args"]["name"], "communication");
  }
}

TEST(Merge, ARankThatDiedAndItsCause) {
  TemporaryDirectory directory;
  const std::string path = directory.file("trace.json");
  const pid_t child = ::fork();
  if (child == 0) {
    PartIdentity own = identity(1, 2);
    own.process = ::getpid();
    own.clock = clockIdentity();
    Rank rank(path, own);
    rank.step();
    rank.recorder.beginStep(otherName);
    rank.recorder.ring(Lane::Steps).begin(otherName);
    rank.recorder.ring(Lane::Steps).begin(waitName);
    waitForPart(rank.file, [](const PartContents &contents) {
      return contents.threads[0].open.size() == 3;
    });
    ::raise(SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  Rank survivor(path, identity(0, 2));
  survivor.step();
  survivor.recorder.part()->fail("rank 1 was lost: its connection closed");
  survivor.close();
  MergeResult result;
  ASSERT_EQ(show(mergeParts(findParts(path), "", path, &result)), "OK");
  const json trace = readJson(path);
  const json &failures = trace["ddphook"]["failures"];
  ASSERT_EQ(failures.size(), 2u);
  EXPECT_EQ(failures[0]["state"], "failed");
  EXPECT_EQ(failures[1]["rank"], 1);
  EXPECT_EQ(failures[1]["state"], "lost");
  EXPECT_EQ(failures[1]["message"], "rank 1 was lost: its connection closed");
  const auto instants = eventsOf(trace, "i", 1);
  ASSERT_EQ(instants.size(), 1u);
  EXPECT_EQ(instants[0]["name"], "rank lost");
  EXPECT_EQ(instants[0]["args"]["message"], failures[1]["message"]);
  // What it had recorded, and the step in which it died; each event before it
  // has ended contains those that follow.
  const auto events = eventsOf(trace, "X", 1);
  ASSERT_EQ(events.size(), 5u);
  EXPECT_FALSE(events[0]["args"].contains("unfinished"));
  for (size_t i : {2, 3, 4}) {
    EXPECT_EQ(events[i]["args"]["unfinished"], true);
    EXPECT_GT(events[i]["dur"], 0.0);
  }
  EXPECT_EQ(events[4]["cat"], "wait");
}

TEST(Merge, MissingRanksAndPartsOfOtherJobs) {
  TemporaryDirectory directory;
  const std::string path = directory.file("trace.json");
  Rank old(path, identity(3, 4, "old"));
  old.step();
  Rank own(path, identity(0, 3, "new"));
  own.step();
  std::ofstream(partPath(path, 2)) << "garbage";
  MergeResult result;
  ASSERT_EQ(show(mergeParts(findParts(path), "new", path, &result)), "OK");
  EXPECT_EQ(result.merged, std::vector<std::string>{own.file});
  ASSERT_EQ(result.problems.size(), 2u);
  expectContains(result.problems[0], "expected a part of a trace");
  expectContains(result.problems[1],
                 "rank3.part' belongs to another run, old, not of new");
  const json trace = readJson(path);
  EXPECT_EQ(trace["ddphook"]["world_size"], 3);
  EXPECT_EQ(trace["ddphook"]["ranks"][1]["state"], "missing");
  EXPECT_EQ(eventsOf(trace, "X", 3).size(), 0u);
  // None at all.
  Status none = mergeParts({old.file}, "new", path, &result);
  EXPECT_EQ(none.code(), DDPHOOK_DATA_LOSS);
}

TEST(Merge, PartsAreFoundByTheirNames) {
  TemporaryDirectory directory;
  const auto before = std::filesystem::current_path();
  std::filesystem::current_path(directory.path);
  for (const char *name :
       {"t.json", "t.json.rank10.part", "t.json.rank2.part",
        "t.json.rank1.part.backup", "t.json.rank.part", "t.json.rank02.part",
        "t.json.rank4294967296.part", "t.json.rank99999999999999999999.part",
        "t.json.rank3", "at.json.rank0.part"})
    std::ofstream(name) << "";
  EXPECT_EQ(
      findParts("t.json"),
      (std::vector<std::string>{"t.json.rank2.part", "t.json.rank10.part"}));
  std::filesystem::current_path(before);
  EXPECT_EQ(findParts(directory.file("t.json")),
            (std::vector<std::string>{directory.file("t.json.rank2.part"),
                                      directory.file("t.json.rank10.part")}));
  EXPECT_TRUE(findParts(directory.file("missing/t.json")).empty());
}

TEST(Merge, ClocksOfOtherMachines) {
  TemporaryDirectory directory;
  const std::string path = directory.file("trace.json");
  // Rank 1's clock is 5 s behind rank 0's.
  const int64_t skew = 5000000000, start = now();
  PartIdentity late = identity(1, 2);
  late.clockOffset = skew;
  late.clockUncertainty = 1500;
  Rank first(path, identity(0, 2)), second(path, late);
  first.at(start);
  second.at(start - skew + 2000);
  first.close();
  second.close();
  MergeResult result;
  ASSERT_EQ(show(mergeParts(findParts(path), "run", path, &result)), "OK");
  const json trace = readJson(path);
  EXPECT_DOUBLE_EQ(eventsOf(trace, "X", 0)[0]["ts"], 0);
  EXPECT_DOUBLE_EQ(eventsOf(trace, "X", 1)[0]["ts"], 2);
  EXPECT_EQ(trace["ddphook"]["ranks"][1]["clock_offset_ns"], skew);
  EXPECT_EQ(trace["ddphook"]["ranks"][1]["clock_uncertainty_ns"], 1500);
}

TEST(Merge, NamesThatDoHarm) {
  TemporaryDirectory directory;
  const std::string path = directory.file("trace.json");
  PartIdentity own = identity(0, 1);
  own.host = "a\"b\\c\n\xff";
  Rank rank(path, own);
  const std::string bad = "\"},{\\\x01\n\t</script>\xc3\x28 \xe2\x82\xac";
  Name name(Category::Collective, bad);
  name.bucket = bad;
  name.group = bad;
  name.collective = 7;
  name.wireBytes = int64_t(1) << 60;
  Ring &ring = rank.recorder.ring(Lane::Communication);
  ring.begin(rank.recorder.addName(name));
  ring.end(/*waited=*/1234);
  rank.close();
  MergeResult result;
  ASSERT_EQ(show(mergeParts({rank.file}, "run", path, &result)), "OK");
  const json trace = readJson(path);
  const json event = eventsOf(trace, "X")[0];
  // Only what is no UTF-8 has been replaced.
  const std::string repaired =
      "\"},{\\\x01\n\t</script>\xef\xbf\xbd( \xe2\x82\xac";
  EXPECT_EQ(event["name"], repaired);
  EXPECT_EQ(event["args"]["bucket"], repaired);
  EXPECT_EQ(event["args"]["group"], repaired);
  EXPECT_EQ(event["args"]["collective"], 7);
  EXPECT_EQ(event["args"]["wire_bytes"], int64_t(1) << 60);
  EXPECT_EQ(event["args"]["wait_us"], 1.234);
  EXPECT_EQ(event["tid"], 1);
}

TEST(Merge, PlacesThatCannotBeWritten) {
  TemporaryDirectory directory;
  Rank rank(directory.file("trace.json"), identity(0, 1));
  rank.step();
  MergeResult result;
  for (const std::string path : {"/dev/full", "/missing/trace.json"}) {
    Status status = mergeParts({rank.file}, "run", path, &result);
    EXPECT_FALSE(status.isOk()) << path;
    expectContains(status.message(), path);
  }
  // The part is still there.
  EXPECT_TRUE(std::filesystem::exists(rank.file));
}

TEST(Merge, TheLastEventsOfOneRank) {
  TemporaryDirectory directory;
  const std::string path = directory.file("flight.json");
  Rank rank(directory.file("trace.json"), identity(1, 4));
  for (int i = 0; i < 50; ++i)
    rank.step();
  rank.recorder.part()->fail("something failed");
  ASSERT_EQ(show(writePart(*rank.recorder.part(), 10, path)), "OK");
  const json trace = readJson(path);
  EXPECT_EQ(eventsOf(trace, "X", 1).size(), 10u);
  EXPECT_EQ(trace["ddphook"]["world_size"], 4);
  EXPECT_EQ(trace["ddphook"]["ranks"][0]["events_lost"], 90);
  EXPECT_EQ(trace["ddphook"]["failures"][0]["message"], "something failed");
}

TEST(Clock, TheFastestAnswerCounts) {
  // The other clock is 1000 ahead; ways there and back are not alike.
  int64_t time = 0;
  int question = 0;
  auto ask = [&](int64_t *theirs) {
    const int64_t there = question == 3 ? 10 : 400, back = 20;
    ++question;
    time += there;
    *theirs = time + 1000;
    time += back;
    return Status::ok();
  };
  ClockOffset clock;
  ASSERT_EQ(show(measureClock(ask, [&] { return time; }, 8, &clock)), "OK");
  EXPECT_EQ(clock.uncertainty, 15);
  EXPECT_NEAR(static_cast<double>(clock.offset), 1000, 15);
  EXPECT_EQ(clock.offset, 995);
  EXPECT_EQ(show(measureClock(
                [](int64_t *) { return error(DDPHOOK_PEER_LOST, "gone"); },
                [&] { return time; }, 8, &clock)),
            "PEER_LOST: gone");
  EXPECT_EQ(clockIdentity(), clockIdentity());
}

TEST(Divergence, WhoHasNotComeAndWhoWaits) {
  auto at = [](uint64_t step, uint64_t called, uint64_t begun, uint64_t ended,
               const std::string &name) {
    Whereabouts result{step, called, begun, ended, name, {{}, "module 0"}};
    const auto decoded = Whereabouts::decode(result.encode());
    EXPECT_TRUE(decoded);
    EXPECT_EQ(decoded->encode(), result.encode());
    return decoded;
  };
  const auto waits = at(17, 6, 5, 4, "all_reduce b3");
  EXPECT_EQ(describeDivergence(
                {waits, waits, at(17, 4, 4, 4, "all_reduce b2"), waits}),
            "rank 2 is in step 17 and has not called all_reduce b3; ranks 0, "
            "1, 3 wait in all_reduce b3 of step 17");
  EXPECT_EQ(
      describeDivergence({waits, at(17, 5, 4, 4, "all_reduce b2")}),
      "rank 1 is in step 17 and has not begun all_reduce b3; rank 0 waits in "
      "all_reduce b3 of step 17");
  EXPECT_EQ(describeDivergence({std::nullopt, waits, waits}),
            "rank 0 does not answer; ranks 1, 2 wait in all_reduce b3 of step "
            "17");
  // A rank that records nothing has not begun any step.
  EXPECT_EQ(describeDivergence({waits, Whereabouts()}),
            "rank 1 is in step 0 and has not called all_reduce b3; rank 0 "
            "waits in all_reduce b3 of step 17");
  // Both reasons; and one that waits in a later collective, of another group.
  EXPECT_EQ(describeDivergence({waits, at(16, 2, 2, 2, "x"), std::nullopt,
                                at(17, 7, 7, 6, "all_reduce b5")}),
            "rank 1 is in step 16 and has not called all_reduce b3, rank 2 "
            "does not answer; rank 0 waits in all_reduce b3 of step 17");
  // Of a group that is a part of the job, its ranks by their numbers there;
  // those of another one may be anywhere, or be about to end theirs.
  auto in = [&](std::optional<Whereabouts> rank, std::vector<int> members) {
    rank->place.members = std::move(members);
    const auto decoded = Whereabouts::decode(rank->encode());
    EXPECT_TRUE(decoded && decoded->place.members == rank->place.members);
    return decoded;
  };
  const auto behind = at(17, 4, 4, 4, "all_reduce b2");
  EXPECT_EQ(describeDivergence(
                {behind, in(waits, {1, 3}), std::nullopt, in(behind, {1, 3})}),
            "rank 3 is in step 17 and has not called all_reduce b3; rank 1 "
            "waits in all_reduce b3 of step 17");
  EXPECT_EQ(describeDivergence({in(waits, {0, 2}), in(waits, {1, 3}),
                                std::nullopt, in(waits, {1, 3})}),
            "rank 2 does not answer; rank 0 waits in all_reduce b3 of step 17");
  EXPECT_EQ(describeDivergence({in(at(16, 3, 3, 2, "x"), {0, 1}),
                                in(at(16, 3, 3, 2, "x"), {0, 1}),
                                in(waits, {2, 3}), in(behind, {2, 3})}),
            "rank 3 is in step 17 and has not called all_reduce b3; rank 2 "
            "waits in all_reduce b3 of step 17");
  // Modules in other orders.
  auto other = in(waits, {});
  other->place.module = "module 1 (@eval)";
  EXPECT_EQ(describeDivergence({waits, other, waits}),
            "the ranks wait in different collectives: ranks 0, 2 in all_reduce "
            "b3 of module 0, rank 1 in all_reduce b3 of module 1 (@eval)");
  // Each group in its own.
  EXPECT_EQ(describeDivergence({in(waits, {0}), in(other, {1})}), "");
  // All in the same place, or none in a collective: nothing is known.
  EXPECT_EQ(describeDivergence({waits, waits}), "");
  EXPECT_EQ(describeDivergence({at(1, 1, 1, 1, "x"), std::nullopt}), "");
  EXPECT_EQ(describeDivergence({}), "");
  EXPECT_EQ(describeSilence(waits, 3),
            "rank 0 does not answer; rank 3 waits in all_reduce b3 of step 17");
  EXPECT_EQ(describeSilence(std::nullopt, 3), "rank 0 does not answer");
  for (const char *text :
       {"", "1 2 3", "1 2 3 4", "1 2 3 4 2 0", "1 2 3 4 9 x", "a b c d e"})
    EXPECT_FALSE(Whereabouts::decode(text)) << text;
}
