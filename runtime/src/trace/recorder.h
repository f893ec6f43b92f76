// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The hot path of traces, the flight recorder and metrics: scopes that put
// their begin and end into the ring of their thread. observer.h decides where
// events go. If recording is off, a scope is one branch.

#pragma once

#include "base/collective.h"
#include "trace/rank_recording.h"

#include <array>
#include <map>
#include <memory>
#include <mutex>

namespace ddphook::trace {

/// The numbers of the names of functions that compiled code calls.
enum class Function : uint32_t {
  beforeFirst = waitName,
#define DDPHOOK_FUNCTION(name) name,
#include "ddphook/runtime/functions.inc"
};

/// Durations of the collectives of one name, in nanoseconds. One thread at a
/// time writes them, any thread may read them.
struct CollectiveTimes {
  std::atomic<int64_t> count{0}, total{0}, waited{0};
};

/// The recorded names of a module's collective: those of the backend's
/// collectives that make it up, by kind.
struct CollectiveNames {
  std::array<uint32_t, std::size(allCollectiveKinds)> byKind = {};
  /// The module's own kind.
  CollectiveKind kind = CollectiveKind::AllReduce;
  /// The kind of its last stage.
  CollectiveKind last = CollectiveKind::AllReduce;
  CollectiveTimes times;

  uint32_t of(CollectiveKind stage) const {
    return byKind[static_cast<size_t>(stage)];
  }
};

/// The ranks and the module of a collective.
struct CollectivePlace {
  /// The job's ranks that take part in it; empty if all do.
  std::vector<int> members;
  /// "module 1 (@step)".
  std::string module;
};

/// Used by the thread of a context, unless stated otherwise.
class Recorder {
public:
  /// Recording is off until open().
  Recorder() = default;

  void open(std::unique_ptr<RankRecording> newPart);
  bool isOn() const { return on.load(std::memory_order_relaxed); }
  /// Makes later scopes record nothing. Any thread may call it.
  void stop() { on.store(false, std::memory_order_relaxed); }

  /// Returns null before open().
  RankRecording *part() const { return recording.get(); }
  Ring &ring(Lane lane) { return rings[static_cast<size_t>(lane)]; }
  Progress &progress() const { return recording->progress(); }
  /// Returns the name's number; otherName before open(), or if there is no
  /// space for more. Must not be called while other threads record.
  uint32_t addName(const Name &name);

  /// Set and get the ranks and module of collective `name`; any thread.
  void setPlace(uint32_t name, CollectivePlace place);
  CollectivePlace placeOf(uint32_t name) const;

  uint64_t steps() const { return stepNumber; }
  void beginStep(uint32_t entry);
  /// Returns the step's nanoseconds; 0 if it was not recorded.
  int64_t endStep();

  /// Returns the number of the next collective, in program order.
  uint64_t nextCollective();

private:
  std::atomic<bool> on{false};
  std::unique_ptr<RankRecording> recording;
  std::unique_ptr<Ranges> ranges;
  Ring rings[laneCount];
  uint32_t rangeNames = 0; ///< Number of names that `ranges` has.
  mutable std::mutex placesMutex;
  std::map<uint32_t, CollectivePlace> places;
  uint64_t stepNumber = 0;
  uint64_t callNumber = 0;
  bool isStepOpen = false;
};

/// Records, for its lifetime, a named activity of the thread that runs steps.
class Scope {
public:
  /// An activity shorter than `least` nanoseconds is not recorded.
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

/// The data of a collective that the calling thread passes to the thread that
/// runs it. Without a recorder it records nothing.
struct CollectiveTag {
  Recorder *recorder = nullptr;
  CollectiveTimes *times = nullptr;
  uint32_t name = otherName;
  uint32_t step = 0;
  uint64_t number = 0;
  bool isLast = true; ///< Ends the rank's part in the collective.
};

/// Encloses a backend call for a collective. A backend that records its
/// collectives itself takes the tags; otherwise the call is recorded.
class CollectiveCall {
public:
  CollectiveCall(Recorder &recorder, CollectiveNames &names);
  ~CollectiveCall();
  CollectiveCall(const CollectiveCall &) = delete;
  CollectiveCall &operator=(const CollectiveCall &) = delete;

  /// For a backend: returns the tag of the collective of that kind for which
  /// this thread has called it.
  static CollectiveTag take(CollectiveKind kind);

private:
  Recorder &recorder;
  CollectiveNames &names;
  uint64_t number;
  int64_t begin;
  bool isTaken = false;
};

/// Says that the calling thread, which runs collectives for others, is that of
/// Lane::Communication.
class CommunicationThread {
public:
  CommunicationThread();
  ~CommunicationThread();
};

/// Records, for its lifetime, a collective that the calling thread runs.
class CollectiveScope {
public:
  explicit CollectiveScope(const CollectiveTag &tag);
  ~CollectiveScope();
  CollectiveScope(const CollectiveScope &) = delete;
  CollectiveScope &operator=(const CollectiveScope &) = delete;

  /// Records that another thread of the collective has waited for peers for
  /// `time` nanoseconds, concurrently with this one.
  void waitedBeside(int64_t time) { waitedElsewhere = time; }

  /// Says that it succeeded, and with its last stage the collective.
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
