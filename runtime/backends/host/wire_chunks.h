// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The counterpart of encoded_chunks.h for reductions without an encoding. Cuts
// an array into chunks, each cast into its own memory; the owner of a part adds
// it. Sums match those of a ring over the whole array, bit for bit
// (ring_order.h), however it is cut.

#pragma once

#include "collective_desc.h"
#include "encoded_chunks.h"
#include "ring_order.h"

#include <vector>

namespace ddphook::host {

/// The functions do the same as those of EncodedChunks.
class WireChunks {
public:
  /// Describes a reduction without an encoding.
  WireChunks(const CollectiveDesc &desc, int ranks);

  using Range = EncodedChunks::Range;

  bool isAffine() const { return false; }
  int64_t chunkElements(int64_t bytes) const;
  int64_t scaleBytes(int64_t) const { return 0; }
  int64_t codeBytes(int64_t count) const { return count * dtypeSize(wire); }
  int64_t bytes(int64_t, int64_t count) const { return codeBytes(count); }
  EncodedArray at(void *memory, int64_t begin, int64_t count,
                  int64_t element) const;
  Range part(int64_t count, int part, int parts) const;

  /// Casts, and divides if the reduction divides.
  void encode(const void *in, int64_t begin, int64_t count, void *memory) const;
  void sum(void *const *memories, int64_t begin, int64_t count, Range range,
           void *out);
  void decode(void *memory, int64_t begin, int64_t count, Range range,
              void *out) const;

private:
  const Dtype dtype, wire;
  const int ranks;
  const int64_t divisor;
  const RingOrder order;
  /// Scratch: the memories of all ranks in the order of additions.
  std::vector<const void *> ordered;
};

} // namespace ddphook::host
