//===- encoded_chunks.h - encoded all-reduces in pieces ---------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// An array that is reduced in an encoding, cut into chunks, each encoded into
// memory of its own: what a transport moves. docs/quantization.md defines the
// result; cutting does not change it.
//
// Casts and scaled codes are reduced in two stages: whoever owns a part of a
// chunk adds what all ranks encoded, and encodes the sum, which everybody,
// the owner too, decodes. Affine codes are reduced in one: everybody adds what
// all ranks encoded.
//
//===----------------------------------------------------------------------===//
#ifndef DDPHOOK_RUNTIME_BACKENDS_HOST_ENCODED_CHUNKS_H
#define DDPHOOK_RUNTIME_BACKENDS_HOST_ENCODED_CHUNKS_H

#include "collective_desc.h"
#include "encode.h"

#include <optional>
#include <vector>

namespace ddphook::host {

class EncodedChunks {
public:
  /// A reduction with an encoding, on rank `rank` of `ranks`.
  EncodedChunks(const CollectiveDesc &desc, int rank, int ranks);

  /// Elements of a chunk whose memory has at most that many bytes, which are at
  /// least 16 KiB. All but the last chunk have so many.
  int64_t chunkElements(int64_t bytes) const;

  bool isAffine() const { return encoding.isAffine(); }

  /// Bytes of the scales and of the codes of so many elements; of codes that
  /// are not affine.
  int64_t scaleBytes(int64_t count) const { return encoding.scaleBytes(count); }
  int64_t codeBytes(int64_t count) const { return encoding.codeBytes(count); }

  /// Bytes of memory for `count` elements from `begin`, the first of a chunk.
  int64_t bytes(int64_t begin, int64_t count) const;

  /// Encodes the elements of `in`, the whole array, from `begin`. Chunks have
  /// to come in their order: an affine block may go on in the next one. What
  /// belongs to chunks before may have been overwritten.
  void encode(const void *in, int64_t begin, int64_t count, void *memory);

  // Casts and scaled codes.

  /// Part number `part` of `parts`, as elements of a chunk that has `count`.
  struct Range {
    int64_t begin, end;
  };
  Range part(int64_t count, int part, int parts) const;

  /// Adds part `range` of a chunk's memory of all ranks, in their order,
  /// divides the sum if the reduction does, and encodes it to the same place
  /// of `out`, which may be one of the memories.
  void sum(void *const *memories, int64_t begin, int64_t count, Range range,
           void *out) const;

  /// Decodes such a part to its place in `out`, the whole array.
  void decode(void *memory, int64_t begin, int64_t count, Range range,
              void *out, Stores stores = Stores::Cached) const;

  // Affine codes.

  /// Decodes and adds a whole chunk, and divides if the reduction does.
  void average(void *const *memories, int64_t begin, int64_t count,
               void *out) const;

  /// Where a part of a chunk's memory lies: codes and scales.
  EncodedArray at(void *memory, int64_t begin, int64_t count,
                  int64_t element) const;

private:
  int64_t blocksBefore(int64_t element) const {
    return encoding.block == 0 ? 0 : element / encoding.block;
  }
  int64_t blockEnd(int64_t element) const;
  int64_t scaleRoom(int64_t begin, int64_t count) const;

  const Encoding encoding;
  const Dtype dtype;
  const int64_t total;
  const int ranks;
  const int64_t divisor;
  /// Of sums, and of what this rank has.
  const std::optional<Rounding> rounding, ownRounding;
  /// The scale of the affine block that the last chunk ended in.
  AffineScale current = {};
};

/// The reduction over one rank: encodes and decodes.
void reduceEncodedAlone(const CollectiveDesc &desc, const void *in, void *out);

} // namespace ddphook::host

#endif // DDPHOOK_RUNTIME_BACKENDS_HOST_ENCODED_CHUNKS_H
