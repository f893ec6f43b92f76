// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A header, the names, and the slots of each ring, contiguously; the same in
// memory and in a file. A reader of a file must not trust any number in it.

#pragma once

#include "trace/rank_recording.h"

#include <algorithm>
#include <cstring>

namespace ddphook::trace {

constexpr char partMagic[8] = {'d', 'd', 'p', 't', 'r', 'a', 'c', 'e'};
constexpr uint32_t layoutVersion = 3;
constexpr uint64_t namesCapacity = 1 << 20;
constexpr uint64_t mostSlots = uint64_t(1) << 26;

/// A text that is truncated if it is too long.
template <size_t size>
struct Text {
  char bytes[size];

  void set(std::string_view text) {
    const size_t length = std::min(text.size(), size - 1);
    std::memcpy(bytes, text.data(), length);
    bytes[length] = '\0';
  }
  std::string get() const { return {bytes, ::strnlen(bytes, size)}; }
};

struct PartHeader {
  char magic[8];
  uint32_t version;
  int32_t rank, worldSize;
  int64_t process, clockOffset, clockUncertainty;
  uint64_t capacity; ///< Slots per ring; a power of two.
  Text<128> runId;
  Text<256> host, clock;
  std::atomic<uint32_t> state;
  std::atomic<uint64_t> namesSize;
  int64_t failureTime;
  Text<1024> failure;
  Progress progress;
  RingMemory rings[laneCount];
};

constexpr uint64_t namesOffset = 4096;
static_assert(sizeof(PartHeader) <= namesOffset,
              "a write of the header is one of a page, which a kill does not "
              "interrupt");
constexpr uint64_t slotsOffset = namesOffset + namesCapacity;

constexpr uint64_t partBytes(uint64_t capacity) {
  return slotsOffset + laneCount * capacity * sizeof(EventSlot);
}

/// Returns DATA_LOSS.
Status malformedPart(const char *what);

constexpr bool isCapacity(uint64_t slots) {
  return slots > 0 && slots <= mostSlots && (slots & (slots - 1)) == 0;
}

} // namespace ddphook::trace
