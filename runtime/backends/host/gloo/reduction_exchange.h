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
#include "gloo_transport.h"

#include <cstdlib>
#include <functional>
#include <memory>
#include <vector>

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
  /// Chunks in memory at a time: one is encoded, one is added, one is decoded.
  static constexpr int kChunks = 3;

  struct Free {
    void operator()(char *memory) const { std::free(memory); }
  };

  /// What a chunk needs, kept from one all-reduce to the next.
  struct Room {
    std::unique_ptr<char, Free> memory;
    /// What each rank encoded. But for affine codes only this rank's part of
    /// what peers have arrives: the rest of their memory is never touched, and
    /// so has no pages.
    std::vector<void *> encoded;
    /// What the owners added, each at its part's place.
    void *summed = nullptr;
    std::unique_ptr<::gloo::transport::UnboundBuffer> buffer;
    int64_t sends = 0, receives = 0;
  };
  template <class ChunksT>
  class Schedule;

  void reserve(GlooTransport &transport, int64_t bytes);

  Room rooms[kChunks];
  int64_t roomBytes = 0;
};

} // namespace ddphook::host

#endif // DDPHOOK_RUNTIME_BACKENDS_HOST_GLOO_REDUCTION_EXCHANGE_H
