// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Floating-point sums depend on the order of additions. Every transport adds in
// the order of Gloo's ring, which docs/parity.md specifies. It depends on the
// element's index and the collective's size, not on who adds.

#pragma once

#include <algorithm>
#include <cstdint>

namespace ddphook::host {

/// The ring cuts `count` elements into up to `size` sections. Element i of
/// section s is x[s-1], then x[s-2] + that, …, finally x[s] + that, with rank
/// numbers modulo `size`.
class RingOrder {
public:
  RingOrder(int64_t count, int64_t elementBytes, int size) : size(size) {
    auto divideUp = [](int64_t a, int64_t b) { return (a + b - 1) / b; };
    const int64_t bytes = count * elementBytes;
    const int64_t maxSegment = (1 << 20) / elementBytes * elementBytes;
    const int64_t segments =
        divideUp(std::max<int64_t>(divideUp(bytes, maxSegment), 2 * size),
                 size) *
        size;
    const int64_t segmentElements =
        divideUp(divideUp(bytes, segments), elementBytes);
    sectionElements = std::max<int64_t>(1, segmentElements * (segments / size));
  }

  int section(int64_t index) const { return index / sectionElements; }

  /// Returns one past the last element of a section; may exceed the array.
  int64_t sectionEnd(int section) const {
    return (section + 1) * sectionElements;
  }

  /// Returns the rank whose element is number `position` (from 0) in the sum.
  int rankAt(int section, int position) const {
    return (section + 2 * size - 1 - position) % size;
  }

private:
  int size;
  int64_t sectionElements;
};

} // namespace ddphook::host
