//===- sweep_values.h - inputs whose sums are exact -------------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What ranks contribute to a sweep's all-reduces, and what must come out: small
// whole numbers, which no order of additions and no type on the wire can round.
// A wrong element is a wrong element, whatever the arithmetic. That roundings
// are PyTorch's is the business of other tests.
//
//===----------------------------------------------------------------------===//
#ifndef DDPHOOK_BENCH_SWEEP_VALUES_H
#define DDPHOOK_BENCH_SWEEP_VALUES_H

#include "base/dtype.h"

#include <cstdint>
#include <optional>
#include <vector>

namespace ddphook::bench {

class SweepValues {
public:
  /// `wire` is the type in which values travel, `isMean` whether they are
  /// divided by the number of ranks first. Nothing if there are so many ranks
  /// that the narrower type must round.
  static std::optional<SweepValues> create(Dtype dtype, Dtype wire, bool isMean,
                                           int worldSize);

  /// Bytes of `count` elements of a rank's input.
  std::vector<char> input(int rank, int64_t count) const;

  /// How many of `count` elements at `result` are not as they must be.
  int64_t countWrong(const void *result, int64_t count) const;

private:
  SweepValues(Dtype dtype, bool isMean, int worldSize, int64_t largest)
      : dtype(dtype), isMean(isMean), worldSize(worldSize), largest(largest) {}

  int64_t contribution(int rank, int64_t i) const;
  /// `count` elements that repeat `period`.
  std::vector<char> repeat(const std::vector<int64_t> &period,
                           int64_t count) const;

  Dtype dtype;
  bool isMean;
  int worldSize;
  int64_t largest;
};

/// The bits of a whole number in a type that has it.
uint64_t bitsOfInteger(int64_t value, Dtype dtype);

} // namespace ddphook::bench

#endif // DDPHOOK_BENCH_SWEEP_VALUES_H
