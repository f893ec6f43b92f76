//===- piece_exchange.cpp - collectives in pieces over TCP ----------------===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The schedule. In round i a rank sends off its pieces of chunk i, and takes
// what it needs of chunk i - 1 when that has arrived. All ranks post their
// messages in this order, as the transport needs it.
//
//===----------------------------------------------------------------------===//
#include "piece_exchange.h"

#include <algorithm>
#include <new>

using namespace ddphook;
using namespace ddphook::host;

/// Of a chunk on one rank: long enough for a network, short enough to be
/// pipelined.
static constexpr int64_t kMostPieceBytes = 1 << 20, kLeastPieceBytes = 16 << 10;

/// Makes room for chunks of that many bytes on each rank.
void PieceExchange::reserve(GlooTransport &transport, int64_t bytes) {
  if (bytes <= roomBytes)
    return;
  const size_t size = static_cast<size_t>(transport.size);
  const size_t each = static_cast<size_t>((bytes + 63) / 64 * 64);
  for (Room &room : rooms) {
    room.buffer.reset();
    char *memory = static_cast<char *>(std::calloc(size, each));
    if (!memory)
      throw std::bad_alloc();
    room.memory.reset(memory);
    room.ranks.resize(size);
    for (size_t rank = 0; rank < size; ++rank)
      room.ranks[rank] = memory + rank * each;
    room.buffer = transport.createUnboundBuffer(memory, size * each);
  }
  roomBytes = bytes;
}

void PieceExchange::run(GlooTransport &transport, uint32_t operation,
                        const CollectiveDesc &desc, const void *in, void *out) {
  const int rank = transport.rank, size = transport.size;
  // Short arrays are cut, too. A chunk has at least an element for each rank.
  const int64_t bytes =
      std::max<int64_t>(std::clamp(Pieces::totalBytes(desc, size) / 4,
                                   kLeastPieceBytes, kMostPieceBytes),
                        size * dtypeSize(desc.wireType()));
  Pieces pieces(desc, rank, size, bytes);
  reserve(transport, bytes);

  auto roomOf = [&](int64_t i) -> Room & { return rooms[i % kChunks]; };
  auto offsetOf = [&](const Room &room, int owner, int64_t byte) {
    const char *memory =
        static_cast<const char *>(room.ranks[static_cast<size_t>(owner)]);
    return static_cast<size_t>(memory + byte - room.memory.get());
  };
  // Of what rank `owner` has put into a chunk.
  auto send = [&](Room &room, int owner, int to, const Pieces::Bytes &part) {
    if (part.size == 0)
      return;
    room.buffer->send(to, operation, offsetOf(room, owner, part.begin),
                      static_cast<size_t>(part.size));
    ++room.sends;
  };
  auto receive = [&](Room &room, int owner, int from,
                     const Pieces::Bytes &part) {
    if (part.size == 0)
      return;
    room.buffer->recv(from, operation, offsetOf(room, owner, part.begin),
                      static_cast<size_t>(part.size));
    ++room.receives;
  };
  auto awaitSends = [](Room &room) {
    for (; room.sends > 0; --room.sends)
      room.buffer->waitSend();
  };
  auto awaitReceives = [](Room &room) {
    for (; room.receives > 0; --room.receives)
      room.buffer->waitRecv();
  };

  const bool isChain = desc.kind == CollectiveKind::Broadcast;
  const int next = (rank + 1) % size, previous = (rank + size - 1) % size;
  auto forward = [&](Room &room, int64_t chunk) {
    if (next != desc.root)
      send(room, desc.root, next, pieces.needed(chunk, desc.root, next));
  };
  auto begin = [&](int64_t chunk) {
    Room &room = roomOf(chunk);
    awaitSends(room);
    pieces.put(in, chunk, room.ranks[static_cast<size_t>(rank)]);
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
    Room &room = roomOf(chunk);
    awaitReceives(room);
    if (isChain && rank != desc.root)
      forward(room, chunk);
    pieces.take(in, room.ranks.data(), chunk, out);
  };

  for (int64_t i = 0; i <= pieces.chunks(); ++i) {
    if (i < pieces.chunks())
      begin(i);
    if (i >= 1)
      end(i - 1);
  }
  for (Room &room : rooms)
    awaitSends(room);
}
