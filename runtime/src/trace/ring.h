// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A ring of events, to which one thread writes without locks, allocations or
// system calls. Any other thread may read it meanwhile (rank_recording.h).
//
// The runtime and its shared-memory transport both use this. They are separate
// libraries, so all of it is in this header.

#pragma once

#include "trace/ranges.h"

#include <atomic>
#include <cstdint>
#include <ctime>

namespace ddphook::trace {

/// Returns nanoseconds of the system's monotonic clock, which all processes of
/// a machine share. Makes no system call if programs can read it directly.
inline int64_t now() {
  timespec time;
  ::clock_gettime(CLOCK_MONOTONIC, &time);
  return int64_t(time.tv_sec) * 1000000000 + time.tv_nsec;
}

constexpr auto relaxed = std::memory_order_relaxed;

/// The numbers of the names that every recorder has (recorder.h).
constexpr uint32_t otherName = 0; ///< Names beyond the capacity.
constexpr uint32_t waitName = 1;  ///< Waiting for a peer in a collective.

/// Shorter waits are counted, but are not separate events.
constexpr int64_t leastWait = 10000;

struct Event {
  int64_t begin = 0, end = 0; ///< Results of now().
  uint32_t name = otherName;
  uint32_t step = 0;
  int64_t waited = 0; ///< Nanoseconds of it spent waiting for a peer.
};

/// The part of a ring that readers see. Zeroed memory is an empty ring. It has
/// its own cache lines, so that writes of other threads do not evict them.
struct alignas(64) RingMemory {
  static constexpr uint32_t maxDepth = 8;

  /// The number of all events; the last of them are in the slots.
  std::atomic<uint64_t> recorded;
  /// In a file, at least the number of events that were written to the slots:
  /// the slots of the latest ones may be incomplete.
  std::atomic<uint64_t> overwritten;
  /// Events that have begun but not ended, the innermost last: each with its
  /// begin, and its name with the step in the upper half.
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

/// The writer of a ring. Used by one thread at a time.
class Ring {
public:
  Ring() = default;
  /// `capacity` is the number of slots, a power of two; nothing is owned.
  Ring(RingMemory *memory, EventSlot *slots, uint64_t capacity)
      : memory(memory), slots(slots), mask(capacity - 1) {}

  /// Makes events also ranges for a profiler; null: not. Not owned.
  void setRanges(const Ranges *newRanges) { ranges = newRanges; }
  /// Begins a range that is not an event.
  void pushRange(uint32_t name) const {
    if (ranges)
      ranges->push(name);
  }
  void popRange() const {
    if (ranges)
      ranges->pop();
  }

  /// Sets the number of the step of the following events.
  void setStep(uint32_t number) { step = number; }
  /// Nanoseconds spent waiting for peers.
  int64_t totalWaited() const { return waitedSoFar; }

  void begin(uint32_t name, int64_t time = now()) {
    pushRange(name);
    beginEvent(name, time);
  }

  /// Ends the innermost event, and returns its nanoseconds.
  int64_t end(int64_t waited = 0, int64_t least = 0) {
    popRange();
    return endEvent(waited, least);
  }

  void endWait() {
    const int64_t time = end(/*waited=*/0, leastWait);
    waitedSoFar += time;
  }

  // Begin and end an event that is not a range.
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

  /// As many as two cache lines hold.
  static constexpr uint64_t slotsAhead = 4;

  uint64_t pack(uint32_t name) const { return name | uint64_t(step) << 32; }

  void record(int64_t begin, int64_t end, uint32_t name, int64_t waited) {
    // A reader that sees a word of this event also sees that it is begun.
    std::atomic_thread_fence(std::memory_order_release);
    auto &words = slots[recorded & mask].words;
    words[0].store(static_cast<uint64_t>(begin), std::memory_order_relaxed);
    words[1].store(static_cast<uint64_t>(end), std::memory_order_relaxed);
    words[2].store(pack(name), std::memory_order_relaxed);
    words[3].store(static_cast<uint64_t>(waited), std::memory_order_relaxed);
    memory->recorded.store(++recorded, std::memory_order_release);
    // A trace's ring is larger than the caches: prefetch its next line.
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

/// The ring that records the collective of this thread; null if none does.
inline thread_local Ring *collectiveRing = nullptr;

/// Records, for its lifetime, that this thread's collective waits for a peer.
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
