//===- shm_membership.h - a rank's place in a shared segment ----*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Joins the other ranks, waits for them, notices that one died, stopped, left
// or failed, and tells them that this one did. shm_group.cpp does the
// computation in between.
//
//===----------------------------------------------------------------------===//
#ifndef DDPHOOK_RUNTIME_BACKENDS_HOST_SHM_SHM_MEMBERSHIP_H
#define DDPHOOK_RUNTIME_BACKENDS_HOST_SHM_SHM_MEMBERSHIP_H

#include "../group_place.h"
#include "base/deadline.h"
#include "base/status.h"
#include "peer_monitor.h"
#include "shm_segment.h"
#include "store/store.h"

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>
#include <utility>

namespace ddphook::host {

/// Used by one thread at a time, but for abort().
class ShmMembership {
public:
  ShmMembership(GroupPlace newPlace, double timeoutSeconds)
      : place(std::move(newPlace)), rank(place.rank), size(place.size),
        timeoutSeconds(timeoutSeconds) {}

  /// Leaves the group.
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
  /// Sets this rank's counter; what it wrote before is visible to whoever sees
  /// that.
  void set(Counter counter, uint64_t value) const {
    (mine().*counter).value.store(value, std::memory_order_release);
  }
  /// Whether the counters of all other ranks have reached `goal`.
  bool allReached(Counter counter, uint64_t goal) const;

  /// Begins a collective: waits until its end share one deadline.
  void startClock() { deadline = Deadline::after(timeoutSeconds); }
  /// Waits until the counters of all others have reached `goal`, or that of one
  /// peer; false after a failure.
  bool awaitAll(Counter counter, uint64_t goal);
  bool await(Counter counter, uint64_t goal, int peer);

  /// Calls fn(peer) for all other ranks, beginning with the next one, until one
  /// call gives false.
  template <class Fn>
  bool forPeers(const Fn &fn) const {
    for (int k = 1; k < size; ++k)
      if (!fn((rank + k) % size))
        return false;
    return true;
  }

  /// Latches a failure of this rank and tells the others; always false.
  bool fail(Status status);
  /// Whether this rank or another one has failed; failure() says why.
  bool hasFailed();
  const Status &failure() const { return latched; }
  /// Makes hasFailed() true on all ranks. From any thread.
  void abort();

  const GroupPlace place;
  const int rank, size;

private:
  Status exchangeSegment(Store &store, const std::string &key);
  Status getFrom(int peer, Store &store, const std::string &key,
                 std::string *text);
  bool barrier();
  /// "rank 0 is waiting for rank 1 …".
  std::string describeWait(int peer) const;
  void tellOthers(const Status &status);

  const double timeoutSeconds;
  ShmSegment segment;
  PeerMonitor monitor;
  /// Others may read this rank's control lines.
  bool joined = false;
  uint64_t barriers = 0;
  Deadline deadline = Deadline::after(0);
  Status latched;
  std::atomic<bool> abortedHere{false};
  /// While it joins, before anybody could call abort().
  const std::atomic<bool> *joiningAborted = nullptr;
  std::mutex tellMutex;
  bool toldOthers = false;
};

} // namespace ddphook::host

#endif // DDPHOOK_RUNTIME_BACKENDS_HOST_SHM_SHM_MEMBERSHIP_H
