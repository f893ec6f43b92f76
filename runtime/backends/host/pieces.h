// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Implements all collectives but all-reduces with one exchange, after which
// each rank has what it needs. An array is cut into chunks. A chunk holds a
// piece of each rank's part, so that all ranks have equal work at any time. A
// transport moves a chunk's memory or maps it for the other ranks.
//
// Sums match those of an all-reduce of the whole array, bit for bit: the order
// of additions depends on an element's index in it. With an encoding, the
// pieces of a part consist of the blocks that it touches, as in an all-reduce;
// a block that two parts share is sent to both. In an all-gather blocks begin
// at each part.

#pragma once

#include "collective_desc.h"
#include "encode.h"
#include "kernels.h"
#include "ring_order.h"

#include <vector>

namespace ddphook::host {

class Pieces {
public:
  /// Describes a collective of `size` ranks whose chunks have at most `bytes`
  /// bytes of memory on each rank, and at least one element of each piece. With
  /// an encoding `bytes` must be at least 16 KiB.
  Pieces(const CollectiveDesc &desc, int rank, int size, int64_t bytes);

  /// The total number of bytes that a rank puts into chunks.
  static int64_t totalBytes(const CollectiveDesc &desc, int size);

  int64_t chunks() const { return chunkCount; }

  /// Puts this rank's elements into its memory of a chunk; in a broadcast only
  /// the root has any.
  void put(const void *in, int64_t chunk, void *memory,
           Stores stores = Stores::Cached) const;

  /// A range of bytes in a chunk's memory.
  struct Bytes {
    int64_t begin, size;
  };
  /// Returns the bytes that rank `to` needs of the memory of rank `from`.
  Bytes needed(int64_t chunk, int from, int to) const;

  /// Reads this rank's elements from the memories of all ranks, of which only
  /// the needed bytes must be present. `in` is what was put there; in a
  /// reduce-scatter `out` may be this rank's part of it.
  void take(const void *in, void *const *memories, int64_t chunk, void *out,
            Stores stores = Stores::Cached);

private:
  bool hasPieceForEach() const {
    return desc.is(CollectiveKind::ReduceScatter) ||
           desc.is(CollectiveKind::AllToAll);
  }
  ElementRange piece(int64_t chunk, int owner) const;
  /// The first element of a chunk's pieces, relative to their parts or, in a
  /// broadcast, which has no window, to the array.
  int64_t firstOf(int64_t chunk) const {
    return window.begin + chunk * pieceElements;
  }
  bool leavesOwn() const;
  void sumRange(const void *own, void *const *memories, int64_t begin,
                int64_t count, int64_t place, void *out, Stores stores);
  void sum(const void *in, void *const *memories, int64_t chunk, void *out,
           Stores stores);

  // For encodings:
  void chooseEncoded(int64_t bytes);
  ElementRange span(int owner) const;
  ElementRange owners(int64_t chunk) const;
  ElementRange encodedPiece(int64_t chunk, int owner) const;
  EncodedArray place(void *memory, int64_t chunk, int owner) const;
  void sumCodes(void *const *memories, int64_t chunk, void *out);

  const CollectiveDesc desc;
  const int rank, size;
  const Dtype wire;
  const int64_t part;
  /// The elements of each part that the collective processes.
  const ElementRange window;
  /// Elements of a piece, and of the range that is cut into pieces: a rank's
  /// part, or the whole array in a broadcast.
  int64_t pieceElements, extent;
  int64_t chunkCount;
  RingOrder order;
  /// Scratch: the memories of all ranks in the order of additions.
  std::vector<const void *> ordered;

  // For encodings:
  /// Elements that are encoded together; bytes of a piece in memory, and of the
  /// scales at its start.
  int64_t unit = 1, pieceBytes = 0, scaleRoom = 0;
  /// The number of ranks of which a chunk holds pieces: all, unless the blocks
  /// are too large to fit.
  int64_t ownersOfChunk = 1;
  /// Scratch: a piece's sum, encoded, and a block of it, decoded.
  std::vector<char> summed, decoded;
};

} // namespace ddphook::host
