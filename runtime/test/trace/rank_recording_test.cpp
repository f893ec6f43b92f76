// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Rings and their files: wrapping, readers that look while others write,
// processes that are killed, disks that are full, bytes that are no part.

#include "trace/trace_test_util.h"

#include <algorithm>
#include <random>
#include <sys/resource.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

using namespace ddphook;
using namespace ddphook::test;
using namespace ddphook::trace;

/// A recorder whose part is in memory.
static std::unique_ptr<Recorder> makeRecorder(uint64_t events = 64) {
  std::unique_ptr<RankRecording> part;
  EXPECT_EQ(show(RankRecording::create(identity(0, 1), events, "", &part)),
            "OK");
  auto recorder = std::make_unique<Recorder>();
  recorder->open(std::move(part));
  return recorder;
}

static PartContents read(const Recorder &recorder) {
  PartContents contents;
  EXPECT_EQ(show(readPart(recorder.part()->bytes(), &contents)), "OK");
  return contents;
}

TEST(Recorder, StepsAndWhatTheyContain) {
  auto recorder = makeRecorder();
  const uint32_t entry = recorder->addName(Name(Category::Step, "train"));
  recorder->beginStep(entry);
  {
    Scope scope(*recorder, Function::cast);
  }
  recorder->endStep();
  const PartContents contents = read(*recorder);
  const auto &events = contents.threads[0].events;
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(contents.names[events[0].name].text, "cast");
  EXPECT_EQ(contents.names[events[1].name].text, "train");
  EXPECT_LE(events[1].begin, events[0].begin);
  EXPECT_LE(events[0].end, events[1].end);
  EXPECT_EQ(events[0].step, 1u);
  EXPECT_TRUE(contents.threads[1].events.empty());
  EXPECT_EQ(contents.threads[0].lost, 0u);
}

TEST(Recorder, SwitchedOffItRecordsNothing) {
  Recorder off;
  off.beginStep(otherName);
  {
    Scope scope(off, Function::cast);
  }
  CollectiveNames names;
  {
    CollectiveCall call(off, names);
    EXPECT_EQ(CollectiveCall::take(CollectiveKind::AllReduce).recorder,
              nullptr);
  }
  off.endStep();
  EXPECT_EQ(off.part(), nullptr);
  // Stopped in a step: what has begun still ends.
  auto recorder = makeRecorder();
  recorder->beginStep(otherName);
  recorder->stop();
  {
    Scope scope(*recorder, Function::cast);
  }
  recorder->endStep();
  EXPECT_EQ(read(*recorder).threads[0].events.size(), 1u);
}

/// A rank that waits in a later stage has not passed the collective: whoever
/// asks it where it is must be told.
TEST(Recorder, CollectivesArePassedWithTheirLastStage) {
  auto recorder = makeRecorder();
  CollectiveNames names;
  names.last = CollectiveKind::AllGather;
  recorder->beginStep(otherName);
  CollectiveTag tags[3];
  {
    CollectiveCall call(*recorder, names);
    tags[0] = CollectiveCall::take(CollectiveKind::ReduceScatter);
    tags[1] = CollectiveCall::take(CollectiveKind::AllReduce);
    tags[2] = CollectiveCall::take(CollectiveKind::AllGather);
  }
  for (const CollectiveTag &tag : tags) {
    EXPECT_EQ(recorder->progress().ended, 0u);
    CollectiveScope scope(tag);
    EXPECT_EQ(recorder->progress().begun, 1u);
    scope.succeed();
  }
  EXPECT_EQ(recorder->progress().ended, 1u);
  recorder->endStep();
}

TEST(Recorder, CollectivesOfTheirOwnThreadAndOfTheCaller) {
  auto recorder = makeRecorder();
  CollectiveNames names;
  Name name(Category::Collective, "all_reduce b0");
  names.byKind[0] = recorder->addName(name);
  recorder->beginStep(otherName);
  CollectiveTag tag;
  {
    CollectiveCall call(*recorder, names);
    tag = CollectiveCall::take(CollectiveKind::AllReduce);
  }
  EXPECT_EQ(recorder->progress().called, 1u);
  EXPECT_EQ(recorder->progress().begun, 0u);
  std::thread([&] {
    CommunicationThread thread;
    CollectiveScope scope(tag);
    EXPECT_EQ(recorder->progress().begun, 1u);
    {
      PeerWait wait;
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    {
      PeerWait tooShort;
    }
    scope.succeed();
  }).join();
  EXPECT_EQ(recorder->progress().ended, 1u);
  // No backend takes it: the call itself.
  {
    CollectiveCall call(*recorder, names);
  }
  EXPECT_EQ(recorder->progress().begun, 2u);
  recorder->endStep();
  const PartContents contents = read(*recorder);
  const auto &beside = contents.threads[1].events;
  ASSERT_GE(beside.size(), 2u);
  EXPECT_EQ(beside.front().name, waitName);
  EXPECT_EQ(contents.names[beside.back().name].text, "all_reduce b0");
  EXPECT_GE(beside.back().waited, 2000000);
  EXPECT_LE(beside.back().waited, beside.back().end - beside.back().begin);
  EXPECT_EQ(beside.back().step, 1u);
  ASSERT_EQ(contents.threads[0].events.size(), 2u);
  EXPECT_EQ(contents.threads[0].events[0].name, names.byKind[0]);
  EXPECT_EQ(names.times.count, 2);
  EXPECT_GE(names.times.waited, 2000000);
}

TEST(RankRecording, TheOldestEventsGo) {
  auto recorder = makeRecorder(64);
  for (uint32_t i = 1; i <= 1000; ++i) {
    recorder->beginStep(otherName);
    recorder->endStep();
  }
  const PartContents contents = read(*recorder);
  const PartContents::Thread &steps = contents.threads[0];
  // One slot is the next event's.
  ASSERT_EQ(steps.events.size(), 63u);
  EXPECT_EQ(steps.lost, 1000u - 63u);
  for (size_t i = 0; i < steps.events.size(); ++i)
    EXPECT_EQ(steps.events[i].step, 938 + i);
  PartContents few;
  ASSERT_EQ(show(readPart(recorder->part()->bytes(), &few, 10)), "OK");
  EXPECT_EQ(few.threads[0].events.size(), 10u);
  EXPECT_EQ(few.threads[0].events.back().step, 1000u);
}

TEST(RankRecording, ItsLastEventsAsBytesForOthers) {
  TemporaryDirectory directory;
  const std::string path = directory.file("part");
  for (uint32_t steps : {0u, 5u, 1000u}) {
    auto recorder = makeRecorder(256);
    for (uint32_t i = 1; i <= steps; ++i) {
      recorder->beginStep(recorder->addName(Name(Category::Step, "train")));
      recorder->endStep();
    }
    const RankRecording &part = *recorder->part();
    const std::string whole = part.pack(UINT64_MAX);
    EXPECT_LT(whole.size(), part.bytes().size() / 4);
    // All, half of the slots, and hardly any.
    for (uint64_t bytes : {whole.size(), whole.size() - 1, size_t(70000)}) {
      const std::string packed = part.pack(bytes);
      ASSERT_LE(packed.size(), bytes);
      if (packed.empty())
        continue;
      ASSERT_EQ(show(savePart(packed, path)), "OK");
      EXPECT_EQ(runOfPart(path), "run");
      PartContents contents;
      ASSERT_EQ(show(readPartFile(path, NamedBy::User, &contents)), "OK");
      const PartContents::Thread &thread = contents.threads[0];
      EXPECT_EQ(thread.events.size() + thread.lost, steps);
      if (bytes == whole.size()) {
        EXPECT_EQ(thread.events.size(), std::min(steps, 255u));
      }
      for (size_t i = 0; i < thread.events.size(); ++i)
        EXPECT_EQ(thread.events[i].step, thread.lost + 1 + i);
    }
    EXPECT_EQ(part.pack(1000), "");
  }
  // Bytes that are none.
  for (const std::string &bytes :
       {std::string(), std::string(100, 'x'), std::string(1 << 16, '\xff')})
    EXPECT_EQ(savePart(bytes, path).code(), DDPHOOK_DATA_LOSS);
  EXPECT_EQ(runOfPart("/missing/part"), "");
  std::ofstream(path) << "other bytes";
  EXPECT_EQ(runOfPart(path), "");
}

TEST(RankRecording, AReaderSeesWholeEventsWhileOthersAreWritten) {
  auto recorder = makeRecorder(64);
  std::atomic<bool> isOver{false};
  std::thread writer([&] {
    while (!isOver) {
      recorder->beginStep(otherName);
      recorder->endStep();
    }
  });
  for (int i = 0; i < 300; ++i) {
    const auto events = read(*recorder).threads[0].events;
    for (size_t k = 0; k < events.size(); ++k) {
      EXPECT_LE(events[k].begin, events[k].end);
      if (k > 0) {
        EXPECT_EQ(events[k].step, events[k - 1].step + 1);
        EXPECT_LE(events[k - 1].end, events[k].begin);
      }
    }
  }
  isOver = true;
  writer.join();
}

TEST(RankRecording, NestingDeeperThanItRemembers) {
  auto recorder = makeRecorder();
  Ring &ring = recorder->ring(Lane::Steps);
  for (int i = 0; i < 20; ++i)
    ring.begin(otherName);
  EXPECT_EQ(read(*recorder).threads[0].open.size(), RingMemory::maxDepth);
  for (int i = 0; i < 20; ++i)
    ring.end();
  const PartContents contents = read(*recorder);
  EXPECT_EQ(contents.threads[0].events.size(), RingMemory::maxDepth);
  EXPECT_TRUE(contents.threads[0].open.empty());
}

TEST(RankRecording, NamesBeyondTheRoomAreOthers) {
  auto recorder = makeRecorder();
  const std::string large(100000, 'x');
  uint32_t last = 1;
  int given = 0;
  for (; last != otherName; ++given)
    last = recorder->addName(Name(Category::Step, large));
  EXPECT_GT(given, 5);
  EXPECT_LT(given, 20);
  recorder->beginStep(last);
  recorder->endStep();
  const PartContents contents = read(*recorder);
  EXPECT_EQ(contents.names[contents.threads[0].events[0].name].text, "other");
}

TEST(RankRecording, OutlivesAProcessThatIsKilled) {
  TemporaryDirectory directory;
  const std::string path = directory.file("part");
  const pid_t child = ::fork();
  if (child == 0) {
    std::unique_ptr<RankRecording> part;
    if (!RankRecording::create(identity(1, 2), 1000, path, &part).isOk())
      ::_exit(1);
    Recorder recorder;
    recorder.open(std::move(part));
    const uint32_t entry = recorder.addName(Name(Category::Step, "train"));
    for (int i = 0; i < 100; ++i) {
      recorder.beginStep(entry);
      recorder.endStep();
    }
    recorder.beginStep(entry);
    Scope scope(recorder, Function::matmul);
    waitForPart(path, [](const PartContents &contents) {
      return contents.threads[0].open.size() == 2;
    });
    ::raise(SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
  PartContents contents;
  ASSERT_EQ(show(readPartFile(path, NamedBy::User, &contents)), "OK");
  EXPECT_EQ(contents.identity.rank, 1);
  EXPECT_EQ(contents.state, PartState::Open);
  EXPECT_EQ(contents.threads[0].events.size(), 100u);
  ASSERT_EQ(contents.threads[0].open.size(), 2u);
  EXPECT_EQ(contents.names[contents.threads[0].open[0].name].text, "train");
  EXPECT_EQ(contents.names[contents.threads[0].open[1].name].text, "matmul");
  EXPECT_EQ(contents.threads[0].open[1].step, 101u);
}

TEST(RankRecording, IsWholeWheneverItsProcessIsKilled) {
  TemporaryDirectory directory;
  const std::string path = directory.file("part");
  constexpr unsigned seed = 23;
  std::mt19937 random(seed);
  std::cout << "seed " << seed << "\n";
  for (int round = 0; round < 25; ++round) {
    const pid_t child = ::fork();
    if (child == 0) {
      std::unique_ptr<RankRecording> part;
      // The ring is overwritten many times between two writes of the file.
      if (!RankRecording::create(identity(0, 1), 64, path, &part).isOk())
        ::_exit(1);
      Recorder recorder;
      recorder.open(std::move(part));
      for (uint64_t i = 0;; ++i) {
        recorder.beginStep(
            i % 10000 ? otherName
                      : recorder.addName(Name(Category::Step, "step")));
        recorder.endStep();
      }
    }
    auto hasEvents = [](const PartContents &contents) {
      return !contents.threads[0].events.empty();
    };
    EXPECT_TRUE(waitForPart(path, hasEvents));
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 100000));
    ::kill(child, SIGKILL);
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status));
    PartContents contents;
    ASSERT_EQ(show(readPartFile(path, NamedBy::User, &contents)), "OK");
    const auto &events = contents.threads[0].events;
    for (size_t i = 1; i < events.size(); ++i) {
      EXPECT_EQ(events[i].step, events[i - 1].step + 1) << round;
      EXPECT_LE(events[i - 1].end, events[i].begin) << round;
    }
    ::unlink(path.c_str());
  }
}

TEST(RankRecording, IsWrittenAgainWhenSomebodyTruncatesIt) {
  TemporaryDirectory directory;
  const std::string path = directory.file("part");
  std::unique_ptr<RankRecording> part;
  ASSERT_EQ(show(RankRecording::create(identity(0, 1), 1000, path, &part)),
            "OK");
  Recorder recorder;
  recorder.open(std::move(part));
  const uint32_t entry = recorder.addName(Name(Category::Step, "train"));
  uint32_t steps = 0;
  for (off_t size : {off_t(0), off_t(100), off_t(5000), off_t(1) << 30}) {
    for (int i = 0; i < 100; ++i, ++steps) {
      recorder.beginStep(entry);
      recorder.endStep();
    }
    ASSERT_EQ(::truncate(path.c_str(), size), 0);
    EXPECT_TRUE(waitForPart(path, [&](const PartContents &contents) {
      return contents.threads[0].events.size() == steps;
    })) << size;
  }
  ASSERT_EQ(::truncate(path.c_str(), 0), 0);
  recorder.part()->close(/*isRemote=*/false);
  PartContents contents;
  ASSERT_EQ(show(readPartFile(path, NamedBy::Runtime, &contents)), "OK");
  EXPECT_EQ(contents.state, PartState::Closed);
  ASSERT_EQ(contents.threads[0].events.size(), steps);
  for (uint32_t i = 0; i < steps; ++i) {
    const Event &event = contents.threads[0].events[i];
    EXPECT_EQ(event.step, i + 1);
    EXPECT_EQ(contents.names[event.name].text, "train");
  }
}

TEST(RankRecording, PlacesThatCannotBeWritten) {
  TemporaryDirectory directory;
  std::unique_ptr<RankRecording> part;
  Status status = RankRecording::create(identity(0, 1), 64,
                                        directory.file("missing/part"), &part);
  EXPECT_EQ(status.code(), DDPHOOK_IO_ERROR);
  expectContains(status.message(), "cannot create");
  // No disk has so much: what was begun is gone again.
  const std::string path = directory.file("part");
  rlimit old = {};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &old), 0);
  rlimit small = {1 << 16, old.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  status = RankRecording::create(identity(0, 1), 64, path, &part);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &old), 0);
  expectContains(show(status), "disk space");
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST(RankRecording, ANewOneLeavesThatOfAnotherProcessAlone) {
  TemporaryDirectory directory;
  const std::string path = directory.file("part");
  std::unique_ptr<RankRecording> first, second;
  ASSERT_EQ(
      show(RankRecording::create(identity(0, 1, "one"), 64, path, &first)),
      "OK");
  ASSERT_EQ(
      show(RankRecording::create(identity(0, 1, "two"), 64, path, &second)),
      "OK");
  Recorder recorder;
  recorder.open(std::move(first));
  recorder.beginStep(otherName);
  recorder.endStep();
  recorder.part()->close(/*isRemote=*/false);
  EXPECT_EQ(read(recorder).identity.runId, "one");
  PartContents contents;
  ASSERT_EQ(show(readPartFile(path, NamedBy::User, &contents)), "OK");
  EXPECT_EQ(contents.identity.runId, "two");
  EXPECT_TRUE(contents.threads[0].events.empty());
}

TEST(RankRecording, TheFirstFailureStays) {
  auto recorder = makeRecorder();
  recorder->part()->fail("first");
  recorder->part()->fail("second");
  recorder->part()->close(false);
  const PartContents contents = read(*recorder);
  EXPECT_EQ(contents.state, PartState::Failed);
  EXPECT_EQ(contents.failure, "first");
  EXPECT_GT(contents.failureTime, 0);
}

/// What is wrong with a part in which an event is open.
static std::string refusalOf(const PartIdentity &given, int64_t begin = now()) {
  std::unique_ptr<RankRecording> part;
  EXPECT_EQ(show(RankRecording::create(given, 64, "", &part)), "OK");
  part->ring(Lane::Steps).begin(otherName, begin);
  Recorder recorder;
  recorder.open(std::move(part));
  PartContents contents;
  Status status = readPart(recorder.part()->bytes(), &contents);
  EXPECT_EQ(status.code(), DDPHOOK_DATA_LOSS);
  return status.message();
}

TEST(RankRecording, NumbersThatAreNone) {
  // A trace has an entry for every rank.
  for (auto [rank, worldSize] : {std::pair{0, INT32_MAX}, {2, 2}, {-1, 2}})
    expectContains(refusalOf(identity(rank, worldSize)), "its rank is invalid");
  for (int64_t offset : {INT64_MIN, INT64_MAX}) {
    PartIdentity far = identity(0, 1);
    far.clockOffset = offset;
    expectContains(refusalOf(far), "its clock is invalid");
  }
  PartIdentity vague = identity(0, 1);
  vague.clockUncertainty = -1;
  expectContains(refusalOf(vague), "its clock is invalid");
  for (int64_t begin : {int64_t(-1), INT64_MAX})
    expectContains(refusalOf(identity(0, 1), begin),
                   "an event has an invalid time");
}

TEST(RankRecording, AnEventThatEndsBeforeItBegins) {
  auto recorder = makeRecorder();
  recorder->ring(Lane::Steps).begin(otherName, /*time=*/1);
  recorder->ring(Lane::Steps).end();
  const Event event = read(*recorder).threads[0].events.at(0);
  std::string bytes(recorder->part()->bytes());
  const std::string times(reinterpret_cast<const char *>(&event.begin),
                          2 * sizeof(int64_t));
  const size_t place = bytes.rfind(times);
  ASSERT_NE(place, std::string::npos);
  std::rotate(bytes.begin() + place, bytes.begin() + place + sizeof(int64_t),
              bytes.begin() + place + 2 * sizeof(int64_t));
  PartContents contents;
  Status status = readPart(bytes, &contents);
  EXPECT_EQ(status.code(), DDPHOOK_DATA_LOSS);
  expectContains(status.message(), "an event has an invalid time");
}

TEST(RankRecording, BytesThatAreNone) {
  auto recorder = makeRecorder();
  recorder->beginStep(otherName);
  recorder->endStep();
  const std::string whole(recorder->part()->bytes());
  PartContents contents;
  for (size_t size : {size_t(0), size_t(7), size_t(4096), whole.size() - 1})
    EXPECT_FALSE(readPart({whole.data(), size}, &contents).isOk()) << size;
  // Whatever is damaged, reading ends with contents or an error.
  constexpr unsigned seed = 17;
  std::mt19937 random(seed);
  std::cout << "seed " << seed << "\n";
  for (int i = 0; i < 300; ++i) {
    std::string damaged = whole;
    // Where the numbers are: the header, the names, the slots.
    for (int k = 0; k < 4; ++k) {
      const size_t area =
          std::array<size_t, 3>{0, 4096, damaged.size() - 4096}[random() % 3];
      damaged[area + random() % 4096] = static_cast<char>(random());
    }
    readPart(damaged, &contents).ignore();
  }
}
