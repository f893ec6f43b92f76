//===- pieces.h - collectives that ranks exchange in pieces -----*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Everything but all-reduces: one exchange, after which each rank has what it
// needs. An array is cut into chunks, and a chunk has a piece of each rank's
// part, so that all ranks have as much to do at a time. What a rank has put
// into a chunk's memory, a transport moves or shows to the others.
//
// Sums are those of an all-reduce of the whole array, bit for bit: the order of
// additions depends on an element's place in it.
//
//===----------------------------------------------------------------------===//
#ifndef DDPHOOK_RUNTIME_BACKENDS_HOST_PIECES_H
#define DDPHOOK_RUNTIME_BACKENDS_HOST_PIECES_H

#include "collective_desc.h"
#include "kernels.h"
#include "ring_order.h"

#include <vector>

namespace ddphook::host {

class Pieces {
public:
  /// A collective of `size` ranks, whose chunks have at most `bytes` bytes of
  /// memory on each rank, and at least an element of each piece.
  Pieces(const CollectiveDesc &desc, int rank, int size, int64_t bytes);

  /// Bytes that a rank puts into chunks altogether.
  static int64_t totalBytes(const CollectiveDesc &desc, int size);

  int64_t chunks() const { return chunkCount; }

  /// Puts this rank's elements into its memory of a chunk; of a broadcast only
  /// the root has any.
  void put(const void *in, int64_t chunk, void *memory,
           Stores stores = Stores::Cached) const;

  /// Bytes of a chunk's memory.
  struct Bytes {
    int64_t begin, size;
  };
  /// What rank `to` needs of the memory of rank `from`.
  Bytes needed(int64_t chunk, int from, int to) const;

  /// Takes this rank's elements out of the memories of all ranks, of which the
  /// bytes needed are there.
  void take(void *const *memories, int64_t chunk, void *out,
            Stores stores = Stores::Cached);

private:
  bool hasPieceForEach() const {
    return desc.kind == CollectiveKind::ReduceScatter ||
           desc.kind == CollectiveKind::AllToAll;
  }
  ElementRange piece(int64_t chunk, int owner) const;
  void sum(void *const *memories, int64_t chunk, void *out, Stores stores);

  const CollectiveDesc desc;
  const int rank, size;
  const Dtype wire;
  const int64_t part;
  /// Elements of a piece, and of what is cut into them: a rank's part, or of a
  /// broadcast all.
  int64_t pieceElements, extent;
  int64_t chunkCount;
  RingOrder order;
  /// Scratch: the memories of all ranks in the order of additions.
  std::vector<const void *> ordered;
};

} // namespace ddphook::host

#endif // DDPHOOK_RUNTIME_BACKENDS_HOST_PIECES_H
