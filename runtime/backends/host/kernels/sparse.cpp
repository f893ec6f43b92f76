// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Extracts the largest elements of f32 arrays and adds them up again.
// Magnitudes of floats are ordered like their bits. The smallest selected
// magnitude is found digit by digit, from counts of each digit's values.

#include "kernels.h"

#include <cstddef>
#include <cstring>
#include <vector>

using namespace ddphook;

/// The magnitude bits from which on floats are not finite.
constexpr uint32_t kInfinity = 0x7f800000;

static uint32_t magnitude(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits & 0x7fffffffU;
}

namespace {
/// Selects all magnitudes above `least`, and the first `ofLeast` equal to it.
struct Threshold {
  uint32_t least;
  int64_t ofLeast;
};
} // namespace

/// Finds the threshold for 0 < `keep` < `n`.
static Threshold findThreshold(const float *in, int64_t n, int64_t keep) {
  // The counts of a digit fit into the first-level cache.
  struct Digit {
    unsigned shift, bits;
  };
  constexpr Digit digits[] = {{20, 11}, {10, 10}, {0, 10}};
  uint32_t prefix = 0;
  int64_t wanted = keep;
  std::vector<int64_t> counts;
  for (const Digit digit : digits) {
    const unsigned above = digit.shift + digit.bits;
    counts.assign(size_t{1} << digit.bits, 0);
    for (int64_t i = 0; i < n; ++i) {
      const uint32_t bits = magnitude(in[i]);
      if (bits >> above == prefix >> above)
        ++counts[(bits >> digit.shift) & (counts.size() - 1)];
    }
    size_t value = counts.size() - 1;
    while (counts[value] < wanted)
      wanted -= counts[value--];
    prefix |= static_cast<uint32_t>(value) << digit.shift;
  }
  return {prefix, wanted};
}

void host::takeLargest(const float *in, int64_t n, int64_t keep, void *entries,
                       float *rest) {
  // Select all elements or none.
  Threshold threshold = {0, keep};
  if (keep == 0)
    threshold.least = ~0U;
  else if (keep < n)
    threshold = findThreshold(in, n, keep);
  auto *values = static_cast<float *>(entries);
  auto *places = static_cast<int32_t *>(entries) + keep;
  // If none is selected, zeroing would hide elements that are not finite.
  const uint32_t most = keep > 0 ? kInfinity : ~0U;
  int64_t taken = 0;
  for (int64_t i = 0; i < n; ++i) {
    const float value = in[i];
    const uint32_t bits = magnitude(value);
    bool isTaken = bits > threshold.least;
    if (bits == threshold.least && threshold.ofLeast > 0) {
      --threshold.ofLeast;
      isTaken = true;
    }
    if (isTaken) {
      values[taken] = value;
      places[taken++] = static_cast<int32_t>(i);
      rest[i] = 0;
    } else {
      rest[i] = bits < most ? value : 0;
    }
  }
}

bool host::addEntries(const void *entries, int64_t parts, int64_t keep,
                      float *out, int64_t n) {
  if (n > 0)
    std::memset(out, 0, static_cast<size_t>(n) * sizeof(*out));
  for (int64_t part = 0; part < parts; ++part) {
    const auto *values = static_cast<const float *>(entries) + part * 2 * keep;
    const auto *places =
        static_cast<const int32_t *>(entries) + (part * 2 + 1) * keep;
    for (int64_t i = 0; i < keep; ++i) {
      if (places[i] < 0 || places[i] >= n)
        return false;
      out[places[i]] += values[i];
    }
  }
  return true;
}
