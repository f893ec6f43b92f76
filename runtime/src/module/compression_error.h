//===- compression_error.h - the loss of compression in a step --*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Measures, for metrics that request it, how far this rank's decoded elements
// are from the original ones. It needs no other rank and changes nothing that
// the step computes. docs/tracing.md defines the numbers.
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

/// Sums of squares of what some elements lost, and of the elements.
struct LostSquares {
  double lost = 0, whole = 0;

  LostSquares &operator+=(const LostSquares &other) {
    lost += other.lost;
    whole += other.whole;
    return *this;
  }
  /// Returns the 2-norm of the loss divided by that of the elements; NaN if an
  /// element is not finite, 0 for zeros.
  double relativeError() const;
};

/// The errors of the last measured step. Calls that cannot read device memory,
/// for example during a graph capture, measure nothing.
class CompressionError {
public:
  CompressionError(const Context &context, const Plan &plan)
      : context(context), plan(plan) {}

  /// Forgets all measurements.
  void begin();

  /// Called before collective number `number` with operand `in` over a group of
  /// `ranks`; `rounding` says how this rank's codes are rounded, if not to
  /// nearest.
  void seeCollective(int32_t number, const void *in, int64_t ranks,
                     const std::optional<Rounding> &rounding);

  /// Called after Qᵢ = Mᵢᵀ·Pᵢ for matrix list number `list`: this rank's Mᵢ
  /// decodes to Pᵢ·Qᵢᵀ.
  void seeProduct(int32_t list, const void *matrix, const void *p,
                  const void *q);

  /// Called after the `keep` largest f32 elements were extracted from an array
  /// of `count`: the array decodes to these, and `rest` is lost.
  void seeEntries(int64_t keep, const void *entries, const void *rest,
                  int64_t count);

  /// Returns the errors of all compressed buckets, by bucket name.
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
  /// The sums by bucket name.
  std::map<std::string, LostSquares> ofCodes, ofParts;
  /// Sums for products whose Q, and for elements whose entries, have not been
  /// sent yet, by its address: the collective that sends it knows the bucket.
  std::map<const char *, LostSquares> unsent;
};

} // namespace ddphook

#endif // DDPHOOK_RUNTIME_SRC_MODULE_COMPRESSION_ERROR_H
