// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Runs the all-reduces for which Gloo has no algorithm: those in an encoding,
// which are decoded before they are added, and those of arrays that become
// ready, and are needed, piece by piece. Ranks send a part to its owner, which
// sends the sum to all; affine codes go to all ranks at once. An array travels
// in chunks, so that ranks encode and decode some while others are in flight.

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

class ChunkedAllReduce {
public:
  /// Runs one all-reduce as operation number `operation`. Throws what the
  /// transport throws.
  void run(GlooTransport &transport, uint32_t operation,
           const CollectiveDesc &desc, const void *in, void *out);

  /// Does the same in place, in order, in pieces of pieceElements(). The
  /// reduction has an encoding, not affine codes, or none, and then the bits of
  /// a ring.
  void runInPieces(GlooTransport &transport, uint32_t operation,
                   const CollectiveDesc &desc, void *array,
                   const PieceCalls &calls);

  /// The number of elements of such a piece; independent of the array's count.
  static int64_t pieceElements(const CollectiveDesc &desc, int size);

private:
  /// One chunk is encoded, one is added, one is decoded. The first areas hold
  /// each rank's codes; of the peers' codes only this rank's part arrives,
  /// except for affine codes. The last area holds the owners' sums, each at the
  /// location of its part.
  ChunkBuffers rooms{3};
};

} // namespace ddphook::host
