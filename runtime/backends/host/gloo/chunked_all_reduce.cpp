// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The schedule: in round i a rank encodes chunk i and sends it, adds its part
// of chunk i - 1 once the data of all ranks has arrived, and decodes chunk i -
// 2. All ranks post their messages in this order, as the transport requires.

#include "chunked_collectives.h"

#include "../encoded_chunks.h"

#include <algorithm>

using namespace ddphook;
using namespace ddphook::host;

/// Bytes of a chunk's codes: enough for a network, few enough to pipeline.
static constexpr int64_t kMostBytes = 1 << 20, kLeastBytes = 16 << 10;

/// The same if stages within a node are pipelined with the exchange: those of
/// the first and last pieces do not overlap with it.
static constexpr int64_t kPieceBytes = 256 << 10;

/// The limit for an affine chunk of all ranks, which a rank holds together.
static constexpr int64_t kMostOfAllRanks = 4 << 20;

namespace {

/// A part of the array that is encoded at once.
struct Chunk {
  int64_t begin, count;
};

/// Bytes within a chunk's memory.
struct Bytes {
  const void *begin;
  int64_t size;
};

/// One running all-reduce, in chunks of at most `bytes` bytes.
class Schedule {
public:
  Schedule(ChunkBuffers &rooms, GlooTransport &transport, uint32_t operation,
           const CollectiveDesc &desc, int64_t bytes)
      : rooms(rooms), rank(transport.rank), size(transport.size),
        operation(operation), chunks(desc, rank, size), count(desc.count),
        step(chunks.chunkElements(bytes)) {
    rooms.reserve(transport, size + 1, bytes);
  }

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
    rooms.awaitSends();
  }

private:
  Chunk chunkAt(int64_t i) const {
    return {i * step, std::min(step, count - i * step)};
  }
  void send(ChunkRoom &room, int to, const Bytes &part) const {
    room.send(operation, to, part.begin, part.size);
  }
  void receive(ChunkRoom &room, int from, const Bytes &part) const {
    room.receive(operation, from, part.begin, part.size);
  }
  /// The codes of rank `owner`, and the sums of the owners of parts.
  void *encodedOf(const ChunkRoom &room, int owner) const {
    return room.areas()[owner];
  }
  static void *summedOf(const ChunkRoom &room) { return room.areas().back(); }

  /// Calls fn(bytes) for the scales and for the codes of the part that `owner`
  /// adds, at their location in a chunk's memory.
  template <class FnT>
  void forPart(const Chunk &chunk, int owner, void *memory,
               const FnT &fn) const {
    const ElementRange range = chunks.part(chunk.count, owner, size);
    const EncodedArray begin =
        chunks.at(memory, chunk.begin, chunk.count, range.begin);
    fn(Bytes{begin.scales, chunks.scaleBytes(range.size())});
    fn(Bytes{begin.codes, chunks.codeBytes(range.size())});
  }
  template <class FnT>
  void forPeers(const FnT &fn) const {
    for (int k = 1; k < size; ++k)
      fn((rank + k) % size);
  }

  void encodeAndSend(int64_t i, const void *in, const PieceCalls &calls) {
    const Chunk chunk = chunkAt(i);
    ChunkRoom &room = rooms.ofChunk(i);
    room.awaitSends();
    if (calls.before)
      calls.before(chunk.begin, chunk.count);
    void *own = encodedOf(room, rank);
    chunks.encode(in, chunk.begin, chunk.count, own);
    forPeers([&](int peer) {
      void *theirs = encodedOf(room, peer);
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
    ChunkRoom &room = rooms.ofChunk(i);
    room.awaitReceives();
    if (chunks.isAffine())
      return chunks.average(room.areas().data(), chunk.begin, chunk.count, out);
    chunks.sum(room.areas().data(), chunk.begin, chunk.count,
               chunks.part(chunk.count, rank, size), summedOf(room));
    forPeers([&](int peer) {
      forPart(chunk, peer, summedOf(room),
              [&](const Bytes &part) { receive(room, peer, part); });
      forPart(chunk, rank, summedOf(room),
              [&](const Bytes &part) { send(room, peer, part); });
    });
  }

  void decode(int64_t i, void *out, const PieceCalls &calls) {
    const Chunk chunk = chunkAt(i);
    ChunkRoom &room = rooms.ofChunk(i);
    room.awaitReceives();
    chunks.decode(summedOf(room), chunk.begin, chunk.count, {0, chunk.count},
                  out);
    if (calls.after)
      calls.after(chunk.begin, chunk.count);
  }

  ChunkBuffers &rooms;
  const int rank, size;
  const uint32_t operation;
  EncodedChunks chunks;
  const int64_t count, step;
};

} // namespace

void host::reduceInChunks(ChunkBuffers &rooms, GlooTransport &transport,
                          uint32_t operation, const CollectiveDesc &desc,
                          const void *in, void *out) {
  // Cut short arrays, too; each rank owns a part of each chunk.
  const int64_t most = desc.isAffine()
                           ? std::clamp(kMostOfAllRanks / transport.size,
                                        kLeastBytes, kMostBytes)
                           : kMostBytes;
  const int64_t bytes = std::clamp(desc.wireBytes() / 4, kLeastBytes, most);
  Schedule(rooms, transport, operation, desc, bytes).run(in, out, {});
}

int64_t host::pieceElements(const CollectiveDesc &desc, int size) {
  return EncodedChunks(desc, /*rank=*/0, size).chunkElements(kPieceBytes);
}

void host::reduceInPieces(ChunkBuffers &rooms, GlooTransport &transport,
                          uint32_t operation, const CollectiveDesc &desc,
                          void *array, const PieceCalls &calls) {
  Schedule(rooms, transport, operation, desc, kPieceBytes)
      .run(array, array, calls);
}
