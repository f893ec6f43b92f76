//===- piece_exchange.h - collectives in pieces over TCP --------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Each rank sends every other one what that needs of its chunks: of a
// reduce-scatter no bytes more than a ring would take. Only a broadcast goes
// from rank to rank, so that nobody sends the array more than once.
//
//===----------------------------------------------------------------------===//
#ifndef DDPHOOK_RUNTIME_BACKENDS_HOST_GLOO_PIECE_EXCHANGE_H
#define DDPHOOK_RUNTIME_BACKENDS_HOST_GLOO_PIECE_EXCHANGE_H

#include "../pieces.h"
#include "gloo_transport.h"

#include <cstdlib>
#include <memory>
#include <vector>

namespace ddphook::host {

class PieceExchange {
public:
  /// Runs one collective that is no all-reduce, the operation of that number.
  /// Throws what the transport throws.
  void run(GlooTransport &transport, uint32_t operation,
           const CollectiveDesc &desc, const void *in, void *out);

private:
  /// Chunks in memory at a time: one is under way, one is taken.
  static constexpr int kChunks = 2;

  struct Free {
    void operator()(char *memory) const { std::free(memory); }
  };

  /// What a chunk needs, kept from one collective to the next.
  struct Room {
    std::unique_ptr<char, Free> memory;
    /// What each rank has put there; of peers only what this rank needs
    /// arrives, and other memory has no pages.
    std::vector<void *> ranks;
    std::unique_ptr<::gloo::transport::UnboundBuffer> buffer;
    int64_t sends = 0, receives = 0;
  };
  void reserve(GlooTransport &transport, int64_t bytes);

  Room rooms[kChunks];
  int64_t roomBytes = 0;
};

} // namespace ddphook::host

#endif // DDPHOOK_RUNTIME_BACKENDS_HOST_GLOO_PIECE_EXCHANGE_H
