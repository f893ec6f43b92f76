// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The protocol in the segment. Chunks are numbered across all collectives of
// the group; chunk g of a rank is in its slot g % kSlots.
//
//  published[r] > g  chunk g of rank r is in its slot, in the wire type
//  reduced[r]   > g  (three or more ranks) rank r has replaced its part of
//                    its own chunk g by the sum over all ranks
//  consumed[r]  > g  rank r no longer reads chunk g of any rank, so their
//                    owners may overwrite the slots
//
// In an all-reduce of two ranks each rank adds both slots. More ranks use a
// reduce-scatter and an all-gather within each chunk. Every other collective is
// one exchange (pieces.h): a rank takes what it needs from all slots. A rank
// whose peers are slow continues to publish while it has slots, so that ranks
// that share their processors with other work synchronize seldom; otherwise it
// stays kLead chunks ahead, which remain in its cache.

#include "shm_group.h"

#include "base/pause.h"
#include "encoded_chunks.h"
#include "kernels.h"
#include "pieces.h"
#include "shm_membership.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <optional>
#include <string>
#include <vector>

using namespace ddphook;
using namespace ddphook::host;

namespace {

/// How many chunks are published before their predecessors are done; one more
/// with the second stage of three or more ranks.
constexpr uint64_t kLead = 2;
static_assert(kLead + 1 < ShmSegment::kSlots, "a slot must be free to publish");

/// Destinations beyond this size would leave the caches before anyone reads
/// them, so they are streamed. Parts of unequal size and windows of parts are
/// not: they are shorter, and used next.
constexpr int64_t kStreamingBytes = 4 << 20;

bool isPartOfScatter(const CollectiveDesc &desc) {
  return desc.window && desc.is(CollectiveKind::ReduceScatter);
}

/// Slots are written around the caches only for messages of at least this size;
/// for smaller ones, waiting for the stores to arrive costs more.
constexpr int64_t kFarBytes = 8 << 10;

/// Measures how far the caches of peers are. Processors that share a last-level
/// cache pass data through it. Between other processors, a line that one writes
/// and another has read costs a round trip, and writing around the caches is
/// several times faster (on an AMD EPYC: 2 ms instead of 12 for 25 MiB and two
/// ranks). Which case applies can change while a program runs, and virtual
/// machines do not report it. So this class measures continuously how long it
/// takes to read a counter that a peer has just written. The result affects
/// only speed.
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
    Peer &p = peers[peer];
    // An old value may come from this processor's own cache.
    if (value != p.seen) {
      p.seen = value;
      addSample(p, took - overhead);
    }
    return value;
  }

  /// Must be called after the counter was read in another way: this processor's
  /// cache has its value now.
  void skip(uint64_t value, int peer) { peers[peer].seen = value; }

  /// True if at least half of the peers do not share a cache with this rank.
  bool isFar() const { return 2 * farPeers >= peers.size() && farPeers > 0; }

private:
  using Clock = std::chrono::steady_clock;

  /// Shared caches answer within about 40 ns, others after more than 100.
  static constexpr Clock::duration kFar = std::chrono::nanoseconds(75);
  /// The number of samples of which a quarter must be long. A prefetcher may
  /// make a sample short, an interruption makes it long.
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

struct Collective {
  CollectiveDesc desc;
  const void *in;
  void *out;
  int64_t divisor;
  Stores stores;
  /// The chunks of an all-reduce, or those of another collective.
  std::optional<EncodedChunks> parts = {};
  std::optional<Pieces> pieces = {};
  int64_t chunkElements = 0;
  uint64_t chunks = 0;

  /// True if sums take two stages: each rank adds a part of a chunk, then
  /// gathers the others' parts. Two ranks are faster if both add everything.
  bool hasTwoStages(int ranks) const {
    return parts && (desc.encoding ? !parts->isAffine() : ranks > 2);
  }

  int64_t begin(uint64_t chunk) const {
    return static_cast<int64_t>(chunk) * chunkElements;
  }
  int64_t length(uint64_t chunk) const {
    return std::min(chunkElements, desc.count - begin(chunk));
  }
  const char *input(uint64_t chunk) const {
    return elementAt(in, desc.type(), begin(chunk));
  }
  char *output(uint64_t chunk) const {
    return elementAt(out, desc.type(), begin(chunk));
  }
};

class SegmentGroup final : public ShmGroup {
public:
  SegmentGroup(const GroupPlace &place, double timeoutSeconds)
      : member(place, timeoutSeconds), rank(place.rank), size(place.size),
        distance(size), inOrder(static_cast<size_t>(size)) {}

  Status run(const CollectiveDesc &desc, const void *in, void *out) override;
  void abort() override { member.abort(); }

  ShmMembership member;

private:
  bool runTogether(Collective &op);
  bool canPublish(uint64_t chunk) const;
  void publish(Collective &op, uint64_t chunk);
  bool allPublished(uint64_t chunk);
  bool awaitPublished(uint64_t chunk);
  bool checkAnnounced();
  void takeWhole(Collective &op, uint64_t chunk);
  void sumTwo(const Collective &op, uint64_t chunk);
  void sumPart(Collective &op, uint64_t chunk);
  void gatherParts(const Collective &op, uint64_t chunk);

  /// Returns how this rank writes data that others read next.
  Stores slotStores(const Collective &op) const {
    return op.desc.wireBytes() >= kFarBytes && distance.isFar()
               ? Stores::Streaming
               : Stores::Cached;
  }
  /// Returns the slots of all ranks for a chunk, in rank order.
  void *const *slots(uint64_t chunk) {
    for (int k = 0; k < size; ++k)
      inOrder[k] = slot(k, chunk);
    return inOrder.data();
  }
  /// Returns the slot of `owner` for a chunk of this collective.
  void *slot(int owner, uint64_t chunk) const {
    return member.memory().slot(owner, global(chunk));
  }
  /// Returns the chunk's number since the group began.
  uint64_t global(uint64_t chunk) const { return chunksBefore + chunk; }
  /// Returns the value of a counter that has passed the chunk.
  uint64_t past(uint64_t chunk) const { return global(chunk) + 1; }

  const int rank, size;
  /// The chunks in earlier collectives, and the number of these.
  uint64_t chunksBefore = 0, collectives = 0;
  CacheDistance distance;
  /// Scratch: the slots of all ranks, in rank order.
  std::vector<void *> inOrder;
};

} // namespace

/// Returns the bytes of a chunk on the wire. Chunks of two ranks fit into their
/// second-level caches together with the data in memory. Short messages are cut
/// too, so that the ranks do not work in lockstep.
static int64_t chunkBytes(const CollectiveDesc &desc, int64_t wireBytes,
                          int64_t slotBytes) {
  constexpr int64_t least = 16 << 10, granule = 4 << 10, pieces = 4;
  const int64_t most = desc.encoding             ? 64 << 10
                       : isHalf(desc.wireType()) ? 128 << 10
                                                 : 256 << 10;
  int64_t piece = (wireBytes / pieces + granule) / granule * granule;
  return std::clamp(piece, least, std::min(most, slotBytes));
}

Status SegmentGroup::run(const CollectiveDesc &desc, const void *in,
                         void *out) {
  if (member.hasFailed())
    return member.failure();
  if (desc.count < 0)
    return invalid(
        concat("expected a count of at least 0, but got ", desc.count));
  if (desc.count == 0)
    return Status::ok();
  if (size == 1) {
    reduceAlone(desc, in, out);
    return Status::ok();
  }
  Collective op{desc, in, out, desc.divide ? size : 1,
                in != out && !desc.part_ends && !isPartOfScatter(desc) &&
                        desc.memoryBytes() >= kStreamingBytes
                    ? Stores::Streaming
                    : Stores::Cached};
  const bool isAllReduce = desc.is(CollectiveKind::AllReduce);
  const int64_t bytes = chunkBytes(
      desc, isAllReduce ? desc.wireBytes() : Pieces::totalBytes(desc, size),
      member.memory().slotBytes());
  if (isAllReduce) {
    op.parts.emplace(desc, rank, size);
    op.chunkElements = op.parts->chunkElements(bytes);
  } else {
    op.pieces.emplace(desc, rank, size, bytes);
  }
  op.chunks = static_cast<uint64_t>(
      op.pieces ? op.pieces->chunks()
                : (desc.count + op.chunkElements - 1) / op.chunkElements);
  member.startClock();
  member.mine().announced[collectives % 2] = desc;
  // A rank that was suspended must not report success after the others gave up.
  if (!runTogether(op) || member.hasFailed())
    return member.failure();
  chunksBefore += op.chunks;
  ++collectives;
  return Status::ok();
}

/// True if nobody reads this rank's slot for the chunk any more: neither a peer
/// nor this rank, which its peers may have overtaken.
bool SegmentGroup::canPublish(uint64_t chunk) const {
  constexpr uint64_t slots = ShmSegment::kSlots;
  constexpr auto consumed = &RankControl::consumed;
  if (past(chunk) <= slots)
    return true;
  const uint64_t goal = past(chunk) - slots;
  return member.counter(consumed, rank).load(std::memory_order_relaxed) >=
             goal &&
         member.allReached(consumed, goal);
}

/// Casts and divides a chunk into this rank's slot, or encodes it.
void SegmentGroup::publish(Collective &op, uint64_t chunk) {
  if (op.pieces)
    op.pieces->put(op.in, chunk, slot(rank, chunk), slotStores(op));
  else
    op.parts->encode(op.in, op.begin(chunk), op.length(chunk),
                     slot(rank, chunk), slotStores(op));
  member.set(&RankControl::published, past(chunk));
}

/// This counter also serves to measure the distance between caches.
bool SegmentGroup::allPublished(uint64_t chunk) {
  return member.forPeers([&](int peer) {
    return distance.load(member.counter(&RankControl::published, peer), peer) >=
           past(chunk);
  });
}

bool SegmentGroup::awaitPublished(uint64_t chunk) {
  constexpr auto published = &RankControl::published;
  return member.forPeers([&](int peer) {
    const bool ok = member.await(published, past(chunk), peer);
    distance.skip(
        member.counter(published, peer).load(std::memory_order_relaxed), peer);
    return ok;
  });
}

/// Compares the collectives of all ranks, which must have published a chunk.
bool SegmentGroup::checkAnnounced() {
  auto text = [&](const CollectiveOperation &one) {
    return concat(one.is(CollectiveKind::AllReduce)
                      ? ""
                      : describeCollective(one.collectiveKind()) + " of ",
                  one.count, " elements of ", dtypeName(one.type()), " as ",
                  one.encoding ? one.codes()->describe()
                               : dtypeName(one.wireType()),
                  one.divide ? ", divided" : "",
                  one.is(CollectiveKind::Broadcast)
                      ? ", from " + member.place.nameOf(one.root)
                      : "");
  };
  const ddphook_collective_t &own = member.mine().announced[collectives % 2];
  const bool isAllReduce = own.kind == DDPHOOK_ALL_REDUCE;
  return member.forPeers([&](int peer) {
    const ddphook_collective_t &theirs =
        member.memory().control(peer).announced[collectives % 2];
    if (haveSameFields(own, theirs))
      return true;
    return member.fail(
        error(DDPHOOK_PLAN_MISMATCH, "expected %s to %s %s, but got %s",
              member.place.nameOf(peer).c_str(), isAllReduce ? "reduce" : "run",
              text(own).c_str(), text(theirs).c_str()));
  });
}

/// Does whatever can be done next, with the stage nearest to the end first.
bool SegmentGroup::runTogether(Collective &op) {
  const bool twoStages = op.hasTwoStages(size);
  const uint64_t lead = twoStages ? kLead + 1 : kLead;
  // The number of chunks of this collective that have passed each stage.
  uint64_t publishedHere = 0, summedHere = 0, done = 0;
  for (int idle = 0; done < op.chunks;) {
    // Publish ahead first.
    if (publishedHere < std::min(op.chunks, done + lead) &&
        canPublish(publishedHere)) {
      publish(op, publishedHere++);
      idle = 0;
      continue;
    }
    if (twoStages && done < summedHere &&
        member.allReached(&RankControl::reduced, past(done))) {
      gatherParts(op, done++);
      idle = 0;
      continue;
    }
    if (summedHere < publishedHere && allPublished(summedHere)) {
      if (summedHere == 0 && !checkAnnounced())
        return false;
      if (twoStages)
        sumPart(op, summedHere);
      else
        takeWhole(op, done++);
      ++summedHere;
      idle = 0;
      continue;
    }
    if (member.hasFailed())
      return false;
    // Peers on other processors are seldom later than this.
    constexpr int spins = 100;
    if (++idle < spins) {
      pauseProcessor();
      continue;
    }
    if (publishedHere < op.chunks && canPublish(publishedHere)) {
      publish(op, publishedHere++);
      continue;
    }
    // Wait for what holds up the oldest unfinished chunk. Nobody can wait for a
    // later stage of it, so somebody makes progress.
    bool ok;
    if (twoStages && done < summedHere)
      ok = member.awaitAll(&RankControl::reduced, past(done));
    else if (summedHere < publishedHere)
      ok = awaitPublished(summedHere);
    else
      ok = member.awaitAll(&RankControl::consumed,
                           past(publishedHere) - ShmSegment::kSlots);
    if (!ok)
      return false;
    idle = 0;
  }
  return true;
}

/// Runs the only stage: takes or sums a chunk of all ranks into the output.
void SegmentGroup::takeWhole(Collective &op, uint64_t chunk) {
  if (op.pieces)
    op.pieces->take(op.in, slots(chunk), chunk, op.out, op.stores);
  else if (op.parts->isAffine())
    op.parts->average(slots(chunk), op.begin(chunk), op.length(chunk), op.out);
  else
    sumTwo(op, chunk);
  member.set(&RankControl::consumed, past(chunk));
}

void SegmentGroup::sumTwo(const Collective &op, uint64_t chunk) {
  const bool asItIs = op.desc.wireType() == op.desc.type();
  // Both ranks add in one order, because the sum of two NaNs is one of them.
  if (asItIs && op.divisor != 1 && op.desc.type() == Dtype::F32) {
    addDividedToPeer(reinterpret_cast<const float *>(op.input(chunk)),
                     op.divisor,
                     static_cast<const float *>(slot(1 - rank, chunk)),
                     rank == 0, reinterpret_cast<float *>(op.output(chunk)),
                     op.length(chunk), op.stores);
  } else {
    const void *slots[] = {slot(0, chunk), slot(1, chunk)};
    // If the slot holds this rank's elements unchanged, the input is closer.
    if (asItIs && op.divisor == 1)
      slots[rank] = op.input(chunk);
    sumRanksDecompress(slots, 2, op.desc.wireType(), op.output(chunk),
                       op.desc.type(), op.length(chunk), op.stores);
  }
}

void SegmentGroup::sumPart(Collective &op, uint64_t chunk) {
  const int64_t count = op.length(chunk);
  op.parts->sum(slots(chunk), op.begin(chunk), count,
                op.parts->part(count, rank, size), slot(rank, chunk),
                slotStores(op));
  member.set(&RankControl::reduced, past(chunk));
}

void SegmentGroup::gatherParts(const Collective &op, uint64_t chunk) {
  const int64_t count = op.length(chunk);
  for (int k = 0; k < size; ++k) {
    const int part = (rank + k) % size;
    op.parts->decode(slot(part, chunk), op.begin(chunk), count,
                     op.parts->part(count, part, size), op.out, op.stores);
  }
  member.set(&RankControl::consumed, past(chunk));
}

Status ShmGroup::create(Store &store, const std::string &key,
                        const GroupPlace &place, double timeoutSeconds,
                        std::unique_ptr<ShmGroup> *out,
                        const std::atomic<bool> *isAborted) {
  if (place.size < 1 || place.rank < 0 || place.rank >= place.size)
    return invalid("expected a rank below the group's size, but got %d of %d",
                   place.rank, place.size);
  auto group = std::make_unique<SegmentGroup>(place, timeoutSeconds);
  DDPHOOK_TRY(group->member.join(store, key, isAborted));
  *out = std::move(group);
  return Status::ok();
}
