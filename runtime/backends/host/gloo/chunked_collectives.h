// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Runs the collectives for which Gloo has no algorithm. An array travels in
// chunks, so that ranks encode and decode some while others are in flight. All
// functions run one collective as operation number `operation`, and throw what
// the transport throws. `rooms`, for one kind of collectives, are kept from one
// to the next.

#pragma once

#include "../collective_desc.h"
#include "chunk_buffers.h"

#include <functional>

namespace ddphook::host {

/// Callbacks for elements begin … begin + count - 1 of an array: before they
/// are read, and once the result is in place. Either may be empty.
struct PieceCalls {
  std::function<void(int64_t begin, int64_t count)> before, after;
};

// All-reduces: those in an encoding, which are decoded before they are added,
// and those of arrays that become ready, and are needed, piece by piece. Ranks
// send a part to its owner, which sends the sum to all; affine codes go to all
// ranks at once.
//
// One chunk is encoded, one is added, one is decoded. The first areas hold each
// rank's codes; of the peers' codes only this rank's part arrives, except for
// affine codes. The last area holds the owners' sums, each at the location of
// its part.
constexpr size_t kReductionRooms = 3;

void reduceInChunks(ChunkBuffers &rooms, GlooTransport &transport,
                    uint32_t operation, const CollectiveDesc &desc,
                    const void *in, void *out);

/// Does the same in place, in order, in pieces of pieceElements(). The
/// reduction has an encoding, not affine codes, or none, and then the bits of a
/// ring.
void reduceInPieces(ChunkBuffers &rooms, GlooTransport &transport,
                    uint32_t operation, const CollectiveDesc &desc, void *array,
                    const PieceCalls &calls);

/// The number of elements of such a piece; independent of the array's count.
int64_t pieceElements(const CollectiveDesc &desc, int size);

// All other collectives: each rank sends every other rank the part of its
// chunks that this one needs; a reduce-scatter sends no more bytes than a ring.
// Only a broadcast goes from rank to rank, so that no rank sends the array more
// than once.
//
// One chunk is in flight, one is read. Each area holds what one rank has put
// there; of the peers' data only what this rank needs arrives.
constexpr size_t kExchangeRooms = 2;

void exchangeInChunks(ChunkBuffers &rooms, GlooTransport &transport,
                      uint32_t operation, const CollectiveDesc &desc,
                      const void *in, void *out);

} // namespace ddphook::host
