//===- recorder.h - what a rank records of its steps ------------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The hot path of traces, of the flight recorder and of metrics: scopes that
// put their begin and end into the ring of the thread that they are on. One
// mechanism; where the events go to is decided elsewhere (observer.h). Switched
// off, a scope is one branch.
//
//===----------------------------------------------------------------------===//
#ifndef DDPHOOK_RUNTIME_SRC_TRACE_RECORDER_H
#define DDPHOOK_RUNTIME_SRC_TRACE_RECORDER_H

#include "base/collective.h"
#include "trace/part.h"

#include <array>
#include <deque>
#include <map>
#include <memory>
#include <mutex>

namespace ddphook::trace {

/// The numbers of the names of the functions that compiled code calls.
enum class Function : uint32_t {
  beforeFirst = waitName,
#define DDPHOOK_FUNCTION(name) name,
#include "ddphook/runtime/functions.inc"
};

/// How long the collectives of one name have taken, in nanoseconds. One thread
/// at a time writes it, any reads it.
struct CollectiveTimes {
  std::atomic<int64_t> count{0}, total{0}, waited{0};
};

/// A collective of a module as it is recorded: the names of the backend's
/// collectives that it is, by their kinds.
struct CollectiveNames {
  std::array<uint32_t, std::size(allCollectiveKinds)> byKind = {};
  /// Of the module's own kind.
  CollectiveKind kind = CollectiveKind::AllReduce;
  /// Of its last stage.
  CollectiveKind last = CollectiveKind::AllReduce;
  CollectiveTimes times;

  uint32_t of(CollectiveKind stage) const {
    return byKind[static_cast<size_t>(stage)];
  }
};

/// Where a collective belongs.
struct CollectivePlace {
  /// The ranks of the job that make it together; empty: all of them.
  std::vector<int> members;
  /// "module 1 (@step)".
  std::string module;
};

/// Used by the thread of a context, but where it says otherwise.
class Recorder {
public:
  /// Switched off until open().
  Recorder() = default;

  /// Records into `part` from here on.
  void open(std::unique_ptr<Part> newPart);
  bool isOn() const { return on.load(std::memory_order_relaxed); }
  /// From any thread: scopes that begin later record nothing.
  void stop() { on.store(false, std::memory_order_relaxed); }

  /// Null before open().
  Part *part() const { return recording.get(); }
  Ring &ring(Lane lane) { return rings[static_cast<size_t>(lane)]; }
  Progress &progress() const { return recording->progress(); }
  /// While nothing is recorded on other threads.
  uint32_t addName(const Name &name);

  /// Where the collective `name` belongs; any thread.
  void setPlace(uint32_t name, CollectivePlace place);
  CollectivePlace placeOf(uint32_t name) const;

  uint64_t steps() const { return stepNumber; }
  void beginStep(uint32_t entry);
  /// Gives its nanoseconds; 0 where it was not recorded.
  int64_t endStep();

  /// The collective that is called next, in the order of the program.
  uint64_t nextCollective();

private:
  std::atomic<bool> on{false};
  std::unique_ptr<Part> recording;
  std::unique_ptr<Ranges> ranges;
  Ring rings[laneCount];
  uint32_t rangeNames = 0; ///< Names that `ranges` knows.
  mutable std::mutex placesMutex;
  std::map<uint32_t, CollectivePlace> places;
  uint64_t stepNumber = 0;
  uint64_t callNumber = 0;
  bool isStepOpen = false;
};

/// While it lives, the thread of a recorder's steps does something that has a
/// name.
class Scope {
public:
  /// Shorter than `least` nanoseconds it is not recorded.
  Scope(Recorder &recorder, uint32_t name, int64_t least = 0)
      : ring(recorder.isOn() ? &recorder.ring(Lane::Steps) : nullptr),
        least(least) {
    if (ring)
      ring->begin(name);
  }
  Scope(Recorder &recorder, Function function)
      : Scope(recorder, static_cast<uint32_t>(function)) {}
  ~Scope() {
    if (ring)
      ring->end(/*waited=*/0, least);
  }
  Scope(const Scope &) = delete;
  Scope &operator=(const Scope &) = delete;

private:
  Ring *const ring;
  const int64_t least;
};

/// What a collective carries from the thread that calls it to the one that runs
/// it. One without a recorder records nothing.
struct CollectiveTag {
  Recorder *recorder = nullptr;
  CollectiveTimes *times = nullptr;
  uint32_t name = otherName;
  uint32_t step = 0;
  uint64_t number = 0;
  bool isLast = true; ///< With this stage the rank has passed the collective.
};

/// Around a call of the backend for a collective: a backend that records its
/// collectives itself takes the tags; else the call is what is recorded.
class CollectiveCall {
public:
  CollectiveCall(Recorder &recorder, CollectiveNames &names);
  ~CollectiveCall();
  CollectiveCall(const CollectiveCall &) = delete;
  CollectiveCall &operator=(const CollectiveCall &) = delete;

  /// For a backend: the tag of the collective of that kind that it was called
  /// for by this thread.
  static CollectiveTag take(CollectiveKind kind);

private:
  Recorder &recorder;
  CollectiveNames &names;
  uint64_t number;
  int64_t begin;
  bool isTaken = false;
};

/// Tells that the calling thread, which runs what others start, is the one of
/// Lane::Communication.
class CommunicationThread {
public:
  CommunicationThread();
  ~CommunicationThread();
};

/// While it lives, the calling thread runs a collective.
class CollectiveScope {
public:
  explicit CollectiveScope(const CollectiveTag &tag);
  ~CollectiveScope();
  CollectiveScope(const CollectiveScope &) = delete;
  CollectiveScope &operator=(const CollectiveScope &) = delete;

  /// Another thread of it has waited for peers so many nanoseconds, at the same
  /// time as this one.
  void waitedBeside(int64_t time) { waitedElsewhere = time; }

  /// It ended well: the rank has passed it, if that was its last stage.
  void succeed();

private:
  const CollectiveTag tag;
  Ring *ring = nullptr;
  Ring *outer = nullptr;
  bool hasRange = false;
  int64_t waitedBefore = 0;
  int64_t waitedElsewhere = 0;
};

} // namespace ddphook::trace

#endif // DDPHOOK_RUNTIME_SRC_TRACE_RECORDER_H
