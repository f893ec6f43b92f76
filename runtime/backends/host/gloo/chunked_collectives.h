// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Runs the collectives for which Gloo has no algorithm. An array travels in
// chunks, so that ranks encode and decode some while others are in flight. All
// functions run one collective as operation number `operation`, and throw what
// the transport throws. `rooms`, the memory for one kind of collectives, is
// kept from one to the next.

#pragma once

#include "../collective_desc.h"
#include "gloo_transport.h"

#include <cstdlib>
#include <functional>
#include <memory>
#include <new>
#include <vector>

namespace ddphook::host {

/// The memory of one chunk: areas of equal size, to be used in any way.
class ChunkRoom {
public:
  void reserve(GlooTransport &transport, size_t count, size_t bytes) {
    buffer.reset();
    char *made = static_cast<char *>(std::calloc(count, bytes));
    if (!made)
      throw std::bad_alloc();
    memory.reset(made);
    places.resize(count);
    for (size_t i = 0; i < count; ++i)
      places[i] = made + i * bytes;
    buffer = transport.createUnboundBuffer(made, count * bytes);
  }

  const std::vector<void *> &areas() const { return places; }

  /// Start sending or receiving `size` bytes of an area, if it is not 0.
  void send(uint32_t operation, int to, const void *begin, int64_t size) {
    if (size == 0)
      return;
    buffer->send(to, operation, offsetOf(begin), static_cast<size_t>(size));
    ++sends;
  }
  void receive(uint32_t operation, int from, const void *begin, int64_t size) {
    if (size == 0)
      return;
    buffer->recv(from, operation, offsetOf(begin), static_cast<size_t>(size));
    ++receives;
  }
  void awaitSends() {
    for (; sends > 0; --sends)
      buffer->waitSend();
  }
  void awaitReceives() {
    for (; receives > 0; --receives)
      buffer->waitRecv();
  }

private:
  struct Free {
    void operator()(char *memory) const { std::free(memory); }
  };
  size_t offsetOf(const void *place) const {
    return static_cast<size_t>(static_cast<const char *>(place) - memory.get());
  }

  std::unique_ptr<char, Free> memory;
  std::vector<void *> places;
  std::unique_ptr<::gloo::transport::UnboundBuffer> buffer;
  int64_t sends = 0, receives = 0;
};

/// The memory of all chunks that are in flight at a time.
class ChunkBuffers {
public:
  explicit ChunkBuffers(size_t chunks) : rooms(chunks) {}

  /// Reserves chunks of `count` areas, each of at least `bytes` bytes and
  /// aligned to a cache line. Areas that nothing is written to have no pages.
  /// Throws what allocations throw. `count` must always be the same.
  void reserve(GlooTransport &transport, int count, int64_t bytes) {
    if (bytes <= roomBytes)
      return;
    const auto line = static_cast<size_t>((bytes + 63) / 64 * 64);
    for (ChunkRoom &room : rooms)
      room.reserve(transport, static_cast<size_t>(count), line);
    roomBytes = bytes;
  }

  ChunkRoom &ofChunk(int64_t chunk) {
    return rooms[static_cast<size_t>(chunk) % rooms.size()];
  }
  void awaitSends() {
    for (ChunkRoom &room : rooms)
      room.awaitSends();
  }

private:
  std::vector<ChunkRoom> rooms;
  int64_t roomBytes = 0;
};

/// Callbacks for elements begin … begin + count - 1 of an array: before they
/// are read, and once the result is in place. Either may be empty.
struct PieceCalls {
  std::function<void(int64_t begin, int64_t count)> before, after;
};

// All-reduces: those in an encoding, which are decoded before they are added,
// and those of arrays that become ready, and are needed, piece by piece. Ranks
// send a part to its owner, which sends the sum to all; affine codes go to all
// ranks at once.
//
// One chunk is encoded, one is added, one is decoded. The first areas hold each
// rank's codes; of the peers' codes only this rank's part arrives, except for
// affine codes. The last area holds the owners' sums, each at the location of
// its part.
constexpr size_t kReductionRooms = 3;

void reduceInChunks(ChunkBuffers &rooms, GlooTransport &transport,
                    uint32_t operation, const CollectiveDesc &desc,
                    const void *in, void *out);

/// Does the same in place, in order, in pieces of pieceElements(). Without
/// affine codes; without an encoding, with a ring's bits.
void reduceInPieces(ChunkBuffers &rooms, GlooTransport &transport,
                    uint32_t operation, const CollectiveDesc &desc, void *array,
                    const PieceCalls &calls);

/// The number of elements of such a piece; independent of the array's count.
int64_t pieceElements(const CollectiveDesc &desc, int size);

// All other collectives: each rank sends every other rank the part of its
// chunks that this one needs; a reduce-scatter sends no more bytes than a ring.
// Only a broadcast goes from rank to rank, so that no rank sends the array more
// than once.
//
// One chunk is in flight, one is read. Each area holds what one rank has put
// there; of the peers' data only what this rank needs arrives.
constexpr size_t kExchangeRooms = 2;

void exchangeInChunks(ChunkBuffers &rooms, GlooTransport &transport,
                      uint32_t operation, const CollectiveDesc &desc,
                      const void *in, void *out);

} // namespace ddphook::host
