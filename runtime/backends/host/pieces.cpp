// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A chunk's memory holds each rank's piece, or the one that all ranks need.

#include "pieces.h"

#include <algorithm>
#include <cstring>

using namespace ddphook;
using namespace ddphook::host;

/// Returns the elements of a piece if `pieces` of them take `bytes` bytes:
/// whole cache lines if these fit, so that two ranks seldom read the same line.
static int64_t chooseElements(int64_t bytes, int64_t pieces,
                              int64_t elementBytes) {
  const int64_t line = 64 / elementBytes;
  const int64_t most = std::max<int64_t>(1, bytes / (pieces * elementBytes));
  return most < line ? most : most / line * line;
}

Pieces::Pieces(const CollectiveDesc &desc, int rank, int size, int64_t bytes)
    : desc(desc), rank(rank), size(size), wire(desc.wireType()),
      part(desc.longestPart(size)), window(desc.windowOf(size)),
      order(desc.count, dtypeSize(wire), size), ordered(size) {
  if (desc.encoding) {
    chooseEncoded(bytes);
    return;
  }
  pieceElements =
      chooseElements(bytes, hasPieceForEach() ? size : 1, dtypeSize(wire));
  extent = desc.is(CollectiveKind::Broadcast) ? desc.count : window.size();
  pieceElements = std::min(pieceElements, std::max<int64_t>(1, extent));
  chunkCount = (extent + pieceElements - 1) / pieceElements;
}

int64_t Pieces::totalBytes(const CollectiveDesc &desc, int size) {
  if (desc.encoding)
    return desc.wireBytesOf(
        inputElements(desc.collectiveKind(), desc.count, size));
  const int64_t elements =
      !desc.window ? inputElements(desc.collectiveKind(), desc.count, size)
      : desc.is(CollectiveKind::AllGather) ? desc.window->size()
                                           : size * desc.window->size();
  return elements * dtypeSize(desc.wireType());
}

/// Returns the elements of the whole array that a chunk holds of a rank's part,
/// or of a broadcast.
ElementRange Pieces::piece(int64_t chunk, int owner) const {
  const ElementRange all = desc.is(CollectiveKind::Broadcast)
                               ? ElementRange{0, desc.count}
                               : desc.partOf(size, owner);
  const int64_t most = std::min(pieceElements, extent - chunk * pieceElements);
  const int64_t begin = std::min(all.end, all.begin + firstOf(chunk));
  return {begin, std::min(all.end, begin + most)};
}

/// True if a sum reads this rank's own elements from the input instead of the
/// chunk's memory. With few ranks, copying them is a large part of the work.
bool Pieces::leavesOwn() const {
  return desc.is(CollectiveKind::ReduceScatter) && wire == desc.type() &&
         (!desc.divide || (size == 2 && wire == Dtype::F32));
}

void Pieces::put(const void *in, int64_t chunk, void *memory,
                 Stores stores) const {
  if (desc.encoding) {
    const ElementRange ranks = owners(chunk);
    for (auto owner = ranks.begin; owner < ranks.end; ++owner) {
      const ElementRange range = encodedPiece(chunk, owner);
      const int64_t first = hasPieceForEach() ? range.begin : firstOf(chunk);
      encodeArray(elementAt(in, desc.type(), first), desc.type(), range.size(),
                  *desc.codes(), place(memory, chunk, owner),
                  from(desc.roundingOf(rank), range.begin));
    }
    return;
  }
  const int64_t divisor = desc.divide ? size : 1;
  if (hasPieceForEach()) {
    for (int owner = 0; owner < size; ++owner) {
      if (owner == rank && leavesOwn())
        continue;
      const ElementRange range = piece(chunk, owner);
      compressArray(elementAt(in, desc.type(), range.begin), desc.type(),
                    elementAt(memory, wire, owner * pieceElements), wire,
                    range.size(), divisor, stores);
    }
    return;
  }
  if (desc.is(CollectiveKind::Broadcast) && rank != desc.root)
    return;
  castArray(elementAt(in, desc.type(), firstOf(chunk)), desc.type(), memory,
            wire, piece(chunk, rank).size(), stores);
}

Pieces::Bytes Pieces::needed(int64_t chunk, int from, int to) const {
  if (desc.encoding) {
    const ElementRange ranks = owners(chunk);
    if (hasPieceForEach() && (to < ranks.begin || to >= ranks.end))
      return {0, 0};
    const int64_t elements =
        encodedPiece(chunk, hasPieceForEach() ? to : from).size();
    return {hasPieceForEach() ? (to - ranks.begin) * pieceBytes : 0,
            elements == 0 ? 0 : scaleRoom + desc.codes()->codeBytes(elements)};
  }
  const int64_t bytes = dtypeSize(wire);
  if (hasPieceForEach())
    return {to * pieceElements * bytes, piece(chunk, to).size() * bytes};
  if (desc.is(CollectiveKind::Broadcast) && from != desc.root)
    return {0, 0};
  return {0, piece(chunk, from).size() * bytes};
}

/// Sums `count` elements of one section from element `begin` of the array.
/// `own` points to this rank's elements; `place` is the offset of the others'
/// elements in `memories`.
void Pieces::sumRange(const void *own, void *const *memories, int64_t begin,
                      int64_t count, int64_t place, void *out, Stores stores) {
  const int section = order.section(begin);
  if (leavesOwn() && desc.divide)
    return addDividedToPeer(static_cast<const float *>(own), size,
                            reinterpret_cast<const float *>(
                                elementAt(memories[1 - rank], wire, place)),
                            order.rankAt(section, 0) == rank,
                            static_cast<float *>(out), count, stores);
  for (int k = 0; k < size; ++k) {
    const int source = order.rankAt(section, k);
    ordered[k] = source == rank && leavesOwn()
                     ? own
                     : elementAt(memories[source], wire, place);
  }
  sumRanksDecompress(ordered.data(), size, wire, out, desc.type(), count,
                     stores);
}

/// Sums this rank's piece; zeros follow a short part if parts have equal size.
void Pieces::sum(const void *in, void *const *memories, int64_t chunk,
                 void *out, Stores stores) {
  const ElementRange range = piece(chunk, rank);
  const int64_t place = rank * pieceElements;
  for (int64_t i = range.begin; i < range.end;) {
    const int64_t stop =
        std::min(range.end, order.sectionEnd(order.section(i)));
    const int64_t offset = i - range.begin;
    sumRange(elementAt(in, desc.type(), i), memories, i, stop - i,
             place + offset, elementAt(out, desc.type(), offset), stores);
    i = stop;
  }
  const int64_t room =
      desc.part_ends ? 0 : std::min(pieceElements, window.end - firstOf(chunk));
  if (room > range.size())
    std::memset(elementAt(out, desc.type(), range.size()), 0,
                (room - range.size()) * dtypeSize(desc.type()));
}

void Pieces::take(const void *in, void *const *memories, int64_t chunk,
                  void *out, Stores stores) {
  if (desc.encoding && hasPieceForEach())
    return sumCodes(memories, chunk, out);
  switch (desc.collectiveKind()) {
  case CollectiveKind::AllReduce:
    break;
  case CollectiveKind::ReduceScatter:
    return sum(in, memories, chunk, elementAt(out, desc.type(), firstOf(chunk)),
               stores);
  case CollectiveKind::Broadcast:
    return castArray(memories[desc.root], wire,
                     elementAt(out, desc.type(), chunk * pieceElements),
                     desc.type(), piece(chunk, rank).size(), stores);
  case CollectiveKind::AllGather:
  case CollectiveKind::AllToAll:
    // Each rank starts with another one, so that none is read by all at once.
    for (int k = 0; k < size; ++k) {
      const int from = (rank + k) % size;
      const ElementRange range = piece(chunk, from);
      void *const to = elementAt(out, desc.type(), range.begin);
      const int64_t first = hasPieceForEach() ? rank * pieceElements : 0;
      if (desc.encoding)
        decodeArray(place(memories[from], chunk, rank), *desc.codes(),
                    range.size(), to, desc.type(), stores);
      else
        castArray(elementAt(memories[from], wire, first), wire, to, desc.type(),
                  range.size(), stores);
    }
    return;
  }
}

//===----------------------------------------------------------------------===//
// Encodings.
//===----------------------------------------------------------------------===//

static int64_t roundUp(int64_t n, int64_t unit) {
  return (n + unit - 1) / unit * unit;
}

void Pieces::chooseEncoded(int64_t bytes) {
  constexpr int64_t line = 64;
  const Encoding encoding = *desc.codes();
  unit = std::max<int64_t>(1, encoding.block);
  // A part may touch an incomplete block at each end.
  extent = (part + 2 * unit - 2) / unit * unit;
  const int64_t least = unit == 1 ? line : unit;
  auto room = [&](int64_t elements) {
    return roundUp(encoding.scaleBytes(elements), line) +
           roundUp(encoding.codeBytes(elements), line);
  };
  const int64_t most = hasPieceForEach() ? size : 1;
  ownersOfChunk = std::clamp<int64_t>(bytes / room(least), 1, most);
  // Rounding adds less to many blocks than to one.
  pieceElements =
      std::max<int64_t>(1, bytes / (ownersOfChunk * room(least))) * least;
  pieceElements = std::min(pieceElements, extent);
  scaleRoom = roundUp(encoding.scaleBytes(pieceElements), line);
  pieceBytes = room(pieceElements);
  chunkCount = (extent + pieceElements - 1) / pieceElements *
               ((most + ownersOfChunk - 1) / ownersOfChunk);
  summed.resize(static_cast<size_t>(pieceBytes));
  decoded.resize(static_cast<size_t>(unit * dtypeSize(desc.type())));
}

/// Returns the elements of the blocks that a rank's part touches.
ElementRange Pieces::span(int owner) const {
  const ElementRange own = partOf(desc.count, size, owner);
  if (own.size() == 0)
    return own;
  return {own.begin / unit * unit,
          std::min(desc.count, roundUp(own.end, unit))};
}

/// Returns the ranks of which a chunk holds pieces.
ElementRange Pieces::owners(int64_t chunk) const {
  if (!hasPieceForEach())
    return {rank, rank + 1};
  const int64_t groups = (size + ownersOfChunk - 1) / ownersOfChunk;
  const int64_t begin = chunk % groups * ownersOfChunk;
  return {begin, std::min<int64_t>(size, begin + ownersOfChunk)};
}

ElementRange Pieces::encodedPiece(int64_t chunk, int owner) const {
  if (!hasPieceForEach())
    return piece(chunk, owner);
  const int64_t groups = (size + ownersOfChunk - 1) / ownersOfChunk;
  const ElementRange all = span(owner);
  const int64_t begin =
      std::min(all.end, all.begin + chunk / groups * pieceElements);
  return {begin, std::min(all.end, begin + pieceElements)};
}

EncodedArray Pieces::place(void *memory, int64_t chunk, int owner) const {
  char *base =
      static_cast<char *>(memory) + (owner - owners(chunk).begin) * pieceBytes;
  return {base + scaleRoom, base};
}

/// Sums this rank's piece, encodes the sum as an all-reduce does, and decodes
/// the elements within the rank's part; zeros follow a short part.
void Pieces::sumCodes(void *const *memories, int64_t chunk, void *out) {
  const ElementRange own = partOf(desc.count, size, rank);
  if (chunk == 0)
    std::memset(elementAt(out, desc.type(), own.size()), 0,
                (part - own.size()) * dtypeSize(desc.type()));
  const ElementRange ranks = owners(chunk);
  const ElementRange piece = encodedPiece(chunk, rank);
  if (rank < ranks.begin || rank >= ranks.end || piece.size() == 0)
    return;
  const Encoding encoding = *desc.codes();
  std::vector<EncodedArray> sources;
  for (int k = 0; k < size; ++k)
    sources.push_back(place(memories[k], chunk, rank));
  const EncodedArray sum = {summed.data() + scaleRoom, summed.data()};
  sumEncoded(sources.data(), size, encoding, piece.size(),
             desc.divide ? size : 1, sum, from(desc.sumRounding, piece.begin));

  const int64_t end = std::min(piece.end, own.end);
  int64_t i = piece.begin;
  // The part starts within a block that the previous part shares.
  if (i < own.begin) {
    const int64_t stop = std::min(end, i + unit);
    decodeArray(sum, encoding, stop - i, decoded.data(), desc.type());
    std::memcpy(out, elementAt(decoded.data(), desc.type(), own.begin - i),
                (stop - own.begin) * dtypeSize(desc.type()));
    i = stop;
  }
  if (i < end)
    decodeArray(
        {static_cast<char *>(sum.codes) + encoding.codeBytes(i - piece.begin),
         static_cast<char *>(sum.scales) +
             encoding.scaleBytes(i - piece.begin)},
        encoding, end - i, elementAt(out, desc.type(), i - own.begin),
        desc.type());
}
