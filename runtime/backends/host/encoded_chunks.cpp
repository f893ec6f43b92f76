// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The memory of a chunk holds the scales, padded to a cache line, and then the
// codes; without an encoding, elements in the wire type. Affine chunks may
// begin and end within a block and have a scale for each block that they touch.

#include "encoded_chunks.h"

#include <algorithm>
#include <cstddef>
#include <vector>

using namespace ddphook;
using namespace ddphook::host;

static constexpr int64_t kLine = 64;

static int64_t roundUp(int64_t n, int64_t unit) {
  return (n + unit - 1) / unit * unit;
}

EncodedChunks::EncodedChunks(const CollectiveDesc &desc, int rank, int ranks)
    : encoding(desc.codes()), dtype(desc.type()), wire(desc.wireType()),
      total(desc.count), ranks(ranks), divisor(desc.divide ? ranks : 1),
      rounding(desc.sumRounding), ownRounding(desc.roundingOf(rank)),
      order(desc.count, dtypeSize(wire), ranks) {}

int64_t EncodedChunks::chunkElements(int64_t bytes) const {
  if (!encoding)
    return bytes / kLine * kLine / dtypeSize(wire);
  // Affine blocks may have any size; a chunk may hold a part of a long one.
  const int64_t unit =
      encoding->block > 0 && encoding->block <= Encoding::kMostBlock
          ? encoding->block
          : Encoding::kLeastBlock;
  const int64_t unitBytes =
      encoding->codeBytes(unit) +
      (isAffine() ? int64_t{sizeof(AffineScale)} : encoding->scaleBytes(unit));
  // Leave space for padding and for the scale of one more block.
  const int64_t units = (bytes - 2 * kLine) / unitBytes;
  return std::max<int64_t>(1, units) * unit;
}

/// Returns one past the last element of the block that contains `element`.
int64_t EncodedChunks::blockEnd(int64_t element) const {
  if (encoding->block == 0)
    return total;
  return std::min(total, (element / encoding->block + 1) * encoding->block);
}

int64_t EncodedChunks::scaleRoom(int64_t begin, int64_t count) const {
  if (!isAffine())
    return roundUp(scaleBytes(count), kLine);
  const int64_t blocks =
      count == 0 ? 0
                 : blocksBefore(begin + count - 1) - blocksBefore(begin) + 1;
  return roundUp(blocks * int64_t{sizeof(AffineScale)}, kLine);
}

int64_t EncodedChunks::bytes(int64_t begin, int64_t count) const {
  return scaleRoom(begin, count) + codeBytes(count);
}

EncodedArray EncodedChunks::at(void *memory, int64_t begin, int64_t count,
                               int64_t element) const {
  char *base = static_cast<char *>(memory);
  const int64_t scales =
      isAffine() ? (blocksBefore(begin + element) - blocksBefore(begin)) *
                       int64_t{sizeof(AffineScale)}
                 : scaleBytes(element);
  return {base + scaleRoom(begin, count) + codeBytes(element), base + scales};
}

void EncodedChunks::encode(const void *in, int64_t begin, int64_t count,
                           void *memory, Stores stores) {
  if (isAffine())
    return encodeAffineBlocks(in, begin, count, memory);
  const void *own = elementAt(in, dtype, begin);
  if (encoding)
    encodeArray(own, dtype, count, *encoding, at(memory, begin, count, 0),
                from(ownRounding, begin));
  else
    compressArray(own, dtype, memory, wire, count, divisor, stores);
}

void EncodedChunks::encodeAffineBlocks(const void *in, int64_t begin,
                                       int64_t count, void *memory) {
  for (int64_t i = begin; i < begin + count;) {
    const int64_t end = blockEnd(i);
    const bool beginsBlock =
        i == 0 || (encoding->block != 0 && i % encoding->block == 0);
    if (beginsBlock)
      current = findAffineScale(encoding->code, elementAt(in, dtype, i), dtype,
                                end - i);
    const int64_t stop = std::min(end, begin + count);
    const EncodedArray place = at(memory, begin, count, i - begin);
    *static_cast<AffineScale *>(place.scales) = current;
    encodeAffine(encoding->code, elementAt(in, dtype, i), dtype, stop - i,
                 current, static_cast<uint8_t *>(place.codes));
    i = stop;
  }
}

/// Parts without an encoding end at cache lines, each of one rank.
ElementRange EncodedChunks::part(int64_t count, int part, int parts) const {
  const int64_t granule =
      encoding ? encoding->granule() : kLine / dtypeSize(wire);
  const int64_t granules = (count + granule - 1) / granule;
  const int64_t each = (granules + parts - 1) / parts * granule;
  return {std::min(count, part * each), std::min(count, (part + 1) * each)};
}

void EncodedChunks::sum(void *const *memories, int64_t begin, int64_t count,
                        ElementRange range, void *out, Stores stores) {
  if (range.size() == 0)
    return;
  if (encoding) {
    std::vector<EncodedArray> sources;
    for (int k = 0; k < ranks; ++k)
      sources.push_back(at(memories[k], begin, count, range.begin));
    return sumEncoded(sources.data(), ranks, *encoding, range.size(), divisor,
                      at(out, begin, count, range.begin),
                      from(rounding, begin + range.begin));
  }
  ordered.resize(static_cast<size_t>(ranks));
  for (int64_t i = range.begin; i < range.end;) {
    const int section = order.section(begin + i);
    const int64_t stop = std::min(range.end, order.sectionEnd(section) - begin);
    for (int k = 0; k < ranks; ++k)
      ordered[k] = elementAt(memories[order.rankAt(section, k)], wire, i);
    sumRanks(ordered.data(), ranks, elementAt(out, wire, i), wire, stop - i,
             stores);
    i = stop;
  }
}

void EncodedChunks::decode(void *memory, int64_t begin, int64_t count,
                           ElementRange range, void *out, Stores stores) const {
  if (range.size() == 0)
    return;
  const EncodedArray codes = at(memory, begin, count, range.begin);
  char *const to = elementAt(out, dtype, begin + range.begin);
  const int64_t n = range.size();
  if (encoding)
    decodeArray(codes, *encoding, n, to, dtype, stores);
  else
    castArray(codes.codes, wire, to, dtype, n, stores);
}

void EncodedChunks::average(void *const *memories, int64_t begin, int64_t count,
                            void *out) const {
  std::vector<const uint8_t *> codes(static_cast<size_t>(ranks));
  std::vector<AffineScale> scales(static_cast<size_t>(ranks));
  for (int64_t i = begin; i < begin + count;) {
    const int64_t stop = std::min(blockEnd(i), begin + count);
    for (size_t k = 0; k < codes.size(); ++k) {
      const EncodedArray place = at(memories[k], begin, count, i - begin);
      codes[k] = static_cast<const uint8_t *>(place.codes);
      scales[k] = *static_cast<const AffineScale *>(place.scales);
    }
    averageAffine(encoding->code, codes.data(), scales.data(), ranks, stop - i,
                  divisor, elementAt(out, dtype, i), dtype);
    i = stop;
  }
}

/// Rounds to the wire type, a chunk at a time, to stay in the cache.
static void roundAlone(const CollectiveDesc &desc, const void *in, void *out) {
  if (desc.wireType() == desc.type()) {
    if (in != out && desc.count > 0)
      copyBytes(out, in, desc.memoryBytes());
    return;
  }
  constexpr int64_t block = 8192;
  alignas(64) double wire[block];
  for (int64_t begin = 0; begin < desc.count; begin += block) {
    const int64_t n = std::min(block, desc.count - begin);
    castArray(elementAt(in, desc.type(), begin), desc.type(), wire,
              desc.wireType(), n);
    castArray(wire, desc.wireType(), elementAt(out, desc.type(), begin),
              desc.type(), n);
  }
}

void host::reduceAlone(const CollectiveDesc &desc, const void *in, void *out) {
  if (!desc.encoding)
    return roundAlone(desc, in, out);
  constexpr int64_t chunkBytes = 64 << 10;
  EncodedChunks chunks(desc, /*rank=*/0, /*ranks=*/1);
  const int64_t step = chunks.chunkElements(chunkBytes);
  std::vector<std::max_align_t> room(chunkBytes / sizeof(std::max_align_t));
  void *memory = room.data();
  for (int64_t begin = 0; begin < desc.count; begin += step) {
    const int64_t count = std::min(step, desc.count - begin);
    chunks.encode(in, begin, count, memory);
    if (desc.codes()->isAffine()) {
      chunks.average(&memory, begin, count, out);
      continue;
    }
    if (isReduction(desc.collectiveKind()))
      chunks.sum(&memory, begin, count, {0, count}, memory);
    chunks.decode(memory, begin, count, {0, count}, out);
  }
}

void host::feedBackError(const CollectiveDesc &desc, int rank, const void *in,
                         void *error, void *out) {
  // Both passes work on a few blocks at a time, which stay in the caches.
  constexpr int64_t most = int64_t{1} << 14;
  const Dtype type = desc.type();
  const int64_t block = std::max<int64_t>(desc.codes()->block, 1);
  const int64_t elements = most / block * block;
  for (int64_t begin = 0; begin < desc.count; begin += elements) {
    const int64_t n = std::min(elements, desc.count - begin);
    char *sum = elementAt(out, type, begin);
    char *kept = elementAt(error, type, begin);
    addArrays(sum, elementAt(in, type, begin), kept, type, n);
    encodingError(sum, kept, type, n, *desc.codes(),
                  from(desc.roundingOf(rank), begin));
  }
}
