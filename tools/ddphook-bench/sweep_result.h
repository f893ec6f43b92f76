//===- sweep_result.h - measurements of a sweep -----------------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The numbers of a sweep and the bandwidths that follow from them. The
// definitions are those of nccl-tests' PERFORMANCE.md for an all-reduce.
//
//===----------------------------------------------------------------------===//
#ifndef DDPHOOK_BENCH_SWEEP_RESULT_H
#define DDPHOOK_BENCH_SWEEP_RESULT_H

#include "base/dtype.h"
#include "report.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace ddphook::bench {

/// One buffer, reduced into another one or in place.
struct SweepTiming {
  /// Time of one run on the slowest rank, per round.
  Samples samples;
  /// Wrong elements on all ranks, unless not checked.
  std::optional<int64_t> wrong;

  double seconds() const { return samples.median(); }
};

struct SweepRow {
  std::string hook;
  Dtype dtype, wire;
  int64_t count = 0;
  SweepTiming outOfPlace, inPlace;

  int64_t bytes() const { return count * dtypeSize(dtype); }
  int64_t wireBytes() const { return count * dtypeSize(wire); }
};

struct SweepResult {
  int worldSize = 1;
  int machines = 1;
  std::string backend, transport;
  bool isMean = false;
  std::vector<SweepRow> rows;

  /// Bytes of the buffer per second, in GB/s of 10⁹ bytes.
  double algorithmBandwidth(const SweepRow &row,
                            const SweepTiming &timing) const {
    return perNanosecond(row.bytes(), timing);
  }
  /// Bytes that each rank's link carries in each direction per second, in GB/s:
  /// bytes on the wire times 2 (n − 1) / n, whatever the algorithm.
  double busBandwidth(const SweepRow &row, const SweepTiming &timing) const {
    return perNanosecond(row.wireBytes(), timing) * 2 * (worldSize - 1) /
           worldSize;
  }
  /// The mean over all rows, in and out of place.
  double meanBusBandwidth() const;
  /// Wrong elements of all rows, unless none was checked.
  std::optional<int64_t> wrong() const;

private:
  static double perNanosecond(int64_t bytes, const SweepTiming &timing) {
    const double seconds = timing.seconds();
    return seconds > 0 ? static_cast<double>(bytes) / seconds * 1e-9 : 0;
  }
};

/// The parts of the table: lines above the rows, a row, lines below.
std::string sweepHeader(const SweepResult &result);
std::string sweepLine(const SweepResult &result, const SweepRow &row);
std::string sweepFooter(const SweepResult &result);

/// The whole result, for files.
std::string sweepCsv(const SweepResult &result);
std::string sweepJson(const SweepResult &result);

} // namespace ddphook::bench

#endif // DDPHOOK_BENCH_SWEEP_RESULT_H
