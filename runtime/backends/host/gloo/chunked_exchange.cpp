// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The schedule: in round i a rank sends its pieces of chunk i, and takes what
// it needs of chunk i - 1 once that has arrived. All ranks post their messages
// in this order, as the transport requires.

#include "../pieces.h"
#include "chunked_collectives.h"

#include <algorithm>

using namespace ddphook;
using namespace ddphook::host;

/// Bytes of a chunk on one rank: enough for a network, few enough to pipeline.
static constexpr int64_t kMostPieceBytes = 1 << 20, kLeastPieceBytes = 16 << 10;

void host::exchangeInChunks(ChunkBuffers &rooms, GlooTransport &transport,
                            uint32_t operation, const CollectiveDesc &desc,
                            const void *in, void *out) {
  const int rank = transport.rank, size = transport.size;
  // Cut short arrays, too. A chunk has at least one element for each rank.
  const int64_t bytes =
      std::max<int64_t>(std::clamp(Pieces::totalBytes(desc, size) / 4,
                                   kLeastPieceBytes, kMostPieceBytes),
                        size * dtypeSize(desc.wireType()));
  Pieces pieces(desc, rank, size, bytes);
  rooms.reserve(transport, size, bytes);

  auto areaOf = [](const ChunkRoom &room, int owner) {
    return static_cast<char *>(room.areas()[owner]);
  };
  // Send and receive parts of what rank `owner` has put into a chunk.
  auto send = [&](ChunkRoom &room, int owner, int to,
                  const Pieces::Bytes &part) {
    room.send(operation, to, areaOf(room, owner) + part.begin, part.size);
  };
  auto receive = [&](ChunkRoom &room, int owner, int from,
                     const Pieces::Bytes &part) {
    room.receive(operation, from, areaOf(room, owner) + part.begin, part.size);
  };

  const bool isChain = desc.is(CollectiveKind::Broadcast);
  const int next = (rank + 1) % size, previous = (rank + size - 1) % size;
  auto forward = [&](ChunkRoom &room, int64_t chunk) {
    if (next != desc.root)
      send(room, desc.root, next, pieces.needed(chunk, desc.root, next));
  };
  auto begin = [&](int64_t chunk) {
    ChunkRoom &room = rooms.ofChunk(chunk);
    room.awaitSends();
    pieces.put(in, chunk, areaOf(room, rank));
    if (isChain) {
      if (rank == desc.root)
        return forward(room, chunk);
      return receive(room, desc.root, previous,
                     pieces.needed(chunk, desc.root, rank));
    }
    for (int k = 1; k < size; ++k) {
      const int peer = (rank + k) % size;
      receive(room, peer, peer, pieces.needed(chunk, peer, rank));
      send(room, rank, peer, pieces.needed(chunk, rank, peer));
    }
  };
  auto end = [&](int64_t chunk) {
    ChunkRoom &room = rooms.ofChunk(chunk);
    room.awaitReceives();
    if (isChain && rank != desc.root)
      forward(room, chunk);
    pieces.take(in, room.areas().data(), chunk, out);
  };

  for (int64_t i = 0; i <= pieces.chunks(); ++i) {
    if (i < pieces.chunks())
      begin(i);
    if (i >= 1)
      end(i - 1);
  }
  rooms.awaitSends();
}
