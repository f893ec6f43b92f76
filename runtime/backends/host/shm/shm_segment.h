// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Creates, opens and lays out the segment of a ShmGroup. shm_group.cpp defines
// the meaning of its counters.
//
// The segment is an anonymous file: rank 0 creates it, and the others open it
// through /proc while rank 0 keeps it open. It has no name that could be left
// over, and the kernel frees it when the last process that maps it ends.

#pragma once

#include "base/status.h"
#include "ddphook/runtime/backend.h"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <sys/types.h>

namespace ddphook::host {

/// Two cache lines: processors fetch lines in pairs.
constexpr size_t kLine = 128;

struct alignas(kLine) SharedCounter {
  std::atomic<uint64_t> value;
};

/// The part of the segment that one rank writes and all read.
struct RankControl {
  /// Counts of slots filled, parts reduced, slots read, and barriers reached
  /// since the group began. They only grow.
  SharedCounter published, reduced, consumed, barrier;
  /// The collectives that this rank says it runs, so that a difference is an
  /// error: number i is at i % 2. Only fields of the plan matter to others.
  alignas(kLine) ddphook_collective_t announced[2];
  std::atomic<uint32_t> left;
  std::atomic<int32_t> pid;
  /// Why this rank failed, if it did; see SegmentHeader::failedRank.
  char failure[256];
};

struct SegmentHeader {
  uint64_t nonce[2];
  /// 1 + the rank that failed first, set after it wrote its `failure`; 0 if
  /// none. Once it is set, no rank returns success.
  alignas(kLine) std::atomic<int32_t> failedRank;
};

static_assert(std::atomic<uint64_t>::is_always_lock_free &&
                  std::atomic<int32_t>::is_always_lock_free,
              "processes share these");

/// A process's view of the segment.
class ShmSegment {
public:
  /// Slots per rank; bounds how far ranks can be apart.
  static constexpr uint64_t kSlots = 8;

  ShmSegment() = default;
  ShmSegment(const ShmSegment &) = delete;
  ShmSegment &operator=(const ShmSegment &) = delete;
  ~ShmSegment();

  /// Creates a segment for `size` ranks. Others pass `address` to open().
  Status create(int size, std::string *address);

  /// Maps the segment that another rank created. UNSUPPORTED if this process
  /// cannot see that rank's.
  Status open(int size, const std::string &address);

  /// Reserves the memory of a rank's slots, so that writes cannot fail.
  Status reserve(int rank);

  /// Makes page faults unlikely, and closes the file. All ranks must have
  /// reserved their slots.
  void finish();

  SegmentHeader &header() const {
    return *reinterpret_cast<SegmentHeader *>(base);
  }
  RankControl &control(int rank) const {
    return reinterpret_cast<RankControl *>(base + sizeof(SegmentHeader))[rank];
  }
  /// The slot of `rank` for chunk number `chunk` since the group began.
  void *slot(int rank, uint64_t chunk) const {
    return base + slotOffset(rank) + (chunk % kSlots) * slotSize;
  }
  int64_t slotBytes() const { return static_cast<int64_t>(slotSize); }

private:
  void layOut(int size);
  size_t slotOffset(int rank) const {
    return controlBytes + static_cast<size_t>(rank) * kSlots * slotSize;
  }
  Status mapFile();
  Status reserveRange(size_t offset, size_t bytes);

  int file = -1;
  char *base = nullptr;
  size_t controlBytes = 0, slotSize = 0, totalBytes = 0;
};

} // namespace ddphook::host
