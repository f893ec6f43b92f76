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
#include "chunk_rooms.h"

namespace ddphook::host {

class PieceExchange {
public:
  /// Runs one collective that is no all-reduce, the operation of that number.
  /// Throws what the transport throws.
  void run(GlooTransport &transport, uint32_t operation,
           const CollectiveDesc &desc, const void *in, void *out);

private:
  /// One is under way, one is taken. An area is what a rank has put there; of
  /// peers only what this rank needs arrives.
  ChunkRooms rooms{2};
};

} // namespace ddphook::host

#endif // DDPHOOK_RUNTIME_BACKENDS_HOST_GLOO_PIECE_EXCHANGE_H
