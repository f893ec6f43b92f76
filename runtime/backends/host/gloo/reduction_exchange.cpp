//===- reduction_exchange.cpp - all-reduces by exchange over TCP ----------===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The schedule. In round i a rank encodes chunk i and sends it off, adds its
// part of chunk i - 1 when that of all ranks is there, and decodes chunk i - 2.
// All ranks post their messages in this order, as the transport needs it.
//
//===----------------------------------------------------------------------===//
#include "reduction_exchange.h"

#include "../encoded_chunks.h"
#include "../wire_chunks.h"

#include <algorithm>
#include <new>

using namespace ddphook;
using namespace ddphook::host;

/// Codes of a chunk: long enough for a network, short enough to be pipelined.
static constexpr int64_t kMostBytes = 1 << 20, kLeastBytes = 16 << 10;

/// The same where stages within a node are pipelined with it: the first piece's
/// and the last one's are not.
static constexpr int64_t kPieceBytes = 256 << 10;

/// Of affine chunks those of all ranks are in memory.
static constexpr int64_t kMostOfAllRanks = 4 << 20;

/// Makes room for chunks of that many bytes.
void ReductionExchange::reserve(GlooTransport &transport, int64_t bytes) {
  if (bytes <= roomBytes)
    return;
  const size_t size = static_cast<size_t>(transport.size);
  const size_t each = static_cast<size_t>((bytes + 63) / 64 * 64);
  for (Room &room : rooms) {
    room.buffer.reset();
    char *memory = static_cast<char *>(std::calloc(size + 1, each));
    if (!memory)
      throw std::bad_alloc();
    room.memory.reset(memory);
    room.encoded.resize(size);
    for (size_t rank = 0; rank < size; ++rank)
      room.encoded[rank] = memory + rank * each;
    room.summed = memory + size * each;
    room.buffer = transport.createUnboundBuffer(memory, (size + 1) * each);
  }
  roomBytes = bytes;
}

namespace {

/// A part of the array that is encoded at a time.
struct Chunk {
  int64_t begin, count;
};

/// Bytes within a chunk's memory.
struct Bytes {
  const void *begin;
  int64_t size;
};

} // namespace

/// One all-reduce under way, of chunks of `step` elements.
template <class ChunksT>
class ReductionExchange::Schedule {
public:
  Schedule(Room *rooms, const GlooTransport &transport, uint32_t operation,
           int64_t count, int64_t step, ChunksT &chunks)
      : rooms(rooms), rank(transport.rank), size(transport.size),
        operation(operation), count(count), step(step), chunks(chunks) {}

  void run(const void *in, void *out, const PieceCalls &calls) {
    const int64_t rounds = (count + step - 1) / step;
    for (int64_t i = 0; i < rounds + 2; ++i) {
      if (i < rounds)
        encodeAndSend(i, in, calls);
      if (i >= 1 && i - 1 < rounds)
        addAndSend(i - 1, out);
      if (i >= 2 && !chunks.isAffine())
        decode(i - 2, out, calls);
    }
    for (int i = 0; i < kChunks; ++i)
      awaitSends(rooms[i]);
  }

private:
  Chunk chunkAt(int64_t i) const {
    return {i * step, std::min(step, count - i * step)};
  }
  Room &roomOf(int64_t i) const { return rooms[i % kChunks]; }

  static size_t offsetOf(const Room &room, const void *place) {
    return static_cast<size_t>(static_cast<const char *>(place) -
                               room.memory.get());
  }
  void send(Room &room, int to, const Bytes &part) const {
    if (part.size == 0)
      return;
    room.buffer->send(to, operation, offsetOf(room, part.begin),
                      static_cast<size_t>(part.size));
    ++room.sends;
  }
  void receive(Room &room, int from, const Bytes &part) const {
    if (part.size == 0)
      return;
    room.buffer->recv(from, operation, offsetOf(room, part.begin),
                      static_cast<size_t>(part.size));
    ++room.receives;
  }
  static void awaitReceives(Room &room) {
    for (; room.receives > 0; --room.receives)
      room.buffer->waitRecv();
  }
  static void awaitSends(Room &room) {
    for (; room.sends > 0; --room.sends)
      room.buffer->waitSend();
  }

  /// Calls fn(bytes) for the scales and the codes of the part that `owner`
  /// adds, at their place in a chunk's memory.
  template <class FnT>
  void forPart(const Chunk &chunk, int owner, void *memory,
               const FnT &fn) const {
    const auto range = chunks.part(chunk.count, owner, size);
    const EncodedArray begin =
        chunks.at(memory, chunk.begin, chunk.count, range.begin);
    fn(Bytes{begin.scales, chunks.scaleBytes(range.end - range.begin)});
    fn(Bytes{begin.codes, chunks.codeBytes(range.end - range.begin)});
  }
  template <class FnT>
  void forPeers(const FnT &fn) const {
    for (int k = 1; k < size; ++k)
      fn((rank + k) % size);
  }

  void encodeAndSend(int64_t i, const void *in, const PieceCalls &calls) {
    const Chunk chunk = chunkAt(i);
    Room &room = roomOf(i);
    awaitSends(room);
    if (calls.before)
      calls.before(chunk.begin, chunk.count);
    void *own = room.encoded[static_cast<size_t>(rank)];
    chunks.encode(in, chunk.begin, chunk.count, own);
    forPeers([&](int peer) {
      void *theirs = room.encoded[static_cast<size_t>(peer)];
      auto sendPart = [&](const Bytes &part) { send(room, peer, part); };
      auto receivePart = [&](const Bytes &part) { receive(room, peer, part); };
      if (chunks.isAffine()) {
        const int64_t all = chunks.bytes(chunk.begin, chunk.count);
        receivePart({theirs, all});
        sendPart({own, all});
      } else {
        forPart(chunk, rank, theirs, receivePart);
        forPart(chunk, peer, own, sendPart);
      }
    });
  }

  void addAndSend(int64_t i, void *out) {
    const Chunk chunk = chunkAt(i);
    Room &room = roomOf(i);
    awaitReceives(room);
    if (chunks.isAffine())
      return chunks.average(room.encoded.data(), chunk.begin, chunk.count, out);
    chunks.sum(room.encoded.data(), chunk.begin, chunk.count,
               chunks.part(chunk.count, rank, size), room.summed);
    forPeers([&](int peer) {
      forPart(chunk, peer, room.summed,
              [&](const Bytes &part) { receive(room, peer, part); });
      forPart(chunk, rank, room.summed,
              [&](const Bytes &part) { send(room, peer, part); });
    });
  }

  void decode(int64_t i, void *out, const PieceCalls &calls) {
    const Chunk chunk = chunkAt(i);
    Room &room = roomOf(i);
    awaitReceives(room);
    chunks.decode(room.summed, chunk.begin, chunk.count, {0, chunk.count}, out);
    if (calls.after)
      calls.after(chunk.begin, chunk.count);
  }

  Room *const rooms;
  const int rank, size;
  const uint32_t operation;
  const int64_t count, step;
  ChunksT &chunks;
};

void ReductionExchange::run(GlooTransport &transport, uint32_t operation,
                            const CollectiveDesc &desc, const void *in,
                            void *out) {
  EncodedChunks chunks(desc, transport.rank, transport.size);
  // Short arrays are cut, too; each rank has a part of each chunk.
  const int64_t most = chunks.isAffine()
                           ? std::clamp(kMostOfAllRanks / transport.size,
                                        kLeastBytes, kMostBytes)
                           : kMostBytes;
  const int64_t bytes = std::clamp(desc.wireBytes() / 4, kLeastBytes, most);
  reserve(transport, bytes);
  Schedule(rooms, transport, operation, desc.count, chunks.chunkElements(bytes),
           chunks)
      .run(in, out, {});
}

int64_t ReductionExchange::pieceElements(const CollectiveDesc &desc, int size) {
  return desc.encoding
             ? EncodedChunks(desc, /*rank=*/0, size).chunkElements(kPieceBytes)
             : WireChunks(desc, size).chunkElements(kPieceBytes);
}

void ReductionExchange::runInPieces(GlooTransport &transport,
                                    uint32_t operation,
                                    const CollectiveDesc &desc, void *array,
                                    const PieceCalls &calls) {
  reserve(transport, kPieceBytes);
  auto runChunks = [&](auto chunks) {
    Schedule(rooms, transport, operation, desc.count,
             chunks.chunkElements(kPieceBytes), chunks)
        .run(array, array, calls);
  };
  if (desc.encoding)
    runChunks(EncodedChunks(desc, transport.rank, transport.size));
  else
    runChunks(WireChunks(desc, transport.size));
}
