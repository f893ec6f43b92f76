//===- powersgd_bucket.h - PowerSGD on a bucket, to be timed ----*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The calls of compiled code for one bucket under PowerSGD, with error feedback
// and warm start, on any backend.
//
//===----------------------------------------------------------------------===//
#ifndef DDPHOOK_BENCH_POWERSGD_BUCKET_H
#define DDPHOOK_BENCH_POWERSGD_BUCKET_H

#include "base/status.h"
#include "work_device.h"

#include <array>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace ddphook::bench {

/// The tensors of a bucket: matrices, and vectors, which are not compressed.
struct BucketShape {
  std::string name;
  std::vector<std::vector<int64_t>> tensors;

  int64_t elements() const;
};

/// Layers of weights and biases; the last one has the remaining rows.
BucketShape layers(int64_t elements);
/// One matrix of 64 columns.
BucketShape tall(int64_t elements);
/// `count` square matrices.
BucketShape squares(int64_t elements, int64_t count);

/// Returns element `i` of a gradient, in (-1, 1), whose matrices have full
/// rank; the other benchmarks' input has a very low rank. Rank k of a job has
/// the elements from k·n on.
float fullRankElement(int64_t i);

/// Returns the norm, and four sums with random signs; see torch_hooks.py.
std::array<double, 5> fingerprint(const float *x, int64_t n);

/// Returns true if two descriptions of a bucket describe equal numbers. Sums
/// with random signs differ by about the norm of the difference, which
/// docs/parity.md bounds by 1.5e-5 of the largest element.
bool areNear(const std::vector<double> &ours,
             const std::vector<double> &theirs);

class PowerSgdBucket;

/// Checks the first step in a group of one, whatever the arithmetic: G = out +
/// E, and E is orthogonal to the approximation, so their squared norms add up
/// to G's. A norm is accurate to far less than 1e-4.
Status checkFirstStep(const PowerSgdBucket &bucket, bool *right);

/// All-reduces an array of f32 in place: the sum over ranks.
using Reduce = std::function<Status(void *data, int64_t count)>;

/// A bucket of f32 under PowerSGD.
class PowerSgdBucket {
public:
  /// `device` must outlive it. `rank` is that of the approximation. A list has
  /// at most `groupElements` elements, but whole matrices.
  PowerSgdBucket(WorkDevice &device, const BucketShape &shape, int64_t rank,
                 int64_t groupElements);
  ~PowerSgdBucket();

  /// Allocates memory, and creates the gradient of a job's rank and PyTorch's
  /// state before its first compressed step.
  Status prepare(int jobRank = 0);
  Status reset();

  /// Runs one compressed step on `worldSize` ranks; without `reduce`, all but
  /// its collectives.
  Status step(const Reduce &reduce = nullptr, int64_t worldSize = 1);

  /// Copy the result and the error, `elements()` numbers each.
  Status readResult(std::vector<float> *values) const;
  Status readError(std::vector<float> *values) const;
  /// Returns the fingerprints of both, ten numbers.
  Status describe(std::vector<double> *values) const;
  int64_t elements() const { return n; }

private:
  /// A matrix list as in plans, and its prepared form.
  struct List {
    std::vector<ddphook_matrix_t> matrices;
    std::vector<ddphook_piece_t> pieces;
    int64_t begin = 0, end = 0;
    // Offsets of its factors. P and the rest are one array, so that one message
    // carries both.
    int64_t packedBegin = 0, packedEnd = 0, qBegin = 0, qEnd = 0;
    ddphook_matrices_t *prepared = nullptr;
  };

  void addTensor(const std::vector<int64_t> &tensor, int64_t rank,
                 int64_t offset);

  Status read(const DeviceArray &array, std::vector<float> *values) const;
  Status finishReduction(const List &list, const Reduce &reduce,
                         int64_t worldSize, bool isQ);

  WorkDevice &device;
  const int64_t n;
  std::vector<List> lists;
  std::vector<int64_t> draws;
  int64_t packedSize = 0, qSize = 0;
  std::unique_ptr<DeviceArray> g, e, out, packed, q;
};

} // namespace ddphook::bench

#endif // DDPHOOK_BENCH_POWERSGD_BUCKET_H
