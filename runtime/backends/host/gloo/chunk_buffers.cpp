// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "chunk_buffers.h"

#include <new>

using namespace ddphook;
using namespace ddphook::host;

void ChunkRoom::reserve(GlooTransport &transport, size_t count, size_t bytes) {
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

void ChunkRoom::send(uint32_t operation, int to, const void *begin,
                     int64_t size) {
  if (size == 0)
    return;
  buffer->send(to, operation, offsetOf(begin), static_cast<size_t>(size));
  ++sends;
}

void ChunkRoom::receive(uint32_t operation, int from, const void *begin,
                        int64_t size) {
  if (size == 0)
    return;
  buffer->recv(from, operation, offsetOf(begin), static_cast<size_t>(size));
  ++receives;
}

void ChunkRoom::awaitSends() {
  for (; sends > 0; --sends)
    buffer->waitSend();
}

void ChunkRoom::awaitReceives() {
  for (; receives > 0; --receives)
    buffer->waitRecv();
}

void ChunkBuffers::reserve(GlooTransport &transport, int count, int64_t bytes) {
  if (bytes <= roomBytes)
    return;
  const auto line = static_cast<size_t>((bytes + 63) / 64 * 64);
  for (ChunkRoom &room : rooms)
    room.reserve(transport, static_cast<size_t>(count), line);
  roomBytes = bytes;
}

void ChunkBuffers::awaitSends() {
  for (ChunkRoom &room : rooms)
    room.awaitSends();
}
