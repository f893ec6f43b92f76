//===- shm_group.cpp - all-reduce through shared memory -------------------===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The protocol in the segment. Chunks are numbered from the group's beginning,
// through all collectives; chunk g of a rank lies in its slot g % kSlots.
//
//   published[r] > g  chunk g of rank r is in its slot, on the wire's type
//   reduced[r]   > g  (three ranks and more) rank r has replaced its part of
//                     its own chunk g by the sum over all ranks
//   consumed[r]  > g  rank r does not read chunk g of any rank any more, so
//                     their owners may overwrite the slots
//
// Two ranks: each adds up both slots. More: reduce-scatter and all-gather
// inside each chunk. A rank whose peers are slow goes on publishing as far as
// it has slots, so that ranks which share their processors with other work meet
// seldom; otherwise it keeps kLead chunks ahead, which stay in its cache.
//
//===----------------------------------------------------------------------===//
#include "shm_group.h"

#include "cache_distance.h"
#include "kernels.h"
#include "peer_monitor.h"
#include "ring_order.h"
#include "shm_segment.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <sched.h>
#include <time.h>
#include <unistd.h>
#include <vector>

using namespace ddphook;
using namespace ddphook::host;

namespace {

/// Chunks that are published before their predecessors are done with; one more
/// with the second stage of three ranks and more.
constexpr uint64_t kLead = 2;
static_assert(kLead + 1 < ShmSegment::kSlots, "a slot must be free to publish");

/// Destinations beyond this size leave the caches before anyone reads them.
constexpr int64_t kStreamingBytes = 4 << 20;

/// Slots are written around the caches only for messages of this size: below
/// it, waiting for the stores to arrive costs more.
constexpr int64_t kFarBytes = 128 << 10;

inline void pauseProcessor() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

void sleepMicroseconds(long microseconds) {
  timespec time{0, microseconds * 1000};
  nanosleep(&time, nullptr);
}

char *offset(void *array, int64_t bytes) {
  return static_cast<char *>(array) + bytes;
}

/// One all-reduce under way.
struct Collective {
  AllReduceDesc desc;
  const char *in;
  char *out;
  int64_t divisor;
  Stores stores;
  RingOrder order;
  int64_t chunkElements;
  uint64_t chunks;

  int64_t begin(uint64_t chunk) const {
    return static_cast<int64_t>(chunk) * chunkElements;
  }
  int64_t length(uint64_t chunk) const {
    return std::min(chunkElements, desc.count - begin(chunk));
  }
  const char *input(uint64_t chunk) const {
    return in + begin(chunk) * dtypeSize(desc.dtype);
  }
  char *output(uint64_t chunk) const {
    return out + begin(chunk) * dtypeSize(desc.dtype);
  }
};

} // namespace

class ShmGroup::Impl {
public:
  Impl(int rank, int size, double timeoutSeconds)
      : rank(rank), size(size), timeoutSeconds(timeoutSeconds), distance(size),
        ordered(static_cast<size_t>(size)) {}

  ~Impl() {
    if (joined)
      segment.control(rank).left.store(1, std::memory_order_release);
  }

  Status join(Store &store, const std::string &key);
  Status allReduce(const AllReduceDesc &desc, const void *in, void *out);
  void abort();

private:
  Status exchangeSegment(Store &store, const std::string &key,
                         const Deadline &deadline);
  bool barrier();

  Status reduceAlone(const Collective &op);
  bool reduceTogether(const Collective &op);
  bool canPublish(uint64_t chunk) const;
  void publish(const Collective &op, uint64_t chunk);
  bool checkSignatures();
  void sumTwo(const Collective &op, uint64_t chunk);
  void sumPart(const Collective &op, uint64_t chunk);
  void gatherParts(const Collective &op, uint64_t chunk);
  void sumRange(const Collective &op, uint64_t chunk, int64_t begin,
                int64_t end, void *out, Dtype outType, Stores stores);

  /// Waits until a counter of `peer` is at least `goal`; false after a failure.
  bool await(const std::atomic<uint64_t> &counter, uint64_t goal, int peer);

  /// A kind of counter that every rank has.
  using Counter = SharedCounter RankControl::*;
  /// Whether the counters of all other ranks have reached `goal`.
  bool allReached(Counter counter, uint64_t goal) const {
    for (int k = 1; k < size; ++k)
      if (read(counter, (rank + k) % size) < goal)
        return false;
    return true;
  }
  /// The same of `published`, the counter by which distances are measured.
  bool allPublished(uint64_t goal) {
    return forPeers([&](int peer) {
      return distance.load(segment.control(peer).published.value, peer) >= goal;
    });
  }
  bool awaitPublished(uint64_t goal) {
    return forPeers([&](int peer) {
      const std::atomic<uint64_t> &counter =
          segment.control(peer).published.value;
      const bool ok = await(counter, goal, peer);
      distance.skip(counter.load(std::memory_order_relaxed), peer);
      return ok;
    });
  }
  bool awaitAll(Counter counter, uint64_t goal) {
    return forPeers([&](int peer) {
      return await((segment.control(peer).*counter).value, goal, peer);
    });
  }
  uint64_t read(Counter counter, int peer) const {
    return (segment.control(peer).*counter)
        .value.load(std::memory_order_acquire);
  }
  void write(Counter counter, uint64_t value) {
    (mine().*counter).value.store(value, std::memory_order_release);
  }

  /// Latches a failure of this rank, tells the others; always false.
  bool fail(Status status);
  void tellOthers(const Status &status);
  /// Whether some rank has failed; latches ABORTED then.
  bool failedElsewhere();

  /// Calls fn(peer) for all other ranks, beginning with the next one, until
  /// one call gives false.
  template <class Fn>
  bool forPeers(const Fn &fn) {
    for (int k = 1; k < size; ++k)
      if (!fn((rank + k) % size))
        return false;
    return true;
  }
  /// How this rank writes what others read next.
  Stores slotStores(const Collective &op) const {
    return op.desc.wireBytes() >= kFarBytes && distance.isFar()
               ? Stores::Streaming
               : Stores::Cached;
  }
  uint64_t global(uint64_t chunk) const { return chunksBefore + chunk; }
  RankControl &mine() { return segment.control(rank); }

  const int rank, size;
  const double timeoutSeconds;
  ShmSegment segment;
  PeerMonitor monitor;
  /// Others may read this rank's control lines.
  bool joined = false;
  /// Chunks of, and number of, earlier collectives.
  uint64_t chunksBefore = 0, collectives = 0, barriers = 0;
  Deadline deadline = Deadline::after(0);
  Status failure;
  std::mutex failureMutex;
  bool toldOthers = false;
  std::atomic<bool> abortedHere{false};
  CacheDistance distance;
  /// Scratch: the slots of all ranks in the order of additions.
  std::vector<const void *> ordered;
};

//===----------------------------------------------------------------------===//
// Failures
//===----------------------------------------------------------------------===//

void ShmGroup::Impl::tellOthers(const Status &status) {
  std::lock_guard<std::mutex> lock(failureMutex);
  if (toldOthers)
    return;
  toldOthers = true;
  std::snprintf(mine().failure, sizeof(mine().failure), "%s",
                status.message().c_str());
  int32_t none = 0;
  segment.header().failedRank.compare_exchange_strong(
      none, rank + 1, std::memory_order_acq_rel);
}

bool ShmGroup::Impl::fail(Status status) {
  failure = std::move(status);
  if (joined)
    tellOthers(failure);
  return false;
}

bool ShmGroup::Impl::failedElsewhere() {
  if (abortedHere.load(std::memory_order_relaxed)) {
    failure = error(DDPHOOK_ABORTED, "the group was aborted on this rank");
    return true;
  }
  if (!joined)
    return false;
  int32_t failed = segment.header().failedRank.load(std::memory_order_acquire);
  if (failed == 0)
    return false;
  failure = error(DDPHOOK_ABORTED, "rank %d failed first: %s", failed - 1,
                  segment.control(failed - 1).failure);
  return true;
}

void ShmGroup::Impl::abort() {
  abortedHere.store(true, std::memory_order_relaxed);
  if (joined)
    tellOthers(Status(DDPHOOK_ABORTED, "the group was aborted there"));
}

bool ShmGroup::Impl::await(const std::atomic<uint64_t> &counter, uint64_t goal,
                           int peer) {
  auto reached = [&] {
    return counter.load(std::memory_order_acquire) >= goal;
  };
  // Ranks that share a processor need it handed over.
  constexpr int yields = 200;
  for (int i = 0; i < yields; ++i) {
    if (reached())
      return true;
    if (failedElsewhere())
      return false;
    sched_yield();
  }
  const Deadline::Clock::time_point start = Deadline::Clock::now();
  for (;;) {
    if (reached())
      return true;
    if (failedElsewhere())
      return false;
    // What a rank did before it died or left still counts: look once more.
    if (segment.control(peer).left.load(std::memory_order_acquire))
      return reached() ||
             fail(error(DDPHOOK_PEER_LOST, "rank %d left the group", peer));
    if (monitor.hasDied(peer))
      return reached() ||
             fail(error(DDPHOOK_PEER_LOST, "rank %d (process %d) died", peer,
                        segment.control(peer).pid.load()));
    if (deadline.expired())
      return reached() || fail(error(DDPHOOK_DEADLINE_EXCEEDED,
                                     "rank %d did not come within %g s", peer,
                                     timeoutSeconds));
    // Long waits are polled less often, at a cost of about 1 % of the wait.
    const long waited =
        static_cast<long>(std::chrono::duration_cast<std::chrono::microseconds>(
                              Deadline::Clock::now() - start)
                              .count());
    sleepMicroseconds(std::clamp(waited / 100, 50L, 1000L));
  }
}

//===----------------------------------------------------------------------===//
// Joining
//===----------------------------------------------------------------------===//

namespace {

/// A status as the value of a key; `detail` is what comes with success.
std::string encodeStatus(const Status &status, const std::string &detail) {
  return std::to_string(status.code()) + " " +
         (status.isOk() ? detail : status.message());
}

Status decodeStatus(const std::string &text, std::string *detail) {
  size_t space = text.find(' ');
  if (space == std::string::npos)
    return error(DDPHOOK_INTERNAL, "expected a status, but got '%s'",
                 text.c_str());
  auto code = static_cast<ddphook_status_t>(std::atoi(text.c_str()));
  *detail = text.substr(space + 1);
  return code == DDPHOOK_OK ? Status::ok() : Status(code, *detail);
}

} // namespace

/// Every rank learns of every other rank's success, so that all of them fail
/// when one does.
Status ShmGroup::Impl::exchangeSegment(Store &store, const std::string &key,
                                       const Deadline &deadline) {
  Status own;
  std::string address, text;
  if (rank == 0) {
    own = segment.create(size, &address);
    DDPHOOK_RETURN_IF_ERROR(
        store.set(key + "/segment", encodeStatus(own, address)));
  } else {
    DDPHOOK_RETURN_IF_ERROR(store.get(key + "/segment", deadline, &text));
    own = withContext(decodeStatus(text, &address), "rank 0");
    if (own.isOk())
      own = segment.open(size, address);
  }
  if (own.isOk())
    own = segment.reserve(rank);
  DDPHOOK_RETURN_IF_ERROR(
      store.set(key + "/rank" + std::to_string(rank),
                encodeStatus(own, std::to_string(getpid()))));
  DDPHOOK_RETURN_IF_ERROR(own);
  std::vector<pid_t> pids;
  for (int peer = 0; peer < size; ++peer) {
    std::string name = "rank" + std::to_string(peer), pid;
    DDPHOOK_RETURN_IF_ERROR(store.get(key + "/" + name, deadline, &text));
    DDPHOOK_RETURN_IF_ERROR(
        withContext(decodeStatus(text, &pid), "rank " + std::to_string(peer)));
    pids.push_back(static_cast<pid_t>(std::atol(pid.c_str())));
  }
  segment.finish();
  mine().pid.store(getpid());
  joined = true;
  return monitor.watch(pids);
}

bool ShmGroup::Impl::barrier() {
  write(&RankControl::barrier, ++barriers);
  return awaitAll(&RankControl::barrier, barriers);
}

Status ShmGroup::Impl::join(Store &store, const std::string &key) {
  if (size == 1)
    return Status::ok();
  deadline = Deadline::after(timeoutSeconds);
  Status exchanged = exchangeSegment(store, key, deadline);
  if (!exchanged.isOk()) {
    fail(exchanged);
    return exchanged;
  }
  // A rank that reaches the second barrier lived when all had opened its
  // pidfd: no pidfd can belong to a later process of the same number.
  if (!barrier() || !barrier())
    return failure;
  store.erase(key + "/rank" + std::to_string(rank)).ignore();
  if (rank == 0)
    store.erase(key + "/segment").ignore();
  return Status::ok();
}

//===----------------------------------------------------------------------===//
// All-reduce
//===----------------------------------------------------------------------===//

/// Bytes of a chunk on the wire. Chunks of two ranks fit their second-level
/// caches together with the data in memory; short messages are cut too, so that
/// the ranks do not work in lockstep.
static int64_t chunkBytes(const AllReduceDesc &desc, int64_t slotBytes) {
  constexpr int64_t least = 16 << 10, granule = 4 << 10, pieces = 4;
  const int64_t most = isHalf(desc.wireType()) ? 128 << 10 : 256 << 10;
  int64_t piece = (desc.wireBytes() / pieces + granule) / granule * granule;
  return std::clamp(piece, least, std::min(most, slotBytes));
}

Status ShmGroup::Impl::allReduce(const AllReduceDesc &desc, const void *in,
                                 void *out) {
  if (!failure.isOk() || failedElsewhere())
    return failure;
  if (desc.count < 0)
    return error(DDPHOOK_INVALID_ARGUMENT,
                 "expected a count of at least 0, but got %lld",
                 static_cast<long long>(desc.count));
  if (desc.count == 0)
    return Status::ok();
  const int64_t wireSize = dtypeSize(desc.wireType());
  Collective op{desc,
                static_cast<const char *>(in),
                static_cast<char *>(out),
                desc.divide ? size : 1,
                in != out && desc.memoryBytes() >= kStreamingBytes
                    ? Stores::Streaming
                    : Stores::Cached,
                RingOrder(desc.count, wireSize, size),
                0,
                0};
  if (size == 1)
    return reduceAlone(op);
  op.chunkElements = chunkBytes(desc, segment.slotBytes()) / wireSize;
  op.chunks = static_cast<uint64_t>((desc.count + op.chunkElements - 1) /
                                    op.chunkElements);
  deadline = Deadline::after(timeoutSeconds);
  mine().signatures[collectives % 2] = {
      desc.count, static_cast<int32_t>(desc.dtype),
      static_cast<int32_t>(desc.wireType()), desc.divide};
  // A rank that was suspended must not report success after the others gave up.
  if (!reduceTogether(op) || failedElsewhere())
    return failure;
  chunksBefore += op.chunks;
  ++collectives;
  return Status::ok();
}

Status ShmGroup::Impl::reduceAlone(const Collective &op) {
  const AllReduceDesc &desc = op.desc;
  if (desc.wireType() == desc.dtype) {
    castArray(op.in, desc.dtype, op.out, desc.dtype, desc.count, op.stores);
    return Status::ok();
  }
  constexpr int64_t block = 8192;
  alignas(64) double wire[block];
  for (int64_t i = 0; i < desc.count; i += block) {
    const int64_t n = std::min(block, desc.count - i);
    const int64_t bytes = i * dtypeSize(desc.dtype);
    castArray(op.in + bytes, desc.dtype, wire, desc.wireType(), n);
    castArray(wire, desc.wireType(), op.out + bytes, desc.dtype, n, op.stores);
  }
  return Status::ok();
}

/// Whether nobody reads what this rank's slot for the chunk holds now.
bool ShmGroup::Impl::canPublish(uint64_t chunk) const {
  const uint64_t g = global(chunk);
  return g < ShmSegment::kSlots ||
         allReached(&RankControl::consumed, g - ShmSegment::kSlots + 1);
}

/// Casts and divides a chunk into this rank's slot.
void ShmGroup::Impl::publish(const Collective &op, uint64_t chunk) {
  compressArray(op.input(chunk), op.desc.dtype,
                segment.slot(rank, global(chunk)), op.desc.wireType(),
                op.length(chunk), op.divisor, slotStores(op));
  write(&RankControl::published, global(chunk) + 1);
}

/// Once all other ranks have published a chunk of this collective.
bool ShmGroup::Impl::checkSignatures() {
  auto text = [](const CollectiveSignature &s) {
    return std::to_string(s.count) + " elements of " +
           dtypeName(static_cast<Dtype>(s.dtype)) + " as " +
           dtypeName(static_cast<Dtype>(s.wire)) +
           (s.divide ? ", divided" : "");
  };
  const CollectiveSignature &own = mine().signatures[collectives % 2];
  return forPeers([&](int peer) {
    const CollectiveSignature &theirs =
        segment.control(peer).signatures[collectives % 2];
    if (own.count == theirs.count && own.dtype == theirs.dtype &&
        own.wire == theirs.wire && own.divide == theirs.divide)
      return true;
    return fail(error(DDPHOOK_PLAN_MISMATCH,
                      "expected rank %d to reduce %s, but got %s", peer,
                      text(own).c_str(), text(theirs).c_str()));
  });
}

/// Does whatever can be done next, the stage nearest to the end first.
bool ShmGroup::Impl::reduceTogether(const Collective &op) {
  constexpr Counter reduced = &RankControl::reduced;
  const bool two = size == 2;
  const uint64_t lead = two ? kLead : kLead + 1;
  // Chunks of this collective that have passed each stage.
  uint64_t publishedHere = 0, summedHere = 0, done = 0;
  for (int idle = 0; done < op.chunks;) {
    // Published ahead, whatever else there is to do.
    if (publishedHere < std::min(op.chunks, done + lead) &&
        canPublish(publishedHere)) {
      publish(op, publishedHere++);
      idle = 0;
      continue;
    }
    if (!two && done < summedHere && allReached(reduced, global(done) + 1)) {
      gatherParts(op, done++);
      idle = 0;
      continue;
    }
    if (summedHere < publishedHere && allPublished(global(summedHere) + 1)) {
      if (summedHere == 0 && !checkSignatures())
        return false;
      if (two)
        sumTwo(op, done++);
      else
        sumPart(op, summedHere);
      ++summedHere;
      idle = 0;
      continue;
    }
    if (failedElsewhere())
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
    // Waits for what holds up the oldest chunk that is not done: nobody can
    // wait for a later stage of it, so somebody gets on.
    bool ok;
    if (!two && done < summedHere)
      ok = awaitAll(reduced, global(done) + 1);
    else if (summedHere < publishedHere)
      ok = awaitPublished(global(summedHere) + 1);
    else
      ok = awaitAll(&RankControl::consumed,
                    global(publishedHere) - ShmSegment::kSlots + 1);
    if (!ok)
      return false;
    idle = 0;
  }
  return true;
}

void ShmGroup::Impl::sumTwo(const Collective &op, uint64_t chunk) {
  const uint64_t g = global(chunk);
  const bool asItIs = op.desc.wireType() == op.desc.dtype;
  // Both ranks add in the same order: the sum of two NaNs is one of them.
  if (asItIs && op.divisor != 1 && op.desc.dtype == Dtype::F32) {
    addDividedToPeer(reinterpret_cast<const float *>(op.input(chunk)),
                     op.divisor,
                     static_cast<const float *>(segment.slot(1 - rank, g)),
                     rank == 0, reinterpret_cast<float *>(op.output(chunk)),
                     op.length(chunk), op.stores);
  } else {
    const void *slots[] = {segment.slot(0, g), segment.slot(1, g)};
    // Own elements that the slot holds unchanged are nearer in the input.
    if (asItIs && op.divisor == 1)
      slots[rank] = op.input(chunk);
    sumRanksDecompress(slots, 2, op.desc.wireType(), op.output(chunk),
                       op.desc.dtype, op.length(chunk), op.stores);
  }
  write(&RankControl::consumed, g + 1);
}

/// Sums elements begin … end - 1 of the chunk in every rank's slot into `out`,
/// which begins with element `begin`.
void ShmGroup::Impl::sumRange(const Collective &op, uint64_t chunk,
                              int64_t begin, int64_t end, void *out,
                              Dtype outType, Stores stores) {
  const Dtype wire = op.desc.wireType();
  const int64_t first = op.begin(chunk);
  for (int64_t i = begin; i < end;) {
    const int section = op.order.section(first + i);
    const int64_t stop = std::min(end, op.order.sectionEnd(section) - first);
    for (int k = 0; k < size; ++k)
      ordered[static_cast<size_t>(k)] =
          offset(segment.slot(op.order.rankAt(section, k), global(chunk)),
                 i * dtypeSize(wire));
    sumRanksDecompress(ordered.data(), size, wire,
                       offset(out, (i - begin) * dtypeSize(outType)), outType,
                       stop - i, stores);
    i = stop;
  }
}

/// Where the part of a chunk begins that rank number `part` sums; parts end
/// where cache lines do, so that two ranks never write into one.
static int64_t partBegin(const Collective &op, uint64_t chunk, int size,
                         int part) {
  const int64_t line = 64 / dtypeSize(op.desc.wireType());
  const int64_t lines = (op.length(chunk) + line - 1) / line;
  return std::min(op.length(chunk), part * ((lines + size - 1) / size) * line);
}

void ShmGroup::Impl::sumPart(const Collective &op, uint64_t chunk) {
  const Dtype wire = op.desc.wireType();
  const int64_t begin = partBegin(op, chunk, size, rank);
  const int64_t end = partBegin(op, chunk, size, rank + 1);
  sumRange(op, chunk, begin, end,
           offset(segment.slot(rank, global(chunk)), begin * dtypeSize(wire)),
           wire, slotStores(op));
  write(&RankControl::reduced, global(chunk) + 1);
}

void ShmGroup::Impl::gatherParts(const Collective &op, uint64_t chunk) {
  const Dtype wire = op.desc.wireType();
  for (int k = 0; k < size; ++k) {
    const int part = (rank + k) % size;
    const int64_t begin = partBegin(op, chunk, size, part);
    const int64_t end = partBegin(op, chunk, size, part + 1);
    castArray(
        offset(segment.slot(part, global(chunk)), begin * dtypeSize(wire)),
        wire, op.output(chunk) + begin * dtypeSize(op.desc.dtype),
        op.desc.dtype, end - begin, op.stores);
  }
  write(&RankControl::consumed, global(chunk) + 1);
}

//===----------------------------------------------------------------------===//
// The public class
//===----------------------------------------------------------------------===//

ShmGroup::ShmGroup(std::unique_ptr<Impl> impl) : impl(std::move(impl)) {}
ShmGroup::~ShmGroup() = default;

Status ShmGroup::create(Store &store, const std::string &key, int rank,
                        int size, double timeoutSeconds,
                        std::unique_ptr<ShmGroup> *out) {
  if (size < 1 || rank < 0 || rank >= size)
    return error(DDPHOOK_INVALID_ARGUMENT,
                 "expected a rank below the group's size, but got %d of %d",
                 rank, size);
  auto impl = std::make_unique<Impl>(rank, size, timeoutSeconds);
  DDPHOOK_RETURN_IF_ERROR(impl->join(store, key));
  out->reset(new ShmGroup(std::move(impl)));
  return Status::ok();
}

Status ShmGroup::allReduce(const AllReduceDesc &desc, const void *in,
                           void *out) {
  return impl->allReduce(desc, in, out);
}

void ShmGroup::abort() { impl->abort(); }
