// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The inputs of a sweep's all-reduces and their expected results: small
// integers, which neither the order of additions nor the wire type can round.
// So every difference is an error.

#pragma once

#include "base/dtype.h"

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

namespace ddphook::bench {

class SweepValues {
public:
  /// `wire` is the type on the wire; `isMean` means that values are first
  /// divided by the number of ranks. Returns nothing if there are so many ranks
  /// that the narrower type must round.
  static std::optional<SweepValues> create(Dtype dtype, Dtype wire, bool isMean,
                                           int worldSize);

  /// Returns the bytes of `count` elements of a rank's input.
  std::vector<char> input(int rank, int64_t count) const;

  /// Counts wrong elements among `count` at `result`.
  int64_t countWrong(const void *result, int64_t count) const;

private:
  SweepValues(Dtype dtype, bool isMean, int worldSize, int64_t largest)
      : dtype(dtype), isMean(isMean), worldSize(worldSize), largest(largest) {}

  int64_t contribution(int rank, int64_t i) const;
  /// Returns `count` elements that repeat the first values of `element`.
  std::vector<char> repeat(const std::function<int64_t(int64_t i)> &element,
                           int64_t count) const;

  Dtype dtype;
  bool isMean;
  int worldSize;
  int64_t largest;
};

} // namespace ddphook::bench
