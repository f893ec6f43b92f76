// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Processors that share a last-level cache pass data through it. Between other
// processors, a line that one writes and another has read costs a round trip,
// and writing around the caches is several times faster (on an AMD EPYC: 2 ms
// instead of 12 for 25 MiB and two ranks). Which case applies can change while
// a program runs, and virtual machines do not report it. So this class measures
// continuously how long it takes to read a counter that a peer has just
// written. The result affects only speed.

#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <vector>

namespace ddphook::host {

class CacheDistance {
public:
  explicit CacheDistance(int ranks) : peers(static_cast<size_t>(ranks)) {
    for (int i = 0; i < 64; ++i) {
      const Clock::time_point begin = Clock::now();
      overhead = std::min(overhead, Clock::now() - begin);
    }
  }

  /// Loads a peer's counter, which must always be the same one.
  uint64_t load(const std::atomic<uint64_t> &counter, int peer) {
    const Clock::time_point begin = Clock::now();
#if defined(__x86_64__)
    // Otherwise the load starts while the clock still waits for earlier loads.
    __builtin_ia32_lfence();
#endif
    const uint64_t value = counter.load(std::memory_order_acquire);
    const Clock::duration took = Clock::now() - begin;
    Peer &p = peers[static_cast<size_t>(peer)];
    // An old value may come from this processor's own cache.
    if (value != p.seen) {
      p.seen = value;
      addSample(p, took - overhead);
    }
    return value;
  }

  /// Must be called after the counter was read in another way: this processor's
  /// cache has its value now.
  void skip(uint64_t value, int peer) {
    peers[static_cast<size_t>(peer)].seen = value;
  }

  /// True if at least half of the peers do not share a cache with this rank.
  bool isFar() const { return 2 * farPeers >= peers.size() && farPeers > 0; }

private:
  using Clock = std::chrono::steady_clock;

  /// Shared caches answer within about 40 ns, others after more than 100.
  static constexpr Clock::duration kFar = std::chrono::nanoseconds(75);
  /// The number of samples of which a quarter must be long. Short samples prove
  /// little, since a prefetcher may have fetched the line; isolated long
  /// samples are interruptions.
  static constexpr int kWindow = 32;

  struct Peer {
    uint64_t seen = 0;
    int samples = 0, longSamples = 0;
    bool far = false;
  };

  void addSample(Peer &peer, Clock::duration took) {
    peer.longSamples += took > kFar;
    if (++peer.samples < kWindow)
      return;
    const bool far = 4 * peer.longSamples > kWindow;
    farPeers += static_cast<size_t>(far) - static_cast<size_t>(peer.far);
    peer.far = far;
    peer.samples = peer.longSamples = 0;
  }

  std::vector<Peer> peers; ///< This rank's own entry is unused.
  size_t farPeers = 0;
  Clock::duration overhead = Clock::duration::max();
};

} // namespace ddphook::host
