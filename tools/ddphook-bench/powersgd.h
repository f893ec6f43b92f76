// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The calls of compiled code for one bucket under PowerSGD, with error feedback
// and warm start, on any backend.

#pragma once

#include "bench.h"

namespace ddphook::bench {

/// The tensors of a bucket: matrices, and vectors, which are not compressed.
struct BucketShape {
  std::string name;
  std::vector<std::vector<int64_t>> tensors;

  int64_t elements() const;
  /// The job of torch_hooks.py.
  Json torch(int64_t rank) const;
};

/// Layers of weights and biases; the last one has the remaining rows.
BucketShape layers(int64_t elements);
/// `count` square matrices, or tall ones of `columns` columns.
BucketShape matrices(int64_t elements, int64_t count, int64_t columns = 0);

/// PyTorch's rule, with its default rate of at least 2.
bool isCompressed(const std::vector<int64_t> &tensor, int64_t rank);

/// The bytes of an element that the three passes move: they read G and E and
/// write M; read M; read M and write the result and E.
constexpr int64_t kPowerSgdBytes = 28;

/// A bucket of f32 under PowerSGD.
class PowerSgd {
public:
  /// `rank` is that of the approximation. A list of matrices has at most
  /// `groupElements` elements, but whole matrices. Without a group, steps omit
  /// the collectives.
  PowerSgd(Context &context, const BucketShape &shape, int64_t rank,
           int64_t groupElements, Group *group = nullptr);
  ~PowerSgd();

  /// Allocates memory, and creates the state before the first compressed step.
  Status prepare();
  Status step();

  /// Checks the first step. In a group of one, whatever the arithmetic: G = out
  /// + E, and E is orthogonal to the approximation, so their squared norms add
  /// up to G's. In a larger one, that all ranks have the same result.
  Status checkFirstStep(bool *right);

private:
  /// Offsets in the bucket and in the factors. P and the rest are one array, so
  /// that one message carries both.
  struct Offsets {
    int64_t bucket = 0, packed = 0, q = 0;
  };
  /// A matrix list as in plans, and its prepared form.
  struct List {
    std::vector<ddphook_matrix_t> matrices;
    std::vector<ddphook_piece_t> pieces;
    Offsets begin, end;
    ddphook_matrices_t *prepared = nullptr;
  };

  Status reduce(float *data, int64_t count);
  Status divide(float *data, int64_t count);

  Context &context;
  Group *const group;
  const int64_t n;
  std::vector<List> lists;
  std::vector<int64_t> draws;
  Offsets total;
  Array g, e, out, packed, q;
};

} // namespace ddphook::bench
