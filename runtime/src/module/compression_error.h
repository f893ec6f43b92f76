//===- compression_error.h - what compression loses in a step ---*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// For metrics that ask for it: how far what this rank's elements are decoded to
// is from what they were. It needs no other rank and changes nothing that the
// step computes. docs/tracing.md defines the numbers.
//
//===----------------------------------------------------------------------===//
#ifndef DDPHOOK_RUNTIME_SRC_MODULE_COMPRESSION_ERROR_H
#define DDPHOOK_RUNTIME_SRC_MODULE_COMPRESSION_ERROR_H

#include "base/rounding.h"
#include "base/status.h"
#include "job/context.h"
#include "plan/plan.h"

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace ddphook {

/// Sums of squares: of what was lost of some elements, and of these.
struct LostSquares {
  double lost = 0, whole = 0;

  LostSquares &operator+=(const LostSquares &other) {
    lost += other.lost;
    whole += other.whole;
    return *this;
  }
  /// The 2-norm of what was lost by that of the elements; NaN where an element
  /// is not finite, 0 of zeros.
  double relativeError() const;
};

/// Of the last step that was measured. Calls that cannot read the device's
/// memory, as while a graph is captured, measure nothing.
class CompressionError {
public:
  CompressionError(const Context &context, const Plan &plan)
      : context(context), plan(plan) {}

  /// Forgets what was measured.
  void begin();

  /// Before collective number `number`, whose operand is `in`, over a group of
  /// `ranks`; `rounding` is how this rank's codes are rounded, if not to
  /// nearest.
  void seeCollective(int32_t number, const void *in, int64_t ranks,
                     const std::optional<Rounding> &rounding);

  /// After Qᵢ = Mᵢᵀ·Pᵢ for matrix list number `list`: Pᵢ·Qᵢᵀ is what this
  /// rank's Mᵢ is decoded to.
  void seeProduct(int32_t list, const void *matrix, const void *p,
                  const void *q);

  /// After the largest elements, `keep` of f32, were taken out of an array of
  /// `count`: they are what this rank's array is decoded to, and `rest` is what
  /// is lost.
  void seeEntries(int64_t keep, const void *entries, const void *rest,
                  int64_t count);

  /// By the names of buckets, those that were compressed.
  std::map<std::string, double> relativeErrors() const;

private:
  Status read(std::vector<char> *buffer, const void *memory, int64_t bytes,
              const void **host) const;
  Status readWidened(const void *memory, int64_t offset, int64_t count,
                     Dtype dtype, std::vector<double> *values) const;
  Status measureCodes(const PlanCollective &collective, int64_t count,
                      const void *in, const std::optional<Rounding> &rounding,
                      LostSquares *squares) const;
  Status measureProducts(const PlanMatrixList &list, const void *matrix,
                         const void *p, const void *q,
                         LostSquares *squares) const;
  Status addSquares(const void *memory, int64_t count, double *sum) const;

  const Context &context;
  const Plan &plan;
  /// By the names of buckets.
  std::map<std::string, LostSquares> ofCodes, ofParts;
  /// Of products whose Q, and of elements whose entries, have not been sent
  /// yet, by its address: the collective that sends it knows the bucket.
  std::map<const char *, LostSquares> unsent;
};

} // namespace ddphook

#endif // DDPHOOK_RUNTIME_SRC_MODULE_COMPRESSION_ERROR_H
