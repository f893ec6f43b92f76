//===- reduction_exchange.h - all-reduces by exchange over TCP --*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// All-reduces that Gloo has no algorithm for: those in an encoding, of what is
// decoded before it is added, and those of arrays that get there, and are
// needed, piece by piece. What ranks have of a part goes to the rank that owns
// it, and the sum from there to all; affine codes go to all at once. An array
// travels in chunks so that ranks encode and decode while others are under way.
//
//===----------------------------------------------------------------------===//
#ifndef DDPHOOK_RUNTIME_BACKENDS_HOST_GLOO_REDUCTION_EXCHANGE_H
#define DDPHOOK_RUNTIME_BACKENDS_HOST_GLOO_REDUCTION_EXCHANGE_H

#include "../collective_desc.h"
#include "chunk_rooms.h"

#include <functional>

namespace ddphook::host {

/// What is called for a piece of an array, before it is read and when the
/// result is in its place; elements begin … begin + count - 1. Either may be
/// empty.
struct PieceCalls {
  std::function<void(int64_t begin, int64_t count)> before, after;
};

class ReductionExchange {
public:
  /// Runs one all-reduce, the operation of that number. Throws what the
  /// transport throws.
  void run(GlooTransport &transport, uint32_t operation,
           const CollectiveDesc &desc, const void *in, void *out);

  /// The same in place, in pieces of pieceElements(); in an encoding, not of
  /// affine codes, or without one, and then with the bits of a ring. Pieces
  /// come in their order.
  void runInPieces(GlooTransport &transport, uint32_t operation,
                   const CollectiveDesc &desc, void *array,
                   const PieceCalls &calls);

  /// Elements of a piece there; the count of the array does not matter.
  static int64_t pieceElements(const CollectiveDesc &desc, int size);

private:
  template <class ChunksT>
  class Schedule;

  /// One is encoded, one is added, one is decoded. The first areas have what
  /// each rank encoded, of which, but for affine codes, only this rank's part
  /// of what peers have arrives. The last one has what the owners added, each
  /// at its part's place.
  ChunkRooms rooms{3};
};

} // namespace ddphook::host

#endif // DDPHOOK_RUNTIME_BACKENDS_HOST_GLOO_REDUCTION_EXCHANGE_H
