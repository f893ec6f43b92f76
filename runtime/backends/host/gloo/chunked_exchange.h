// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Each rank sends every other rank the part of its chunks that this one needs;
// a reduce-scatter sends no more bytes than a ring. Only a broadcast goes from
// rank to rank, so that no rank sends the array more than once.

#pragma once

#include "../pieces.h"
#include "chunk_buffers.h"

namespace ddphook::host {

class ChunkedExchange {
public:
  /// Runs one collective other than an all-reduce, as operation number
  /// `operation`. Throws what the transport throws.
  void run(GlooTransport &transport, uint32_t operation,
           const CollectiveDesc &desc, const void *in, void *out);

private:
  /// One chunk is in flight, one is read. Each area holds what one rank has put
  /// there; of the peers' data only what this rank needs arrives.
  ChunkBuffers rooms{2};
};

} // namespace ddphook::host
