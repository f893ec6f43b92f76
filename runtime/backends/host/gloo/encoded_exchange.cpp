//===- encoded_exchange.cpp - encoded all-reduces over TCP ----------------===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The schedule. In round i a rank encodes chunk i and sends it off, adds its
// part of chunk i - 1 when that of all ranks is there, and decodes chunk i - 2.
// All ranks post their messages in this order, as the transport needs it.
//
//===----------------------------------------------------------------------===//
#include "encoded_exchange.h"

#include "../encoded_chunks.h"

#include <algorithm>
#include <new>

using namespace ddphook;
using namespace ddphook::host;

/// Codes of a chunk: long enough for a network, short enough to be pipelined.
static constexpr int64_t kMostBytes = 1 << 20, kLeastBytes = 16 << 10;

/// Of affine chunks those of all ranks are in memory.
static constexpr int64_t kMostOfAllRanks = 4 << 20;

/// Makes room for chunks of that many bytes.
void EncodedExchange::reserve(GlooTransport &transport, int64_t bytes) {
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

void EncodedExchange::run(GlooTransport &transport, uint32_t operation,
                          const CollectiveDesc &desc, const void *in,
                          void *out) {
  const int rank = transport.rank, size = transport.size;
  const bool isAffine = desc.encoding->isAffine();
  EncodedChunks chunks(desc, rank, size);
  // Short arrays are cut, too; each rank has a part of each chunk.
  const int64_t most =
      isAffine ? std::clamp(kMostOfAllRanks / size, kLeastBytes, kMostBytes)
               : kMostBytes;
  const int64_t bytes = std::clamp(desc.wireBytes() / 4, kLeastBytes, most);
  const int64_t step = chunks.chunkElements(bytes);
  const int64_t rounds = (desc.count + step - 1) / step;
  reserve(transport, bytes);

  auto chunkAt = [&](int64_t i) {
    return Chunk{i * step, std::min(step, desc.count - i * step)};
  };
  auto roomOf = [&](int64_t i) -> Room & { return rooms[i % kChunks]; };
  auto offsetOf = [](const Room &room, const void *place) {
    return static_cast<size_t>(static_cast<const char *>(place) -
                               room.memory.get());
  };
  auto send = [&](Room &room, int to, const Bytes &part) {
    if (part.size == 0)
      return;
    room.buffer->send(to, operation, offsetOf(room, part.begin),
                      static_cast<size_t>(part.size));
    ++room.sends;
  };
  auto receive = [&](Room &room, int from, const Bytes &part) {
    if (part.size == 0)
      return;
    room.buffer->recv(from, operation, offsetOf(room, part.begin),
                      static_cast<size_t>(part.size));
    ++room.receives;
  };
  auto awaitReceives = [](Room &room) {
    for (; room.receives > 0; --room.receives)
      room.buffer->waitRecv();
  };
  auto awaitSends = [](Room &room) {
    for (; room.sends > 0; --room.sends)
      room.buffer->waitSend();
  };
  // Calls fn(bytes) for the scales and the codes of the part that `owner` adds,
  // at their place in a chunk's memory.
  auto forPart = [&](const Chunk &chunk, int owner, void *memory,
                     const auto &fn) {
    const EncodedChunks::Range range = chunks.part(chunk.count, owner, size);
    const EncodedArray begin =
        chunks.at(memory, chunk.begin, chunk.count, range.begin);
    fn(Bytes{begin.scales, desc.encoding->scaleBytes(range.end - range.begin)});
    fn(Bytes{begin.codes, desc.encoding->codeBytes(range.end - range.begin)});
  };
  auto forPeers = [&](const auto &fn) {
    for (int k = 1; k < size; ++k)
      fn((rank + k) % size);
  };

  auto encodeAndSend = [&](int64_t i) {
    const Chunk chunk = chunkAt(i);
    Room &room = roomOf(i);
    awaitSends(room);
    chunks.encode(in, chunk.begin, chunk.count,
                  room.encoded[static_cast<size_t>(rank)]);
    forPeers([&](int peer) {
      void *own = room.encoded[static_cast<size_t>(rank)];
      void *theirs = room.encoded[static_cast<size_t>(peer)];
      auto sendPart = [&](const Bytes &part) { send(room, peer, part); };
      auto receivePart = [&](const Bytes &part) { receive(room, peer, part); };
      if (isAffine) {
        const int64_t all = chunks.bytes(chunk.begin, chunk.count);
        receivePart({theirs, all});
        sendPart({own, all});
      } else {
        forPart(chunk, rank, theirs, receivePart);
        forPart(chunk, peer, own, sendPart);
      }
    });
  };
  auto addAndSend = [&](int64_t i) {
    const Chunk chunk = chunkAt(i);
    Room &room = roomOf(i);
    awaitReceives(room);
    if (isAffine)
      return chunks.average(room.encoded.data(), chunk.begin, chunk.count, out);
    chunks.sum(room.encoded.data(), chunk.begin, chunk.count,
               chunks.part(chunk.count, rank, size), room.summed);
    forPeers([&](int peer) {
      forPart(chunk, peer, room.summed,
              [&](const Bytes &part) { receive(room, peer, part); });
      forPart(chunk, rank, room.summed,
              [&](const Bytes &part) { send(room, peer, part); });
    });
  };
  auto decode = [&](int64_t i) {
    const Chunk chunk = chunkAt(i);
    Room &room = roomOf(i);
    awaitReceives(room);
    chunks.decode(room.summed, chunk.begin, chunk.count, {0, chunk.count}, out);
  };

  for (int64_t i = 0; i < rounds + 2; ++i) {
    if (i < rounds)
      encodeAndSend(i);
    if (i >= 1 && i - 1 < rounds)
      addAndSend(i - 1);
    if (i >= 2 && !isAffine)
      decode(i - 2);
  }
  for (Room &room : rooms)
    awaitSends(room);
}
