// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Cuts an array that is reduced into chunks. Each chunk is encoded, or without
// an encoding cast to the wire type, into its own memory, which a transport
// moves. docs/quantization.md defines the result of encodings. Without one,
// sums match those of a ring over the whole array, bit for bit (ring_order.h).
// Cutting does not change the result.
//
// Affine codes are reduced in one stage: every rank adds the codes of all
// ranks. All others are reduced in two stages: the owner of a part of a chunk
// adds the codes of all ranks and encodes the sum, which all ranks decode.

#pragma once

#include "collective_desc.h"
#include "encode.h"
#include "ring_order.h"

#include <optional>
#include <vector>

namespace ddphook::host {

class EncodedChunks {
public:
  EncodedChunks(const CollectiveDesc &desc, int rank, int ranks);

  /// Returns the number of elements of a chunk whose memory has at most `bytes`
  /// bytes (at least 16 KiB). All chunks but the last have that many.
  int64_t chunkElements(int64_t bytes) const;

  bool isAffine() const { return encoding && encoding->isAffine(); }

  /// Bytes of the scales and codes of `count` elements; not for affine codes.
  int64_t scaleBytes(int64_t count) const {
    return encoding ? encoding->scaleBytes(count) : 0;
  }
  int64_t codeBytes(int64_t count) const {
    return encoding ? encoding->codeBytes(count) : count * dtypeSize(wire);
  }

  /// Bytes of memory for a chunk of `count` elements that starts at `begin`.
  int64_t bytes(int64_t begin, int64_t count) const;

  /// Encodes `count` elements from `begin` of `in`, the whole array; without an
  /// encoding, divides them if the reduction divides, and writes them as
  /// `stores` says. Chunks must come in order, as an affine block may go on in
  /// the next. Elements of earlier chunks may be overwritten.
  void encode(const void *in, int64_t begin, int64_t count, void *memory,
              Stores stores = Stores::Cached);

  // For all but affine codes:

  /// Part `part` of `parts`, as elements of a chunk of `count` elements.
  ElementRange part(int64_t count, int part, int parts) const;

  /// Adds part `range` of the chunk's memory of all ranks into the same part of
  /// `out`, perhaps one of the memories. With an encoding, adds in rank order,
  /// divides if the reduction divides, and encodes the sum; `stores` is for
  /// sums without one.
  void sum(void *const *memories, int64_t begin, int64_t count,
           ElementRange range, void *out, Stores stores = Stores::Cached);

  /// Decodes such a part to its elements of `out`, the whole array.
  void decode(void *memory, int64_t begin, int64_t count, ElementRange range,
              void *out, Stores stores = Stores::Cached) const;

  // For affine codes:

  /// Decodes and adds a whole chunk, and divides if the reduction divides.
  void average(void *const *memories, int64_t begin, int64_t count,
               void *out) const;

  /// Returns the location of codes and scales from `element` on in a chunk.
  EncodedArray at(void *memory, int64_t begin, int64_t count,
                  int64_t element) const;

private:
  int64_t blocksBefore(int64_t element) const {
    return encoding->block == 0 ? 0 : element / encoding->block;
  }
  int64_t blockEnd(int64_t element) const;
  int64_t scaleRoom(int64_t begin, int64_t count) const;

  void encodeAffineBlocks(const void *in, int64_t begin, int64_t count,
                          void *memory);

  const std::optional<Encoding> encoding;
  const Dtype dtype, wire;
  const int64_t total;
  const int ranks;
  const int64_t divisor;
  /// For the sums, and for this rank's own elements.
  const std::optional<Rounding> rounding, ownRounding;
  /// The scale of the affine block in which the last chunk ended.
  AffineScale current = {};
  /// The order of additions without an encoding.
  const RingOrder order;
  /// Scratch: the memories of all ranks in the order of additions.
  std::vector<const void *> ordered;
};

/// Runs the collective in a group of one rank: encodes and decodes, or rounds
/// to the wire type. Nothing is divided by 1.
void reduceAlone(const CollectiveDesc &desc, const void *in, void *out);

/// Error feedback for collectives that keep their own error, such as those over
/// hierarchical groups (docs/hierarchy.md); elsewhere compiled code does it.
/// Computes out[i] = in[i] + error[i], and sets error[i] to what rank `rank` of
/// the group loses by encoding it. `out` may be `in`; `error` overlaps neither.
void feedBackError(const CollectiveDesc &desc, int rank, const void *in,
                   void *error, void *out);

} // namespace ddphook::host
