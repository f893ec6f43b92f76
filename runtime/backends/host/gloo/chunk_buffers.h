// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The memory for collectives that travel in chunks, which is kept from one to
// the next, and the messages to and from it.

#pragma once

#include "gloo_transport.h"

#include <cstdlib>
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

  /// Start sending `size` bytes of an area, or receiving them there; no-ops if
  /// `size` is 0.
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

} // namespace ddphook::host
