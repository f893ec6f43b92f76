// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Joins the other ranks, waits for them, detects that one died, stopped, left
// or failed, and notifies them of this rank's failure. shm_group.cpp does the
// computation in between.

#pragma once

#include "../group_place.h"
#include "base/deadline.h"
#include "base/status.h"
#include "shm_segment.h"
#include "store/store.h"

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>
#include <sys/types.h>
#include <utility>
#include <vector>

namespace ddphook::host {

/// Watches processes of this machine through pidfds, which are immune to the
/// reuse of process IDs. A stopped process counts as alive.
class PeerMonitor {
public:
  PeerMonitor() = default;
  PeerMonitor(const PeerMonitor &) = delete;
  PeerMonitor &operator=(const PeerMonitor &) = delete;
  ~PeerMonitor();

  /// Starts to watch the processes, one per rank; this process itself is not
  /// watched. Returns UNSUPPORTED if the kernel has no pidfds.
  Status watch(const std::vector<pid_t> &pids, const GroupPlace &place);

  bool hasDied(int rank) const;

private:
  std::vector<int> files;
};

/// Used by one thread at a time, except for abort().
class ShmMembership {
public:
  ShmMembership(GroupPlace newPlace, double timeoutSeconds)
      : place(std::move(newPlace)), rank(place.rank), size(place.size),
        timeoutSeconds(timeoutSeconds) {}

  ~ShmMembership();

  /// See ShmGroup::create(). A group of one has no segment.
  Status join(Store &store, const std::string &key,
              const std::atomic<bool> *isAborted = nullptr);

  const ShmSegment &memory() const { return segment; }
  RankControl &mine() const { return segment.control(rank); }

  /// A kind of counter that every rank has.
  using Counter = SharedCounter RankControl::*;
  const std::atomic<uint64_t> &counter(Counter counter, int peer) const {
    return (segment.control(peer).*counter).value;
  }
  /// Sets this rank's counter; a rank that sees the value also sees everything
  /// that this rank wrote before.
  void set(Counter counter, uint64_t value) const {
    (mine().*counter).value.store(value, std::memory_order_release);
  }
  /// True if the counters of all other ranks have reached `goal`.
  bool allReached(Counter counter, uint64_t goal) const;

  /// Starts a collective: its waits share one deadline.
  void startClock() { deadline = Deadline::after(timeoutSeconds); }
  /// Wait for the counters of all other ranks, or one; false after a failure.
  bool awaitAll(Counter counter, uint64_t goal);
  bool await(Counter counter, uint64_t goal, int peer);

  /// Calls fn(peer) for all other ranks, from the next one, until one is false.
  template <class Fn>
  bool forPeers(const Fn &fn) const {
    for (int k = 1; k < size; ++k)
      if (!fn((rank + k) % size))
        return false;
    return true;
  }

  /// Latches a failure of this rank and notifies the others; always false.
  bool fail(Status status);
  /// True if this rank or another one has failed; failure() says why.
  bool hasFailed();
  const Status &failure() const { return latched; }
  /// Makes hasFailed() true on all ranks. Any thread may call it.
  void abort();

  const GroupPlace place;
  const int rank, size;

private:
  Status exchangeSegment(Store &store, const std::string &key);
  Status getFrom(int peer, Store &store, const std::string &key,
                 std::string *text);
  bool barrier();
  /// Returns "rank 0 is waiting for rank 1 …".
  std::string describeWait(int peer) const;
  void tellOthers(const Status &status);

  const double timeoutSeconds;
  ShmSegment segment;
  PeerMonitor monitor;
  /// True if others may read this rank's control lines.
  bool joined = false;
  uint64_t barriers = 0;
  Deadline deadline = Deadline::after(0);
  Status latched;
  std::atomic<bool> abortedHere{false};
  /// The caller's flag during join(), when nobody can call abort() yet.
  const std::atomic<bool> *joiningAborted = nullptr;
  std::mutex tellMutex;
  bool toldOthers = false;
};

} // namespace ddphook::host
