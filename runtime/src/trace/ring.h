//===- ring.h - the events of one thread ------------------------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A ring of events that one thread writes: no lock, no allocation and no system
// call. Any other thread may read it meanwhile (part.h).
//
// The runtime and its shared-memory transport both use this. They are separate
// libraries, so all of it is in this header.
//
//===----------------------------------------------------------------------===//
#ifndef DDPHOOK_RUNTIME_SRC_TRACE_RING_H
#define DDPHOOK_RUNTIME_SRC_TRACE_RING_H

#include "trace/ranges.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <ctime>

namespace ddphook::trace {

/// Nanoseconds of the system's monotonic clock, which the processes of a
/// machine share. No system call where the kernel lets programs read it.
inline int64_t now() {
  timespec time;
  ::clock_gettime(CLOCK_MONOTONIC, &time);
  return int64_t(time.tv_sec) * 1000000000 + time.tv_nsec;
}

constexpr auto relaxed = std::memory_order_relaxed;

/// Numbers of names that every recorder has (recorder.h).
constexpr uint32_t otherName = 0; ///< Of what there was no room to name.
constexpr uint32_t waitName = 1;  ///< Waiting for a peer in a collective.

/// Shorter waits are counted, but get no event of their own.
constexpr int64_t leastWait = 10000;

struct Event {
  int64_t begin = 0, end = 0; ///< As now() gives them.
  uint32_t name = otherName;
  uint32_t step = 0;
  int64_t waited = 0; ///< Nanoseconds of it in which a peer was waited for.
};

/// What readers see of a ring. Zeroed memory is an empty one. In lines of the
/// cache of its own: what other threads write must not take them away.
struct alignas(64) RingMemory {
  static constexpr uint32_t maxDepth = 8;

  /// Events since the beginning; the last of them are in the slots.
  std::atomic<uint64_t> recorded;
  /// In a file, at least as many events as were written to the slots: the
  /// slots of the latest ones may be incomplete.
  std::atomic<uint64_t> overwritten;
  /// Events that have begun and not ended, the innermost last: each its begin,
  /// and its name and, above it, its step.
  std::atomic<uint64_t> depth;
  std::atomic<uint64_t> open[maxDepth][2];
};

/// An Event in four words.
struct EventSlot {
  std::atomic<uint64_t> words[4];
};
static_assert(sizeof(EventSlot) == 32 &&
                  std::atomic<uint64_t>::is_always_lock_free,
              "processes share them");

/// The writer's end. Used by one thread at a time.
class Ring {
public:
  Ring() = default;
  /// `capacity` slots, a power of two; not owned.
  Ring(RingMemory *memory, EventSlot *slots, uint64_t capacity)
      : memory(memory), slots(slots), mask(capacity - 1) {}

  /// Events are ranges for a profiler as well; null: are not. Not owned.
  void setRanges(const Ranges *newRanges) { ranges = newRanges; }
  /// A range that is no event.
  void pushRange(uint32_t name) const {
    if (ranges)
      ranges->push(name);
  }
  void popRange() const {
    if (ranges)
      ranges->pop();
  }

  /// The number of the step that events belong to.
  void setStep(uint32_t number) { step = number; }
  /// Nanoseconds in which peers have been waited for.
  int64_t totalWaited() const { return waitedSoFar; }

  void begin(uint32_t name, int64_t time = now()) {
    pushRange(name);
    beginEvent(name, time);
  }

  /// Ends what began last, and gives its nanoseconds.
  int64_t end(int64_t waited = 0, int64_t least = 0) {
    popRange();
    return endEvent(waited, least);
  }

  /// The same as end() for a wait.
  void endWait() {
    const int64_t time = end(/*waited=*/0, leastWait);
    waitedSoFar += time;
  }

  // The same of an event that is no range.
  void beginEvent(uint32_t name, int64_t time = now()) {
    if (depth < RingMemory::maxDepth) {
      stack[depth] = {time, name};
      auto &entry = memory->open[depth];
      entry[0].store(static_cast<uint64_t>(time), std::memory_order_relaxed);
      entry[1].store(pack(name), std::memory_order_relaxed);
    }
    memory->depth.store(++depth, std::memory_order_release);
  }

  int64_t endEvent(int64_t waited = 0, int64_t least = 0) {
    memory->depth.store(--depth, std::memory_order_release);
    if (depth >= RingMemory::maxDepth)
      return 0;
    const Begun &begun = stack[depth];
    const int64_t time = now();
    if (time - begun.time >= least)
      record(begun.time, time, begun.name, waited);
    return time - begun.time;
  }

private:
  struct Begun {
    int64_t time;
    uint32_t name;
  };

  /// As many as two lines of a cache hold.
  static constexpr uint64_t slotsAhead = 4;

  uint64_t pack(uint32_t name) const { return name | uint64_t(step) << 32; }

  void record(int64_t begin, int64_t end, uint32_t name, int64_t waited) {
    auto &words = slots[recorded & mask].words;
    words[0].store(static_cast<uint64_t>(begin), std::memory_order_relaxed);
    words[1].store(static_cast<uint64_t>(end), std::memory_order_relaxed);
    words[2].store(pack(name), std::memory_order_relaxed);
    words[3].store(static_cast<uint64_t>(waited), std::memory_order_relaxed);
    memory->recorded.store(++recorded, std::memory_order_release);
    // A ring of a trace is larger than the caches: its next line is fetched
    // now, and nobody waits for it.
    __builtin_prefetch(&slots[(recorded + slotsAhead) & mask], /*rw=*/1);
  }

  const Ranges *ranges = nullptr;
  RingMemory *memory = nullptr;
  EventSlot *slots = nullptr;
  uint64_t mask = 0;
  uint64_t recorded = 0;
  uint32_t depth = 0;
  uint32_t step = 0;
  int64_t waitedSoFar = 0;
  Begun stack[RingMemory::maxDepth] = {};
};

/// Where the collective that this thread runs is recorded; null where none is.
inline thread_local Ring *collectiveRing = nullptr;

/// While it lives, the calling thread's collective waits for a peer.
class PeerWait {
public:
  PeerWait() : ring(collectiveRing) {
    if (ring)
      ring->begin(waitName);
  }
  ~PeerWait() {
    if (ring)
      ring->endWait();
  }
  PeerWait(const PeerWait &) = delete;
  PeerWait &operator=(const PeerWait &) = delete;

private:
  Ring *const ring;
};

} // namespace ddphook::trace

#endif // DDPHOOK_RUNTIME_SRC_TRACE_RING_H
