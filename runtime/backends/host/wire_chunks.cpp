// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The memory of a chunk holds its elements in the wire type, contiguously.

#include "wire_chunks.h"

#include "kernels.h"

#include <algorithm>

using namespace ddphook;
using namespace ddphook::host;

static constexpr int64_t kLine = 64;

WireChunks::WireChunks(const CollectiveDesc &desc, int ranks)
    : dtype(desc.type()), wire(desc.wireType()), ranks(ranks),
      divisor(desc.divide ? ranks : 1),
      order(desc.count, dtypeSize(wire), ranks),
      ordered(static_cast<size_t>(ranks)) {}

int64_t WireChunks::chunkElements(int64_t bytes) const {
  return bytes / kLine * kLine / dtypeSize(wire);
}

EncodedArray WireChunks::at(void *memory, int64_t, int64_t,
                            int64_t element) const {
  return {elementAt(memory, wire, element), memory};
}

WireChunks::Range WireChunks::part(int64_t count, int part, int parts) const {
  const int64_t line = kLine / dtypeSize(wire);
  const int64_t lines = (count + line - 1) / line;
  const int64_t each = (lines + parts - 1) / parts * line;
  return {std::min(count, part * each), std::min(count, (part + 1) * each)};
}

void WireChunks::encode(const void *in, int64_t begin, int64_t count,
                        void *memory) const {
  compressArray(elementAt(in, dtype, begin), dtype, memory, wire, count,
                divisor);
}

void WireChunks::sum(void *const *memories, int64_t begin, int64_t, Range range,
                     void *out) {
  for (int64_t i = range.begin; i < range.end;) {
    const int section = order.section(begin + i);
    const int64_t stop = std::min(range.end, order.sectionEnd(section) - begin);
    for (int k = 0; k < ranks; ++k)
      ordered[static_cast<size_t>(k)] =
          elementAt(memories[order.rankAt(section, k)], wire, i);
    sumRanks(ordered.data(), ranks, elementAt(out, wire, i), wire, stop - i);
    i = stop;
  }
}

void WireChunks::decode(void *memory, int64_t begin, int64_t, Range range,
                        void *out) const {
  castArray(elementAt(memory, wire, range.begin), wire,
            elementAt(out, dtype, begin + range.begin), dtype,
            range.end - range.begin);
}
