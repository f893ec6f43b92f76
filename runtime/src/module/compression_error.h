// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Measures, for metrics that request it, how far this rank's decoded elements
// are from the original ones. It needs no other rank and changes nothing that
// the step computes. docs/tracing.md defines the numbers.

#pragma once

#include "base/status.h"
#include "job/context.h"
#include "plan/plan.h"

#include <map>
#include <string>

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

/// The errors of the last measured step, which the device computes. Calls at
/// which it cannot, for example during a graph capture, measure nothing.
class CompressionError {
public:
  CompressionError(Context &context, const Plan &plan)
      : context(context), plan(plan) {}

  /// Forgets all measurements.
  void begin();

  /// Called before collective number `number` with operand `in` in training
  /// step `step`; this is rank `rank` of its group's `ranks`.
  void seeCollective(int32_t number, const void *in, int64_t ranks,
                     int32_t rank, int64_t step);

  /// Called after Qᵢ = Mᵢᵀ·Pᵢ for the prepared `list`, which compresses a part
  /// of `bucket`: this rank's Mᵢ decodes to Pᵢ·Qᵢᵀ.
  void seeProduct(const PlanBucket &bucket, const PlanMatrixList &list,
                  ddphook_matrices_t *prepared, const void *matrix,
                  const void *p, const void *q);

  /// Called after the `keep` largest f32 elements were extracted from an array
  /// of `count`, a part of `bucket`: the array decodes to these, and `rest` is
  /// lost.
  void seeEntries(const PlanBucket &bucket, int64_t keep, const void *entries,
                  const void *rest, int64_t count);

  /// Returns the errors of all compressed buckets, by bucket name.
  std::map<std::string, double> relativeErrors() const;

private:
  /// By bucket name.
  using Sums = std::map<std::string, LostSquares>;

  template <typename Function>
  void measure(const std::string &bucket, Sums *sums, Function &&function);

  Context &context;
  const Plan &plan;
  Sums ofCodes, ofParts;
};

} // namespace ddphook
