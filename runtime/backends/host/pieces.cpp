//===- pieces.cpp - collectives that ranks exchange in pieces -------------===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A chunk's memory holds a piece for each rank, one behind the other, or the
// piece that all ranks need.
//
//===----------------------------------------------------------------------===//
#include "pieces.h"

#include <algorithm>
#include <cstring>

using namespace ddphook;
using namespace ddphook::host;

static const char *at(const void *array, Dtype type, int64_t index) {
  return static_cast<const char *>(array) + index * dtypeSize(type);
}
static char *at(void *array, Dtype type, int64_t index) {
  return static_cast<char *>(array) + index * dtypeSize(type);
}

/// Elements of a piece where so many lie in `bytes` bytes: whole cache lines,
/// if they fit, so that two ranks seldom read the same one.
static int64_t chooseElements(int64_t bytes, int64_t pieces,
                              int64_t elementBytes) {
  const int64_t line = 64 / elementBytes;
  const int64_t most = std::max<int64_t>(1, bytes / (pieces * elementBytes));
  return most < line ? most : most / line * line;
}

Pieces::Pieces(const CollectiveDesc &desc, int rank, int size, int64_t bytes)
    : desc(desc), rank(rank), size(size), wire(desc.wireType()),
      part(partElements(desc.count, size)),
      order(desc.count, dtypeSize(wire), size),
      ordered(static_cast<size_t>(size)) {
  pieceElements =
      chooseElements(bytes, hasPieceForEach() ? size : 1, dtypeSize(wire));
  extent = desc.kind == CollectiveKind::Broadcast ? desc.count : part;
  pieceElements = std::min(pieceElements, std::max<int64_t>(1, extent));
  chunkCount = (extent + pieceElements - 1) / pieceElements;
}

int64_t Pieces::totalBytes(const CollectiveDesc &desc, int size) {
  return inputElements(desc.kind, desc.count, size) *
         dtypeSize(desc.wireType());
}

/// The elements of the whole array that a chunk has of a rank's part, or of a
/// broadcast at all.
ElementRange Pieces::piece(int64_t chunk, int owner) const {
  const ElementRange all = desc.kind == CollectiveKind::Broadcast
                               ? ElementRange{0, desc.count}
                               : partOf(desc.count, size, owner);
  const int64_t begin = std::min(all.end, all.begin + chunk * pieceElements);
  return {begin, std::min(all.end, begin + pieceElements)};
}

void Pieces::put(const void *in, int64_t chunk, void *memory,
                 Stores stores) const {
  const int64_t divisor = desc.divide ? size : 1;
  if (hasPieceForEach()) {
    for (int owner = 0; owner < size; ++owner) {
      const ElementRange range = piece(chunk, owner);
      compressArray(at(in, desc.dtype, range.begin), desc.dtype,
                    at(memory, wire, owner * pieceElements), wire, range.size(),
                    divisor, stores);
    }
    return;
  }
  if (desc.kind == CollectiveKind::Broadcast && rank != desc.root)
    return;
  castArray(at(in, desc.dtype, chunk * pieceElements), desc.dtype, memory, wire,
            piece(chunk, rank).size(), stores);
}

Pieces::Bytes Pieces::needed(int64_t chunk, int from, int to) const {
  const int64_t bytes = dtypeSize(wire);
  if (hasPieceForEach())
    return {to * pieceElements * bytes, piece(chunk, to).size() * bytes};
  if (desc.kind == CollectiveKind::Broadcast && from != desc.root)
    return {0, 0};
  return {0, piece(chunk, from).size() * bytes};
}

/// Sums this rank's piece; zeros stand behind a short part.
void Pieces::sum(void *const *memories, int64_t chunk, void *out,
                 Stores stores) {
  const ElementRange range = piece(chunk, rank);
  const int64_t place = rank * pieceElements;
  for (int64_t i = range.begin; i < range.end;) {
    const int section = order.section(i);
    const int64_t stop = std::min(range.end, order.sectionEnd(section));
    for (int k = 0; k < size; ++k)
      ordered[static_cast<size_t>(k)] =
          at(memories[order.rankAt(section, k)], wire, place + i - range.begin);
    sumRanksDecompress(ordered.data(), size, wire,
                       at(out, desc.dtype, i - range.begin), desc.dtype,
                       stop - i, stores);
    i = stop;
  }
  const int64_t room = std::min(pieceElements, part - chunk * pieceElements);
  if (room > range.size())
    std::memset(
        at(out, desc.dtype, range.size()), 0,
        static_cast<size_t>((room - range.size()) * dtypeSize(desc.dtype)));
}

void Pieces::take(void *const *memories, int64_t chunk, void *out,
                  Stores stores) {
  const int64_t first = chunk * pieceElements;
  switch (desc.kind) {
  case CollectiveKind::AllReduce:
    break;
  case CollectiveKind::ReduceScatter:
    return sum(memories, chunk, at(out, desc.dtype, first), stores);
  case CollectiveKind::Broadcast:
    return castArray(memories[desc.root], wire, at(out, desc.dtype, first),
                     desc.dtype, piece(chunk, rank).size(), stores);
  case CollectiveKind::AllGather:
  case CollectiveKind::AllToAll:
    // Each begins with another rank: nobody is read by all at once.
    for (int k = 0; k < size; ++k) {
      const int from = (rank + k) % size;
      const ElementRange range = piece(chunk, from);
      const int64_t place = hasPieceForEach() ? rank * pieceElements : 0;
      castArray(at(memories[from], wire, place), wire,
                at(out, desc.dtype, range.begin), desc.dtype, range.size(),
                stores);
    }
    return;
  }
}
